//! `outlast parked`: events that a consumer could not complete yet.

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Table, text},
    problem::{Answer, Problem},
};

#[derive(Debug, Args)]
pub(crate) struct Parked {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List parked events, newest first
    Ls(Ls),
    /// Give a quarantined event another full budget of tries
    #[command(after_help = "\
Mend the cause first: the handler gets the same event, with the same id and the same bytes.

Example:
  outlast incidents ls
  outlast parked retry 01890a5d-ac96-774b-bcce-b302099a8057 --consumer mailer")]
    Retry {
        /// The event's id
        id: Uuid,
        /// The consumer for which it failed
        #[arg(long, value_name = "NAME")]
        consumer: String,
        /// Who asks, for the audit; without it the database's user
        #[arg(long, value_name = "WHO")]
        actor: Option<String>,
    },
    /// Do without a parked event: complete it as skipped
    #[command(after_help = "\
Its handler never runs again for this event. If later events of its key waited behind it, the next one is let go.

Example:
  outlast parked skip 01890a5d-ac96-774b-bcce-b302099a8057 --consumer ledger --reason 'booked by hand'")]
    Skip {
        /// The event's id
        id: Uuid,
        /// The consumer that goes on without it
        #[arg(long, value_name = "NAME")]
        consumer: String,
        /// Why, for whoever asks later
        #[arg(long)]
        reason: String,
        /// Who asks, for the audit; without it the database's user
        #[arg(long, value_name = "WHO")]
        actor: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    /// Waits for its next try
    Retry,
    /// Waits for an earlier event of its key
    Behind,
    /// Needs a person
    Quarantined,
    /// Waits for a worker that knows this version
    WaitingVersion,
}

#[derive(Debug, Args)]
struct Ls {
    /// Only of this consumer
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Only in this state
    #[arg(long)]
    state: Option<State>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

impl Parked {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        match &self.command {
            Command::Ls(ls) => ls.run(global).await,
            Command::Retry {
                id,
                consumer,
                actor,
            } => retry(global, *id, consumer, actor.as_deref()).await,
            Command::Skip {
                id,
                consumer,
                reason,
                actor,
            } => {
                let why = Why {
                    reason,
                    actor: actor.as_deref(),
                };
                skip(global, *id, consumer, why).await
            }
        }
    }
}

#[derive(Serialize)]
struct Listed<'a> {
    consumer: &'a str,
    id: Uuid,
    #[serde(rename = "type")]
    kind: &'a str,
    tenant: &'a str,
    key: Option<&'a str>,
    state: &'a str,
    class: &'a str,
    failures: i32,
    running: bool,
    /// How many wait behind it, if it leads its key.
    behind: Option<i32>,
    /// Which event it waits for, if it is behind.
    waits_for: Option<Uuid>,
    reason: Option<&'a str>,
    due_in_seconds: Option<i64>,
    parked_at: &'a str,
}

impl<'a> Listed<'a> {
    fn from_row(row: &'a Row) -> Self {
        Self {
            consumer: row.get("consumer"),
            id: row.get("id"),
            kind: row.get("type"),
            tenant: row.get("tenant"),
            key: row.get("key"),
            state: row.get("state"),
            class: row.get("class"),
            failures: row.get("failures"),
            running: row.get("running"),
            behind: row.get("behind"),
            waits_for: row.get("waits_for"),
            reason: row.get("reason"),
            due_in_seconds: row.get("due_in_seconds"),
            parked_at: row.get("parked_at"),
        }
    }

    fn due(&self) -> String {
        match (self.running, self.due_in_seconds) {
            (true, _) => "running".into(),
            (false, Some(seconds)) if seconds > 0 => format!("in {seconds} s"),
            (false, Some(_)) => "now".into(),
            (false, None) => self
                .waits_for
                .map(|leader| format!("after {leader}"))
                .unwrap_or_default(),
        }
    }
}

