//! `outlast consumers`: who reads events, how far behind they are, and whether they may work.

mod lanes;
mod ls;
mod remove_type;
mod rename;
mod retire;
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
    /// Give a consumer another name; its progress, completions and parked events stay
    #[command(after_help = "\
Rename first, then deploy the code that has the new name: workers that run go on, but one that starts
with the old name is refused from now on, so that it does not begin a second consumer.

Example:
  outlast consumers rename geo places")]
    Rename(rename::Rename),
    /// End a consumer for good: it holds nothing any more, and what it has not done is given up
    #[command(after_help = "\
Shows first what would be given up, and asks. A worker that registers it afterwards is refused.

Example:
  outlast consumers retire geo --reason 'replaced by places'")]
    Retire(retire::Retire),
    /// Take an event type, or a pattern, from a consumer that has no handler for it any more
    #[command(after_help = "\
Registration only adds types. Parked events of the type are skipped with the reason; new ones are not
the consumer's.

Example:
  outlast consumers remove-type geo city.moved --reason 'no handler since May'")]
    RemoveType(remove_type::RemoveType),
    /// Change the number of lanes of an ordered consumer, while its workers run
    #[command(after_help = "\
Order is kept: every lane goes as far as a common place in the log, then the number changes in one
commit. Until then the command waits; interrupted, the change goes on without it. The present number
takes back a change that is under way.

Example:
  outlast consumers lanes seats 32")]
    Lanes(lanes::Lanes),
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
            Command::Rename(c) => c.run(global).await,
            Command::Retire(c) => c.run(global).await,
            Command::RemoveType(c) => c.run(global).await,
            Command::Lanes(c) => c.run(global).await,
        }
    }
}
