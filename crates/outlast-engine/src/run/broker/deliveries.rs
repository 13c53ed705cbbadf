//! What a consumer has been delivered and has not settled: kept from others while it runs, acked when it is durable.
//!
//! An ack is sent for what the database has, in groups, and whatever comes of it is only counted: a message that comes again
//! finds its completion in the inbox.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use outlast_core::broker::{Acked, Settle};
use tokio::{
    sync::{Mutex as Turn, mpsc, oneshot, watch},
    time::{MissedTickBehavior, timeout},
};
use uuid::Uuid;

use crate::consumer::Source;

/// How long one ack may take.
const ACK: Duration = Duration::from_secs(5);
/// Beyond what it was given, an adapter that does not answer is given up after this.
const WATCHDOG: Duration = Duration::from_secs(1);
/// How many acks are under way at once.
const AT_ONCE: usize = 256;

/// The deliveries of one consumer. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct Deliveries(Arc<Inner>);

struct Inner {
    source: Arc<Source>,
    /// By the lease and the event: the same event may be delivered anew before the loss of its first lease is noticed.
    held: Mutex<HashMap<(Uuid, Uuid), Held>>,
    count: watch::Sender<usize>,
    settle: mpsc::UnboundedSender<What>,
    acks: Acks,
}

/// Extended while it runs, then settled: one after the other.
type Held = Arc<Turn<Option<Box<dyn Settle>>>>;

enum What {
    Ack(Held),
    Release(Held, Duration),
    /// Tells when all before it is settled.
    Tell(oneshot::Sender<()>),
}

/// What came of acks, so far.
#[derive(Debug, Default)]
struct Acks {
    confirmed: AtomicU64,
    sent: AtomicU64,
    lost: AtomicU64,
    unknown: AtomicU64,
}

impl std::fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deliveries")
            .field("held", &self.held())
            .field("acks", &self.0.acks)
            .finish_non_exhaustive()
    }
}

impl Deliveries {
    /// None yet.
    pub(crate) fn new(source: Source) -> Self {
        let (settle, all) = mpsc::unbounded_channel();
        let ack_within = source.subscription.ack_within;
        let inner = Arc::new(Inner {
            source: Arc::new(source),
            held: Mutex::default(),
            count: watch::Sender::new(0),
            settle,
            acks: Acks::default(),
        });
        // Both end with the last clone of this.
        tokio::spawn(settle_all(Arc::downgrade(&inner), all));
        tokio::spawn(extend_all(Arc::downgrade(&inner), ack_within));
        Self(inner)
    }

    /// Where they come from.
    pub(super) fn source(&self) -> &Arc<Source> {
        &self.0.source
    }

    /// How many are neither durable nor given back.
    pub(crate) fn held(&self) -> usize {
        *self.0.count.borrow()
    }

    /// Resolves when there are fewer.
    pub(crate) async fn fewer_than(&self, seen: usize) {
        let mut count = self.0.count.subscribe();
        // The sender lives as long as this, so an error cannot come.
        let _ = count.wait_for(|now| *now < seen).await;
    }

    /// It is ours under this lease, and runs.
    pub(crate) fn hold(&self, token: Uuid, id: Uuid, settle: Box<dyn Settle>) {
        let held = Arc::new(Turn::new(Some(settle)));
        self.lock().insert((token, id), held);
        self.told();
    }

    /// What became of these is committed: the broker need not deliver them again. Those that were not delivered here are
    /// passed over.
    pub(crate) fn durable(&self, token: Uuid, ids: &[Uuid]) {
        for held in self.take(token, ids) {
            self.send(What::Ack(held));
        }
    }

    /// These did not start, or nothing of them is durable: the broker delivers them again.
    pub(crate) fn give_back(&self, token: Uuid, ids: &[Uuid]) {
        for held in self.take(token, ids) {
            self.send(What::Release(held, Duration::ZERO));
        }
    }

    /// Somebody else may own these by now: nothing is said to the broker, which delivers them again after its own time.
    pub(crate) fn forget(&self, token: Uuid, ids: &[Uuid]) {
        drop(self.take(token, ids));
    }

    /// Acks what never ran here.
    pub(crate) fn ack(&self, settle: Box<dyn Settle>) {
        self.send(What::Ack(Arc::new(Turn::new(Some(settle)))));
    }

    /// Lets the broker deliver it again, not before this long.
    pub(crate) fn release(&self, settle: Box<dyn Settle>, after: Duration) {
        self.send(What::Release(Arc::new(Turn::new(Some(settle))), after));
    }

    /// Waits until all acks so far are sent, at most so long.
    pub(crate) async fn settled(&self, within: Duration) {
        let (tell, told) = oneshot::channel();
        self.send(What::Tell(tell));
        if timeout(within, told).await.is_err() {
            tracing::warn!("not every ack was sent; those messages come again and are found done");
        }
    }

    fn take(&self, token: Uuid, ids: &[Uuid]) -> Vec<Held> {
        let mut held = self.lock();
        let taken = ids
            .iter()
            .filter_map(|id| held.remove(&(token, *id)))
            .collect();
        drop(held);
        self.told();
        taken
    }

