//! The commands of a user's own binary: `run`, `check`, `config`, `migrate status`, with the user's handlers.

use std::{fmt::Display, future::Future, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use outlast_engine::Worker;

use crate::{
    args::{Global, exit_codes},
    command::{adopt, check, config, migrate},
    engine,
    exit::Exit,
    log,
    out::text,
    problem::{Answer, Problem},
    settings::{Base, Effective, Set},
};

/// The worker of this application, on Outlast
#[derive(Debug, Parser)]
#[command(max_term_width = 110, after_long_help = exit_codes())]
struct Own {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Work until SIGTERM or Ctrl-C, then finish what runs
    #[command(after_help = "\
The first signal drains: nothing more is claimed, what runs may finish (setting `drain`). The second
gives back what still runs, without a charge. Exit code 0: everything finished; 8: something was given
back.")]
    Run(Set),
    /// Check settings, database, schema and consumers, without working
    #[command(
        after_help = "Exit code 1 when something is not as it should be. Good as the first step of a deployment."
    )]
    Check(Set),
    /// Say what must be true before the backlog of another job table moves in
    Adopt(adopt::Adopt),
    /// Show the settings and their origin, or print the default file
    Config(config::Config),
    /// Say whether the schema is what this program wants
    Migrate {
        #[command(subcommand)]
        command: Migrate,
    },
}

#[derive(Debug, Subcommand)]
enum Migrate {
    /// Exit code 4 when something is pending; `outlast migrate` applies it
    Status,
}

/// Gives your binary the commands `run`, `check`, `adopt check`, `config` and `migrate status`, and answers its exit code.
///
/// `state` makes what your handlers need; it is called by `run` and `check` only. `worker` joins it to the handlers.
/// Flags win over the environment (`OUTLAST_…`), that over `outlast.toml`, that over what the code says. On SIGTERM or
/// Ctrl-C `run` claims nothing more and waits for running handlers; a second signal gives back what still runs.
///
/// ```no_run
/// # use outlast_engine::{Outlast, Worker};
/// # #[derive(Clone)] struct App;
/// # impl App { async fn from_env() -> Result<Self, std::env::VarError> { Ok(App) } }
/// fn worker(app: App) -> Worker<App> {
///     Outlast::new().worker(app)
/// }
///
/// #[tokio::main]
/// async fn main() -> std::process::ExitCode {
///     outlast_cli::cli(App::from_env, worker).await
/// }
/// ```
pub async fn cli<S, F, Fut, E>(state: F, worker: fn(S) -> Worker<S>) -> ExitCode
where
    S: Clone + Send + Sync + 'static,
    F: FnOnce() -> Fut,
    Fut: Future<Output = Result<S, E>>,
    E: Display,
{
    let own = match Own::from_arg_matches(&Own::command().get_matches()) {
        Ok(own) => own,
        Err(error) => error.exit(),
    };
    log::start(
        own.global.log,
        if matches!(own.command, Command::Run(_)) {
            "info"
        } else {
            "warn"
        },
    );
    let answer = own.run(state, worker).await;
    crate::end(answer, own.global.json)
}

impl Own {
    async fn run<S, F, Fut, E>(&self, state: F, worker: fn(S) -> Worker<S>) -> Answer
    where
        S: Clone + Send + Sync + 'static,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<S, E>>,
        E: Display,
    {
        let global = &self.global;
        match &self.command {
            Command::Run(set) => {
                let worker = worker(make(state).await?);
                let effective = Effective::load(global, set, &Base::of(&worker))?;
                effective.target()?;
                engine::work(
                    engine::configured(worker, &effective),
                    effective.settings.drain,
                )
                .await
            }
            Command::Check(set) => {
                let worker = worker(make(state).await?);
                let effective = Effective::load(global, set, &Base::of(&worker))?;
                check::run(
                    global.out(),
                    &effective,
                    &engine::configured(worker, &effective),
                )
                .await
            }
            Command::Adopt(adopt) => {
                let worker = worker(make(state).await?);
                let (base, described) = (Base::of(&worker), worker.described());
                adopt
                    .run(global, Some((&base, described.jobs.as_slice())))
                    .await
            }
            // What the code says about settings is only known with a state; this must work without one.
            Command::Config(config) => config.run(global, &Base::default()).await,
            Command::Migrate {
                command: Migrate::Status,
            } => migrate::status(global).await,
        }
    }
}

async fn make<S, Fut, E>(state: impl FnOnce() -> Fut) -> Answer<S>
where
    Fut: Future<Output = Result<S, E>>,
    E: Display,
{
    state().await.map_err(|error| {
        Problem::new(
            Exit::Failed,
            "make the state of the worker",
            // With what is behind it, where the error can tell.
            text::line(&format!("{error:#}")),
        )
    })
}
