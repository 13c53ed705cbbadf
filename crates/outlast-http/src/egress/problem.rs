//! Why a request has no answer, and whether it may have arrived.

use std::{io, time::Duration};

use outlast_core::{Class, Classify};

use super::Refusal;

/// Why a request has no answer that counts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It may not go there. Nothing was sent.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The name has no address now. Nothing was sent.
    #[error("{host} could not be resolved: {why}")]
    Unresolved {
        /// The name.
        host: String,
        /// What the resolver said.
        why: io::Error,
    },
    /// No connection came about. Nothing was sent.
    #[error("no connection to {host}: {why}")]
    Unconnected {
        /// The host.
        host: String,
        /// What the system said.
        why: io::Error,
    },
    /// The connection is not with whom it should be, or not encrypted as it should be. Nothing was sent.
    #[error("no TLS with {host}: {why}")]
    Tls {
        /// The host.
        host: String,
        /// What was wrong.
        why: io::Error,
    },
    /// The connection was there and took nothing. Nothing was sent.
    #[error("the connection to {host} was closed before anything was sent")]
    Unsent {
        /// The host.
        host: String,
    },
    /// No answer in time.
    #[error("no answer within {within:?}")]
    NoAnswer {
        /// The time it was given.
        within: Duration,
    },
    /// The connection broke before the answer.
    #[error("the connection broke before the answer")]
    Broken,
    /// What came is not HTTP, or its head is too large.
    #[error("the answer is not HTTP, or its head is over {limit} bytes")]
    NotHttp {
        /// The most bytes of a head.
        limit: usize,
    },
    /// The answer is too long; it was cut.
    #[error("the answer {status} is longer than {limit} bytes: cut")]
    TooLarge {
        /// Its status.
        status: u16,
        /// The most bytes.
        limit: usize,
    },
    /// The answer ended before its end.
    #[error("the answer {status} ended early")]
    Cut {
        /// Its status.
        status: u16,
    },
    /// The answer did not come to its end in time.
    #[error("the answer {status} did not come to its end within {within:?}")]
    Late {
        /// Its status.
        status: u16,
        /// The time it was given.
        within: Duration,
    },
}

impl Problem {
    /// Whether the request may have arrived.
    pub fn may_have_arrived(&self) -> bool {
        !matches!(
            self,
            Self::Refused(_)
                | Self::Unresolved { .. }
                | Self::Unconnected { .. }
                | Self::Tls { .. }
                | Self::Unsent { .. }
        )
    }
}

/// Only what may have arrived may have had an effect. A target that may not be reached is nobody's fault that could be told here: it is
/// tried again, and counts as down.
impl Classify for Problem {
    fn class(&self) -> Class {
        match self.may_have_arrived() {
            true => Class::Unknown,
            false => Class::Retry,
        }
    }
}

/// Nobody is trusted: no certificate of an authority was found.
#[derive(Debug, thiserror::Error)]
#[error(
    "no trusted certificates: install the system's (ca-certificates), or name a file of your own"
)]
pub struct NoRoots;
