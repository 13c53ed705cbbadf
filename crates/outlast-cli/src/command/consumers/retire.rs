//! `outlast consumers retire`: shows what would be given up, asks, and ends a consumer for good.

use clap::Args;
use serde::Serialize;
use tokio_postgres::{Row, types::Type};

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Out, text},
    problem::{Answer, Problem},
};

#[derive(Debug, Args)]
pub(crate) struct Retire {
    /// The consumer's name
    name: String,
    /// Why, for the audit and for whoever still starts a worker of it
    #[arg(long)]
    reason: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// What is not done, and what it keeps in the log.
#[derive(Serialize)]
struct Unfinished<'a> {
    name: &'a str,
    retired: bool,
    waiting: i64,
    /// There are more than were counted.
    more: bool,
    in_flight: i64,
    retrying: i64,
    behind: i64,
    waiting_version: i64,
    quarantined: i64,
    ids_held: i64,
    bytes_held: i64,
}

impl<'a> Unfinished<'a> {
    fn of(name: &'a str, row: &Row) -> Self {
        Self {
            name,
            retired: false,
            waiting: row.get("waiting"),
            more: row.get("more"),
            in_flight: row.get("in_flight"),
            retrying: row.get("retrying"),
            behind: row.get("behind"),
            waiting_version: row.get("waiting_version"),
            quarantined: row.get("quarantined"),
            ids_held: row.get("ids"),
            bytes_held: row.get("bytes"),
        }
    }

    fn say(&self, out: Out) -> Answer<()> {
        let more = if self.more { "more than " } else { "" };
        out.say(&format!(
            "{} has not done:\n  {more}{} that wait in the log\n  {} in work now\n  {} parked: {} retrying, {} behind them, {} waiting for a newer version, {} quarantined",
            text::line(self.name),
            text::count(self.waiting, "event", "events"),
            self.in_flight,
            self.retrying + self.behind + self.waiting_version + self.quarantined,
            self.retrying,
            self.behind,
            self.waiting_version,
            self.quarantined,
        ))?;
        out.say(&format!(
            "it keeps {} of the log ({} after its place, of all types)",
            text::bytes(self.bytes_held),
            text::count(self.ids_held, "id", "ids"),
        ))
    }
}

impl Retire {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_write(global).await?;
        let what = format!("retire consumer {}", text::line(&self.name));
        let sql = include_str!("../../../sql/consumer/unfinished.sql");
        let rows = database
            .rows(&what, sql, &[(&self.name, Type::TEXT)])
            .await?;
        let mut unfinished = Unfinished::of(&self.name, &rows[0]);
        if !out.json {
            unfinished.say(out)?;
        }
        let question = format!("give all of it up and end {} for good?", self.name);
        if !self.yes && !out.asks(&question)? {
            let next = "nothing was changed; add --yes to retire it without being asked";
            return Err(Problem::new(Exit::Usage, what, "nobody said yes").next(next));
        }
        let sql = include_str!("../../../sql/consumer/retire.sql");
        let given = [
            (&self.name as _, Type::TEXT),
            (&self.reason as _, Type::TEXT),
        ];
        database.rows(&what, sql, &given).await?;
        if out.json {
            unfinished.retired = true;
            out.object(&unfinished)?;
        }
        out.say(&format!("{} is retired", text::line(&self.name)))?;
        Ok(Exit::Done)
    }
}
