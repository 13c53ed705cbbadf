//! Bringing the schema of a database up to this program: numbered migrations, then the functions.
//!
//! Each migration is one transaction under an advisory lock and a `lock_timeout`, so two runs at once are safe, a run
//! that was killed goes on where it stopped, and nobody waits long behind it. Functions are the current text, applied
//! again whenever it changed, never by a program that is older than the schema.

use std::time::Duration;

use tokio_postgres::{Client, error::SqlState};

use crate::{Error, schema::Schema};

mod files;

pub use files::{FUNCTIONS, MIGRATIONS, Migration};

/// How long one step waits for a lock. Everybody who wants the table queues behind it meanwhile: emits, too.
const LOCK_TIMEOUT: &str = "300ms";
/// How long the others may pass before it tries again.
const LOCK_PAUSE: Duration = Duration::from_secs(1);
/// How often a step tries to get its locks before the run gives up: about a minute.
const LOCK_TRIES: u32 = 45;
/// Two runs of `migrate` on one database take turns by this advisory lock.
const RUN_LOCK: i64 = 0x6f75_746c_6173_7401;

/// What a database has and what this program would do to it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Plan {
    /// The highest migration that the database has; 0 when it has none.
    pub found: u32,
    /// The highest migration that this program knows.
    pub known: u32,
    /// What `run` would apply, in order.
    pub pending: Vec<&'static Migration>,
    /// Whether the texts of the SQL functions differ from this program's.
    pub functions_differ: bool,
}

impl Plan {
    /// Nothing to do.
    pub fn is_current(&self) -> bool {
        self.pending.is_empty() && !self.functions_differ
    }
}

/// What [`run`] did.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Migrated {
    /// The schema's version before.
    pub from: u32,
    /// The schema's version now.
    pub to: u32,
    /// Whether function texts were applied.
    pub functions: bool,
}

/// The migrations of one schema. The functions of this module are those of the default one.
///
/// ```no_run
/// # async fn f(client: &mut tokio_postgres::Client) -> Result<(), outlast_postgres::Error> {
/// use outlast_postgres::{migrate, schema::Schema};
/// migrate::of(Schema::named("billing")?).run(client, |step| println!("applied {step}")).await?;
/// # Ok(()) }
/// ```
pub fn of(schema: Schema) -> Migrations {
    Migrations { schema }
}

/// What brings one schema up to this program.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    schema: Schema,
}

/// As [`Migrations::plan`], for the schema `outlast`.
pub async fn plan(client: &Client) -> Result<Plan, Error> {
    of(Schema::DEFAULT).plan(client).await
}

/// As [`Migrations::run`], for the schema `outlast`.
pub async fn run(client: &mut Client, report: impl FnMut(&str)) -> Result<Migrated, Error> {
    of(Schema::DEFAULT).run(client, report).await
}

/// As [`Migrations::sql`], for the schema `outlast`.
pub fn sql() -> String {
    of(Schema::DEFAULT).sql()
}

/// As [`Migrations::check`], for the schema `outlast`.
pub async fn check(client: &Client) -> Result<(), Error> {
    of(Schema::DEFAULT).check(client).await
}

impl Migrations {
    /// Reads what the database has. Changes nothing.
    pub async fn plan(self, client: &Client) -> Result<Plan, Error> {
        let known = MIGRATIONS[MIGRATIONS.len() - 1].version;
        let found = self.version(client).await?;
        let pending = MIGRATIONS.iter().filter(|m| m.version > found).collect();
        let applied: Option<String> = if found == 0 {
            None
        } else {
            let row = client
                .query_opt(
                    &*self.schema.text("select digest from outlast._functions"),
                    &[],
                )
                .await?;
            row.map(|row| row.get(0))
        };
        let functions_differ = found <= known && applied.as_deref() != Some(digest().as_str());
        Ok(Plan {
            found,
            known,
            pending,
            functions_differ,
        })
    }

