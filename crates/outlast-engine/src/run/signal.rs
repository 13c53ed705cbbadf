//! The stop signal that runs through a worker: drain, then end.

use outlast_postgres::Error;
use tokio::sync::watch;

/// How far the stopping of a worker has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Running,
    Draining,
    Ended,
}

/// The worker's stop signal as its parts hear it.
#[derive(Clone, Debug)]
pub(crate) struct Stop(watch::Receiver<Phase>);

/// Who gives the signal.
#[derive(Debug)]
pub(crate) struct Stopper(watch::Sender<Phase>);

impl Stopper {
    pub(crate) fn new() -> (Self, Stop) {
        let (sender, receiver) = watch::channel(Phase::Running);
        (Self(sender), Stop(receiver))
    }

    /// Claim nothing more, finish what has started.
    pub(crate) fn drain(&self) {
        self.0.send_if_modified(|phase| {
            *phase < Phase::Draining && {
                *phase = Phase::Draining;
                true
            }
        });
    }

    /// The drain has run out.
    pub(crate) fn end(&self) {
        self.0.send_replace(Phase::Ended);
    }
}

impl Stop {
    /// Whether nothing may be claimed any more.
    pub(crate) fn is_draining(&self) -> bool {
        *self.0.borrow() >= Phase::Draining
    }

    /// Resolves when draining begins.
    pub(crate) async fn draining(&self) {
        self.reached(Phase::Draining).await;
    }

    /// Resolves when the drain has run out.
    pub(crate) async fn ended(&self) {
        self.reached(Phase::Ended).await;
    }

    async fn reached(&self, phase: Phase) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|now| *now >= phase).await.is_err() {
            // The worker is gone without a word: nothing is recorded any more.
            std::future::pending::<()>().await;
        }
    }
}

/// SIGTERM and Ctrl-C, as they come.
pub(super) struct Signals {
    #[cfg(unix)]
    term: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    pub(super) fn new() -> Result<Self, Error> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Error::Unexpected(format!("cannot listen for signals: {error}")))
        };
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    #[cfg(unix)]
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    pub(super) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
