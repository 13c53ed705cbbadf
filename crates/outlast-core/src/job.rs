//! Jobs: work that may run twice, and what makes a type one.
//!
//! Names and rules only; how a job is written is `outlast-postgres`' `job`, how it is run is `outlast-engine`'s `run/job`.

use crate::{Payload, Unreadable, backoff::Backoff};
use std::{fmt, str::FromStr, time::Duration};

/// Work that may run twice: it is done at least once, some time after your transaction has committed.
///
/// Say what is to be done, as an instruction (`send_receipt`). The name is the identity of the type in SQL, HTTP, the command
/// line and metrics; the Rust path is never stored, so the type may move and be renamed freely, the name may not.
///
/// What if the process dies in the middle? Another one runs the job again, with the same id: send that to a provider that
/// knows idempotency keys, or make the work such that twice is as good as once.
///
/// ```
/// use outlast_core::{Job, job::Options};
/// use serde::{Deserialize, Serialize};
/// use std::time::Duration;
///
/// #[derive(Serialize, Deserialize)]
/// struct SendReceipt { order: i64 }
///
/// impl Job for SendReceipt {
///     const NAME: &'static str = "send_receipt";
///     fn key(&self) -> Option<String> { Some(format!("order/{}", self.order)) }     // one receipt an order
///     fn options() -> Options { Options::new().deadline(Duration::from_secs(20)).attempts(5) }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    note = "implement `outlast::Job` for it: `impl Job for {Self} {{ const NAME: &'static str = \"..\"; }}`"
)]
pub trait Job: Payload {
    /// What the job is called everywhere: 1–100 of `a-z 0-9 . _ / -`.
    const NAME: &'static str;

    /// The version of the payload's shape. Raise it when old workers could not read the new shape.
    ///
    /// A worker that only knows older versions leaves the job to one that knows this; nothing fails meanwhile.
    const VERSION: u16 = 1;

    /// Makes it one job with every other of its tenant, name and key: accepted once, whatever becomes of it.
    ///
    /// The same content again is answered with the job that is there; other content under the same key is a conflict. How
    /// long the key answers is [`Options::lifetime`]. Without a key every one is a job of its own.
    fn key(&self) -> Option<String> {
        None
    }

    /// How it is run. `outlast.toml` has the last word, by name: `[job.send_receipt]`.
    fn options() -> Options {
        Options::new()
    }

    /// Reads a payload that was written as an older version; see [`Event::upcast`](crate::Event::upcast).
    ///
    /// # Errors
    /// What it refuses waits for a person, with its bytes untouched.
    fn upcast(from: u16, old: serde_json::Value) -> Result<Self, Unreadable> {
        let _ = old;
        Err(Unreadable::new(format_args!(
            "no upcast from version {from}"
        )))
    }
}

/// How the jobs of a name are run. What is not said is as the worker's settings say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// How long one try may take. 60 s.
    pub deadline: Option<Duration>,
    /// How many tries there are before a person must look. 8.
    pub attempts: Option<u32>,
    /// How long to wait between tries. Full jitter: up to 1 s after the first failure, doubled each time, up to 10 min.
    pub backoff: Option<Backoff>,
    /// How many one process runs at once. 8.
    pub concurrency: Option<usize>,
    /// How long a key answers. 30 days, or what `retention.job_key` of the cluster says.
    pub lifetime: Option<Lifetime>,
}

/// How long the key of a job answers after it was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lifetime {
    /// So long; after that whoever enqueues with it is told that it has expired, not that it is new.
    For(Duration),
    /// For ever: a row stays for each key.
    Forever,
}

impl Options {
    /// As the worker's settings say, in everything.
    pub const fn new() -> Self {
        Self {
            deadline: None,
            attempts: None,
            backoff: None,
            concurrency: None,
            lifetime: None,
        }
    }

    /// How long one try may take. After it and a short grace the try has failed, whatever it still does.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How many tries there are before a person must look, from 1.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// How long to wait between tries: anything up to `first` after the first failure, up to twice that after the second, and
    /// so on, never longer than `most`.
    #[must_use]
    pub const fn backoff(mut self, first: Duration, most: Duration) -> Self {
        self.backoff = Some(Backoff { first, most });
        self
    }

