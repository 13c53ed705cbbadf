//! Jobs, from the transaction that enqueues them to their end, against a real PostgreSQL.

use std::time::Duration;

use outlast_core::{Failure, Job, job::Options};
use outlast_engine::{Attempt, Outlast, Settings, Worker};
use outlast_postgres::{
    event::Accepted,
    tx::{OwnedTx, Pool},
};
use serde::{Deserialize, Serialize};

use crate::given::{Given, Running};

mod ends;
mod enqueue;
mod lost;
mod quick;
mod share;
mod times;

/// What is to be done. Tries follow one another quickly.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) n: i64,
}

impl Job for Task {
    const NAME: &'static str = "task";

    fn options() -> Options {
        Options::new().backoff(Duration::from_millis(20), Duration::from_millis(100))
    }
}

/// The same, one for each number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Keyed {
    pub(crate) n: i64,
    pub(crate) what: String,
}

impl Job for Keyed {
    const NAME: &'static str = "keyed";

    fn key(&self) -> Option<String> {
        Some(self.n.to_string())
    }
}

impl Given {
    /// Enqueues tasks with these numbers, each in a transaction of its own.
    pub(crate) async fn enqueue(&self, numbers: std::ops::Range<i64>) -> Vec<Accepted> {
        let mut accepted = Vec::new();
        for n in numbers {
            let mut tx = self.pool.begin().await.unwrap();
            let one = Outlast::new().enqueue(&mut tx, &Task { n }).await.unwrap();
            tx.commit().await.unwrap();
            accepted.push(one);
        }
        accepted
    }

    pub(crate) fn worker<S: Clone + Send + Sync + 'static>(&self, state: S) -> Worker<S> {
        self.worker_with(state, Self::settings())
    }

    pub(crate) fn worker_with<S: Clone + Send + Sync + 'static>(
        &self,
        state: S,
        settings: Settings,
    ) -> Worker<S> {
        let settings = Settings {
            deployment: self.deployment.clone(),
            ..settings
        };
        Outlast::new()
            .worker(state)
            .database(self.database.url())
            .settings(settings)
    }

    /// Waits until this many jobs are in this state, and nothing is in work.
    pub(crate) async fn jobs(&self, n: i64, state: &str) {
        let sql = format!("select count(*) from outlast.job where state = '{state}'");
        self.until(&sql, n).await;
        self.until("select count(*) from outlast.lease where room = 'job'", 0)
            .await;
        self.verified().await;
    }
}

/// A worker that completes every task.
pub(crate) fn completing(given: &Given) -> Running {
    async fn done(_: (), _: Attempt<Task>) -> Result<(), Failure> {
        Ok(())
    }
    Given::run(given.worker(()).job(done))
}
