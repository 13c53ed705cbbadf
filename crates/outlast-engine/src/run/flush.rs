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
    ids: mpsc::UnboundedSender<Uuid>,
    task: JoinHandle<usize>,
}

impl Flush {
    /// `reclaimed`: somebody else may have sealed some of them before.
    pub(crate) fn new(store: Store, lease: Lease, reclaimed: bool) -> Self {
        // Unbounded, but never holds more than the batch.
        let (ids, rest) = mpsc::unbounded_channel();
        Self {
            ids,
            task: tokio::spawn(gather(store, lease, reclaimed, rest)),
        }
    }

    /// Takes ids whose handler returned `Ok`.
    pub(crate) fn push(&self, ids: impl Iterator<Item = Uuid>) {
        for id in ids {
            // Closed only when the lease is lost; then nothing more may be sealed.
            let _ = self.ids.send(id);
        }
    }

    /// Waits until all are committed; answers how many were.
    pub(crate) async fn end(self) -> usize {
        drop(self.ids);
        self.task.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the flush ended without a report");
            0
        })
    }
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
