//! Parked: the states of an event that a consumer could not complete yet, and the order of a key while one of its events
//! is parked. Rules only; the rows are `outlast-postgres`' `functions/parked.sql`, whose CHECKs say the same.
//!
//! ```text
//! in a batch ─┬─ failed, crashed, unsealed ─► retry ◄──── known ──── waiting-version
//!             ├─ spent ─► quarantined ─ retried ─┘ │ └─ too new ─►──────┘
//!             ├─ too new ─► waiting-version        └─ spent ─► quarantined
//!             └─ its key is parked ─► behind ─ released ─► retry
//! each of them ─► done, skipped
//! ```

use std::{fmt, str::FromStr};

/// Where a parked event stands. `done` and `skipped` are ends: the row goes, the completion is in the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Waits for its next try, or has one running.
    Retry,
    /// Waits for an earlier event of its key; it has no due time of its own.
    Behind,
    /// Needs a person.
    Quarantined,
    /// Waits for a worker that knows its type and version.
    WaitingVersion,
    /// Completed.
    Done,
    /// Completed without work, with a reason.
    Skipped,
}

impl State {
    /// Every state, the two ends last.
    pub const ALL: [Self; 6] = [
        Self::Retry,
        Self::Behind,
        Self::Quarantined,
        Self::WaitingVersion,
        Self::Done,
        Self::Skipped,
    ];

    /// The word that SQL, HTTP and metrics use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Behind => "behind",
            Self::Quarantined => "quarantined",
            Self::WaitingVersion => "waiting-version",
            Self::Done => "done",
            Self::Skipped => "skipped",
        }
    }

    /// Whether nothing follows.
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Skipped)
    }

    /// Whether it leads its key: others wait behind it. All that is parked and not behind does.
    pub const fn leads(self) -> bool {
        !self.is_end() && !matches!(self, Self::Behind)
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
        known.ok_or_else(|| format!("`{word}` is not a state of a parked event"))
    }
}

/// Why a parked event moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A try failed, was not sealed, or its worker died; tries are left.
    Failed,
    /// The same, and it was the last try, or no other can help.
    Spent,
    /// An earlier event of its key is parked.
    Blocked,
    /// The process that had it knows neither its type nor its version.
    TooNew,
    /// A worker that knows its version asks for work.
    Known,
    /// All that was before it in its key is complete.
    Released,
    /// Released, but it had failed for good before its turn came.
    ReleasedSpent,
    /// A person gives it a new budget of tries.
    Retried,
    /// A person, or its handler, does without it.
    Skipped,
    /// Its completion was committed.
    Sealed,
}

/// The one table: from where (`None`: from a batch of the log), why, to where. What is not in it does not happen.
pub const TRANSITIONS: &[(Option<State>, Cause, State)] = {
    use Cause::{
        Blocked, Failed, Known, Released, ReleasedSpent, Retried, Sealed, Skipped, Spent, TooNew,
    };
    &[
        (None, Failed, State::Retry),
        (None, Spent, State::Quarantined),
        (None, Blocked, State::Behind),
        (None, TooNew, State::WaitingVersion),
        (Some(State::Retry), Failed, State::Retry),
        (Some(State::Retry), Spent, State::Quarantined),
        (Some(State::Retry), TooNew, State::WaitingVersion),
        (Some(State::Retry), Skipped, State::Skipped),
        (Some(State::Retry), Sealed, State::Done),
        (Some(State::Behind), Released, State::Retry),
        (Some(State::Behind), ReleasedSpent, State::Quarantined),
        (Some(State::Behind), Skipped, State::Skipped),
        // Parked and sealed may commit side by side; then the seal counts, whatever the state.
        (Some(State::Behind), Sealed, State::Done),
        (Some(State::Quarantined), Retried, State::Retry),
        (Some(State::Quarantined), Skipped, State::Skipped),
        (Some(State::Quarantined), Sealed, State::Done),
        (Some(State::WaitingVersion), Known, State::Retry),
        (Some(State::WaitingVersion), Skipped, State::Skipped),
        (Some(State::WaitingVersion), Sealed, State::Done),
    ]
};

/// Where an event goes; `None` where that must not happen.
pub fn next(from: Option<State>, cause: Cause) -> Option<State> {
    TRANSITIONS
        .iter()
        .find(|(state, why, _)| *state == from && *why == cause)
        .map(|(.., to)| *to)
}