    /// Applies what is pending; each step is durable when it is reported. Safe to run twice at once and to kill.
    ///
    /// # Errors
    /// [`Error::NewerSchema`] when a newer program migrated this database; nothing is changed then. [`Error::Database`]
    /// when a lock could not be had within a minute: the steps before it stay, the next run goes on from there.
    pub async fn run(
        self,
        client: &mut Client,
        mut report: impl FnMut(&str),
    ) -> Result<Migrated, Error> {
        self.usable(client).await?;
        let from = self.version(client).await?;
        let known = MIGRATIONS[MIGRATIONS.len() - 1].version;
        if from > known {
            return Err(Error::NewerSchema { found: from, known });
        }
        for migration in MIGRATIONS {
            if self.apply(client, Step::Migration(migration)).await? {
                report(&format!("{:04} {}", migration.version, migration.name));
            }
        }
        let functions = self.apply(client, Step::Functions).await?;
        if functions {
            report("functions");
        }
        Ok(Migrated {
            from,
            to: known,
            functions,
        })
    }

    /// All of it as one SQL file, for teams whose DDL is reviewed and run by somebody else.
    pub fn sql(self) -> String {
        let mut out = String::from(
            "-- Outlast: run this file as the owner of the schema, with psql -1 -f.\n\n",
        );
        out.push_str(files::BOOTSTRAP);
        for migration in MIGRATIONS {
            out.push_str(&format!(
                "\n-- {:04} {}\n{}\n{}\n",
                migration.version,
                migration.name,
                migration.sql,
                record(migration)
            ));
        }
        for (name, text) in FUNCTIONS {
            out.push_str(&format!("\n-- functions/{name}.sql\n{text}\n"));
        }
        out.push_str(&record_functions());
        out.push('\n');
        self.schema.text(&out).into_owned()
    }

    /// Refuses to work on a schema that this program does not fit.
    ///
    /// # Errors
    /// [`Error::NotMigrated`] when it is older than this program needs, [`Error::NewerSchema`] when a later release
    /// marked a migration as breaking for this one.
    pub async fn check(self, client: &Client) -> Result<(), Error> {
        let need = MIGRATIONS[MIGRATIONS.len() - 1].version;
        let found = self.version(client).await?;
        if found < need {
            return Err(Error::NotMigrated { found, need });
        }
        if found > need {
            let breaking: bool = client
            .query_one(
                &*self.schema.text(
                    "select exists (select from outlast._migration where version > $1 and breaking)",
                ),
                &[&(need as i32)],
            )
            .await?
            .get(0);
            if breaking {
                return Err(Error::NewerSchema { found, known: need });
            }
        }
        Ok(())
    }

    /// Refuses a name that would have to be written in quotes.
    async fn usable(self, client: &Client) -> Result<(), Error> {
        let reserved = "select exists (select from pg_get_keywords() where word = $1 and catcode in ('R', 'T'))";
        let name = self.schema.name();
        if client.query_one(reserved, &[&name]).await?.get(0) {
            return Err(Error::Config(format!(
                "schema `{name}` is a reserved word of SQL"
            )));
        }
        Ok(())
    }

    async fn version(self, client: &Client) -> Result<u32, Error> {
        let exists: bool = client
            .query_one(
                &*self
                    .schema
                    .text("select to_regclass('outlast._migration') is not null"),
                &[],
            )
            .await?
            .get(0);
        if !exists {
            return Ok(0);
        }
        let row = client
            .query_one(
                &*self
                    .schema
                    .text("select coalesce(max(version), 0) from outlast._migration"),
                &[],
            )
            .await?;
        Ok(u32::try_from(row.get::<_, i32>(0)).unwrap_or(0))
    }

