//! Follows: whether the version that an event carries is the next one after what a handler has stored.

use std::num::NonZeroU64;

/// The last version of one thing that a handler has taken in: what it stores beside its own rows.
///
/// Ask it before the work, in the transaction that will store the new version. It works for
/// [`Event::aggregate_version`](crate::Event::aggregate_version), which the application counts, and for the number that
/// [`Event::STRICT_KEY`](crate::Event::STRICT_KEY) makes Outlast count; both without holes. Before the first event it is
/// one less than where they begin; `key_seq` begins at 1, so it is `Stored(0)`.
///
/// ```
/// use outlast_core::follows::{Follows, Stored};
///
/// fn apply(balance: &mut (i64, i64), version: i64, cents: i64) -> Result<&'static str, String> {
///     match Stored(balance.0).then(version) {
///         Follows::Next => {
///             *balance = (version, balance.1 + cents);
///             Ok("done")
///         }
///         Follows::Seen => Ok("skipped: it was here before"),
///         Follows::Hole(missing) => Err(format!("{missing} before it have not come yet")),
///     }
/// }
///
/// let mut balance = (0, 0);
/// assert_eq!(apply(&mut balance, 1, 500), Ok("done"));
/// assert_eq!(apply(&mut balance, 1, 500), Ok("skipped: it was here before"));
/// assert_eq!(apply(&mut balance, 4, 70).unwrap_err(), "2 before it have not come yet");
/// assert_eq!(balance, (1, 500));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stored(pub i64);

/// How an event's version follows what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it says whether to apply the event"]
pub enum Follows {
    /// It is the next one: apply it.
    Next,
    /// It, or a newer one, was taken in already: skip it.
    Seen,
    /// So many are missing before it: wait for them, or read the thing itself.
    Hole(NonZeroU64),
}

impl Stored {
    /// How this version follows.
    pub fn then(self, version: i64) -> Follows {
        if version <= self.0 {
            return Follows::Seen;
        }
        NonZeroU64::new(version.abs_diff(self.0) - 1).map_or(Follows::Next, Follows::Hole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_next_or_seen_or_leaves_a_hole() {
        let hole = |n| Follows::Hole(NonZeroU64::new(n).unwrap());
        for (stored, came, follows) in [
            (0, 1, Follows::Next),
            (7, 8, Follows::Next),
            (7, 7, Follows::Seen),
            (7, -3, Follows::Seen),
            (7, 9, hole(1)),
            (-1, 0, Follows::Next),
            (i64::MIN, i64::MAX, hole(u64::MAX - 1)),
            (i64::MAX, i64::MIN, Follows::Seen),
        ] {
            assert_eq!(Stored(stored).then(came), follows, "{came} after {stored}");
        }
    }
}
