//! Entities: something that must look the same elsewhere, and what makes a type one.
//!
//! Names and rules only; how a mark is written is `outlast-postgres`' `entity`, how it is converged is `outlast-engine`'s `run/job`.

use crate::{Payload, Unreadable, job::Options};

/// Something of yours that must look the same elsewhere: a member of a provider's conversation, a customer in a billing system,
/// a document in a search index.
///
/// The value says only *which* one it is, never how it should look: that is read from your own tables each time. So a hundred
/// changes are one convergence to the latest, and one that comes while a convergence runs brings about another one after it. Where
/// each change counts by itself (an amount to be paid) the right shape is a [`Command`](crate::Command).
///
/// `Refs` is what the provider calls it: ids that are needed to find it there, and to take it away when your own row is gone.
///
/// ```
/// use outlast_core::Entity;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Membership { chat: i64, user: i64 }
///
/// #[derive(Serialize, Deserialize)]
/// struct Participant { conversation: String, sid: String }
///
/// impl Entity for Membership {
///     const NAME: &'static str = "chat_membership";
///     type Refs = Participant;
///     fn key(&self) -> String { format!("{}/{}", self.chat, self.user) }
///     fn exclusive(&self) -> Option<String> { Some(format!("conversation/{}", self.chat)) }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an entity",
    note = "implement `outlast::Entity` for it: `impl Entity for {Self} {{ const NAME: &'static str = \"..\"; type Refs = ..; fn key(&self) -> String {{ .. }} }}`"
)]
pub trait Entity: Payload {
    /// What it is called everywhere: 1–100 of `a-z 0-9 . _ / -`.
    const NAME: &'static str;

    /// The version of the value's shape. Raise it when old workers could not read the new shape.
    ///
    /// A worker that only knows older versions leaves the entity to one that knows this; nothing fails meanwhile.
    const VERSION: u16 = 1;

    /// What the provider knows it by: ids, at most 16 KiB as JSON. It outlives your row and any release, and has no version: what was
    /// written once must stay readable. Add fields that may be missing (`#[serde(default)]`), or variants.
    type Refs: Payload;

    /// Which one it is, per tenant: everything with one key is one entity, converged by one worker at a time.
    fn key(&self) -> String;

    /// Of everything that names the same key, entities and commands, whatever they are called, one is under way at a time, in the order
    /// in which they came. An entity keeps it until it is converged, also while it waits for its next try, or for a person.
    fn exclusive(&self) -> Option<String> {
        None
    }

    /// How it is converged: deadline, tries, pauses between them, how many at once. `outlast.toml` has the last word, by name. An
    /// entity has no end, so a lifetime says nothing here.
    fn options() -> Options {
        Options::new()
    }

    /// Reads a value that was written as an older version; see [`Event::upcast`](crate::Event::upcast).
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Serialize, Deserialize)]
    struct Member(i64);

    impl Entity for Member {
        const NAME: &'static str = "member";
        const VERSION: u16 = 2;
        type Refs = String;

        fn key(&self) -> String {
            self.0.to_string()
        }
    }

    #[test]
    fn an_older_value_is_not_guessed() {
        let refused = Member::upcast(1, serde_json::json!(7)).unwrap_err();
        assert_eq!(refused.reason(), "no upcast from version 1");
    }
}
