//! `outlast jobs pause` and `resume`: operators own whether the jobs of a name run; a deploy never un-pauses them.

use clap::Args;

use crate::{args::Global, problem::Answer, work::Work};

#[derive(Debug, Args)]
#[command(after_help = "\
What runs finishes; what is enqueued waits. It is no matter whether there are such jobs yet.")]
pub(super) struct Pause {
    /// The name of the jobs
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
    /// The name of the jobs
    name: String,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

impl Pause {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let who = self.actor.as_deref();
        Work::Job
            .set_paused(global, &self.name, Some(&self.reason), who)
            .await
    }
}

impl Resume {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        Work::Job
            .set_paused(global, &self.name, None, self.actor.as_deref())
            .await
    }
}
