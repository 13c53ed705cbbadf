//! `outlast entities`: what must look the same elsewhere, how far it does, and what a person decides where it does not.

mod decide;
mod ls;
mod next;
mod show;
mod which;

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
pub(crate) struct Entities {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List entities, those that were known last first
    Ls(ls::Ls),
    /// Show one entity: what is kept and to be cleaned up of it, and what to do next
    Show(show::Show),
    /// Let an entity run now, with a full budget of tries
    Retry(decide::Retry),
    /// Give up what was wanted of an entity that waits for a person
    Abandon(decide::Abandon),
    /// Forget what was kept of an entity: it is not true any more
    Forget(decide::Forget),
    /// Say that you have looked at what late runners had made
    Note(decide::Note),
    /// Let nobody take entities of a name until it is resumed
    #[command(after_help = "\
What runs finishes; marks are kept, and wait.")]
    Pause(Pause),
    /// Let entities of a paused name go on
    Resume(Resume),
}

impl Entities {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        match &self.command {
            Command::Ls(c) => c.run(global).await,
            Command::Show(c) => c.run(global).await,
            Command::Retry(c) => c.run(global).await,
            Command::Abandon(c) => c.run(global).await,
            Command::Forget(c) => c.run(global).await,
            Command::Note(c) => c.run(global).await,
            Command::Pause(c) => c.run(global, Work::Entity).await,
            Command::Resume(c) => c.run(global, Work::Entity).await,
        }
    }
}

/// How an entity stands.
#[derive(Serialize)]
struct Standing<'a> {
    /// None: there are only marks of it, which nobody has taken yet.
    id: Option<Uuid>,
    name: &'a str,
    tenant: &'a str,
    key: &'a str,
    state: &'a str,
    /// Of the last failure.
    class: Option<&'a str>,
    reason: Option<&'a str>,
    /// How many tries were charged to it; while it runs, with this one.
    attempt: i32,
    /// The first mark of what is not converged; else of what was converged last.
    accepted_at: &'a str,
    /// Its newest mark.
    marked_at: &'a str,
    due_in_seconds: Option<i64>,
    converged_at: Option<&'a str>,
    /// Since when it waits for a person.
    incident_at: Option<&'a str>,
    /// Its newest mark says that it was deleted.
    gone: bool,
    /// Marked since it was claimed: it runs once more.
    again: bool,
    /// Something is kept: what others call it.
    has_refs: bool,
    /// Marks that nobody has taken yet.
    unfolded: i64,
    /// Deletions that are to be cleaned up.
    tombstones: i64,
    /// What runners had made that had lost their lease.
    late_refs: i64,
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
            state: row.get("state"),
            class: row.get("class"),
            reason: row.get("reason"),
            attempt: row.get("attempt"),
            accepted_at: row.get("accepted_at"),
            marked_at: row.get("marked_at"),
            due_in_seconds: row.get("due_in_seconds"),
            converged_at: row.get("converged_at"),
            incident_at: row.get("incident_at"),
            gone: row.get("gone"),
            again: row.get("again"),
            has_refs: row.get("has_refs"),
            unfolded: row.get("unfolded"),
            tombstones: row.get("tombstones"),
            late_refs: row.get("late_refs"),
            blocked: row.get("blocked"),
        }
    }

    /// When something is done with it, in a word.
    fn due(&self) -> String {
        match (self.state, self.due_in_seconds) {
            _ if self.incident_at.is_some() => "a person".into(),
            ("waiting", _) if self.blocked => "another's end".into(),
            ("waiting", Some(seconds)) if seconds > 0 => format!("in {seconds} s"),
            ("waiting", _) => "now".into(),
            _ => String::new(),
        }
    }
}
