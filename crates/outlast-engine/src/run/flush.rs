//! Seals for effect handlers, many in one commit: while one flush is on its way, the next one gathers.
//!
//! Of jobs the first one waits, too, a few milliseconds ([`Settings::flush`](crate::Settings::flush)): quick ones are all done
//! by then, and are completed by the commit that ends their claim.

use std::{sync::Arc, time::Duration};

use outlast_postgres::Error;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
};
use uuid::Uuid;

use super::{books::Books, broker::Deliveries, leases::Lease, record};
use crate::crash::{self, Point};

/// How many seals one statement carries at most.
const AT_ONCE: usize = 1000;
/// So many wait for no others.
const MANY: usize = 250;

/// The seals of one batch.
pub(crate) struct Flush {
    books: Books,
    lease: Lease,
    reclaimed: bool,
    ids: mpsc::UnboundedSender<Uuid>,
    pushed: usize,
    /// How many were pushed when many were told of last.
    told: usize,
    /// There are many, or there will be no more.
    enough: Arc<Notify>,
    recorded: watch::Receiver<Recorded>,
    task: JoinHandle<Gathered>,
    /// Who is told what is sealed.
    deliveries: Option<Deliveries>,
}

/// How far the flush of one batch has come.
#[derive(Clone, Copy, Debug, Default)]
struct Recorded {
    /// Of the ids that were pushed.
    ids: usize,
    /// Some could not be sealed and nothing more is.
    broken: bool,
}

/// What came of the seals when no more were pushed.
#[derive(Debug, Default)]
struct Gathered {
    sealed: usize,
    /// What was gathered by then, and goes with the end.
    rest: Vec<Uuid>,
}

/// How the seals of a batch are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Somebody else may have sealed some of them before.
    pub(crate) reclaimed: bool,
    /// What could not be sealed must not be followed by what came later.
    pub(crate) ordered: bool,
    /// So long the first ones wait for others.
    pub(crate) wait: Duration,
}

impl Flush {
    pub(crate) fn new(
        books: Books,
        lease: Lease,
        how: How,
        deliveries: Option<Deliveries>,
    ) -> Self {
        // Unbounded, but never holds more than the batch.
        let (ids, rest) = mpsc::unbounded_channel();
        let (tell, recorded) = watch::channel(Recorded::default());
        let enough = Arc::new(Notify::new());
        let task = tokio::spawn(gather(
            books.clone(),
            lease.clone(),
            how,
            Pushed {
                ids: rest,
                enough: enough.clone(),
            },
            tell,
            deliveries.clone(),
        ));
        Self {
            books,
            lease,
            reclaimed: how.reclaimed,
            ids,
            pushed: 0,
            told: 0,
            enough,
            recorded,
            task,
            deliveries,
        }
    }

    /// Waits until all that was pushed is committed; `false` if that will not come about.
    pub(crate) async fn settled(&self) -> bool {
        let (mut recorded, pushed) = (self.recorded.clone(), self.pushed);
        let reached = recorded
            .wait_for(|so_far| so_far.broken || so_far.ids >= pushed)
            .await;
        reached.is_ok_and(|so_far| !so_far.broken)
    }

    /// Takes ids whose handler returned `Ok`.
    pub(crate) fn push(&mut self, ids: impl Iterator<Item = Uuid>) {
        for id in ids {
            self.pushed += 1;
            // Closed only when the lease is lost; then nothing more may be sealed.
            let _ = self.ids.send(id);
        }
        if self.pushed >= self.told + MANY {
            self.told = self.pushed;
            self.enough.notify_one();
        }
    }

