//! `outlast events`: what was emitted, and where it stands.

mod ls;
mod show;

use clap::{Args, Subcommand};

use crate::{args::Global, problem::Answer};

#[derive(Debug, Args)]
pub(crate) struct Events {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the newest events, newest first
    #[command(after_help = "\
Examples:
  outlast events ls                                  the newest 50
  outlast events ls --type booking.confirmed --since 15m
  outlast events ls --key booking/42                 the history of one key
  outlast events ls --json | jq -r .id               one object a line")]
    Ls(ls::Ls),
    /// Show one event: envelope, payload, and where it stands for each consumer
    #[command(after_help = "\
States: done, skipped, running, retry, quarantined, waiting-version, in flight, waiting (not claimed
        yet), not for it (emitted before the consumer, or its interest in this type, began).

Examples:
  outlast events show 01890a5d-ac96-774b-bcce-b302099a8057
  outlast events show 01890a5d-ac96-774b-bcce-b302099a8057 --payload > exactly-the-stored-bytes")]
    Show(show::Show),
}

impl Events {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        match &self.command {
            Command::Ls(ls) => ls.run(global).await,
            Command::Show(show) => show.run(global).await,
        }
    }
}
