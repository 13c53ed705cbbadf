//! `outlast consumers`: who reads events, how far behind they are, and whether they may work.

mod ls;
mod show;

use clap::{Args, Subcommand};

use super::pause;
use crate::{args::Global, problem::Answer};

#[derive(Debug, Args)]
pub(crate) struct Consumers {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List consumers and what is unfinished for each
    #[command(after_help = "\
BEHIND counts drawn ids, of every type, after the place where the consumer stands: an upper bound of
what waits for it. KEYS counts those of an ordered consumer whose later events wait for a parked one.

Example:
  outlast consumers ls --json | jq -r 'select(.quarantined > 0) | .name'")]
    Ls,
    /// Show one consumer: its types, its place, and who works for it now
    Show {
        /// The consumer's name
        name: String,
    },
    /// Stop handing out events to a consumer; what is running finishes
    #[command(after_help = "A deploy never un-pauses a consumer: only `resume` does.")]
    Pause {
        /// The consumer's name
        name: String,
        /// Why, for whoever finds it paused
        #[arg(long)]
        reason: String,
    },
    /// Let a paused consumer go on from where it stood
    Resume {
        /// The consumer's name
        name: String,
    },
}

impl Consumers {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        match &self.command {
            Command::Ls => ls::run(global).await,
            Command::Show { name } => show::run(global, name).await,
            Command::Pause { name, reason } => {
                pause::set(global, std::slice::from_ref(name), Some(reason)).await
            }
            Command::Resume { name } => pause::set(global, std::slice::from_ref(name), None).await,
        }
    }
}
