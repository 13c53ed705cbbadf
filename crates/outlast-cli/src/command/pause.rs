//! `outlast pause` and `outlast resume`: operators own whether something works; a deploy never un-pauses it.

use clap::Args;
use serde::Serialize;
use tokio_postgres::types::Type;

use crate::{args::Global, database::Database, exit::Exit, out::text, problem::Answer};

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Pause {
    #[command(flatten)]
    which: Which,
    /// Why, for whoever finds it paused
    #[arg(long)]
    reason: String,
}

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Resume {
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// Names of consumers
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// All consumers that are registered now
    #[arg(long)]
    all: bool,
}

impl Pause {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        self.which.set(global, Some(&self.reason)).await
    }
}

impl Resume {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        self.which.set(global, None).await
    }
}

impl Which {
    async fn set(&self, global: &Global, reason: Option<&str>) -> Answer {
        if !self.all {
            return set(global, &self.names, reason).await;
        }
        let database = Database::to_write(global).await?;
        let from = if reason.is_some() { "active" } else { "paused" };
        let sql = include_str!("../../sql/consumer/names.sql");
        let rows = database
            .rows("list consumers", sql, &[(&from, Type::TEXT)])
            .await?;
        let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        change(&database, global, &names, reason).await
    }
}

/// Pauses these consumers for a reason; without one they go on.
pub(super) async fn set(global: &Global, names: &[String], reason: Option<&str>) -> Answer {
    change(&Database::to_write(global).await?, global, names, reason).await
}

#[derive(Serialize)]
struct Changed<'a> {
    name: &'a str,
    state: &'static str,
    reason: Option<&'a str>,
}

/// All of them or, if one is unknown, none.
async fn change(
    database: &Database,
    global: &Global,
    names: &[String],
    reason: Option<&str>,
) -> Answer {
    let out = global.out();
    let (verb, state) = if reason.is_some() {
        ("pause", "paused")
    } else {
        ("resume", "active")
    };
    let listed = text::line(&names.join(", "));
    let sql = include_str!("../../sql/consumer/set_state.sql");
    let given = [(&names as _, Type::TEXT_ARRAY), (&reason as _, Type::TEXT)];
    database
        .rows(format!("{verb} {listed}"), sql, &given)
        .await?;
    if names.is_empty() {
        out.say(if reason.is_some() {
            "no consumer is active"
        } else {
            "no consumer is paused"
        })?;
    }
    for name in names {
        if out.json {
            out.object(&Changed {
                name,
                state,
                reason,
            })?;
        } else {
            out.say(&format!("{} is {state}", text::line(name)))?;
        }
    }
    if reason.is_some() && !names.is_empty() {
        out.say("what is running finishes; `outlast resume` lets them go on")?;
    }
    Ok(Exit::Done)
}
