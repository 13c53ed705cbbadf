//! The destination of a consumer as this process sees it: when one event after the other fails, nothing new is started
//! but probes, until one succeeds.
//!
//! The rule is `outlast_core::outage`; here it is shared by the loop and its batches, and told: one line of the log, and
//! a row that operators read. That row is news, not truth: nothing is decided by it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use outlast_core::{Failure, outage::Outage};
use outlast_postgres::{Error, store::Store};
use tokio::sync::watch;
use uuid::Uuid;

/// What a batch was claimed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be done.
    Work,
    /// To see whether the destination is back.
    Probe,
}

/// Operators see an old row, which fades by itself.
fn told(consumer: &str, answer: Result<(), Error>) {
    if let Err(error) = answer {
        tracing::warn!(%error, consumer, "the outage was not written down");
    }
}

/// One consumer's destination. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    seen: Arc<Mutex<Outage<Uuid>>>,
    down: Arc<watch::Sender<bool>>,
    watched: bool,
}

impl Destination {
    pub(crate) fn new() -> Self {
        Self {
            seen: Arc::default(),
            down: Arc::new(watch::Sender::new(false)),
            watched: true,
        }
    }

    /// One that is never down, for what fails each for itself.
    pub(crate) fn unwatched() -> Self {
        Self {
            watched: false,
            ..Self::new()
        }
    }

    /// Whether nothing but a probe may start.
    pub(crate) fn is_down(&self) -> bool {
        *self.down.borrow()
    }

    /// Resolves when it is down.
    pub(crate) async fn down(&self) {
        // The sender lives as long as this, so an error cannot come.
        let _ = self.down.subscribe().wait_for(|down| *down).await;
    }

    /// How long to wait before the next probe.
    pub(crate) fn pause(&self) -> Duration {
        self.with(|seen| seen.pause(fastrand::f64()))
    }

    /// Learns of a failure. Recorded when it returns, if the database answers.
    pub(crate) async fn failed(
        &self,
        (store, consumer, name): (&Store, i32, &str),
        (event, purpose): (Uuid, Purpose),
        failure: &Failure,
    ) {
        if !self.watched {
            return;
        }
        let (begins, probed, down) = self.with(|seen| {
            let probed = purpose == Purpose::Probe && seen.is_open();
            let begins = !probed && seen.failed(event, failure);
            if probed {
                seen.probe_failed(failure);
            }
            (begins, probed, seen.is_open())
        });
        self.down.send_replace(down);
        if begins {
            tracing::error!(consumer = %name, reason = %failure.reason, "outage: one event after the other fails; nothing is started but probes until one succeeds");
        }
        if begins || probed {
            told(name, store.outage(consumer, &failure.reason).await);
        }
    }

    /// Learns that it has said itself that it takes nothing. Recorded when it returns, if the database answers.
    pub(crate) async fn refused(
        &self,
        (store, consumer, name): (&Store, i32, &str),
        failure: &Failure,
    ) {
        if self.watched && self.with(Outage::refused) {
            self.down.send_replace(true);
            tracing::error!(consumer = %name, reason = %failure.reason, "outage: the destination takes nothing; nothing is started but probes until one succeeds");
            told(name, store.outage(consumer, &failure.reason).await);
        }
    }

    /// Learns of a call in which it was not reached. Recorded when it returns, if the database answers.
    pub(crate) async fn unreached(
        &self,
        (store, consumer, name): (&Store, i32, &str),
        failure: &Failure,
    ) {
        if self.watched && self.with(Outage::unreached) {
            self.down.send_replace(true);
            tracing::error!(consumer = %name, reason = %failure.reason, "outage: the destination is not reached; nothing is started but probes until one succeeds");
            told(name, store.outage(consumer, &failure.reason).await);
        }
    }

    /// Learns of a success.
    pub(crate) async fn succeeded(&self, (store, consumer, name): (&Store, i32, &str)) {
        if self.with(Outage::succeeded) {
            self.down.send_replace(false);
            tracing::warn!(consumer = %name, "the outage is over: a probe has succeeded");
            told(name, store.outage_over(consumer).await);
        }
    }

    fn with<T>(&self, ask: impl FnOnce(&mut Outage<Uuid>) -> T) -> T {
        ask(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
