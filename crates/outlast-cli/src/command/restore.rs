//! `outlast restore`: what a restored, copied or rewound database lacks, and the word that lets work go on.

use std::time::Duration;

use clap::{Args, Subcommand};
use outlast_postgres::Error;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_postgres::types::Type;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Out, Table, text},
    problem::{Answer, Problem, Tried},
};

/// How often to try for the lock that keeps emits out for a moment; each try waits 2 s at most.
const TRIES: u32 = 10;

#[derive(Debug, Args)]
pub(crate) struct Restore {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Report what was found and what is missing; exit code 1 when something waits for a person
    Status,
    /// Let what leaves the database wait from now on: the first step after a restore, before any worker runs
    #[command(after_help = "\
Consumers whose effects are rows of this database go on, those with outside effects wait. Emitting goes
on. `outlast restore confirm` ends it.

Example:
  outlast restore hold --reason \"restored to 12:00, INC-42\"")]
    Hold {
        /// Why, for whoever finds it held
        #[arg(long)]
        reason: String,
        /// Let local consumers wait, too
        #[arg(long)]
        all: bool,
    },
    /// Let work go on: shows first what is lost, asks, and writes it into the audit
    #[command(after_help = "\
After a dump or a logical copy it also makes the log right for this server, whose transaction ids
restarted; emits wait meanwhile, two seconds at most for each try. Workers that stopped are started
again by hand; those that only held go on by themselves.

Example:
  outlast restore confirm --reason \"INC-42: mails since 12:00 were compared\"")]
    Confirm {
        /// What was found out, for the audit
        #[arg(long)]
        reason: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// What `_restore_status` says, as far as people are told.
#[derive(Debug, Deserialize)]
struct Status {
    deployment: Option<String>,
    stopped: Option<String>,
    held: Option<String>,
    database_is_ours: bool,
    xids_are_ours: bool,
    timeline: String,
    timeline_before: Option<String>,
    server_started: String,
    last_id_drawn: i64,
    last_id_used: i64,
    ids_used_again: i64,
    events: i64,
    newest_event_at: Option<String>,
    batches_in_flight: i64,
    events_in_flight: i64,
    parked: i64,
    entities: i64,
    waiting_consumers: Vec<String>,
    missing: Vec<Missing>,
    processes: Vec<Process>,
}

#[derive(Debug, Deserialize)]
struct Missing {
    process: String,
    told: i64,
    known: Option<i64>,
    found_at: String,
}

#[derive(Debug, Deserialize)]
struct Process {
    process: String,
    last_at: String,
    reported: bool,
}

impl Restore {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        match &self.command {
            Command::Status => status(global).await,
            Command::Hold { reason, all } => hold(global, reason, *all).await,
            Command::Confirm { reason, yes } => confirm(global, reason, *yes).await,
        }
    }
}

async fn status(global: &Global) -> Answer {
    let out = global.out();
    let database = Database::to_read(global).await?;
    let (document, status) = ask(&database).await?;
    if out.json {
        out.object(&document)?;
    } else {
        status.tell(out)?;
    }
    let waits = status.waits();
    out.say(if waits {
        "when that is settled: outlast restore confirm --reason \"…\""
    } else {
        "nothing waits for a person"
    })?;
    Ok(if waits { Exit::Found } else { Exit::Done })
}

async fn hold(global: &Global, reason: &str, all: bool) -> Answer {
    let out = global.out();
    let database = Database::to_write(global).await?;
    let given = [(&reason as _, Type::TEXT), (&all as _, Type::BOOL)];
    let sql = "select outlast._stop($1, $2)::text";
    database.rows("hold", sql, &given).await?;
    if out.json {
        out.object(&json!({ "held": reason, "all": all }))?;
    }
    out.say(if all {
        "nothing is claimed until `outlast restore confirm`; workers that run will stop"
    } else {
        "what leaves the database waits until `outlast restore confirm`"
    })?;
    Ok(Exit::Done)
}

async fn confirm(global: &Global, reason: &str, yes: bool) -> Answer {
    let out = global.out();
    let database = Database::to_write(global).await?;
    let (_, status) = ask(&database).await?;
    if !out.json {
        status.tell(out)?;
        status.announce(out)?;
    }
    if !yes && !out.asks(&format!("let work go on in {database}?"))? {
        let next = "nothing was changed; add --yes to confirm without being asked";
        return Err(Problem::new(Exit::Usage, "restore confirm", "nobody said yes").next(next));
    }
    let did = settle(&database, reason, out).await?;
    if out.json {
        out.object(&json!({ "confirmed": true, "reason": reason, "did": did }))?;
    }
    out.say(
        "confirmed; held consumers go on by themselves, workers that stopped are started again",
    )?;
    if status.entities > 0 {
        let known = text::count(status.entities, "entity is", "entities are");
        out.say(&format!(
            "{known} known, and none looks again by itself at what its provider was told in what is gone: docs/entities.md, \"After a restore\""
        ))?;
    }
    Ok(Exit::Done)
}