    /// How many one process runs at once.
    #[must_use]
    pub const fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = Some(jobs);
        self
    }

    /// How long a key answers.
    #[must_use]
    pub const fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(Lifetime::For(lifetime));
        self
    }

    /// A key answers for ever.
    #[must_use]
    pub const fn forever(mut self) -> Self {
        self.lifetime = Some(Lifetime::Forever);
        self
    }

    /// Everything that is wrong with these, in sentences.
    pub fn problems(&self) -> Vec<String> {
        const LONGEST: Duration = Duration::from_secs(3650 * 24 * 3600);
        let mut problems = Vec::new();
        if self.deadline.is_some_and(|deadline| deadline.is_zero()) {
            problems.push("deadline is 0".to_owned());
        }
        if let Some(attempts) = self.attempts.filter(|n| !(1..=1000).contains(n)) {
            problems.push(format!("attempts is {attempts}, not between 1 and 1000"));
        }
        if let Some(jobs) = self.concurrency.filter(|n| !(1..=10_000).contains(n)) {
            problems.push(format!("concurrency is {jobs}, not between 1 and 10000"));
        }
        if let Some(backoff) = self.backoff
            && (backoff.first.is_zero()
                || backoff.most < backoff.first
                || backoff.most > crate::backoff::LONGEST_PAUSE)
        {
            problems.push(
                "backoff does not go from something to as much or more, up to a week".to_owned(),
            );
        }
        if let Some(Lifetime::For(lifetime)) = self.lifetime
            && (lifetime < Duration::from_millis(1) || lifetime > LONGEST)
        {
            problems.push("lifetime is not between 1ms and ten years".to_owned());
        }
        problems
    }
}

/// How a job, or a command, stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// It will run: now, at its time, or when a person has decided.
    Waiting,
    /// A worker has it.
    Running,
    /// Of a command: the provider took it and has not settled it.
    Pending,
    /// Of a command: it may have had an effect, and nobody has said.
    Unknown,
    /// Its handler has returned `Ok`.
    Done,
    /// Its handler has said that there was nothing to do.
    Skipped,
    /// It was withdrawn.
    Cancelled,
    /// A person has given it up.
    Abandoned,
    /// Of a command: the provider did it.
    Settled,
    /// Of a command: the provider refused it.
    Rejected,
    /// Of a command: there is nothing to do any more.
    Obsolete,
}

impl State {
    /// Every state, in the order of this page.
    pub const ALL: [Self; 11] = [
        Self::Waiting,
        Self::Running,
        Self::Pending,
        Self::Unknown,
        Self::Done,
        Self::Skipped,
        Self::Cancelled,
        Self::Abandoned,
        Self::Settled,
        Self::Rejected,
        Self::Obsolete,
    ];

    /// The word that SQL, HTTP and the command line use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Pending => "pending",
            Self::Unknown => "unknown",
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
            Self::Settled => "settled",
            Self::Rejected => "rejected",
            Self::Obsolete => "obsolete",
        }
    }

    /// Whether it never changes any more.
    pub const fn is_end(self) -> bool {
        !matches!(
            self,
            Self::Waiting | Self::Running | Self::Pending | Self::Unknown
        )
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|state| state.as_str() == word);
        known.ok_or_else(|| format!("`{word}` is not a state of a job"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_without_a_word_are_right_and_senseless_ones_are_all_told() {
        assert_eq!(Options::new().problems(), Vec::<String>::new());
        let senseless = Options::new()
            .deadline(Duration::ZERO)
            .attempts(0)
            .concurrency(0)
            .backoff(Duration::from_secs(2), Duration::from_secs(1))
            .lifetime(Duration::ZERO);
        assert_eq!(senseless.problems().len(), 5, "{:?}", senseless.problems());
    }

    #[test]
    fn every_state_has_a_word_of_its_own() {
        for state in State::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        assert!("waitin".parse::<State>().is_err());
    }
}