impl Ls {
    async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_read(global).await?;
        let state = self.state.and_then(|state| state.to_possible_value());
        let state = state.as_ref().map(clap::builder::PossibleValue::get_name);
        let given = [
            (&self.consumer as _, Type::TEXT),
            (&state as _, Type::TEXT),
            (&i64::from(self.limit) as _, Type::INT8),
        ];
        let rows = database
            .rows(
                "list parked events",
                include_str!("../../sql/parked/list.sql"),
                &given,
            )
            .await?;
        let parked = rows.iter().map(Listed::from_row);
        if out.json {
            out.objects(parked)?;
            return Ok(Exit::Done);
        }
        const HEADINGS: [&str; 10] = [
            "CONSUMER", "ID", "TYPE", "KEY", "STATE", "BEHIND", "DUE", "FAILURES", "CLASS",
            "REASON",
        ];
        let mut table = Table::new(HEADINGS)
            .right(["BEHIND", "FAILURES"])
            .whole(["CONSUMER", "ID"]);
        for one in parked {
            let (id, due, failures) = (one.id.to_string(), one.due(), one.failures.to_string());
            let reason = one.reason.unwrap_or_default();
            let behind = one.behind.map(|n| n.to_string()).unwrap_or_default();
            table.row([
                one.consumer,
                &id,
                one.kind,
                one.key.unwrap_or_default(),
                one.state,
                &behind,
                &due,
                &failures,
                one.class,
                reason,
            ]);
        }
        if table.is_empty() {
            out.say("nothing is parked")?;
        } else {
            out.table(&table)?;
        }
        Ok(Exit::Done)
    }
}

#[derive(Serialize)]
struct Retried<'a> {
    id: Uuid,
    consumer: &'a str,
    state: &'static str,
    behind: i32,
}

async fn retry(global: &Global, id: Uuid, consumer: &str, actor: Option<&str>) -> Answer {
    let out = global.out();
    let database = Database::to_write(global).await?;
    let name = text::line(consumer);
    let what = format!("retry event {id} for consumer {name}");
    let given = [
        (&consumer as _, Type::TEXT),
        (&id as _, Type::UUID),
        (&actor as _, Type::TEXT),
    ];
    let rows = database
        .rows(&what, include_str!("../../sql/parked/retry.sql"), &given)
        .await?;
    let row = &rows[0];
    if !row.get::<_, bool>("changed") {
        let is = row.get::<_, &str>("outcome");
        let none = Problem::new(
            Exit::Found,
            what,
            format!("it is not quarantined there, but {is}"),
        );
        return Err(none.next(format!(
            "`outlast events show {id}` says where it stands for each consumer"
        )));
    }
    let behind = row.get("behind");
    if out.json {
        out.object(&Retried {
            id,
            consumer,
            state: "retry",
            behind,
        })?;
    } else {
        out.say(&format!(
            "{id} is due now for {name}, with a full budget of tries{}",
            match behind {
                0 => String::new(),
                1 => "; 1 event of its key waits behind it".to_owned(),
                n => format!("; {n} events of its key wait behind it"),
            }
        ))?;
    }
    Ok(Exit::Done)
}

/// Why somebody does without an event.
#[derive(Clone, Copy)]
struct Why<'a> {
    reason: &'a str,
    actor: Option<&'a str>,
}

#[derive(Serialize)]
struct Skipped<'a> {
    id: Uuid,
    consumer: &'a str,
    outcome: &'a str,
    next: Option<Uuid>,
    behind: i32,
}

async fn skip(global: &Global, id: Uuid, consumer: &str, why: Why<'_>) -> Answer {
    let out = global.out();
    let database = Database::to_write(global).await?;
    let name = text::line(consumer);
    let what = format!("skip event {id} for consumer {name}");
    let given = [
        (&consumer as _, Type::TEXT),
        (&id as _, Type::UUID),
        (&why.reason as _, Type::TEXT),
        (&why.actor as _, Type::TEXT),
    ];
    let rows = database
        .rows(&what, include_str!("../../sql/parked/skip.sql"), &given)
        .await?;
    let row = &rows[0];
    let skipped = Skipped {
        id,
        consumer,
        outcome: row.get("outcome"),
        next: row.get("next"),
        behind: row.get("behind"),
    };
    match skipped.outcome {
        "running" => {
            let busy = Problem::new(Exit::Found, what, "it is being tried right now");
            return Err(busy.next("wait for the end of that try, and look again"));
        }
        "absent" => {
            let none = Problem::new(Exit::Found, what, "it is not parked there");
            return Err(none.next(format!(
                "`outlast events show {id}` says where it stands for each consumer"
            )));
        }
        _ => {}
    }
    if out.json {
        out.object(&skipped)?;
        return Ok(Exit::Done);
    }
    let mut said = match skipped.outcome {
        "done" => format!("{id} was completed already for {name}"),
        _ => format!("{id} is skipped for {name}"),
    };
    if let Some(next) = skipped.next {
        said.push_str(&format!("; next of its key is {next}"));
        if skipped.behind > 0 {
            said.push_str(&format!(", {} wait behind it", skipped.behind));
        }
    }
    out.say(&said)?;
    Ok(Exit::Done)
}
