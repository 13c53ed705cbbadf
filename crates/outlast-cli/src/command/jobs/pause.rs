//! `outlast jobs pause` and `resume`: operators own whether the jobs of a name run; a deploy never un-pauses them.

use clap::Args;
use serde::Serialize;
use tokio_postgres::types::Type;

use crate::{args::Global, database::Database, exit::Exit, out::text, problem::Answer};

#[derive(Debug, Args)]
#[command(after_help = "\
What runs finishes; what is enqueued waits. It is no matter whether there are such jobs yet.")]
pub(super) struct Pause {
    /// The name of the jobs
    name: String,
    /// Why, for whoever finds them paused
    #[arg(long)]
    reason: String,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Resume {
    /// The name of the jobs
    name: String,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

impl Pause {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let who = self.actor.as_deref();
        set(global, &self.name, Some(&self.reason), who).await
    }
}

impl Resume {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        set(global, &self.name, None, self.actor.as_deref()).await
    }
}

#[derive(Serialize)]
struct Changed<'a> {
    name: &'a str,
    state: &'static str,
    reason: Option<&'a str>,
    changed: bool,
}

/// Pauses for a reason; without one they go on.
async fn set(global: &Global, name: &str, reason: Option<&str>, actor: Option<&str>) -> Answer {
    let out = global.out();
    let shown = text::line(name);
    let (verb, state) = match reason {
        Some(_) => ("pause", "paused"),
        None => ("resume", "active"),
    };
    let database = Database::to_write(global).await?;
    let rows = database
        .rows(
            format!("{verb} jobs {shown}"),
            include_str!("../../../sql/job/pause.sql"),
            &[
                (&name, Type::TEXT),
                (&reason, Type::TEXT),
                (&actor, Type::TEXT),
            ],
        )
        .await?;
    let changed = rows.first().is_some_and(|row| row.get("changed"));
    if out.json {
        out.object(&Changed {
            name,
            state,
            reason,
            changed,
        })?;
    } else if changed {
        out.say(&format!("jobs {shown} are {state}"))?;
    } else {
        out.say(&format!("jobs {shown} were {state} already"))?;
    }
    Ok(Exit::Done)
}
