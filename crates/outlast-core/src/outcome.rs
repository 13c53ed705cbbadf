//! Outcomes: how a try that worked ended.

use std::fmt;

/// How a try that worked ended. `Ok(())` is [`Outcome::Done`].
///
/// ```
/// use outlast_core::{Failure, Outcome};
///
/// fn handle(ours: bool) -> Result<Outcome, Failure> {
///     if !ours {
///         return Ok(Outcome::skipped("not ours"));
///     }
///     Ok(Outcome::Done)
/// }
/// # assert_eq!(handle(false).unwrap(), Outcome::Skipped("not ours".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The work was done.
    Done,
    /// There was nothing to do, and why. Just as final as done; what the handler wrote is committed.
    Skipped(String),
}

impl Outcome {
    /// There was nothing to do, and why.
    pub fn skipped(why: impl fmt::Display) -> Self {
        Self::Skipped(crate::text::clean(&why.to_string(), crate::text::LIMIT))
    }

    /// The word that SQL uses.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped(_) => "skipped",
        }
    }

    /// Why it was skipped.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Done => None,
            Self::Skipped(why) => Some(why),
        }
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}
