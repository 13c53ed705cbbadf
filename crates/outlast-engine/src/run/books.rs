//! Where what becomes of claimed work is written: the inbox for events, the tables of jobs for jobs, commands and entities. A batch
//! does not know.

use std::{sync::Arc, time::Duration};

use outlast_core::{Failure, job::Options};
use outlast_postgres::{Error, store::Store};
use uuid::Uuid;

/// The books of one consumer, or of the jobs of one name. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Books {
    store: Store,
    of: Of,
}

#[derive(Clone)]
enum Of {
    /// The events of this consumer.
    Events(i32),
    /// Jobs that are run like this.
    Jobs(Arc<Options>),
    /// Entities that are converged like this. They lie in the tables of jobs.
    Entities(Arc<Options>),
}

/// How long what no handler here can read waits for another process.
const ANOTHER: Duration = Duration::from_secs(10);

impl Books {
    pub(crate) fn of_events(store: Store, consumer: i32) -> Self {
        let of = Of::Events(consumer);
        Self { store, of }
    }

    pub(crate) fn of_jobs(store: Store, options: Options) -> Self {
        let of = Of::Jobs(Arc::new(options));
        Self { store, of }
    }

    pub(crate) fn of_entities(store: Store, options: Options) -> Self {
        let of = Of::Entities(Arc::new(options));
        Self { store, of }
    }

    /// How long the first completions of a batch wait for others, where that may be so long. Those of events do not: what comes after
    /// them is on its way anyway.
    pub(super) fn waits(&self, flush: Duration) -> Duration {
        match self.of {
            Of::Events(_) => Duration::ZERO,
            Of::Jobs(_) | Of::Entities(_) => flush,
        }
    }

    /// Marks these as about to start. Committed when it returns.
    pub(super) async fn start(&self, token: Uuid, ids: &[Uuid]) -> Result<(), Error> {
        match self.of {
            Of::Events(_) => self.store.start(token, ids).await,
            Of::Jobs(_) | Of::Entities(_) => self.store.start_jobs(token, ids).await,
        }
    }

    /// Completes what a handler returned `Ok` for. Committed when it returns. `repeated` tolerates those that are complete.
    pub(super) async fn seal(
        &self,
        token: Uuid,
        ids: &[Uuid],
        repeated: bool,
    ) -> Result<(), Error> {
        match self.of {
            Of::Events(_) => self.store.seal(token, ids, repeated).await,
            Of::Jobs(_) | Of::Entities(_) => self.store.complete_jobs(token, ids, repeated).await,
        }
    }

    /// The last completions under a lease and its end, in one commit; answers how many were left over.
    pub(super) async fn seal_and_finish(
        &self,
        token: Uuid,
        ids: &[Uuid],
        repeated: bool,
    ) -> Result<usize, Error> {
        let store = &self.store;
        match self.of {
            Of::Events(_) => store.seal_and_finish(token, ids, repeated).await,
            Of::Jobs(_) | Of::Entities(_) => {
                store.complete_and_finish_jobs(token, ids, repeated).await
            }
        }
    }

    /// Ends a lease by what the tables say; answers how many were left over.
    pub(super) async fn finish(&self, token: Uuid) -> Result<usize, Error> {
        match self.of {
            Of::Events(_) => self.store.finish(&[token]).await,
            Of::Jobs(_) | Of::Entities(_) => self.store.finish_jobs(token).await,
        }
    }

    /// What was left over at an end that should have had nothing left.
    pub(super) fn leftovers(&self) -> &'static str {
        match self.of {
            Of::Events(_) => "parked as unsealed: a handler returned without a seal",
            Of::Jobs(_) | Of::Entities(_) => {
                "given back: what became of these jobs was not recorded"
            }
        }
    }

    /// Gives back some that have not started, while the others go on; `false` where a claim is given back only as a whole.
    pub(super) async fn let_go(&self, token: Uuid, ids: &[Uuid]) -> Result<bool, Error> {
        match self.of {
            Of::Events(_) => Ok(false),
            Of::Jobs(_) | Of::Entities(_) => {
                self.store.let_go_jobs(token, ids).await.map(|()| true)
            }
        }
    }

    /// Gives back what is left under a lease, without a charge; `running` are those that a handler still works on.
    pub(super) async fn hand_back(&self, token: Uuid, running: &[Uuid]) -> Result<(), Error> {
        match self.of {
            Of::Events(_) => self.store.hand_back(token, running).await,
            // Nobody else may converge what is still being converged: its lease keeps it from others for a while.
            Of::Entities(_) if !running.is_empty() => Ok(()),
            Of::Jobs(_) | Of::Entities(_) => self.store.finish_jobs(token).await.map(drop),
        }
    }

    /// Whether a transaction whose COMMIT was not answered has completed this; without its id, whether anything under the
    /// lease has.
    pub(super) async fn landed(
        &self,
        token: Uuid,
        id: Uuid,
        xid: Option<u64>,
    ) -> Result<bool, Error> {
        match (&self.of, xid) {
            (_, None) => self.store.settled(token, id).await,
            (Of::Events(consumer), Some(xid)) => self.store.landed(*consumer, id, xid).await,
            (Of::Jobs(_), Some(xid)) => self.store.job_landed(id, xid).await,
            (Of::Entities(_), Some(xid)) => self.store.entity_landed(token, id, xid).await,
        }
    }

    /// Leaves this to a process that can read it, without a charge.
    pub(super) async fn wait_for_version(&self, token: Uuid, id: Uuid) -> Result<(), Error> {
        match &self.of {
            Of::Events(_) => self.store.wait_for_version(token, id).await,
            Of::Jobs(options) | Of::Entities(options) => {
                let mut failure = Failure::throttled(ANOTHER);
                failure.reason = "no worker with a handler for this version".into();
                let put_off = self.store.fail_job(token, id, &failure, false, options);
                put_off.await.map(drop)
            }
        }
    }

    /// Records a failure; answers what became of it. Committed when it returns.
    pub(super) async fn fail(
        &self,
        token: Uuid,
        id: Uuid,
        failure: &Failure,
        charged: bool,
    ) -> Result<String, Error> {
        match &self.of {
            Of::Events(_) => self.store.fail(token, id, failure, charged).await,
            Of::Jobs(options) | Of::Entities(options) => {
                let store = &self.store;
                store.fail_job(token, id, failure, charged, options).await
            }
        }
    }
}
