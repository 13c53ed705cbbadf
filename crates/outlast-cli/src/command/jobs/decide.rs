//! `outlast jobs retry`, `cancel`, `abandon`: what a person decides about one job.

use clap::Args;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::{args::Global, database::Given, problem::Answer, work::Work};

#[derive(Debug, Args)]
#[command(after_help = "\
Mend the cause first: the handler gets the same job, with the same id and the same bytes.

Example:
  outlast incidents ls
  outlast jobs retry 01890a5d-ac96-774b-bcce-b302099a8057")]
pub(super) struct Retry {
    /// The job's id
    id: Uuid,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
What runs is not stopped: if its try fails, there is no other.")]
pub(super) struct Cancel {
    /// The job's id
    id: Uuid,
    /// Why, for whoever asks later
    #[arg(long)]
    reason: String,
    /// Who asks; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Abandon {
    /// The job's id
    id: Uuid,
    /// Why, for whoever asks later
    #[arg(long)]
    reason: String,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

impl Retry {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let id = self.id;
        let given: [Given<'_>; 2] = [(&id, Type::UUID), (&self.actor, Type::TEXT)];
        let sql = include_str!("../../../sql/job/retry.sql");
        let what = format!("retry job {id}");
        let means = |said: &str| match said {
            "ready" => Ok(format!("{id} may run now, with a full budget of tries")),
            state => Err(format!("it does not wait: it is {state}")),
        };
        Work::Job
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
        let sql = include_str!("../../../sql/job/cancel.sql");
        let what = format!("cancel job {id}");
        let means = |said: &str| match said {
            "withdrawn" => Ok(format!("{id} is withdrawn")),
            "requested" => Ok(format!(
                "{id} is running; if this try fails, there is no other"
            )),
            state => Err(format!("it has ended: it is {state}")),
        };
        Work::Job
            .decide(global, (id, what), (sql, &given), means)
            .await
    }
}

impl Abandon {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let id = self.id;
        let given: [Given<'_>; 3] = [
            (&id, Type::UUID),
            (&self.reason, Type::TEXT),
            (&self.actor, Type::TEXT),
        ];
        let sql = include_str!("../../../sql/job/abandon.sql");
        let what = format!("abandon job {id}");
        let means = |said: &str| match said {
            "abandoned" => Ok(format!("{id} is given up")),
            state => Err(format!("it does not wait for a person: it is {state}")),
        };
        Work::Job
            .decide(global, (id, what), (sql, &given), means)
            .await
    }
}
