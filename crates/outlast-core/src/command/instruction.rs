//! What makes a type a command, and the event that tells its end.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, de};

use super::Resolution;
use crate::{Consumable, Payload, Unreadable, job::Options};

/// An instruction to a provider that must not be repeated blindly: a charge, a contract, a message.
///
/// Say what is to be done, as an instruction. It is data, accepted in your transaction and never changed; what is done with it
/// is a function given to the worker, together with what is to be done if nobody knows whether it had an effect.
///
/// ```
/// use outlast_core::Command;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct ChargeCard { booking: i64, amount: String, currency: String, payee: String }
///
/// impl Command for ChargeCard {
///     const NAME: &'static str = "charge_card";
///     type Answer = String;                                                               // the provider's id of the charge
///     fn key(&self) -> String { format!("booking/{}/deposit", self.booking) }             // one a booking, for ever
///     fn account(&self) -> Option<String> { Some(format!("acme/{}", self.payee)) }        // throttled together
/// }
/// ```
pub trait Command: Payload {
    /// What the command is called everywhere: 1–90 of `a-z 0-9 . _ / -`.
    const NAME: &'static str;

    /// The version of the payload's shape. Raise it when old workers could not read the new shape.
    const VERSION: u16 = 1;

    /// What the provider says when it has done it: at most 64 KiB as JSON.
    type Answer: Payload;

    /// Its identity, per tenant, for life. The same content again is the same command; other content is a conflict, and a
    /// corrected instruction is a new command that supersedes this one.
    fn key(&self) -> String;

    /// The provider's account that is throttled, limited and paused together.
    fn account(&self) -> Option<String> {
        None
    }

    /// Of everything that names the same key, whatever it is called, one is under way at a time, in the order of acceptance. It
    /// keeps the key to its end, also while it is unknown.
    fn exclusive(&self) -> Option<String> {
        None
    }

    /// How it is run. Its key answers for ever unless this says otherwise.
    fn options() -> Options {
        Options::new().forever()
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

/// The event that is committed with the last state of a command: "the booking becomes paid" is an ordinary consumer of it.
///
/// Its type is the command's name with `.resolved`, its key the command's key.
#[derive(Clone, Debug)]
pub struct Resolved<C: Command> {
    /// What was to be done.
    pub command: C,
    /// How it ended.
    pub how: Resolution<C::Answer>,
}

#[derive(Deserialize)]
struct Stored<A> {
    command: serde_json::Value,
    how: Resolution<A>,
}

impl<C: Command> Serialize for Resolved<C> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut both = serializer.serialize_struct("Resolved", 2)?;
        both.serialize_field("command", &self.command)?;
        both.serialize_field("how", &self.how)?;
        both.end()
    }
}

impl<'de, C: Command> Deserialize<'de> for Resolved<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = Stored::<C::Answer>::deserialize(deserializer)?;
        let command = serde_json::from_value(stored.command).map_err(de::Error::custom)?;
        Ok(Self {
            command,
            how: stored.how,
        })
    }
}

impl<C: Command> Consumable for Resolved<C> {
    fn name() -> Cow<'static, str> {
        format!("{}.resolved", C::NAME).into()
    }

    fn version() -> u16 {
        C::VERSION
    }

    fn upcast(from: u16, old: serde_json::Value) -> Result<Self, Unreadable> {
        let stored: Stored<C::Answer> = serde_json::from_value(old)?;
        Ok(Self {
            command: C::upcast(from, stored.command)?,
            how: stored.how,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Pay {
        cents: i64,
    }
    impl Command for Pay {
        const NAME: &'static str = "pay";
        const VERSION: u16 = 2;
        type Answer = String;
        fn key(&self) -> String {
            "k".into()
        }
        fn upcast(_: u16, old: serde_json::Value) -> Result<Self, Unreadable> {
            let euros = old["euros"]
                .as_i64()
                .ok_or_else(|| Unreadable::new("no euros"))?;
            Ok(Self { cents: euros * 100 })
        }
    }

    #[test]
    fn the_end_of_a_command_reads_as_the_database_writes_it() {
        let read = |text: &str| serde_json::from_str::<Resolved<Pay>>(text).unwrap();
        let settled = read(r#"{"command":{"cents":120},"how":{"settled":"ch_1"}}"#);
        assert_eq!(
            (settled.command.cents, settled.how),
            (120, Resolution::Settled("ch_1".into()))
        );
        let rejected = read(r#"{"command":{"cents":120},"how":{"rejected" : "no funds"}}"#);
        assert_eq!(rejected.how, Resolution::Rejected("no funds".into()));
        let abandoned = read(
            r#"{"command":{"cents":1},"how":{"abandoned":{"incident":"018f3c2e-0000-7000-8000-000000000000"}}}"#,
        );
        assert!(matches!(abandoned.how, Resolution::Abandoned { .. }));
        assert_eq!(Resolved::<Pay>::name(), "pay.resolved");
        assert_eq!(
            serde_json::to_string(&read(&serde_json::to_string(&settled_again()).unwrap()))
                .unwrap(),
            serde_json::to_string(&settled_again()).unwrap()
        );
    }

    fn settled_again() -> Resolved<Pay> {
        Resolved {
            command: Pay { cents: 1 },
            how: Resolution::Settled("x".into()),
        }
    }

    #[test]
    fn an_older_command_in_it_is_read_by_its_upcast() {
        let old = serde_json::json!({"command": {"euros": 2}, "how": {"settled": "ch_1"}});
        assert_eq!(
            Resolved::<Pay>::upcast(1, old).unwrap().command,
            Pay { cents: 200 }
        );
    }
}