    /// One step in one transaction. False when somebody else has done it already.
    async fn apply(self, client: &mut Client, step: Step) -> Result<bool, Error> {
        for attempt in 1.. {
            match self.try_apply(client, step).await {
                Err(Error::Database(e))
                    if attempt < LOCK_TRIES && lock_not_available(e.state()) =>
                {
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                other => return other,
            }
        }
        unreachable!("the loop returns")
    }

    async fn try_apply(self, client: &mut Client, step: Step) -> Result<bool, Error> {
        let tx = client.transaction().await?;
        // Waiting for another run is no reason to give up, so the timeout comes after this lock.
        tx.execute("select pg_advisory_xact_lock($1)", &[&RUN_LOCK])
            .await?;
        tx.batch_execute(&format!(
            "set local lock_timeout = '{LOCK_TIMEOUT}'; set local client_min_messages = warning"
        ))
        .await?;
        tx.batch_execute(&self.schema.text(files::BOOTSTRAP))
            .await?;
        match step {
            Step::Migration(migration) => {
                let done = tx
                    .query_opt(
                        &*self
                            .schema
                            .text("select from outlast._migration where version = $1"),
                        &[&(migration.version as i32)],
                    )
                    .await?;
                if done.is_some() {
                    return Ok(false);
                }
                tx.batch_execute(&self.schema.text(migration.sql)).await?;
                tx.batch_execute(&self.schema.text(&record(migration)))
                    .await?;
            }
            Step::Functions => {
                let known = MIGRATIONS[MIGRATIONS.len() - 1].version;
                let newest = self
                    .schema
                    .text("select coalesce(max(version), 0) from outlast._migration");
                let found = tx.query_one(&*newest, &[]).await?.get::<_, i32>(0);
                // A newer program may have been here since the run began: its texts stay.
                if i64::from(found) > i64::from(known) {
                    let found = u32::try_from(found).unwrap_or(0);
                    return Err(Error::NewerSchema { found, known });
                }
                let same = tx
                    .query_opt(
                        &*self
                            .schema
                            .text("select from outlast._functions where digest = $1"),
                        &[&digest()],
                    )
                    .await?;
                if same.is_some() {
                    return Ok(false);
                }
                // Bodies name each other; all of them are there at the end of this transaction.
                tx.batch_execute("set local check_function_bodies = off")
                    .await?;
                for (_, text) in FUNCTIONS {
                    tx.batch_execute(&self.schema.text(text)).await?;
                }
                tx.batch_execute(&self.schema.text(&record_functions()))
                    .await?;
            }
        }
        tx.commit().await?;
        Ok(true)
    }
}

#[derive(Clone, Copy)]
enum Step {
    Migration(&'static Migration),
    Functions,
}

fn record(m: &Migration) -> String {
    format!(
        "insert into outlast._migration (version, name, breaking, applied_by) values ({}, '{}', {}, '{}');",
        m.version,
        m.name,
        m.breaking,
        env!("CARGO_PKG_VERSION")
    )
}

fn record_functions() -> String {
    format!(
        "delete from outlast._functions; insert into outlast._functions (digest, applied_by) values ('{}', '{}');",
        digest(),
        env!("CARGO_PKG_VERSION")
    )
}

/// Tells one set of function texts from another (FNV-1a; nobody attacks it).
fn digest() -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for (_, text) in FUNCTIONS {
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

fn lock_not_available(state: Option<&str>) -> bool {
    [
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::T_R_DEADLOCK_DETECTED,
    ]
    .iter()
    .any(|s| Some(s.code()) == state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_without_gaps_and_say_in_their_header_whether_they_break() {
        for (i, m) in MIGRATIONS.iter().enumerate() {
            assert_eq!(m.version as usize, i + 1, "{}", m.name);
            let word = if m.breaking {
                "-- breaking: yes"
            } else {
                "-- breaking: no"
            };
            assert!(m.sql.contains(word), "{} must say `{word}`", m.name);
        }
    }

    #[test]
    fn the_printed_file_holds_every_migration_and_every_function() {
        let sql = sql();
        for m in MIGRATIONS {
            assert!(sql.contains(m.sql), "{}", m.name);
        }
        for (name, text) in FUNCTIONS {
            assert!(sql.contains(text), "{name}");
        }
    }
}
