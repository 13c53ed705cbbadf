//! `outlast commands resolve`: what a person has found out where nobody else could. A right of its own, and in the audit.

use std::ffi::OsString;

use clap::{ArgGroup, Args, builder::NonEmptyStringValueParser};
use serde::Serialize;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::settle::said_by_provider;
use crate::{
    args::Global,
    database::{Database, Given},
    exit::Exit,
    problem::{Answer, Problem},
    work::Work,
};

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("as").required(true).args(["settled", "rejected", "not_applied", "abandoned", "noted"])))]
#[command(after_help = "\
First find out, at the provider, by the provider key that `outlast commands show ID` prints. Your login
needs the role outlast_owner.

Examples:
  outlast commands resolve ID --settled --reference ch_123 --reason 'on their statement of 3 May' --actor ann
  outlast commands resolve ID --not-applied --reason 'their support says it never arrived'
  outlast commands resolve ID --abandoned --reason 'refunded by hand'")]
pub(super) struct Resolve {
    /// The command's id
    id: Uuid,
    /// The provider has done it; needs --reference
    #[arg(long, requires = "reference")]
    settled: bool,
    /// The provider has refused it, and it had no effect
    #[arg(long)]
    rejected: bool,
    /// It had no effect and will have none: it is sent again
    #[arg(long)]
    not_applied: bool,
    /// Nobody will ever know, or it does not matter any more
    #[arg(long)]
    abandoned: bool,
    /// Of one that was told another end than it has: somebody has looked, and nothing moves
    #[arg(long)]
    noted: bool,
    /// What the provider calls it
    #[arg(long, value_name = "R", value_parser = NonEmptyStringValueParser::new())]
    reference: Option<String>,
    /// What the provider has answered, as JSON; - reads it from stdin
    #[arg(long, value_name = "JSON", conflicts_with_all = ["rejected", "not_applied", "abandoned", "noted"])]
    answer: Option<OsString>,
    /// How you know, for whoever asks later
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    reason: String,
    /// Who has decided, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

#[derive(Serialize)]
struct Resolved<'a> {
    id: Uuid,
    was: &'a str,
    state: &'a str,
}

impl Resolve {
    /// The word of SQL.
    fn word(&self) -> &'static str {
        match (self.settled, self.rejected, self.not_applied, self.noted) {
            (true, ..) => "settled",
            (_, true, ..) => "rejected",
            (_, _, true, _) => "not_applied",
            (.., true) => "noted",
            _ => "abandoned",
        }
    }

    pub(super) async fn run(&self, global: &Global) -> Answer {
        let (out, id, word) = (global.out(), self.id, self.word());
        let what = format!("resolve command {id}");
        let answer = said_by_provider(&what, self.answer.as_deref())?;
        let database = Database::to_write(global).await?;
        let given: [Given<'_>; 6] = [
            (&id, Type::UUID),
            (&word, Type::TEXT),
            (&self.reason, Type::TEXT),
            (&self.reference, Type::TEXT),
            (&answer, Type::TEXT),
            (&self.actor, Type::TEXT),
        ];
        let sql = include_str!("../../../sql/command/resolve.sql");
        let rows = database.rows(&what, sql, &given).await?;
        let Some(row) = rows.first() else {
            return Err(Work::Command.absent(what));
        };
        let (was, waits, state): (&str, bool, &str) =
            (row.get("was"), row.get("waits"), row.get("said"));
        if !waits {
            return Err(waits_for_nobody(what, id, state, self.noted));
        }
        if out.json {
            out.object(&Resolved { id, was, state })?;
            return Ok(Exit::Done);
        }
        out.say(&match (word, state) {
            ("noted", state) => format!("{id} stays {state}; the other word is noted"),
            ("not_applied", "waiting") => format!("{id} had no effect: it is sent again"),
            (_, "cancelled") => {
                format!("{id} had no effect, and is withdrawn as somebody had asked")
            }
            (_, state) => format!("{id} is {state}"),
        })?;
        Ok(Exit::Done)
    }
}

/// Nothing was changed: machines may still find out, or somebody else has decided.
fn waits_for_nobody(what: String, id: Uuid, state: &str, noted: bool) -> Problem {
    let why = match noted {
        true => format!("nobody has told another end of it: it is {state}"),
        false => format!("it does not wait for a person: it is {state}"),
    };
    let problem = Problem::new(Exit::Found, what, why);
    match state {
        "waiting" | "running" | "pending" | "unknown" => problem.next(format!(
            "`outlast commands show {id}` says what is done about it; if you know its end: outlast commands settle"
        )),
        _ => problem.next(format!("`outlast commands show {id}` says how it came to that")),
    }
}
