//! SIGTERM and Ctrl-C: the first asks to finish what runs, the second to stop at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears signals from the moment it is made.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Resolves at the next signal, with its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        // Neither stream ends while the process lives.
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
