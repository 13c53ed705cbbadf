//! Failures: why a try has no answer. Data that is stored with the attempt, not a Rust error.
//!
//! Which class an error of another crate has is decided once, in a [`Classify`]; the impls we bring are in `foreign`.

use crate::text;
use std::{fmt, str::FromStr, time::Duration};

/// How the next try is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Certainly no effect: try again later.
    Retry,
    /// Told to come later: waits that long and spends no attempt.
    Throttled,
    /// May have had an effect. For an event this is a retry; a command is not sent again blindly.
    Unknown,
    /// No further try can help: a person must look.
    Permanent,
    /// Nobody said. For an event this is a retry; in a command that was sent it is [`Class::Unknown`].
    Unclassified,
}

impl Class {
    /// Every class, in the order of this page.
    pub const ALL: [Self; 5] = [
        Self::Retry,
        Self::Throttled,
        Self::Unknown,
        Self::Permanent,
        Self::Unclassified,
    ];

    /// The word that SQL, HTTP and metrics use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Throttled => "throttled",
            Self::Unknown => "unknown",
            Self::Permanent => "permanent",
            Self::Unclassified => "unclassified",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|class| class.as_str() == word);
        known.ok_or_else(|| format!("`{word}` is not a class of failure"))
    }
}

/// Why a try has no answer.
///
/// A handler returns it as its `Err`. Decide the class where you know it; `?` does it for errors that implement
/// [`Classify`]. The reason is stored and shown to people: no secrets, no payloads.
///
/// ```
/// use outlast_core::{Class, Failure};
/// use std::time::Duration;
///
/// fn ask(status: u16) -> Result<(), Failure> {
///     match status {
///         200 => Ok(()),
///         429 => Err(Failure::throttled(Duration::from_secs(30))),
///         400 => Err(Failure::permanent("the provider refuses this address")),
///         _ => Err(Failure::retry(format!("the provider answered {status}"))),
///     }
/// }
/// assert_eq!(ask(400).unwrap_err().class, Class::Permanent);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a failure counts only when the handler returns it"]
pub struct Failure {
    /// How the next try is decided.
    pub class: Class,
    /// What happened, for people: at most 4 KiB, without control characters.
    pub reason: String,
    /// Not before this long from now. It can only make the pause longer.
    pub after: Option<Duration>,
    charged: bool,
}

impl Failure {
    fn new(class: Class, reason: impl fmt::Display) -> Self {
        // `{:#}` makes anyhow and its like print the whole chain; others do not care.
        Self {
            class,
            reason: text::clean(&format!("{reason:#}"), text::LIMIT),
            after: None,
            charged: true,
        }
    }

    /// What an error says about itself: the same as `?`, for an error that is still needed.
    pub fn of<E: Classify + ?Sized>(error: &E) -> Self {
        Self {
            after: error.after(),
            charged: error.charged(),
            ..Self::new(error.class(), error.reason())
        }
    }

    /// Certainly no effect: try again later, with backoff, until the attempts are spent.
    pub fn retry(reason: impl fmt::Display) -> Self {
        Self::new(Class::Retry, reason)
    }

    /// Told to come later: waits that long (at most an hour) and spends no attempt.
    pub fn throttled(after: Duration) -> Self {
        Self {
            after: Some(after),
            ..Self::new(Class::Throttled, "throttled")
        }
    }

    /// May have had an effect, for instance a timeout after sending.
    pub fn unknown(reason: impl fmt::Display) -> Self {
        Self::new(Class::Unknown, reason)
    }

    /// No further try can help: a person must look.
    pub fn permanent(reason: impl fmt::Display) -> Self {
        Self::new(Class::Permanent, reason)
    }

    /// Nobody knows which class it is: what a panic becomes.
    pub fn unclassified(reason: impl fmt::Display) -> Self {
        Self::new(Class::Unclassified, reason)
    }

    /// Makes the pause before the next try at least this long.
    pub fn after(mut self, pause: Duration) -> Self {
        self.after = Some(pause);
        self
    }

    /// Spends no attempt: what failed says nothing about this event.
    #[doc(hidden)]
    pub fn uncharged(mut self) -> Self {
        self.charged = false;
        self
    }

    /// Whether the try is taken from the budget of attempts. PostgreSQL's "try again" (40001, 40P01) and throttling are not.
    pub fn is_charged(&self) -> bool {
        self.charged && self.class != Class::Throttled
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.reason)
    }
}

/// Says what kind of failure an error is, once, where you know it. Then `?` works on it in a handler.
///
/// ```
/// use outlast_core::{Class, Classify, Failure};
///
/// #[derive(Debug)]
/// enum MailError { Connect, Refused(String) }
/// impl std::fmt::Display for MailError {
///     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
///         match self {
///             MailError::Connect => f.write_str("no connection"),
///             MailError::Refused(why) => write!(f, "refused: {why}"),
///         }
///     }
/// }
/// impl Classify for MailError {
///     fn class(&self) -> Class {
///         match self {
///             MailError::Connect => Class::Retry,        // the request never left
///             MailError::Refused(_) => Class::Permanent,
///         }
///     }
/// }
/// fn send() -> Result<(), MailError> { Err(MailError::Connect) }
/// fn handle() -> Result<(), Failure> { Ok(send()?) }
/// assert_eq!(handle().unwrap_err().to_string(), "retry: no connection");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what kind of failure it is",
    note = "write `.map_err(Failure::retry)?` (or unknown, permanent), or implement `outlast::Classify` for it once"
)]
pub trait Classify: fmt::Display {
    /// The class of this error.
    fn class(&self) -> Class;

    /// How long the other side asked us to wait, if it did.
    fn after(&self) -> Option<Duration> {
        None
    }

    /// Whether it spends one of the attempts. Only a conflict that PostgreSQL asks to try again (40001, 40P01) does not.
    fn charged(&self) -> bool {
        true
    }

    /// What to store and show. Override it where `Display` says too little, or more than should be stored.
    fn reason(&self) -> String {
        // `{:#}` makes anyhow and its like print the whole chain; others do not care.
        format!("{self:#}")
    }
}

impl<E: Classify> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::of(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_one_word_and_reads_it_back() {
        for class in Class::ALL {
            assert_eq!(class.as_str().parse(), Ok(class));
        }
        assert_eq!(
            "later".parse::<Class>(),
            Err("`later` is not a class of failure".into())
        );
    }

    #[test]
    fn a_reason_is_cleaned_and_bounded_when_it_is_made() {
        let failure = Failure::retry(format!("no\0 \u{1b}[31mroute{}", "x".repeat(10_000)));
        assert!(
            failure.reason.starts_with("no [31mroutexx") && failure.reason.len() <= text::LIMIT
        );
    }

    #[test]
    fn throttling_spends_no_attempt() {
        assert!(!Failure::throttled(Duration::from_secs(3)).is_charged());
        assert!(Failure::retry("x").is_charged() && Failure::unclassified("x").is_charged());
    }

    #[test]
    fn what_an_error_says_about_itself_reaches_the_failure() {
        struct Busy;
        impl fmt::Display for Busy {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("busy")
            }
        }
        impl Classify for Busy {
            fn class(&self) -> Class {
                Class::Throttled
            }
            fn after(&self) -> Option<Duration> {
                Some(Duration::from_secs(7))
            }
        }
        let failure = Failure::from(Busy);
        assert_eq!(
            (failure.class, failure.after),
            (Class::Throttled, Some(Duration::from_secs(7)))
        );
        assert_eq!(failure.to_string(), "throttled: busy");
    }
}