    fn told(&self) {
        let now = self.lock().len();
        self.0.count.send_replace(now);
    }

    fn send(&self, what: What) {
        // Closed only when the process ends; then the broker delivers it again.
        let _ = self.0.settle.send(what);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Uuid, Uuid), Held>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Acks {
    fn count(&self, acked: Acked) {
        let which = match acked {
            Acked::Confirmed => &self.confirmed,
            Acked::Sent => &self.sent,
            Acked::Lost => &self.lost,
            Acked::Unknown => &self.unknown,
        };
        let so_far = which.fetch_add(1, Ordering::Relaxed) + 1;
        if matches!(acked, Acked::Lost | Acked::Unknown) {
            tracing::debug!(
                ?acked,
                so_far,
                "an ack proves nothing: if it comes again, it is found done"
            );
        }
    }
}

async fn settle_all(inner: std::sync::Weak<Inner>, mut all: mpsc::UnboundedReceiver<What>) {
    let mut some = Vec::new();
    while all.recv_many(&mut some, AT_ONCE).await > 0 {
        let mut tell = Vec::new();
        let settling = some.drain(..).filter_map(|what| match what {
            What::Tell(told) => {
                tell.push(told);
                None
            }
            What::Ack(held) => Some((held, None)),
            What::Release(held, after) => Some((held, Some(after))),
        });
        let settling: Vec<_> = settling.map(|(held, after)| settle(held, after)).collect();
        for acked in join_all(settling).await.into_iter().flatten() {
            if let Some(inner) = inner.upgrade() {
                inner.acks.count(acked);
            }
        }
        for told in tell {
            let _ = told.send(());
        }
    }
}

/// Acks, or releases after a while.
async fn settle(held: Held, after: Option<Duration>) -> Option<Acked> {
    let settle = held.lock().await.take()?;
    match after {
        Some(after) => {
            let _ = timeout(ACK, settle.release(after)).await;
            None
        }
        None => Some(
            timeout(ACK + WATCHDOG, settle.ack(ACK))
                .await
                .unwrap_or(Acked::Unknown),
        ),
    }
}

/// Keeps what runs from being delivered to others: each third of the time that the broker gives.
async fn extend_all(inner: std::sync::Weak<Inner>, ack_within: Duration) {
    let third = (ack_within / 3).max(Duration::from_millis(10));
    let mut every = tokio::time::interval(third);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let Some(inner) = inner.upgrade() else { return };
        let held: Vec<Held> = Deliveries(inner).lock().values().cloned().collect();
        let extending = held.iter().map(|held| async {
            // Being settled at this moment: then it needs no extension.
            if let Ok(settle) = held.try_lock()
                && let Some(settle) = settle.as_ref()
            {
                let _ = timeout(third, settle.extend(ack_within)).await;
            }
        });
        join_all(extending).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_core::broker::{BoxFuture, Subscription};
    use outlast_testkit::broker::Memory;

    /// Tells what was done with it.
    struct Noted(mpsc::UnboundedSender<&'static str>);

    impl Settle for Noted {
        fn ack(self: Box<Self>, _: Duration) -> BoxFuture<'static, Acked> {
            let _ = self.0.send("ack");
            Box::pin(std::future::ready(Acked::Unknown))
        }

        fn release(self: Box<Self>, _: Duration) -> BoxFuture<'static, ()> {
            let _ = self.0.send("release");
            Box::pin(std::future::ready(()))
        }

        fn extend(&self, _: Duration) -> BoxFuture<'_, ()> {
            let _ = self.0.send("extend");
            Box::pin(std::future::ready(()))
        }
    }

    #[tokio::test]
    async fn what_runs_is_extended_and_what_is_durable_is_acked_once() {
        let (tell, mut told) = mpsc::unbounded_channel();
        let mut subscription = Subscription::new("a", "b");
        subscription.ack_within = Duration::from_millis(60);
        let deliveries = Deliveries::new(Source {
            broker: Arc::new(Memory::new()),
            subscription,
            acks_first: false,
        });
        let (token, id) = (Uuid::from_u128(1), Uuid::from_u128(2));
        deliveries.hold(token, id, Box::new(Noted(tell)));
        assert_eq!(deliveries.held(), 1);
        assert_eq!([told.recv().await, told.recv().await], [Some("extend"); 2]);
        deliveries.forget(Uuid::nil(), &[id]);
        deliveries.durable(token, &[id, Uuid::nil()]);
        deliveries.durable(token, &[id]);
        assert_eq!(deliveries.held(), 0);
        deliveries.settled(Duration::from_secs(10)).await;
        let mut rest = Vec::new();
        while let Some(what) = told.recv().await {
            rest.push(what);
        }
        rest.retain(|what| *what != "extend");
        assert_eq!(rest, ["ack"]);
        assert_eq!(deliveries.0.acks.unknown.load(Ordering::Relaxed), 1);
    }
}
