//! `pause` and `resume` of jobs, commands and entities: operators own whether those of a name run; a deploy never un-pauses them.

use clap::Args;

use super::Work;
use crate::{args::Global, problem::Answer};

#[derive(Debug, Args)]
pub(crate) struct Pause {
    /// Their name; it is no matter whether there are such yet
    name: String,
    /// Why, for whoever finds them paused
    #[arg(long)]
    reason: String,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// Their name
    name: String,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

impl Pause {
    pub(crate) async fn run(&self, global: &Global, work: Work) -> Answer {
        let who = self.actor.as_deref();
        work.set_paused(global, &self.name, Some(&self.reason), who)
            .await
    }
}

impl Resume {
    pub(crate) async fn run(&self, global: &Global, work: Work) -> Answer {
        work.set_paused(global, &self.name, None, self.actor.as_deref())
            .await
    }
}
