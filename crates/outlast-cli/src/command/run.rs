//! `outlast run` of the product: what a database needs when nobody's handlers are involved.

use clap::{Args, ValueEnum};

use crate::{
    args::Global,
    engine,
    problem::Answer,
    settings::{Base, Effective, Set},
};

#[derive(Debug, Args)]
#[command(after_help = "\
Handlers live in your own binary: its main calls outlast::cli(state, worker), and its `run` works with
them. This one has none. It checks at the start that the schema fits and that the database is the one
it should be, then watches the log and wakes the workers, until SIGTERM or Ctrl-C. Workers do that
themselves, too: none of them needs this command.

Examples:
  outlast run --set deployment=production --log json
  outlast run --only maintenance")]
pub(crate) struct Run {
    /// Nothing but this; workers do it too, one at a time over all of them
    #[arg(long)]
    only: Option<Only>,
    #[command(flatten)]
    set: Set,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Only {
    /// Fold completions, empty the slots that nobody needs, forget old keys
    Maintenance,
}

impl Run {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let effective = Effective::load(global, &self.set, &Base::default())?;
        effective.target()?;
        if let Some(Only::Maintenance) = self.only {
            let worker = engine::watchman(&effective).only_maintenance();
            return engine::work(worker, effective.settings.drain).await;
        }
        tracing::info!(
            "no handlers here: this only watches the log and wakes workers; handlers live in your own binary"
        );
        engine::work(engine::watchman(&effective), effective.settings.drain).await
    }
}
