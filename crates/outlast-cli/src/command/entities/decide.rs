//! `outlast entities retry`, `abandon`, `forget` and `note`: what a person decides about one entity.

use clap::Args;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::which::Which;
use crate::{args::Global, database::Given, problem::Answer, work::Work};

#[derive(Debug, Args)]
#[command(after_help = "\
Mend the cause first: its reconciler runs again and reads how your row is then.

Examples:
  outlast entities retry chat_membership 7/3
  outlast entities retry 01890a5d-ac96-774b-bcce-b302099a8057 --actor ann")]
pub(super) struct Retry {
    #[command(flatten)]
    which: Which,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Only for one that waits for a person: its marks and deletions are given up, and count as converged. What
is kept of it stays; a later mark begins anew.

Example:
  outlast entities abandon chat_membership 7/3 --reason 'the chat is gone at their side'")]
pub(super) struct Abandon {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
#[command(after_help = "\
What others call it (show prints it) is forgotten, and nothing else: deletions stay to be cleaned up, and nothing
runs because of this. For what was taken away there by hand, or a restored backup that holds old refs.

Example:
  outlast entities forget chat_membership 7/3 --reason 'removed in their console'")]
pub(super) struct Forget {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
#[command(after_help = "\
For an incident `late refs`: a runner that had lost its lease had made something, which show prints. Remove it
there, or make sure that it is what is kept; then say so here.

Example:
  outlast entities note chat_membership 7/3 --reason 'MB7 was a second one: removed'")]
pub(super) struct Note {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct Why {
    /// Why, for whoever asks later
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

impl Why {
    /// Asks with the id, the reason and who asks.
    async fn decide(
        &self,
        global: &Global,
        (id, what): (Uuid, String),
        sql: &str,
        means: impl FnOnce(&str) -> Result<String, String>,
    ) -> Answer {
        let given: [Given<'_>; 3] = [
            (&id, Type::UUID),
            (&self.reason, Type::TEXT),
            (&self.actor, Type::TEXT),
        ];
        Work::Entity
            .decide(global, (id, what), (sql, &given), means)
            .await
    }
}

impl Retry {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let (id, what) = self.which.known(global, "retry entity").await?;
        let given: [Given<'_>; 2] = [(&id, Type::UUID), (&self.actor, Type::TEXT)];
        let sql = include_str!("../../../sql/entity/retry.sql");
        let means = |said: &str| match said {
            "ready" => Ok(format!("{id} may run now, with a full budget of tries")),
            "blocked" => {
                Err("another one has its key of exclusion, and keeps it to its end".into())
            }
            "done" => Err("nothing is to be done: it is converged; mark it".into()),
            state => Err(format!("it does not wait: it is {state}")),
        };
        Work::Entity
            .decide(global, (id, what), (sql, &given), means)
            .await
    }
}

impl Abandon {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let (id, what) = self.which.known(global, "abandon entity").await?;
        let sql = include_str!("../../../sql/entity/abandon.sql");
        let means = |said: &str| match said {
            "abandoned" => Ok(format!("what was wanted of {id} is given up")),
            "done" => Err("it does not wait for a person: it is converged".into()),
            state => Err(format!("it does not wait for a person: it is {state}")),
        };
        self.why.decide(global, (id, what), sql, means).await
    }
}

impl Forget {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let (id, what) = self.which.known(global, "forget refs of entity").await?;
        let sql = include_str!("../../../sql/entity/forget.sql");
        let means = |said: &str| match said {
            "forgotten" => Ok(format!("what was kept of {id} is forgotten")),
            "running" => {
                Err("it is running, with what was kept: pause its name, or come again".into())
            }
            _ => Err("nothing is kept of it".into()),
        };
        self.why.decide(global, (id, what), sql, means).await
    }
}

impl Note {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let (id, what) = self.which.known(global, "note late refs of entity").await?;
        let sql = include_str!("../../../sql/entity/note.sql");
        let means = |said: &str| match said {
            "noted" => Ok(format!("the late refs of {id} are noted")),
            _ => Err("there are no late refs of it".into()),
        };
        self.why.decide(global, (id, what), sql, means).await
    }
}
