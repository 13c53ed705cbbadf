//! `outlast commands`: what providers were told to do, what they said, and what a person decides where nobody knows.

mod decide;
mod discard;
mod ls;
mod next;
mod resolve;
mod settle;
mod show;

use clap::{Args, Subcommand};
use serde::Serialize;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::{
    args::Global,
    problem::Answer,
    work::{Pause, Resume, Work},
};

#[derive(Debug, Args)]
pub(crate) struct Commands {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List commands, newest first
    Ls(ls::Ls),
    /// Show one command: what happened to it, and what to do next
    Show(show::Show),
    /// Let a command that waits be sent now, with a full budget of tries
    Retry(decide::Retry),
    /// Withdraw a command, as far as that still goes
    Cancel(decide::Cancel),
    /// Decide about a command that waits for a person
    Resolve(resolve::Resolve),
    /// Tell the end of a command by its key
    Settle(settle::Settle),
    /// Do without what was told of a command that nobody has given
    Discard(discard::Discard),
    /// Let nobody send, look up or poll commands of a name until it is resumed
    #[command(after_help = "\
What is on its way is not stopped; what is accepted waits. Nothing of the name is sent, looked up or
polled. To leave a provider alone, whatever the names: outlast accounts pause.")]
    Pause(Pause),
    /// Let commands of a paused name go on
    Resume(Resume),
}

impl Commands {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        match &self.command {
            Command::Ls(c) => c.run(global).await,
            Command::Show(c) => c.run(global).await,
            Command::Retry(c) => c.run(global).await,
            Command::Cancel(c) => c.run(global).await,
            Command::Resolve(c) => c.run(global).await,
            Command::Settle(c) => c.run(global).await,
            Command::Discard(c) => c.run(global).await,
            Command::Pause(c) => c.run(global, Work::Command).await,
            Command::Resume(c) => c.run(global, Work::Command).await,
        }
    }
}

/// How a command stands.
#[derive(Serialize)]
struct Standing<'a> {
    id: Uuid,
    name: &'a str,
    tenant: &'a str,
    key: Option<&'a str>,
    /// Empty: none.
    account: &'a str,
    state: &'a str,
    /// What is done with it when it is due: `send`, `look up`, `poll`.
    next: &'a str,
    /// Something of it may have left.
    sent: bool,
    /// What the provider calls it.
    reference: Option<&'a str>,
    /// Of the last failure.
    class: Option<&'a str>,
    reason: Option<&'a str>,
    /// How many tries were charged to it.
    attempt: i32,
    priority: i32,
    accepted_at: &'a str,
    due_in_seconds: Option<i64>,
    unknown_for_seconds: Option<i64>,
    ended_at: Option<&'a str>,
    /// Since when it waits for a person.
    incident_at: Option<&'a str>,
    /// Since when another end is told of it than it has.
    contradicted_at: Option<&'a str>,
    /// Another one has its key of exclusion.
    blocked: bool,
}

impl<'a> Standing<'a> {
    fn from_row(row: &'a Row) -> Self {
        Self {
            id: row.get("id"),
            name: row.get("name"),
            tenant: row.get("tenant"),
            key: row.get("key"),
            account: row.get("account"),
            state: row.get("state"),
            next: row.get("next"),
            sent: row.get("sent"),
            reference: row.get("reference"),
            class: row.get("class"),
            reason: row.get("reason"),
            attempt: row.get("attempt"),
            priority: row.get("priority"),
            accepted_at: row.get("accepted_at"),
            due_in_seconds: row.get("due_in_seconds"),
            unknown_for_seconds: row.get("unknown_for_seconds"),
            ended_at: row.get("ended_at"),
            incident_at: row.get("incident_at"),
            contradicted_at: row.get("contradicted_at"),
            blocked: row.get("blocked"),
        }
    }

    /// When something is done with it, in a word.
    fn due(&self) -> String {
        if self.ended_at.is_some() {
            return match self.contradicted_at {
                Some(_) => "a person".into(),
                None => String::new(),
            };
        }
        match (self.incident_at, self.blocked, self.due_in_seconds) {
            (Some(_), _, _) => "a person".into(),
            (None, true, _) => "another's end".into(),
            (None, false, Some(seconds)) if seconds > 0 => format!("in {seconds} s"),
            (None, false, _) if self.state == "running" => String::new(),
            _ => "now".into(),
        }
    }
}
