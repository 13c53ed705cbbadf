//! Commands: an instruction to a provider that must not be repeated blindly, and the one table of its states.
//!
//! Rules only. The rows are `outlast-postgres`' `functions/command.sql`, whose CHECK is compared with [`State::may_become`], and the
//! picture in `docs/commands.md` is [`picture`].

mod answer;
mod instruction;
mod policy;

pub use answer::{Found, Resolution, Sent};
pub use instruction::{Command, Resolved};
pub use policy::{Next, Policy};

use std::{fmt, str::FromStr};

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Accepted; nothing of it has left, or certainly without effect.
    Waiting,
    /// Committed right before the request leaves.
    Running,
    /// The provider took it and has not settled it.
    Pending,
    /// It may have had an effect, and nobody has said.
    Unknown,
    /// The provider did it.
    Settled,
    /// The provider refused it: no effect.
    Rejected,
    /// There is nothing to do any more: no effect.
    Obsolete,
    /// Withdrawn before it had an effect.
    Cancelled,
    /// A person has given it up.
    Abandoned,
}

impl State {
    /// Every state, the five ends last.
    pub const ALL: [Self; 9] = [
        Self::Waiting,
        Self::Running,
        Self::Pending,
        Self::Unknown,
        Self::Settled,
        Self::Rejected,
        Self::Obsolete,
        Self::Cancelled,
        Self::Abandoned,
    ];

    /// The word that SQL, HTTP and metrics use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Pending => "pending",
            Self::Unknown => "unknown",
            Self::Settled => "settled",
            Self::Rejected => "rejected",
            Self::Obsolete => "obsolete",
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
        }
    }

    /// Whether nothing follows.
    pub const fn is_end(self) -> bool {
        matches!(
            self,
            Self::Settled | Self::Rejected | Self::Obsolete | Self::Cancelled | Self::Abandoned
        )
    }

    /// The table of transitions.
    ///
    /// ```
    /// use outlast_core::command::State;
    ///
    /// assert!(State::Unknown.may_become(State::Settled));
    /// assert!(!State::Settled.may_become(State::Rejected));
    /// ```
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            // Settled and refused by key, before we have sent anything: somebody else did it, or an early webhook.
            Self::Waiting => matches!(
                next,
                Self::Running
                    | Self::Settled
                    | Self::Rejected
                    | Self::Obsolete
                    | Self::Cancelled
                    | Self::Abandoned
            ),
            Self::Running => matches!(
                next,
                Self::Waiting
                    | Self::Pending
                    | Self::Unknown
                    | Self::Settled
                    | Self::Rejected
                    | Self::Obsolete
            ),
            Self::Pending => matches!(next, Self::Settled | Self::Rejected | Self::Abandoned),
            Self::Unknown => matches!(
                next,
                Self::Waiting | Self::Pending | Self::Settled | Self::Rejected | Self::Abandoned
            ),
            _ => false,
        }
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
        known.ok_or_else(|| format!("`{word}` is not a state of a command"))
    }
}

/// The table as a Mermaid diagram, as it stands in the documentation.
pub fn picture() -> String {
    let mut lines = vec![
        "stateDiagram-v2".to_owned(),
        "    [*] --> waiting".to_owned(),
    ];
    for from in State::ALL {
        for to in State::ALL {
            if from.may_become(to) {
                lines.push(format!("    {from} --> {to}"));
            }
        }
    }
    lines.extend(
        State::ALL
            .into_iter()
            .filter(|state| state.is_end())
            .map(|state| format!("    {state} --> [*]")),
    );
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_an_end_and_everything_else_has_a_way_to_one() {
        for state in State::ALL {
            let next = State::ALL.map(|next| state.may_become(next));
            assert_eq!(state.is_end(), next == [false; 9], "{state}");
            assert!(!state.may_become(state), "{state} to itself is no move");
        }
        let mut reached = State::ALL.map(State::is_end);
        for _ in 0..State::ALL.len() {
            for (i, state) in State::ALL.into_iter().enumerate() {
                let onward = State::ALL
                    .into_iter()
                    .zip(reached)
                    .any(|(next, yes)| yes && state.may_become(next));
                reached[i] |= onward;
            }
        }
        assert_eq!(reached, [true; 9]);
    }

    #[test]
    fn words_are_read_back() {
        for state in State::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        assert!("failed".parse::<State>().is_err());
    }

    #[test]
    fn the_picture_in_the_documentation_is_the_table() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        let docs = std::fs::read_to_string(docs).expect("docs/commands.md");
        assert!(
            docs.contains(&picture()),
            "docs/commands.md should have:\n{}",
            picture()
        );
    }
}
