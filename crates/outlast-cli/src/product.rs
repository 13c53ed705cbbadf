//! The product's own binary: everything that needs no code of the user's.

use clap::{Parser, Subcommand};

use crate::{
    args::{Global, exit_codes},
    command::*,
    exit::Exit,
    problem::Answer,
    settings::Base,
};

const FIRST_STEPS: &str = "\
First steps:
  outlast dev                            a private PostgreSQL in a folder, migrated, to play with
  outlast migrate plan                   what would be done to your own database
  outlast emit greeting '{\"to\":\"you\"}'
  outlast events ls

Handlers live in your own binary: its main calls outlast::cli(state, worker), which gives it the
commands run, check and config.
`outlast COMMAND --help` shows examples; `outlast --help` lists the exit codes.";

/// Durable asynchronous work on PostgreSQL: what was committed outlasts the crash.
#[derive(Debug, Parser)]
#[command(name = "outlast", version, max_term_width = 110)]
#[command(after_help = FIRST_STEPS, after_long_help = FIRST_STEPS.to_owned() + "\n\n" + &exit_codes())]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// How much is logged unless somebody says otherwise.
    pub(crate) fn log_level(&self) -> &'static str {
        if matches!(self.command, Command::Run(_)) {
            "info"
        } else {
            "warn"
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a private PostgreSQL in a folder, to develop and play with
    Dev(dev::Dev),
    /// Bring the schema of a database up to this program
    Migrate(migrate::Migrate),
    /// Watch the log until stopped; handlers live in your own binary
    Run(run::Run),
    /// List and show events
    Events(events::Events),
    /// List, show, pause and resume consumers
    Consumers(consumers::Consumers),
    /// List events that a consumer could not complete yet; retry them
    Parked(parked::Parked),
    /// List, show, enqueue, retry, cancel, pause and resume jobs
    Jobs(jobs::Jobs),
    /// List and show commands to providers; decide about those that nobody knows the end of
    Commands(commands::Commands),
    /// List, show, retry, pause and resume entities; decide about those that stopped
    Entities(entities::Entities),
    /// List, pause and resume accounts of providers
    Accounts(accounts::Accounts),
    /// Say what must be true before the backlog of another job table moves in
    Adopt(adopt::Adopt),
    /// List what needs a person
    Incidents(incidents::Incidents),
    /// Emit one event from the shell
    Emit(emit::Emit),
    /// Check the invariants; exit code 1 when one is broken
    Verify(verify::Verify),
    /// Ask the database and the brokers what is effective; exit code 1 when something is bad
    Doctor(doctor::Doctor),
    /// Show what is kept and why, and remove what is finished
    Retention(retention::Retention),
    /// Show what goes to brokers; publish it once more
    Relay(relay::Relay),
    /// Take over what a broker has given up on
    Dead(dead::Dead),
    /// List messages that are no event; read them again, or do without
    Unreadable(unreadable::Unreadable),
    /// Judge recorded webhooks; list the providers that are known
    Webhooks(webhooks::Webhooks),
    /// Pause consumers
    Pause(pause::Pause),
    /// Resume paused consumers
    Resume(pause::Resume),
    /// Make the settings of the cluster what a file says; shows the difference first
    Apply(apply::Apply),
    /// List who did what
    Audit(audit::Audit),
    /// Say what a restored or copied database lacks, and let work go on
    Restore(restore::Restore),
    /// Show or set what this database is called
    Deployment(deployment::Deployment),
    /// Show the settings and their origin, or print the default file
    Config(config::Config),
    /// Print the completions of a shell
    Completions(completions::Completions),
}

impl Cli {
    pub(crate) async fn run(&self) -> Answer<Exit> {
        let global = &self.global;
        match &self.command {
            Command::Dev(c) => c.run(global).await,
            Command::Migrate(c) => c.run(global).await,
            Command::Run(c) => c.run(global).await,
            Command::Events(c) => c.run(global).await,
            Command::Consumers(c) => c.run(global).await,
            Command::Parked(c) => c.run(global).await,
            Command::Jobs(c) => c.run(global).await,
            Command::Commands(c) => c.run(global).await,
            Command::Entities(c) => c.run(global).await,
            Command::Accounts(c) => c.run(global).await,
            Command::Adopt(c) => c.run(global, None).await,
            Command::Incidents(c) => c.run(global).await,
            Command::Emit(c) => c.run(global).await,
            Command::Verify(c) => c.run(global).await,
            Command::Doctor(c) => c.run(global).await,
            Command::Retention(c) => c.run(global).await,
            Command::Relay(c) => c.run(global).await,
            Command::Dead(c) => c.run(global).await,
            Command::Unreadable(c) => c.run(global).await,
            Command::Webhooks(c) => c.run(global),
            Command::Pause(c) => c.run(global).await,
            Command::Resume(c) => c.run(global).await,
            Command::Apply(c) => c.run(global).await,
            Command::Audit(c) => c.run(global).await,
            Command::Restore(c) => c.run(global).await,
            Command::Deployment(c) => c.run(global).await,
            Command::Config(c) => c.run(global, &Base::default()).await,
            Command::Completions(c) => c.run(global),
        }
    }
}