/// Confirms; while somebody has emitted and not ended, others are let pass in between.
async fn settle(database: &Database, reason: &str, out: Out) -> Answer<Value> {
    let sql = "select outlast._confirm($1)::text";
    for tried in 1.. {
        let answer = database
            .client()
            .query_typed(sql, &[(&reason, Type::TEXT)])
            .await
            .map_err(Error::from);
        match answer {
            Err(error) if error.state() == Some("55P03") && tried < TRIES => {
                out.say("somebody has emitted and not committed yet; trying again")?;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            answer => {
                let rows = answer.tried("confirm")?;
                let did: Option<&str> = rows.first().map(|row| row.get(0));
                return Ok(parse(did.unwrap_or("null")));
            }
        }
    }
    unreachable!("the loop returns")
}

async fn ask(database: &Database) -> Answer<(Value, Status)> {
    let sql = "select outlast._restore_status()::text";
    let rows = database.rows("look where we are", sql, &[]).await?;
    let document: Option<&str> = rows.first().map(|row| row.get(0));
    let document = parse(document.unwrap_or("null"));
    match Status::deserialize(&document) {
        Ok(status) => Ok((document, status)),
        Err(error) => Err(Problem::new(
            Exit::Failed,
            "look where we are",
            error.to_string(),
        )),
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("the server prints valid JSON")
}

impl Status {
    /// Whether anybody has to wait for a person.
    fn waits(&self) -> bool {
        self.stopped.is_some()
            || self.held.is_some()
            || !self.database_is_ours
            || !self.xids_are_ours
    }

    fn tell(&self, out: Out) -> Answer<()> {
        let name = self.deployment.as_deref().unwrap_or("none");
        out.say(&format!(
            "deployment {}; server started {}, timeline {}",
            text::line(name),
            text::time(&self.server_started),
            self.timeline,
        ))?;
        if let Some(before) = &self.timeline_before {
            out.say(&format!(
                "it was on timeline {before} before: a promotion, or a restore"
            ))?;
        }
        let newest = self.newest_event_at.as_deref();
        out.say(&format!(
            "{}{}; {} with {} in flight, {} parked",
            text::count(self.events, "event", "events"),
            newest.map_or(String::new(), |at| format!(
                ", the newest of {}",
                text::time(at)
            )),
            text::count(self.batches_in_flight, "batch", "batches"),
            text::count(self.events_in_flight, "event", "events"),
            self.parked,
        ))?;
        if !self.xids_are_ours {
            out.say(
                "stopped: restored from a dump or copied logically: transaction ids restarted",
            )?;
        }
        if !self.database_is_ours {
            out.say("stopped: this is a copy of the database that was migrated; if the original still works, name this one anew: outlast deployment set NAME")?;
        }
        if self.last_id_drawn < self.last_id_used {
            out.say(&format!(
                "ids: the sequence stands at {}, {} was used before; {} emitted here under a used id",
                self.last_id_drawn,
                self.last_id_used,
                text::count(self.ids_used_again, "event was", "events were"),
            ))?;
        }
        for (kind, why) in [("stopped", &self.stopped), ("held", &self.held)] {
            if let Some(why) = why {
                out.say(&format!("{kind}: {}", text::line(why)))?;
            }
        }
        if self.held.is_some() && !self.waiting_consumers.is_empty() {
            let names: Vec<_> = self
                .waiting_consumers
                .iter()
                .map(|name| text::line(name))
                .collect();
            out.say(&format!(
                "these wait, because their effects are outside: {}",
                names.join(", ")
            ))?;
        }
        self.tell_processes(out)
    }

    fn tell_processes(&self, out: Out) -> Answer<()> {
        if !self.missing.is_empty() {
            out.say("processes that were told of commits that are not here:")?;
            let mut table =
                Table::new(["PROCESS", "TOLD", "HERE", "GONE", "FOUND"]).whole(["PROCESS"]);
            for one in &self.missing {
                let known = one.known.unwrap_or(0);
                table.row([
                    &one.process,
                    &one.told.to_string(),
                    &known.to_string(),
                    &(one.told - known).to_string(),
                    &text::time(&one.found_at),
                ]);
            }
            out.table(&table)?;
        }
        let unreported: Vec<_> = self.processes.iter().filter(|one| !one.reported).collect();
        if !unreported.is_empty() {
            out.say("processes that have not reported to this run of the server; what they were told of last, nobody can say:")?;
            let mut table = Table::new(["PROCESS", "LAST SEEN"]).whole(["PROCESS"]);
            for one in unreported {
                table.row([one.process.as_str(), &text::time(&one.last_at)]);
            }
            out.table(&table)?;
        }
        Ok(())
    }

    /// What a confirmation would do.
    fn announce(&self, out: Out) -> Answer<()> {
        if !self.xids_are_ours {
            out.say(&format!(
                "confirming makes the log right for this server: new ids from {} on, {} get a new one, and work in flight is given to whoever claims next",
                self.last_id_used.max(self.last_id_drawn) + 1,
                text::count(self.ids_used_again, "event", "events"),
            ))?;
        }
        if !self.waits() {
            out.say("nothing waits for a person; confirming changes nothing but the audit")?;
        }
        Ok(())
    }
}
