//! What batches tell the loop that claims for them: how much of what was claimed still waits for a place, and that something
//! has changed. The loop of jobs claims by it; it decides nothing else.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// The jobs of one name that this process has claimed and not started.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    waiting: AtomicUsize,
    running: AtomicUsize,
    left: AtomicUsize,
    failed: AtomicBool,
    changed: Arc<Notify>,
}

impl Tally {
    /// `changed` is one for all names of a process.
    pub(crate) fn new(changed: Arc<Notify>) -> Self {
        Self {
            changed,
            ..Self::default()
        }
    }

    /// How many wait for a place or run, without those whose handler overran its deadline and was left to itself.
    pub(super) fn held(&self) -> usize {
        // In this order: what is not waiting any more is running.
        let waiting = self.waiting.load(Ordering::Acquire);
        waiting + self.running.load(Ordering::Acquire)
    }

    /// How many overran their deadline, were left to themselves, and have not returned.
    pub(super) fn left(&self) -> usize {
        self.left.load(Ordering::Acquire)
    }

    /// A handler is left to itself.
    pub(super) fn leave(&self) {
        self.left.fetch_add(1, Ordering::AcqRel);
    }

    /// One that was left to itself has returned.
    pub(super) fn freed(&self) {
        self.left.fetch_sub(1, Ordering::AcqRel);
        self.changed.notify_one();
    }

    /// Whether a try has failed since this was last asked: another one may be due soon.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.swap(false, Ordering::AcqRel)
    }
}

/// What one batch has told.
#[derive(Debug, Default)]
pub(super) struct Told {
    tally: Option<Arc<Tally>>,
    waiting: usize,
    running: usize,
    failed: usize,
}

impl Told {
    pub(super) fn to(tally: Option<Arc<Tally>>) -> Self {
        Self {
            tally,
            ..Self::default()
        }
    }

    /// How many wait, how many run, how many have failed by now.
    pub(super) fn tell(&mut self, waiting: usize, running: usize, failed: usize) {
        let Some(tally) = &self.tally else { return };
        if (waiting, running, failed) == (self.waiting, self.running, self.failed) {
            return;
        }
        // Added before anything is taken away: one that begins is in both for a moment, and never in neither (see `held`).
        tally.waiting.fetch_add(waiting, Ordering::AcqRel);
        tally.running.fetch_add(running, Ordering::AcqRel);
        tally.waiting.fetch_sub(self.waiting, Ordering::AcqRel);
        tally.running.fetch_sub(self.running, Ordering::AcqRel);
        if failed > self.failed {
            tally.failed.store(true, Ordering::Release);
        }
        (self.waiting, self.running, self.failed) = (waiting, running, failed);
        tally.changed.notify_one();
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.tell(0, 0, self.failed);
    }
}