/// Whether some cause leads from one state to the other.
pub fn allowed(from: Option<State>, to: State) -> bool {
    TRANSITIONS
        .iter()
        .any(|(state, _, next)| *state == from && *next == to)
}

/// A key of an ordered consumer: free, or parked under the event that leads it.
///
/// While it is parked, every later event of the key waits behind, and they are let go one at a time, in the order of the
/// log. Whoever parks or releases holds the key's row; what he reads, he reads in a statement after that lock.
///
/// ```
/// use outlast_core::parked::{Key, State};
///
/// let mut key = Key::default();
/// assert_eq!(key.park(7), State::Retry);            // it failed: it leads its key from now on
/// assert_eq!(key.park(8), State::Behind);
/// assert_eq!(key.release(7), Some(8));              // 7 is complete: 8 may run
/// assert_eq!(key.release(8), None);
/// assert_eq!(key, Key::default());                  // nothing is behind: the key is free again
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// Who leads, by log id.
    pub leader: Option<i64>,
    /// Who waits, in the order of the log.
    pub behind: std::collections::BTreeSet<i64>,
}

impl Key {
    /// Parks an event of this key: it leads if the key is free, else it waits behind.
    pub fn park(&mut self, id: i64) -> State {
        if self.leader.is_none() {
            self.leader = Some(id);
            return State::Retry;
        }
        self.behind.insert(id);
        State::Behind
    }

    /// An event of this key is complete. If it led, the first behind leads from now on and is the answer; if none is
    /// behind, the key is free.
    pub fn release(&mut self, id: i64) -> Option<i64> {
        self.behind.remove(&id);
        if self.leader == Some(id) {
            self.leader = self.behind.pop_first();
            return self.leader;
        }
        None
    }

    /// Whether so many are behind that its lane pauses.
    pub fn is_full(&self, most: usize) -> bool {
        self.behind.len() >= most
    }
}

/// What a parked event is classed as besides the classes of failures (`Class`): its handler returned without a seal, its
/// worker died, no worker knew it, it never started because its key was parked, what proves its completion may be gone, its broker
/// gave it up.
pub const CLASSES: [&str; 6] = [
    "unsealed",
    "crashed",
    "waiting-version",
    "behind",
    "too-old",
    "dead-letter",
];

/// How many events may wait behind one key before its lane pauses. A batch that was already claimed may add to it.
pub const BEHIND: usize = 10_000;

/// How many deaths of a worker while an event ran alone make a person look.
pub const SUSPECTS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_one_word_and_reads_it_back() {
        for state in State::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        assert!("parked".parse::<State>().is_err());
    }

    #[test]
    fn every_state_is_reached_and_only_the_ends_are_left_by_nothing() {
        for state in State::ALL {
            assert!(TRANSITIONS.iter().any(|(.., to)| *to == state), "{state}");
            let left = TRANSITIONS.iter().any(|(from, ..)| *from == Some(state));
            assert_eq!(left, !state.is_end(), "{state}");
        }
    }

    #[test]
    fn one_cause_leads_to_one_state() {
        for (nth, (from, cause, _)) in TRANSITIONS.iter().enumerate() {
            let same =
                |(other, why, _): &&(Option<State>, Cause, State)| other == from && why == cause;
            assert_eq!(TRANSITIONS.iter().filter(same).count(), 1, "row {nth}");
        }
        assert_eq!(next(Some(State::Behind), Cause::Failed), None);
        assert_eq!(next(Some(State::Done), Cause::Retried), None);
    }

    #[test]
    fn whatever_is_parked_can_be_skipped_and_may_turn_out_sealed() {
        for state in State::ALL.into_iter().filter(|state| !state.is_end()) {
            assert_eq!(next(Some(state), Cause::Skipped), Some(State::Skipped));
            assert_eq!(next(Some(state), Cause::Sealed), Some(State::Done));
        }
    }

    #[test]
    fn a_key_lets_go_one_at_a_time_in_the_order_of_the_log() {
        let mut key = Key::default();
        let parked: Vec<_> = [5, 9, 7, 6].map(|id| key.park(id)).into();
        assert_eq!(
            parked,
            [State::Retry, State::Behind, State::Behind, State::Behind]
        );
        assert_eq!(key.release(7), None, "one that is skipped lets nobody go");
        assert_eq!(key.release(5), Some(6));
        assert_eq!(key.release(6), Some(9));
        assert!(!key.is_full(1));
        assert_eq!((key.release(9), key.leader), (None, None));
    }
}
