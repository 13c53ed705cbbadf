//! What a provider calls an entity, kept while its convergence still runs. It is written by a task of its own, which nobody drops: what
//! was just made at the provider must not be forgotten because somebody stopped waiting.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use outlast_core::Failure;
use outlast_postgres::{
    Error,
    store::{Refs, Store},
};
use uuid::Uuid;

use super::{leases::Lease, record};
use crate::crash::{self, Point};

/// How often it is tried while the database is away. The lease has lapsed long before: then it is evidence, and a person's.
const TRIES: u32 = 60;
/// After the lease is lost, the answer is waited for this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Keeps refs under the lease of one claim. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Keeper {
    store: Store,
    lease: Lease,
    kept: Arc<Mutex<Option<Option<Refs>>>>,
}

/// What is to be kept, as the tables have it and as people read it.
pub(crate) struct ToKeep {
    /// None: what was kept is forgotten.
    pub(crate) refs: Option<Refs>,
    pub(crate) digest: Option<Vec<u8>>,
    /// For the error. Encoded refs are not shown.
    pub(crate) shown: String,
}

impl Keeper {
    pub(crate) fn new(store: Store, lease: Lease) -> Self {
        Self {
            store,
            lease,
            kept: Arc::default(),
        }
    }

    /// What was kept last under this claim, or that it was forgotten; none where neither was said.
    pub(crate) fn kept(&self) -> Option<Option<Refs>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Option<Refs>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Durable when it returns `Ok`. `Err` says with the refs that they are not kept: somebody newer owns the entity, or the database
    /// did not answer as long as the lease held. They are evidence then, as soon as it answers.
    pub(crate) async fn keep(&self, id: Uuid, what: ToKeep) -> Result<(), Failure> {
        let (shown, refs) = (what.shown.clone(), what.refs.clone());
        let mut kept = tokio::spawn(written(self.clone(), id, what));
        let answer = tokio::select! {
            biased;
            answer = &mut kept => Some(answer),
            () = self.lease.lost() => tokio::time::timeout(PATIENCE, kept).await.ok(),
        };
        let why = match answer {
            Some(Ok(Ok(true))) => {
                crash::at(Point::Flushed);
                *self.lock() = Some(refs);
                return Ok(());
            }
            Some(Ok(Ok(false))) => {
                "the lease is lost, so they are evidence only and a person must look".to_owned()
            }
            Some(Ok(Err(error))) => error.to_string(),
            Some(Err(error)) => error.to_string(),
            None => "the lease is lost and the database does not answer".to_owned(),
        };
        // Something was made there, and the next try may not know of it.
        let lost = Failure::unknown(format_args!("refs {shown} were not kept: {why}"));
        tracing::error!(entity.id = %id, lease = %self.lease.token, %why, "refs were not kept");
        Err(lost)
    }

    /// These tombstones are done: their refs are not handed out again. Committed when it returns.
    pub(crate) async fn cleaned(&self, id: Uuid, tombstone: i64) -> Result<(), Error> {
        let (store, token) = (&self.store, self.lease.token);
        let tombstone = [tombstone];
        record::until_lost(&self.lease, "a deletion", || {
            store.cleaned(token, id, &tombstone)
        })
        .await
    }
}

/// Whether they were kept under the lease; else they are evidence.
async fn written(keeper: Keeper, id: Uuid, what: ToKeep) -> Result<bool, Error> {
    let (store, token) = (&keeper.store, keeper.lease.token);
    let mut tries = 0;
    loop {
        tries += 1;
        let kept = store.keep(token, id, what.refs.as_ref(), what.digest.as_deref());
        match kept.await {
            Err(error) if error.is_transient() && tries < TRIES => {
                tracing::warn!(%error, entity.id = %id, tries, "refs are not kept yet");
                tokio::time::sleep(record::pause(tries)).await;
            }
            answer => return answer,
        }
    }
}
