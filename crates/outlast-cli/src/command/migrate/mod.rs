//! `outlast migrate`: brings the schema of a database up to this program, or says what that would do.

mod blockers;

use clap::{Args, ValueEnum};
use outlast_postgres::migrate::{self, Migrated, Plan};
use serde::Serialize;
use tokio_postgres::types::Type;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Out, text},
    problem::{Answer, Problem, Tried},
    settings::{Base, Effective, Set},
};

#[derive(Debug, Args)]
#[command(after_help = "\
Two runs at once are safe: they take turns. A run that was killed goes on where it stopped: each step
is one transaction. No step waits longer than 0.3 s for a lock before it lets the others pass, so emits
never queue behind it for long.

Examples:
  outlast migrate plan                     what would be done; changes nothing
  outlast migrate                          do it
  outlast migrate --deployment production  and name the database: a copy is not taken for it
  outlast migrate status                   exit code 4 unless the schema is what it should be
  outlast migrate --sql > outlast.sql      for reviewed DDL: psql -1 -f outlast.sql
  outlast migrate --schema billing         a second installation in the same database

It makes four roles that cannot log in: outlast_owner, outlast_emitter, outlast_engine, outlast_reader.
Grant them to your logins: grant outlast_engine to app. What this login may not do is printed.")]
pub(crate) struct Migrate {
    /// What to do
    #[arg(value_enum, default_value = "run")]
    what: What,
    /// Print the whole schema as one SQL file instead, for an empty database; needs none
    #[arg(long, conflicts_with = "deployment")]
    sql: bool,
    /// Name the database; workers that are configured for another name refuse to work on it
    #[arg(long, value_name = "NAME")]
    deployment: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Apply what is pending
    Run,
    /// Show what is pending; change nothing
    Plan,
    /// The same, and exit code 4 when something is pending
    Status,
}

impl Migrate {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        if self.sql {
            let effective = Effective::load(global, &Set::default(), &Base::default())?;
            out.raw(migrate::of(effective.schema()).sql().as_bytes())?;
            return Ok(Exit::Done);
        }
        match (self.what, &self.deployment) {
            (What::Run, deployment) => run(global, deployment.as_deref()).await,
            (_, Some(_)) => {
                let wrong = Problem::new(
                    Exit::Usage,
                    "migrate",
                    "--deployment names the database when it is migrated",
                );
                Err(wrong.next("outlast migrate run --deployment NAME"))
            }
            (What::Plan, None) => plan(global).await.map(|_| Exit::Done),
            (What::Status, None) => status(global).await,
        }
    }
}

/// `migrate status`, also in a user's own binary.
pub(crate) async fn status(global: &Global) -> Answer {
    let plan = plan(global).await?;
    // A newer schema is fine unless a migration was marked as breaking for us; then `check` has refused already.
    Ok(if plan.is_current() {
        Exit::Done
    } else {
        Exit::Schema
    })
}

#[derive(Serialize)]
struct Planned<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    current: bool,
}

async fn plan(global: &Global) -> Answer<Plan> {
    let out = global.out();
    let database = Database::open(global).await?;
    let migrations = migrate::of(database.schema());
    let plan = migrations
        .plan(database.client())
        .await
        .tried(format!("plan the migration of {database}"))?;
    if plan.found > plan.known {
        migrations
            .check(database.client())
            .await
            .tried(format!("use {database}"))?;
    }
    if out.json {
        out.object(&Planned {
            plan: &plan,
            current: plan.is_current(),
        })?;
    } else {
        describe(&plan, &database, out)?;
    }
    Ok(plan)
}

fn describe(plan: &Plan, database: &Database, out: Out) -> Answer<()> {
    let has = match plan.found {
        0 => format!("{database} has no schema of Outlast"),
        n => format!("{database} has schema version {n}"),
    };
    if plan.found > plan.known {
        return out.say(&format!(
            "{has}; this program knows {} and works with it",
            plan.known
        ));
    }
    if plan.is_current() {
        return out.say(&format!("{has}; nothing to do"));
    }
    out.say(&format!("{has}; `outlast migrate` would apply:"))?;
    for migration in &plan.pending {
        let breaking = if migration.breaking {
            "  (breaking: stop programs of the release before the last first)"
        } else {
            ""
        };
        out.say(&format!(
            "  {:04} {}{breaking}",
            migration.version, migration.name
        ))?;
    }
    if plan.functions_differ {
        out.say("  functions")?;
    }
    Ok(())
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Report<'a> {
    Applied(&'a str),
    Done {
        #[serde(flatten)]
        migrated: &'a Migrated,
        deployment: Option<&'a str>,
    },
}

async fn run(global: &Global, deployment: Option<&str>) -> Answer {
    let out = global.out();
    if let Some(name) = deployment {
        check_name(name)?;
    }
    let mut database = Database::open(global).await?;
    database.primary().await?;
    let what = format!("migrate {database}");
    let _watch = blockers::watch(&database, global).await?;
    let mut printed = Ok(());
    let report = |step: &str| {
        // A step is committed whether anybody reads of it or not.
        printed = if out.json {
            out.object(&Report::Applied(step))
        } else {
            out.say(&format!("applied {step}"))
        };
    };
    let migrated = migrate::of(database.schema())
        .run(database.client_mut(), report)
        .await
        .tried(what)?;
    printed?;
    let named = match deployment {
        Some(name) => Some(name_deployment(&database, name).await?),
        None => None,
    };
    if out.json {
        out.object(&Report::Done {
            migrated: &migrated,
            deployment: named.as_deref(),
        })?;
    } else {
        let same = migrated.from == migrated.to && !migrated.functions;
        let verb = if same { "was up to date" } else { "is" };
        out.say(&format!(
            "{database} {verb} at schema version {}",
            migrated.to
        ))?;
        if !migrated.for_an_administrator.is_empty() {
            out.say("this login may not make the roles of the schema; an administrator has still to run:")?;
            for statement in &migrated.for_an_administrator {
                out.say(&format!("  {statement}"))?;
            }
            out.say("and then `outlast migrate` once more; until then only the owner can use it")?;
        }
        if let Some(name) = named {
            out.say(&format!("{database} is deployment {name}"))?;
        }
    }
    Ok(Exit::Done)
}

fn check_name(name: &str) -> Answer<()> {
    let good = (1..=100).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._/-".contains(&b));
    if good {
        return Ok(());
    }
    let message = format!(
        "deployment `{}` is not 1 to 100 of a-z 0-9 . _ / -",
        text::line(name)
    );
    Err(Problem::new(Exit::Usage, "migrate", message))
}

async fn name_deployment(database: &Database, name: &str) -> Answer<String> {
    let what = format!("name {database} {name}");
    let sql = include_str!("../../../sql/house/deployment.sql");
    let rows = database.rows(&what, sql, &[(&name, Type::TEXT)]).await?;
    let found: Option<String> = rows.first().and_then(|row| row.get(0));
    match found {
        Some(found) if found == name => Ok(found),
        found => {
            let found = found.unwrap_or_else(|| "nothing".into());
            let message = format!(
                "this database is deployment {} already, and was migrated as such",
                text::line(&found)
            );
            Err(outlast_postgres::Error::Stopped(message)).tried(what)
        }
    }
}
