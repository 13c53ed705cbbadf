//! The codec: payloads that are stored encrypted, and erased by destroying a key.
//!
//! Only the shapes; where a codec is called from is `outlast-engine`'s handle and attempts.

use std::{fmt, pin::Pin};

/// Encodes payloads before they are stored and decodes them before a handler gets them.
///
/// With one key a tenant or a person, destroying a key erases everything about them: from the log, the parked events,
/// dumps and backups alike, because only ciphertext was ever stored. What stands beside a payload (type, tenant, key,
/// headers, actor) is not encoded: keep personal data out of it.
///
/// Register it with `Outlast::codec`; a worker made from that handle decodes with it too.
pub trait Codec: Send + Sync + 'static {
    /// Encodes one payload, and names the key; `None` leaves it as it is.
    ///
    /// It runs while your transaction is open: have keys at hand, do not call out for them.
    ///
    /// # Errors
    /// Any of them fails the emit, before anything was sent: your transaction stays usable.
    fn encode(&self, about: &About<'_>, plain: &[u8]) -> Result<Option<Encoded>, CodecError>;

    /// Decodes what [`encode`](Self::encode) made with this key, now or years ago. May ask a key service: no
    /// transaction is open, and the deadline of the try bounds it.
    ///
    /// # Errors
    /// [`CodecError::Erased`] completes the event as skipped, [`CodecError::Unavailable`] tries it again later,
    /// [`CodecError::Unreadable`] is for a person.
    fn decode<'a>(&'a self, about: &'a About<'a>, key: &'a str, bytes: &'a [u8]) -> Decoding<'a>;

    /// What tells the same content from another under a dedup key, or under an event id of your own: a MAC of the plain
    /// bytes.
    ///
    /// A cipher that is any good makes other bytes of the same content each time, so the stored bytes cannot be compared.
    /// A plain hash is no answer: it stays after the erasure, and whoever guesses the content can check it. Use a
    /// secret that dies with the subject's keys and does not change when they are rotated.
    ///
    /// # Errors
    /// Without it, which is the default, an encoded event cannot be emitted with a dedup key.
    fn digest(&self, about: &About<'_>, plain: &[u8]) -> Result<Vec<u8>, CodecError> {
        let _ = (about, plain);
        Err(CodecError::Unreadable(
            "this codec has no digest, which a dedup key or an id of yours needs: implement Codec::digest".into(),
        ))
    }
}

/// A payload that is being decoded.
pub type Decoding<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, CodecError>> + Send + 'a>>;

/// Which payload it is: the same when it is encoded and when it is decoded, so that it may be authenticated with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct About<'a> {
    /// The event type.
    pub name: &'a str,
    /// The version of its shape.
    pub version: u16,
    /// Whose it is; empty where there is only one tenant.
    pub tenant: &'a str,
    /// What the event is about.
    pub key: Option<&'a str>,
}

impl<'a> About<'a> {
    /// A payload of this type and version.
    pub fn new(name: &'a str, version: u16, tenant: &'a str, key: Option<&'a str>) -> Self {
        Self {
            name,
            version,
            tenant,
            key,
        }
    }
}

/// An encoded payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Encoded {
    /// Which key decodes it, at most 500 characters. It is stored in the clear and shown to operators.
    pub key: String,
    /// What is stored instead of the payload.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encoded({}, {} bytes)", self.key, self.bytes.len())
    }
}

/// Why a codec could not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecError {
    /// The key was destroyed on purpose: what it encodes shall never be read again. No incident.
    Erased,
    /// The keys cannot be had now, and later they can: a key service that does not answer.
    Unavailable(String),
    /// These bytes are not what this key made, or the codec knows no such key: tampered with, or a mistake.
    Unreadable(String),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Erased => f.write_str("erased: its key was destroyed"),
            Self::Unavailable(why) => write!(f, "the keys cannot be had now: {why}"),
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for CodecError {}

// Invariant: a codec is behind a pointer everywhere, so that it is no type parameter of anything.
const _: fn(&dyn Codec) = |_| ();
