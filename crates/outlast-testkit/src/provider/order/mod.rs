//! Orders: what commands are for. Four kinds of provider in one process, which treats each request well or badly as its seed says.
//!
//! | request | what it does |
//! |---|---|
//! | `POST /orders/KIND` | one order: JSON with `reference` (ours) and `account`; keys in `Idempotency-Key`; see [`Kind`] |
//! | `GET /orders/KIND/by/REFERENCE` | what became of it, by our reference: not at a keyless one |
//! | `GET /orders/KIND/NUMBER` | what became of it, by the number that it gave |
//! | `PUT /orders` | how it treats orders from now on: [`Habits`] |
//! | `GET /orders` | the ledger: one JSON object a line, [`Entry`] |
//!
//! `refuse: true` in an order is refused for good, without effect. `call_back` is an address that is told of the end of the order
//! (`POST`, again until it answers 2xx). `valid-until-ms` in a request's headers is the time after which it is refused: who then
//! finds nothing has proof that nothing will come.

mod books;
mod call_back;
mod fault;
mod server;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use fault::{Fault, Habits};
pub(super) use server::routes;

/// What a provider knows about repeated requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Honours keys within its window, and repeats its first answer.
    Keyed,
    /// Honours keys within its window, and answers a repeated one with a refusal: "duplicate", or "insufficient funds".
    Grudging,
    /// No keys; it can be asked by our reference.
    Looked,
    /// Neither.
    Keyless,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Keyed, Self::Grudging, Self::Looked, Self::Keyless];

    /// Its word, as it stands in addresses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keyed => "keyed",
            Self::Grudging => "grudging",
            Self::Looked => "looked",
            Self::Keyless => "keyless",
        }
    }

    const fn honours_keys(self) -> bool {
        matches!(self, Self::Keyed | Self::Grudging)
    }
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// It was done. The one kind of line that counts as an effect.
    Effect,
    /// Its key was known: nothing was done.
    Repeat,
    /// It was refused for good.
    Refused,
    /// It came after its time.
    Expired,
    /// 429.
    Throttled,
    /// 503.
    Away,
    /// It got lost before anything was done.
    Lost,
}

/// One line of the ledger: on disk before anybody is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Who was asked.
    pub kind: Kind,
    /// Our reference.
    pub reference: String,
    /// The key, if one was sent.
    pub key: Option<String>,
    /// Whose it is.
    pub account: String,
    /// What came of it.
    pub what: What,
    /// The number that it gave: of a repeat, that of the first.
    pub number: u64,
    /// How many requests with this reference there were before.
    pub visit: u32,
    /// How many requests of this account were under way, with this one.
    pub beside: u32,
    /// When, in milliseconds of the Unix epoch.
    pub at_ms: u64,
    /// How it was treated.
    pub fault: Option<Fault>,
    /// The order.
    pub body: Value,
}

/// Where the orders of a provider with this ledger stand.
pub fn beside(ledger: &Path) -> PathBuf {
    ledger.with_extension("orders")
}
