//! Events: immutable facts, and what makes a type one.
//!
//! Names only; how an event is written is `outlast-postgres`' `event`, how it is handled is `outlast-engine`'s `consumer`.

use serde::{Serialize, de::DeserializeOwned};
use std::{borrow::Cow, fmt};

/// Data that can be stored and read back: any serde type without borrowed parts. Implemented for you.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored and read back",
    note = "derive `serde::Serialize` and `serde::Deserialize` for it; it must also be `Send + Sync + 'static`"
)]
pub trait Payload: Serialize + DeserializeOwned + Send + Sync + 'static {}
impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Payload for T {}

/// An immutable fact, delivered at least once to every consumer of its type.
///
/// Say what happened, in the past tense (`booking.confirmed`). For an instruction or for the latest state of something
/// an event is the wrong shape: it is never updated and never withdrawn.
///
/// The name is the identity of the type in SQL, HTTP, the command line and metrics. The Rust path is never stored, so
/// the type may move and be renamed freely; the name may not.
///
/// ```
/// use outlast_core::Event;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct BookingConfirmed { booking: i64, total: String }
///
/// impl Event for BookingConfirmed {
///     const NAME: &'static str = "booking.confirmed";
///     fn key(&self) -> Option<String> { Some(format!("booking/{}", self.booking)) }
/// }
/// ```
pub trait Event: Payload {
    /// What the event is called everywhere: 1–100 of `a-z 0-9 . _ / -`, not ending in `.resolved` or `.finished`.
    const NAME: &'static str;

    /// The version of the payload's shape. Raise it when old readers could not read the new shape.
    ///
    /// A worker that only knows older versions lets the event wait for one that knows this; nothing fails meanwhile.
    const VERSION: u16 = 1;

    /// What the event is about: order is kept per key, and `outlast trace` finds it by this.
    ///
    /// The key belongs to the type, so that everybody who emits it agrees.
    fn key(&self) -> Option<String> {
        None
    }

    /// The version of the thing it is about, if the application counts them; lets a consumer see that it has a newer one.
    fn aggregate_version(&self) -> Option<i64> {
        None
    }

    /// Numbers the events of each key, from 1 and without holes, so that a consumer can see that one is missing.
    ///
    /// It costs a row lock: transactions that emit for one key wait for each other's end, and in REPEATABLE READ and
    /// SERIALIZABLE the later one gets a serialization failure (40001). The event must have a key. Order alone needs none of
    /// this: lock the thing before you emit. See [`Stored`](crate::Stored) for what a handler does with the number.
    const STRICT_KEY: bool = false;

    /// Reads a payload that was written as an older version.
    ///
    /// Called only for `from < VERSION`. What it refuses goes to quarantine with its bytes untouched.
    ///
    /// ```
    /// # use outlast_core::{Event, Unreadable};
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Serialize, Deserialize)]
    /// struct Paid { cents: i64, currency: String }
    ///
    /// impl Event for Paid {
    ///     const NAME: &'static str = "paid";
    ///     const VERSION: u16 = 2;
    ///     fn upcast(from: u16, old: serde_json::Value) -> Result<Self, Unreadable> {
    ///         #[derive(Deserialize)]
    ///         struct V1 { cents: i64 }
    ///         match from {
    ///             1 => Ok(Paid { cents: serde_json::from_value::<V1>(old)?.cents, currency: "CHF".into() }),
    ///             _ => Err(Unreadable::new("there never was such a version")),
    ///         }
    ///     }
    /// }
    /// ```
    fn upcast(from: u16, old: serde_json::Value) -> Result<Self, Unreadable> {
        let _ = old;
        Err(Unreadable::new(format_args!(
            "no upcast from version {from}"
        )))
    }
}

/// What a consumer may take: every [`Event`], and the end of a command or workflow.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event, so no consumer can take it",
    note = "implement `outlast::Event` for it: `impl Event for {Self} {{ const NAME: &'static str = \"..\"; }}`"
)]
pub trait Consumable: Payload {
    /// The event type it is stored under.
    fn name() -> Cow<'static, str>;

    /// The newest version this program can read.
    fn version() -> u16;

    /// Reads a payload of an older version; see [`Event::upcast`].
    fn upcast(from: u16, old: serde_json::Value) -> Result<Self, Unreadable>;
}

impl<E: Event> Consumable for E {
    fn name() -> Cow<'static, str> {
        E::NAME.into()
    }

    fn version() -> u16 {
        E::VERSION
    }

    fn upcast(from: u16, old: serde_json::Value) -> Result<Self, Unreadable> {
        <E as Event>::upcast(from, old)
    }
}

/// A stored payload that this program cannot read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(String);

impl Unreadable {
    /// Says why the payload cannot be read.
    pub fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }

    /// Why the payload cannot be read.
    pub fn reason(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unreadable: {}", self.0)
    }
}

impl std::error::Error for Unreadable {}

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self::new(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Serialize, Deserialize)]
    struct Paid {
        cents: i64,
    }
    impl Event for Paid {
        const NAME: &'static str = "paid";
        const VERSION: u16 = 3;
    }

    #[test]
    fn an_event_is_consumable_under_its_own_name_and_version() {
        assert_eq!((Paid::name().as_ref(), Paid::version()), ("paid", 3));
    }

    #[test]
    fn without_an_upcast_an_older_version_is_unreadable_and_says_which() {
        let refused = <Paid as Consumable>::upcast(2, serde_json::json!({ "cents": 1 }))
            .err()
            .unwrap();
        assert_eq!(refused.to_string(), "unreadable: no upcast from version 2");
    }
}
