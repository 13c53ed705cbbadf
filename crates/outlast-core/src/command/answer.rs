//! What a provider says, and how a command ends.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What the provider said when it was asked to act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent<A> {
    /// It has done it.
    Settled(A),
    /// It took it and will settle it later: by a webhook (`settle`), or when it is asked (`Worker::poll`).
    Pending {
        /// What the provider calls it.
        reference: String,
    },
    /// It refuses, without effect.
    Rejected(String),
    /// There is nothing to do any more; nothing was sent.
    Obsolete(String),
}

/// What the provider said when it was asked what became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<A> {
    /// It has done it.
    Settled(A),
    /// It took it and has not settled it.
    Pending {
        /// What the provider calls it.
        reference: String,
    },
    /// It has refused it, without effect.
    Rejected(String),
    /// Proof that it had no effect and will have none: it may be sent again. A provider that lists a command only some time
    /// after it took it proves nothing: answer [`Found::Unsure`].
    NotApplied,
    /// It could not say.
    Unsure,
}

/// How a command ended.
///
/// In the payload of its `resolved` event it is `{"settled": …}`, `{"rejected": "why"}` and so on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resolution<A> {
    /// The provider did it.
    Settled(A),
    /// The provider refused it: no effect.
    Rejected(String),
    /// There was nothing to do any more: no effect.
    Obsolete(String),
    /// Withdrawn before it had an effect.
    Cancelled(String),
    /// A person has given it up: whether it had an effect was never found out.
    Abandoned {
        /// What the person decided about.
        incident: Uuid,
    },
}

impl<A> Resolution<A> {
    /// The word of the state.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Settled(_) => "settled",
            Self::Rejected(_) => "rejected",
            Self::Obsolete(_) => "obsolete",
            Self::Cancelled(_) => "cancelled",
            Self::Abandoned { .. } => "abandoned",
        }
    }
}
