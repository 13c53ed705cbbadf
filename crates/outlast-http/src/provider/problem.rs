//! Why there is no answer, and whether the request may have had an effect.

use outlast_core::{Class, Classify};

use crate::egress;

/// Why there is no answer. With `?` in a handler it becomes the failure that it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The request cannot be written down. Nothing was sent, and no other try could help: *permanent*.
    #[error("the request cannot be sent: {0}")]
    Unwritable(String),
    /// Nothing has left: no name, no connection, no TLS. Certainly no effect: *retry*.
    #[error("not sent: {0}")]
    NotSent(#[source] egress::Problem),
    /// It may have arrived: no answer in time, the connection broke, the answer was cut off or too long. *Unknown*.
    #[error("maybe sent: {0}")]
    MaybeSent(#[source] egress::Problem),
}

impl From<egress::Problem> for Problem {
    fn from(problem: egress::Problem) -> Self {
        match problem.may_have_arrived() {
            true => Self::MaybeSent(problem),
            false => Self::NotSent(problem),
        }
    }
}

impl Classify for Problem {
    fn class(&self) -> Class {
        match self {
            Self::Unwritable(_) => Class::Permanent,
            Self::NotSent(problem) | Self::MaybeSent(problem) => problem.class(),
        }
    }
}
