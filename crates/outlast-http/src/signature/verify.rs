//! The check of a signature, by who receives it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderMap;

use super::{ID, Keys, SIGNATURE, TIMESTAMP, V1, tag};
use crate::mac;

/// The longest value of one of the three headers.
const LONGEST: usize = 4096;
/// The most signatures that are looked at.
const MOST: usize = 16;

/// Checks what a sender has signed.
///
/// ```
/// use outlast_http::signature::Verifier;
/// use std::time::{Duration, UNIX_EPOCH};
///
/// let verifier = Verifier::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?);
/// let headers = http::HeaderMap::from_iter([
///     ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
///     ("webhook-timestamp", "1614265330"),
///     ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
/// ].map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())));
/// let now = UNIX_EPOCH + Duration::from_secs(1_614_265_331);
/// let verified = verifier.verify_at(&headers, b"{\"test\": 2432232314}", now).unwrap();
/// assert_eq!(verified.id, "msg_p5jXN8AQM9LWM0D4loKWxJek");
/// # Ok::<(), outlast_http::signature::BadKey>(())
/// ```
#[derive(Clone, Debug)]
pub struct Verifier {
    keys: Keys,
    tolerance: Duration,
}

/// A message that its sender has signed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Its id, the same at every attempt: by it doubles are known.
    pub id: String,
    /// When this attempt was signed.
    pub at: SystemTime,
}

/// Why a message is refused. For the operator: who sent it is told nothing but that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// One of the three headers is not there.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// One of them is there more than once: which one was signed, nobody knows.
    #[error("the header {0} is there more than once")]
    Twice(&'static str),
    /// It cannot be what it should be: empty, over 4 KiB, not printable ASCII.
    #[error("the header {0} cannot be read")]
    Unreadable(&'static str),
    /// Not a number of seconds.
    #[error("the timestamp is not a number of seconds")]
    BadTimestamp,
    /// Signed too long ago: an old delivery, sent again by somebody, or a clock that is off.
    #[error("signed too long ago")]
    TooOld,
    /// Signed too far in the future: a clock is off.
    #[error("signed too far in the future")]
    TooNew,
    /// None of the signatures is of a version that is known here.
    #[error("no signature of version v1")]
    NoSignature,
    /// None is made by one of the keys.
    #[error("the signature does not match")]
    Mismatch,
}

impl Verifier {
    /// Takes what any of these keys has signed, at most 5 minutes from now in either direction.
    pub fn new(keys: Keys) -> Self {
        Self {
            keys,
            tolerance: Duration::from_mins(5),
        }
    }

    /// How far the sender's clock may be from ours, in either direction.
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Checks a message against our clock. The body is that which was received, before anything has read it.
    ///
    /// # Errors
    /// Why it is refused. The time of the answer says nothing about the signature that would have been right.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Verified, Refused> {
        self.verify_at(headers, body, SystemTime::now())
    }

    /// The same at another time.
    ///
    /// # Errors
    /// As [`Verifier::verify`].
    pub fn verify_at(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: SystemTime,
    ) -> Result<Verified, Refused> {
        let message = Message::read(headers, Names::STANDARD)?;
        message.is_in_time(now, self.tolerance)?;
        let signatures = message.signatures(V1)?;
        let of = |key: &super::Key| tag(key.bytes(), message.id, message.timestamp, body);
        let tags: Vec<_> = self.keys.iter().map(of).collect();
        if mac::matching(&tags, &signatures).is_none() {
            return Err(Refused::Mismatch);
        }
        Ok(Verified {
            id: message.id.to_owned(),
            at: message.at,
        })
    }
}

/// What the three headers are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) id: &'static str,
    pub(crate) timestamp: &'static str,
    pub(crate) signature: &'static str,
}

impl Names {
    pub(crate) const STANDARD: Self = Self {
        id: ID,
        timestamp: TIMESTAMP,
        signature: SIGNATURE,
    };
    /// Before there was a standard.
    pub(crate) const SVIX: Self = Self {
        id: "svix-id",
        timestamp: "svix-timestamp",
        signature: "svix-signature",
    };
}

/// What the three headers say, before anything of it is proven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) id: &'a str,
    /// As it was sent, because that is what was signed.
    pub(crate) timestamp: &'a str,
    pub(crate) at: SystemTime,
    signatures: &'a str,
}

impl<'a> Message<'a> {
    pub(crate) fn read(headers: &'a HeaderMap, names: Names) -> Result<Self, Refused> {
        let id = only(headers, names.id)?;
        let timestamp = only(headers, names.timestamp)?;
        let signatures = only(headers, names.signature)?;
        let at = seconds(timestamp).ok_or(Refused::BadTimestamp)?;
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(at));
        Ok(Self {
            id,
            timestamp,
            at: at.ok_or(Refused::BadTimestamp)?,
            signatures,
        })
    }

    pub(crate) fn is_in_time(&self, now: SystemTime, tolerance: Duration) -> Result<(), Refused> {
        let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (now, at) = (seconds(now), seconds(self.at));
        if now.saturating_sub(at) > tolerance.as_secs() {
            return Err(Refused::TooOld);
        }
        if at.saturating_sub(now) > tolerance.as_secs() {
            return Err(Refused::TooNew);
        }
        Ok(())
    }

    /// The signatures of one version, decoded. What cannot be decoded is equal to nothing.
    pub(crate) fn signatures(&self, version: &str) -> Result<Vec<Vec<u8>>, Refused> {
        let known = self
            .signatures
            .split(' ')
            .filter_map(|part| part.strip_prefix(version));
        let decoded = known.map(|encoded| STANDARD.decode(encoded).unwrap_or_default());
        let all: Vec<Vec<u8>> = decoded.take(MOST).collect();
        match all.is_empty() {
            true => Err(Refused::NoSignature),
            false => Ok(all),
        }
    }
}

/// The one value of a header.
fn only<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, Refused> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(Refused::Missing(name))?;
    if values.next().is_some() {
        return Err(Refused::Twice(name));
    }
    let text = value.to_str().map_err(|_| Refused::Unreadable(name))?;
    if text.is_empty() || text.len() > LONGEST {
        return Err(Refused::Unreadable(name));
    }
    Ok(text)
}

/// Digits only: no sign, no fraction, no space.
fn seconds(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}
