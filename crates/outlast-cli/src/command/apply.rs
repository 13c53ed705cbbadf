//! `outlast apply`: makes the settings of the cluster what a file says, after showing the difference.

mod routes;

use std::path::PathBuf;

use clap::Args;
use outlast_postgres::setting::{self, Change, Values, find};
use serde::Serialize;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Out, Table, text},
    problem::{Answer, Problem, Tried},
    push,
    settings::{Base, Effective, Set, cluster},
};

#[derive(Debug, Args)]
#[command(after_help = "\
The file's section [cluster] says everything: what it does not name goes back to its default. Nothing is
changed unless all of it can be; each change is written into the audit.

Examples:
  outlast apply                      what [cluster] of outlast.toml says, after asking
  outlast apply production.toml --yes
  outlast apply --check              changes nothing; exit code 1 if the database has other settings")]
pub(crate) struct Apply {
    /// The file with the section [cluster]; - reads stdin [default: the configuration file]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Change nothing; exit code 1 when something would be changed
    #[arg(long, conflicts_with = "yes")]
    check: bool,
}

/// What there is, or would be, to change.
#[derive(Serialize)]
struct Difference<'a> {
    changes: Vec<Changed<'a>>,
    warnings: &'a [String],
    applied: bool,
}

#[derive(Serialize)]
struct Changed<'a> {
    name: &'a str,
    was: &'a str,
    was_default: bool,
    becomes: &'a str,
    becomes_default: bool,
}

impl<'a> Changed<'a> {
    fn of(change: &'a Change) -> Self {
        let standard = find(&change.name).map(|setting| setting.standard);
        Self {
            name: &change.name,
            was: &change.was,
            was_default: standard == Some(change.was.as_str()),
            becomes: &change.becomes,
            becomes_default: standard == Some(change.becomes.as_str()),
        }
    }
}

impl Apply {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let wanted = self.wanted(global)?;
        let mut database = Database::to_write(global).await?;
        let changes = setting::plan(database.client(), database.schema(), &wanted)
            .await
            .tried("compare the settings of the cluster")?;
        let mut warnings = warnings(&database, &wanted).await?;
        warnings.extend(push::warnings(&changes));
        warnings.extend(routes::warnings(&database, &wanted).await?);
        warnings.extend(removed(&changes));
        let show = |applied| show(out, &changes, &warnings, applied);
        if changes.is_empty() {
            show(false)?;
            out.say("nothing to change: the database has these settings")?;
            return Ok(Exit::Done);
        }
        if self.check {
            show(false)?;
            return Ok(Exit::Found);
        }
        if !out.json {
            show(false)?;
        }
        let these = text::count(changes.len(), "setting", "settings");
        if !self.yes && !out.asks(&format!("change {these} of {database}?"))? {
            let next = "nothing was changed; add --yes to change them without being asked";
            return Err(Problem::new(Exit::Usage, "apply", "nobody said yes").next(next));
        }
        let schema = database.schema();
        setting::apply(database.client_mut(), schema, &wanted, &changes)
            .await
            .tried("apply the settings of the cluster")?;
        if out.json {
            show(true)?;
        }
        for warning in outboxes(&database).await? {
            out.say(&format!("warning: {warning}"))?;
        }
        out.say(&format!("{these} changed; `outlast audit ls` shows it"))?;
        Ok(Exit::Done)
    }

    fn wanted(&self, global: &Global) -> Answer<Values> {
        let wanted = self.said(global)?;
        let problems = push::problems(&wanted.endpoints);
        match problems.is_empty() {
            true => Ok(wanted),
            false => Err(Problem::of_configuration(problems)),
        }
    }

    fn said(&self, global: &Global) -> Answer<Values> {
        if let Some(file) = &self.file {
            return Ok(cluster::Section::of_file(file)?.values);
        }
        let effective = Effective::load(global, &Set::default(), &Base::default())?;
        match effective.cluster() {
            Some(section) => Ok(section.values.clone()),
            None => Err(cluster::missing(&effective.file(global))),
        }
    }
}

fn show(out: Out, changes: &[Change], warnings: &[String], applied: bool) -> Answer<()> {
    let changed: Vec<Changed<'_>> = changes.iter().map(Changed::of).collect();
    if out.json {
        return out.object(&Difference {
            changes: changed,
            warnings,
            applied,
        });
    }
    let value = |value: &str, default| match default {
        true => format!("{value} (default)"),
        false => value.to_owned(),
    };
    if !changed.is_empty() {
        let mut table = Table::new(["SETTING", "NOW", "NEW"]).whole(["SETTING", "NOW", "NEW"]);
        for one in changed {
            let was = value(one.was, one.was_default);
            let becomes = value(one.becomes, one.becomes_default);
            table.row([one.name, &was, &becomes]);
        }
        out.table(&table)?;
    }
    warnings
        .iter()
        .try_for_each(|warning| out.say(&format!("warning: {warning}")))
}

/// What is allowed and may still not be meant.
async fn warnings(database: &Database, wanted: &Values) -> Answer<Vec<String>> {
    let sql = "select current_setting('max_prepared_transactions')::int > 0";
    let rows = database
        .rows("look at the server's settings", sql, &[])
        .await?;
    let prepares = rows.first().is_some_and(|row| row.get(0));
    let mut warnings = Vec::new();
    if prepares && wanted.get("wake") == "notify" {
        warnings.push(
            "this server allows prepared transactions; one that emits cannot be prepared while wake is notify"
                .to_owned(),
        );
    }
    Ok(warnings)
}

/// Outboxes that nobody will read any more.
fn removed(changes: &[Change]) -> impl Iterator<Item = String> {
    let gone = changes.iter().filter(|change| change.becomes == "none");
    let names = gone.filter_map(|change| change.name.strip_prefix("outbox."));
    names.map(|name| {
        format!(
            "nobody reads the outbox {name} any more; what of it is parked is kept: \
             `outlast consumers retire outbox/{name}` ends that"
        )
    })
}

/// What no relay could read, whatever its rights. Said, not refused: the table may come with the next release of its owner.
async fn outboxes(database: &Database) -> Answer<Vec<String>> {
    let sql = "select o.name, p.problem from outlast.outbox o
        cross join lateral outlast._outbox_problems(o.name, false) p (problem) order by 1, 2";
    let rows = database
        .rows("look at the tables of the outboxes", sql, &[])
        .await?;
    let one = |row: &tokio_postgres::Row| {
        let (name, problem): (&str, &str) = (row.get(0), row.get(1));
        format!("outbox.{name}: {problem}")
    };
    Ok(rows.iter().map(one).collect())
}
