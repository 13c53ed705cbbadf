//! `outlast entities pause` and `resume`: operators own whether the entities of a name are reconciled; a deploy never un-pauses them.

use clap::Args;

use crate::{args::Global, problem::Answer, work::Work};

#[derive(Debug, Args)]
#[command(after_help = "\
What runs finishes; marks are kept, and wait. It is no matter whether there are such entities yet.")]
pub(super) struct Pause {
    /// The name of the entities
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
    /// The name of the entities
    name: String,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

impl Pause {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let who = self.actor.as_deref();
        Work::Entity
            .set_paused(global, &self.name, Some(&self.reason), who)
            .await
    }
}

impl Resume {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        Work::Entity
            .set_paused(global, &self.name, None, self.actor.as_deref())
            .await
    }
}
