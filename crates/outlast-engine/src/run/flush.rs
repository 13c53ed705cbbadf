//! Seals for effect handlers, many in one commit: while one flush is on its way, the next one gathers.

use outlast_postgres::{Error, store::Store};
use tokio::{sync::mpsc, task::JoinHandle};
use uuid::Uuid;

use super::{leases::Lease, record};
use crate::crash::{self, Point};

/// How many seals one statement carries at most.
const AT_ONCE: usize = 1000;

/// The seals of one batch.
pub(crate) struct Flush {
    store: Store,
    lease: Lease,
    reclaimed: bool,
    ids: mpsc::UnboundedSender<Uuid>,
    task: JoinHandle<usize>,
}

impl Flush {
    /// `reclaimed`: somebody else may have sealed some of them before.
    pub(crate) fn new(store: Store, lease: Lease, reclaimed: bool) -> Self {
        // Unbounded, but never holds more than the batch.
        let (ids, rest) = mpsc::unbounded_channel();
        let task = tokio::spawn(gather(store.clone(), lease.clone(), reclaimed, rest));
        Self {
            store,
            lease,
            reclaimed,
            ids,
            task,
        }
    }

    /// Takes ids whose handler returned `Ok`.
    pub(crate) fn push(&self, ids: impl Iterator<Item = Uuid>) {
        for id in ids {
            // Closed only when the lease is lost; then nothing more may be sealed.
            let _ = self.ids.send(id);
        }
    }

    /// Waits until all are committed, then seals the last ones and, if asked, ends the batch in the same commit. Answers how
    /// many were sealed, and how many were left over at the end.
    pub(crate) async fn end(
        self,
        last: Vec<Uuid>,
        finish: bool,
    ) -> (usize, Option<Result<usize, Error>>) {
        let Self {
            store,
            lease,
            reclaimed,
            ids,
            task,
        } = self;
        drop(ids);
        let mut sealed = task.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the flush ended without a report");
            0
        });
        if finish && !last.is_empty() {
            crash::at(Point::Finishing);
            match seal_and_finish(&store, &lease, &last, reclaimed).await {
                // One of them cannot be sealed: each by itself.
                Err(Error::AlreadySealed | Error::NotInClaim) => {}
                ended => {
                    crash::at(Point::Finished);
                    return (sealed + last.len(), Some(ended));
                }
            }
        }
        if !last.is_empty() {
            match seal(&store, &lease, &last, true).await {
                Ok(n) => sealed += n,
                Err(error) => record::logged::<()>(Err(error)),
            }
        }
        if !finish {
            return (sealed, None);
        }
        crash::at(Point::Finishing);
        let tokens = [lease.token];
        let ended = record::until_lost(&lease, "an end", || store.finish(&tokens)).await;
        crash::at(Point::Finished);
        (sealed, Some(ended))
    }
}

/// The last seals and the end in one commit.
async fn seal_and_finish(
    store: &Store,
    lease: &Lease,
    ids: &[Uuid],
    reclaimed: bool,
) -> Result<usize, Error> {
    let mut tries = 0;
    record::until_lost(lease, "an end", || {
        tries += 1;
        store.seal_and_finish(lease.token, ids, reclaimed || tries > 1)
    })
    .await
}

async fn gather(
    store: Store,
    lease: Lease,
    reclaimed: bool,
    mut rest: mpsc::UnboundedReceiver<Uuid>,
) -> usize {
    let (mut sealed, mut ids) = (0, Vec::new());
    while rest.recv_many(&mut ids, AT_ONCE).await > 0 {
        crash::at(Point::Flushing);
        match seal(&store, &lease, &ids, reclaimed).await {
            Ok(n) => {
                crash::at(Point::Flushed);
                sealed += n;
            }
            Err(error) => {
                tracing::warn!(%error, lease = %lease.token, events = ids.len(), "seals were not recorded");
                if lease.is_lost() {
                    break;
                }
            }
        }
        ids.clear();
    }
    sealed
}

/// One commit. When one id of many cannot be sealed, the others are sealed one by one.
async fn seal(store: &Store, lease: &Lease, ids: &[Uuid], reclaimed: bool) -> Result<usize, Error> {
    let mut tries = 0;
    let sealed = record::until_lost(lease, "seals", || {
        tries += 1;
        // From the second try on, the first one may have been committed without our hearing of it.
        store.seal(lease.token, ids, reclaimed || tries > 1)
    })
    .await;
    match sealed {
        Ok(()) => Ok(ids.len()),
        Err(Error::AlreadySealed | Error::NotInClaim) if ids.len() > 1 => {
            let mut n = 0;
            for id in ids {
                let alone = [*id];
                match record::until_lost(lease, "a seal", || store.seal(lease.token, &alone, true))
                    .await
                {
                    Ok(()) => n += 1,
                    Err(Error::AlreadySealed) => {}
                    Err(Error::NotInClaim) => {
                        tracing::info!(event = %id, "not sealed: a later try owns it");
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(n)
        }
        Err(error) => Err(error),
    }
}
