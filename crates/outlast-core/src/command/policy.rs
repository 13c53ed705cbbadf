//! What is done about a command that may have had an effect.

use std::time::Duration;

/// The first look after this long.
const FIRST_LOOK: Duration = Duration::from_secs(10);
/// Looks are this far apart at most.
const MOST_BETWEEN: Duration = Duration::from_secs(600);
/// So long it is asked; then a person is.
const LOOKS_FOR: Duration = Duration::from_secs(24 * 3600);
/// Of a provider's window nothing is sent within this long before its end.
const MARGIN: Duration = Duration::from_secs(30);

/// What the author of a command said about its provider. The order is that of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Policy {
    /// For so long after the first send the provider honours the same key.
    pub resend_within: Option<Duration>,
    /// The provider can be asked what became of it.
    pub looks: bool,
}

/// What comes next for a command that is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send it again, with the same key.
    Resend,
    /// Ask the provider, this long from now.
    Look(Duration),
    /// A person must find out.
    Ask,
}

impl Policy {
    /// What comes next. `since_first`: how long ago it was sent first; `unknown_for`: how long it has been unknown; `looks`: how often
    /// the provider was asked; `lease`: how long the next send may stay on its way.
    ///
    /// ```
    /// use outlast_core::command::{Next, Policy};
    /// use std::time::Duration;
    ///
    /// let day = Duration::from_secs(24 * 3600);
    /// let lease = Duration::from_secs(15);
    /// let policy = Policy { resend_within: Some(day), looks: false };
    /// assert_eq!(policy.next(Duration::from_secs(60), Duration::ZERO, 0, lease), Next::Resend);
    /// // 45 s before the end of the window and later, nothing is sent: it might arrive when the provider has forgotten.
    /// assert_eq!(policy.next(day - Duration::from_secs(44), Duration::ZERO, 0, lease), Next::Ask);
    /// ```
    pub fn next(
        self,
        since_first: Duration,
        unknown_for: Duration,
        looks: u32,
        lease: Duration,
    ) -> Next {
        if self
            .resend_within
            .is_some_and(|window| since_first + lease + MARGIN < window)
        {
            return Next::Resend;
        }
        if self.looks && unknown_for < LOOKS_FOR {
            return Next::Look((FIRST_LOOK * 2_u32.saturating_pow(looks.min(6))).min(MOST_BETWEEN));
        }
        Next::Ask
    }
}
