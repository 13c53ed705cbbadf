//! `outlast relay`: what goes to brokers, how far it is, and publishing it once more.

mod outboxes;
mod rewind;
mod status;
mod topics;

use clap::{Args, Subcommand};
use outlast_postgres::outbox::CONSUMER as OUTBOX;
use tokio_postgres::types::Type;

use super::pause;
use crate::{args::Global, database::Database, exit::Exit, out::text, problem::Answer};

#[derive(Debug, Args)]
pub(crate) struct Relay {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the routes and the outboxes of other systems, and how far each is
    Status(status::Status),
    /// Show what the routes and consumers need of their brokers; make what is missing
    Topics(topics::Topics),
    /// Publish once more what a route has published since a time, with the same ids; shows the amount first
    Rewind(rewind::Rewind),
    /// End a rewind before its time
    Cancel(Cancel),
    /// Pause routes, or outboxes: outbox/NAME
    Pause(Pause),
    /// Resume paused routes, or outboxes: outbox/NAME
    Resume(Resume),
}

#[derive(Debug, Args)]
struct Cancel {
    /// The route's name
    route: String,
}

#[derive(Debug, Args)]
struct Pause {
    /// Names of routes
    #[arg(value_name = "ROUTE", required = true)]
    routes: Vec<String>,
    /// Why, for whoever finds it paused
    #[arg(long)]
    reason: String,
}

#[derive(Debug, Args)]
struct Resume {
    /// Names of routes
    #[arg(value_name = "ROUTE", required = true)]
    routes: Vec<String>,
}

/// What the consumer of a route, or of an outbox, is called.
fn consumers(routes: &[String]) -> Vec<String> {
    routes
        .iter()
        .map(|name| match name.starts_with(OUTBOX) {
            true => name.clone(),
            false => format!("relay/{name}"),
        })
        .collect()
}

impl Relay {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        match &self.command {
            Command::Status(c) => c.run(global).await,
            Command::Topics(c) => c.run(global).await,
            Command::Rewind(c) => c.run(global).await,
            Command::Cancel(c) => c.run(global).await,
            Command::Pause(c) => pause::set(global, &consumers(&c.routes), Some(&c.reason)).await,
            Command::Resume(c) => pause::set(global, &consumers(&c.routes), None).await,
        }
    }
}

impl Cancel {
    async fn run(&self, global: &Global) -> Answer {
        let database = Database::to_write(global).await?;
        let route = text::line(&self.route);
        database
            .rows(
                format!("cancel the rewind of {route}"),
                "select outlast.cancel_rewind($1)::text",
                &[(&self.route, Type::TEXT)],
            )
            .await?;
        let out = global.out();
        out.say(&format!(
            "the rewind of {route} is cancelled; what it has published stays published"
        ))?;
        Ok(Exit::Done)
    }
}
