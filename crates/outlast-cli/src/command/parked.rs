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
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    /// Waits for its next try
    Retry,
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
            Command::Retry { id, consumer } => retry(global, *id, consumer).await,
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
            (false, None) => String::new(),
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
        const HEADINGS: [&str; 8] = [
            "CONSUMER", "ID", "TYPE", "STATE", "DUE", "FAILURES", "CLASS", "REASON",
        ];
        let mut table = Table::new(HEADINGS)
            .right(["FAILURES"])
            .whole(["CONSUMER", "ID"]);
        for one in parked {
            let (id, due, failures) = (one.id.to_string(), one.due(), one.failures.to_string());
            let reason = one.reason.unwrap_or_default();
            table.row([
                one.consumer,
                &id,
                one.kind,
                one.state,
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
}

async fn retry(global: &Global, id: Uuid, consumer: &str) -> Answer {
    let out = global.out();
    let database = Database::to_write(global).await?;
    let name = text::line(consumer);
    let what = format!("retry event {id} for consumer {name}");
    let given = [(&consumer as _, Type::TEXT), (&id as _, Type::UUID)];
    let rows = database
        .rows(&what, include_str!("../../sql/parked/retry.sql"), &given)
        .await?;
    if rows.is_empty() {
        let none = Problem::new(Exit::Found, what, "it is not quarantined there");
        return Err(none.next(format!(
            "`outlast events show {id}` says where it stands for each consumer"
        )));
    }
    if out.json {
        out.object(&Retried {
            id,
            consumer,
            state: "retry",
        })?;
    } else {
        out.say(&format!(
            "{id} is due now for {name}, with a full budget of tries"
        ))?;
    }
    Ok(Exit::Done)
}
