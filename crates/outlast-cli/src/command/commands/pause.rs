//! `outlast commands pause` and `resume`: operators own whether the commands of a name go out; a deploy never un-pauses them.

use clap::Args;

use crate::{args::Global, problem::Answer, work::Work};

#[derive(Debug, Args)]
#[command(after_help = "\
What is on its way is not stopped; what is accepted waits. Nothing of the name is sent, looked up or
polled. To leave a provider alone, whatever the names: outlast accounts pause.")]
pub(super) struct Pause {
    /// The name of the commands
    name: String,
    /// Why, for whoever finds them paused
    #[arg(long)]
    reason: String,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Resume {
    /// The name of the commands
    name: String,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

impl Pause {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let who = self.actor.as_deref();
        Work::Command
            .set_paused(global, &self.name, Some(&self.reason), who)
            .await
    }
}

impl Resume {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        Work::Command
            .set_paused(global, &self.name, None, self.actor.as_deref())
            .await
    }
}