    /// Waits until all are committed, then seals the last ones, and what was still gathered, and, if asked, ends the batch in the same commit. Answers how
    /// many were sealed, and how many were left over at the end.
    pub(crate) async fn end(
        self,
        last: Vec<Uuid>,
        finish: bool,
    ) -> (usize, Option<Result<usize, Error>>) {
        let Self {
            books,
            lease,
            reclaimed,
            ids,
            enough,
            task,
            deliveries,
            ..
        } = self;
        let durable = |ids: &[Uuid]| {
            if let Some(deliveries) = &deliveries {
                deliveries.durable(lease.token, ids);
            }
        };
        drop(ids);
        enough.notify_one();
        let gathered = task.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the flush ended without a report");
            Gathered::default()
        });
        let (mut sealed, mut rest) = (gathered.sealed, gathered.rest);
        rest.extend(last);
        let last = rest;
        if finish && !last.is_empty() {
            crash::at(Point::Finishing);
            match seal_and_finish(&books, &lease, &last, reclaimed).await {
                // One of them cannot be sealed: each by itself.
                Err(Error::AlreadySealed | Error::NotInClaim) => {}
                ended => {
                    crash::at(Point::Finished);
                    if ended.is_ok() {
                        durable(&last);
                    }
                    return (sealed + last.len(), Some(ended));
                }
            }
        }
        if !last.is_empty() {
            match seal(&books, &lease, &last, true).await {
                Ok(n) => {
                    sealed += n;
                    durable(&last);
                }
                Err(error) => record::logged::<()>(Err(error)),
            }
        }
        if !finish {
            return (sealed, None);
        }
        crash::at(Point::Finishing);
        let ended = record::until_lost(&lease, "an end", || books.finish(lease.token)).await;
        crash::at(Point::Finished);
        (sealed, Some(ended))
    }
}

/// The last seals and the end in one commit.
async fn seal_and_finish(
    books: &Books,
    lease: &Lease,
    ids: &[Uuid],
    reclaimed: bool,
) -> Result<usize, Error> {
    let mut tries = 0;
    record::until_lost(lease, "an end", || {
        tries += 1;
        books.seal_and_finish(lease.token, ids, reclaimed || tries > 1)
    })
    .await
}

/// What is pushed, as it comes.
struct Pushed {
    ids: mpsc::UnboundedReceiver<Uuid>,
    enough: Arc<Notify>,
}

impl Pushed {
    /// The next ones; none when all have come. Answers whether these may go with the end: there are no more.
    async fn next(&mut self, ids: &mut Vec<Uuid>, wait: Duration) -> bool {
        if self.ids.recv_many(ids, AT_ONCE).await == 0 || wait.is_zero() {
            return false;
        }
        if ids.len() < MANY && !self.ids.is_closed() {
            // A notification from before only makes the wait shorter.
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.enough.notified() => {}
            }
        }
        while ids.len() < AT_ONCE
            && let Ok(id) = self.ids.try_recv()
        {
            ids.push(id);
        }
        self.ids.is_closed() && self.ids.is_empty()
    }
}

async fn gather(
    books: Books,
    lease: Lease,
    how: How,
    mut pushed: Pushed,
    tell: watch::Sender<Recorded>,
    deliveries: Option<Deliveries>,
) -> Gathered {
    let (mut sealed, mut ids) = (0, Vec::new());
    loop {
        let last = pushed.next(&mut ids, how.wait).await;
        if ids.is_empty() || last {
            break;
        }
        crash::at(Point::Flushing);
        match seal(&books, &lease, &ids, how.reclaimed).await {
            Ok(n) => {
                crash::at(Point::Flushed);
                sealed += n;
                if let Some(deliveries) = &deliveries {
                    deliveries.durable(lease.token, &ids);
                }
            }
            Err(error) => {
                tracing::warn!(%error, lease = %lease.token, events = ids.len(), "seals were not recorded");
                if how.ordered || lease.is_lost() {
                    tell.send_modify(|so_far| so_far.broken = true);
                    ids.clear();
                    break;
                }
            }
        }
        tell.send_modify(|so_far| so_far.ids += ids.len());
        ids.clear();
    }
    Gathered { sealed, rest: ids }
}

/// One commit. When one id of many cannot be sealed, the others are sealed one by one.
async fn seal(books: &Books, lease: &Lease, ids: &[Uuid], reclaimed: bool) -> Result<usize, Error> {
    let mut tries = 0;
    let sealed = record::until_lost(lease, "seals", || {
        tries += 1;
        // From the second try on, the first one may have been committed without our hearing of it.
        books.seal(lease.token, ids, reclaimed || tries > 1)
    })
    .await;
    match sealed {
        Ok(()) => Ok(ids.len()),
        Err(Error::AlreadySealed | Error::NotInClaim) if ids.len() > 1 => {
            let mut n = 0;
            for id in ids {
                let alone = [*id];
                match record::until_lost(lease, "a seal", || books.seal(lease.token, &alone, true))
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
