//! `outlast run` of the product: what a database needs when nobody's handlers are involved.

use clap::Args;

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

Example:
  outlast run --set deployment=production --log json")]
pub(crate) struct Run {
    #[command(flatten)]
    set: Set,
}

impl Run {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let effective = Effective::load(global, &self.set, &Base::default())?;
        effective.target()?;
        tracing::info!(
            "no handlers here: this only watches the log and wakes workers; handlers live in your own binary"
        );
        engine::work(engine::watchman(&effective), effective.settings.drain).await
    }
}
