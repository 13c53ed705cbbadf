//! Says on stderr how far it is: one line that is written over on a terminal, now and then a line elsewhere.

use std::convert::Infallible;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::books::{Books, Counts};
use crate::chaos::Gate;

/// Elsewhere than on a terminal, a line that says nothing new comes this often.
const QUIET: Duration = Duration::from_secs(10);
const CLEAR: &str = "\r\x1b[2K";

pub(crate) struct Progress {
    requests: usize,
    gate: Gate,
    terminal: bool,
    started: Instant,
}

impl Progress {
    pub(crate) fn new(requests: usize, gate: Gate) -> Self {
        Self {
            requests,
            gate,
            terminal: stderr().is_terminal(),
            started: Instant::now(),
        }
    }

    /// Something has happened.
    pub(crate) fn say(&self, what: &str) {
        let clear = if self.terminal { CLEAR } else { "" };
        eprintln!(
            "{clear}{:5.1} s  {what}",
            self.started.elapsed().as_secs_f64()
        );
    }

    /// Shows until it is dropped.
    pub(crate) async fn show(&self, books: &Books) -> Infallible {
        let pause = if self.terminal {
            Duration::from_millis(200)
        } else {
            Duration::from_secs(2)
        };
        let mut counts = Counts::default();
        let mut shown = (Instant::now(), Counts::default(), 0);
        loop {
            sleep(pause).await;
            // While PostgreSQL is down the last ones stay.
            counts = books.counts().await.unwrap_or(counts);
            let (at, last, done) = shown;
            if self.terminal || (last, done) != (counts, self.gate.done()) || at.elapsed() > QUIET {
                self.line(&counts);
                shown = (Instant::now(), counts, self.gate.done());
            }
        }
    }

    fn line(&self, counts: &Counts) {
        let Counts {
            bookings,
            deliveries,
            ledger,
            mailer,
            archive,
        } = counts;
        let (done, all) = (self.gate.done(), self.requests);
        let text = format!(
            "{:5.1} s  requests {done} of {all}, committed {} | ledger {ledger}, mailer {mailer}, archive {archive}",
            self.started.elapsed().as_secs_f64(),
            bookings + deliveries,
        );
        if self.terminal {
            eprint!("{CLEAR}{text}");
        } else {
            eprintln!("{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal {
            eprint!("{CLEAR}");
        }
    }
}
