//! Why a webhook is refused: a word for counting, a sentence for the operator, a status for the sender.

use http::StatusCode;

use crate::signature;

/// Why a webhook is refused. For the operator: who sent it is told the [`status`](Refused::status) and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The body is too long.
    #[error("the body is longer than {limit} bytes")]
    TooLarge {
        /// The most bytes.
        limit: usize,
    },
    /// Too many headers, or too many bytes of them.
    #[error("more headers than {most}, or more than {bytes} bytes of them")]
    TooManyHeaders {
        /// The most headers.
        most: usize,
        /// The most bytes of all names and values.
        bytes: usize,
    },
    /// A header that the scheme needs is not there.
    #[error("the header {0} is missing")]
    MissingHeader(String),
    /// It is there more than once: which one was signed, nobody knows.
    #[error("the header {0} is there more than once")]
    DuplicateHeader(String),
    /// It cannot be what it should be.
    #[error("the header {0} cannot be read")]
    BadHeader(String),
    /// Where the signature should be is nothing.
    #[error("the signature is empty")]
    EmptySignature,
    /// The signature does not begin as those of this scheme do.
    #[error("the signature does not begin with {0}")]
    MissingPrefix(String),
    /// The signature is not written as those of this scheme are.
    #[error("the signature is not {0}")]
    BadEncoding(&'static str),
    /// The signature has another length than those of this scheme: another algorithm, or a part of one.
    #[error("the signature has {bytes} bytes instead of {expected}")]
    BadLength {
        /// How many it has.
        bytes: usize,
        /// How many it should have.
        expected: usize,
    },
    /// The time is not written as this scheme writes it.
    #[error("the time cannot be read")]
    BadTimestamp,
    /// Signed too long ago: an old delivery, sent again by somebody, or a clock that is off.
    #[error("signed too long ago")]
    Stale,
    /// Signed too far in the future: a clock is off.
    #[error("signed too far in the future")]
    TooNew,
    /// No signature of a version that is known here.
    #[error("no signature of a version that is known")]
    NoKnownVersion,
    /// None of the signatures is by one of the keys.
    #[error(
        "the signature does not match: another key, another URL, or a body that was changed on its way"
    )]
    Mismatch,
    /// The body is not the one whose hash was signed.
    #[error("the body is not the one whose hash was signed")]
    BodyHash,
    /// A field that the scheme needs is not in the body.
    #[error("the body has no {0}")]
    MissingField(&'static str),
    /// The body cannot be read as the scheme needs it.
    #[error("the body is not {0}")]
    BadBody(&'static str),
    /// Signed by an algorithm that is not this endpoint's.
    #[error("signed by an algorithm that this endpoint does not take")]
    BadAlgorithm,
    /// The certificate is not where this provider keeps its certificates.
    #[error("the certificate is not at an address of the provider")]
    UntrustedCertUrl,
    /// Well signed, but of a topic that is not this endpoint's.
    #[error("signed for a topic that is not in this endpoint's list")]
    WrongTopic,
    /// Well signed, but for somebody else.
    #[error("signed for another audience")]
    BadAudience,
    /// Well signed, but not by whom it should be, or not for now.
    #[error("the claim {0} of the token is not as it should be")]
    BadClaim(&'static str),
    /// Signed by a key that is not known (yet).
    #[error("signed by a key that is not known here")]
    UnknownKey,
}

impl Refused {
    /// One word, the same in every language and release: what is counted, and what `outlast webhooks verify` prints.
    pub fn word(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::TooManyHeaders { .. } => "too_many_headers",
            Self::MissingHeader(_) => "missing_header",
            Self::DuplicateHeader(_) => "duplicate_header",
            Self::BadHeader(_) => "bad_header",
            Self::EmptySignature => "empty_signature",
            Self::MissingPrefix(_) => "missing_prefix",
            Self::BadEncoding(_) => "bad_encoding",
            Self::BadLength { .. } => "bad_length",
            Self::BadTimestamp => "bad_timestamp",
            Self::Stale => "stale_timestamp",
            Self::TooNew => "future_timestamp",
            Self::NoKnownVersion => "no_known_scheme",
            Self::Mismatch => "signature_mismatch",
            Self::BodyHash => "body_hash_mismatch",
            Self::MissingField(_) => "missing_signature_field",
            Self::BadBody(_) => "bad_body",
            Self::BadAlgorithm => "bad_algorithm",
            Self::UntrustedCertUrl => "untrusted_cert_url",
            Self::WrongTopic => "wrong_topic",
            Self::BadAudience => "bad_audience",
            Self::BadClaim(_) => "bad_claim",
            Self::UnknownKey => "unknown_key",
        }
    }

    /// What the sender is told: 413 too large, 403 stale, 400 malformed, 401 everything that a forger might have sent.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Stale | Self::TooNew => StatusCode::FORBIDDEN,
            Self::TooManyHeaders { .. }
            | Self::MissingHeader(_)
            | Self::DuplicateHeader(_)
            | Self::BadHeader(_)
            | Self::EmptySignature
            | Self::MissingPrefix(_)
            | Self::BadEncoding(_)
            | Self::BadLength { .. }
            | Self::BadTimestamp
            | Self::MissingField(_)
            | Self::BadBody(_) => StatusCode::BAD_REQUEST,
            Self::NoKnownVersion
            | Self::Mismatch
            | Self::BodyHash
            | Self::BadAlgorithm
            | Self::UntrustedCertUrl
            | Self::WrongTopic
            | Self::BadAudience
            | Self::BadClaim(_)
            | Self::UnknownKey => StatusCode::UNAUTHORIZED,
        }
    }
}

impl From<signature::Refused> for Refused {
    fn from(refused: signature::Refused) -> Self {
        match refused {
            signature::Refused::Missing(name) => Self::MissingHeader(name.into()),
            signature::Refused::Twice(name) => Self::DuplicateHeader(name.into()),
            signature::Refused::Unreadable(name) => Self::BadHeader(name.into()),
            signature::Refused::BadTimestamp => Self::BadTimestamp,
            signature::Refused::TooOld => Self::Stale,
            signature::Refused::TooNew => Self::TooNew,
            signature::Refused::NoSignature => Self::NoKnownVersion,
            signature::Refused::Mismatch => Self::Mismatch,
        }
    }
}
