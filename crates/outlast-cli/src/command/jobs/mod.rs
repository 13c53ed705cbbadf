//! `outlast jobs`: what is to be done, what became of it, and what a person decides about it.

mod decide;
mod enqueue;
mod ls;
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
pub(crate) struct Jobs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List jobs, newest first
    Ls(ls::Ls),
    /// Show one job with its payload
    Show(show::Show),
    /// Let a job run now, with a full budget of tries
    Retry(decide::Retry),
    /// Withdraw a job that has not run yet
    Cancel(decide::Cancel),
    /// Give up a job that waits for a person
    Abandon(decide::Abandon),
    /// Let nobody take work of a name until it is resumed
    #[command(after_help = "\
What runs finishes; what is enqueued waits.")]
    Pause(Pause),
    /// Let work of a paused name go on
    Resume(Resume),
    /// Enqueue one job from the shell
    Enqueue(enqueue::Enqueue),
}

impl Jobs {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        match &self.command {
            Command::Ls(c) => c.run(global).await,
            Command::Show(c) => c.run(global).await,
            Command::Retry(c) => c.run(global).await,
            Command::Cancel(c) => c.run(global).await,
            Command::Abandon(c) => c.run(global).await,
            Command::Pause(c) => c.run(global, Work::Job).await,
            Command::Resume(c) => c.run(global, Work::Job).await,
            Command::Enqueue(c) => c.run(global).await,
        }
    }
}

/// How a job stands.
#[derive(Serialize)]
struct Standing<'a> {
    id: Uuid,
    name: &'a str,
    tenant: &'a str,
    key: Option<&'a str>,
    state: &'a str,
    /// Of the last failure.
    class: Option<&'a str>,
    reason: Option<&'a str>,
    /// How many tries were charged to it; while it runs, with this one.
    attempt: i32,
    priority: i32,
    accepted_at: &'a str,
    due_in_seconds: Option<i64>,
    ended_at: Option<&'a str>,
    /// Since when it waits for a person.
    incident_at: Option<&'a str>,
}

impl<'a> Standing<'a> {
    fn from_row(row: &'a Row) -> Self {
        Self {
            id: row.get("id"),
            name: row.get("name"),
            tenant: row.get("tenant"),
            key: row.get("key"),
            state: row.get("state"),
            class: row.get("class"),
            reason: row.get("reason"),
            attempt: row.get("attempt"),
            priority: row.get("priority"),
            accepted_at: row.get("accepted_at"),
            due_in_seconds: row.get("due_in_seconds"),
            ended_at: row.get("ended_at"),
            incident_at: row.get("incident_at"),
        }
    }

    /// When it runs, in a word.
    fn due(&self) -> String {
        match (self.state, self.incident_at, self.due_in_seconds) {
            ("waiting", Some(_), _) => "a person".into(),
            ("waiting", None, Some(seconds)) if seconds > 0 => format!("in {seconds} s"),
            ("waiting", None, _) => "now".into(),
            _ => String::new(),
        }
    }
}
