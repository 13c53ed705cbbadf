//! `outlast unreadable`: messages of a broker that were no event when they came. They were kept as they came, and acked.

mod each;
mod ls;
mod show;

use clap::{Args, Subcommand};

use crate::{args::Global, problem::Answer};

#[derive(Debug, Args)]
pub(crate) struct Unreadable {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List them, oldest first
    Ls(ls::Ls),
    /// Show one as it came: attributes and payload
    Show(show::Show),
    /// Read them again, with this program: what is an event now is due at once for its consumer
    #[command(after_help = "\
For messages of a newer publisher, once this program knows them, or of a database that refused them then. The event keeps
its own id: what was completed meanwhile is not run again. What still cannot be read stays.

Examples:
  outlast unreadable retry 7f3c… --consumer mailer
  outlast unreadable retry --all --consumer mailer --yes")]
    Retry(each::Retry),
    /// Do without them: they are removed, with a line in the audit
    #[command(after_help = "\
What is removed is gone: the broker has it no more.

Examples:
  outlast unreadable discard 7f3c… --consumer mailer --reason 'a probe of the network team'
  outlast unreadable discard --all --consumer mailer --reason 'INC-7' --yes")]
    Discard(each::Discard),
}

impl Unreadable {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        match &self.command {
            Command::Ls(c) => c.run(global).await,
            Command::Show(c) => c.run(global).await,
            Command::Retry(c) => c.run(global).await,
            Command::Discard(c) => c.run(global).await,
        }
    }
}
