//! `outlast commands retry` and `cancel`: both only for what has certainly had no effect.

use clap::Args;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::{args::Global, database::Given, problem::Answer, work::Work};

#[derive(Debug, Args)]
#[command(after_help = "\
Only for a command that waits: nothing of it has left, or certainly without effect. Mend the cause first.
One that may have had an effect is never sent again by this: outlast commands resolve.

Example:
  outlast commands retry 01890a5d-ac96-774b-bcce-b302099a8057")]
pub(super) struct Retry {
    /// The command's id
    id: Uuid,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Before it was sent it is withdrawn. After that the wish is on record, and comes to pass if it turns out
that what was sent had no effect.")]
pub(super) struct Cancel {
    /// The command's id
    id: Uuid,
    /// Why, for whoever asks later
    #[arg(long)]
    reason: String,
    /// Who asks; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

impl Retry {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let id = self.id;
        let given: [Given<'_>; 2] = [(&id, Type::UUID), (&self.actor, Type::TEXT)];
        let sql = include_str!("../../../sql/command/retry.sql");
        let what = format!("retry command {id}");
        let means = |said: &str| match said {
            "ready" => Ok(format!("{id} may be sent now, with a full budget of tries")),
            "blocked" => {
                Err("another command has its key of exclusion, and keeps it to its end".into())
            }
            "unknown" => {
                Err("it may have had an effect: it is unknown, and not sent again blindly".into())
            }
            state => Err(format!("it does not wait: it is {state}")),
        };
        Work::Command
            .decide(global, (id, what), (sql, &given), means)
            .await
    }
}

impl Cancel {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let id = self.id;
        let given: [Given<'_>; 3] = [
            (&id, Type::UUID),
            (&self.reason, Type::TEXT),
            (&self.actor, Type::TEXT),
        ];
        let sql = include_str!("../../../sql/command/cancel.sql");
        let what = format!("cancel command {id}");
        let means = |said: &str| match said {
            "withdrawn" => Ok(format!("{id} is withdrawn: nothing of it had an effect")),
            "requested" => Ok(format!(
                "{id} may have left: it is withdrawn if it turns out to have had no effect"
            )),
            state => Err(format!("it has ended: it is {state}")),
        };
        Work::Command
            .decide(global, (id, what), (sql, &given), means)
            .await
    }
}
