//! HMAC, for what we sign and for what others have signed, and the comparison that tells nothing by its time.

use ring::{digest, hmac};
use subtle::ConstantTimeEq;

/// A hash of an HMAC. SHA-1 is here because providers still sign with it; nothing of ours does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// 20 bytes.
    Sha1,
    /// 32 bytes.
    Sha256,
    /// 64 bytes.
    Sha512,
}

impl Hash {
    /// The length of what it makes.
    pub fn bytes(self) -> usize {
        self.algorithm().digest_algorithm().output_len()
    }

    fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

/// The HMAC of all parts, one after the other.
pub(crate) fn mac<'a>(
    hash: Hash,
    key: &[u8],
    parts: impl IntoIterator<Item = &'a [u8]>,
) -> hmac::Tag {
    let key = hmac::Key::new(hash.algorithm(), key);
    let mut context = hmac::Context::with_key(&key);
    for part in parts {
        context.update(part);
    }
    context.sign()
}

/// Which of the tags one of the given signatures is. Every pair is looked at in its full length, so that the time does not tell
/// which one it was, or how much of it was right.
pub(crate) fn matching<T: AsRef<[u8]>>(tags: &[T], given: &[Vec<u8>]) -> Option<usize> {
    let mut matched = None;
    for signature in given {
        for (index, tag) in tags.iter().enumerate() {
            if equal(tag.as_ref(), signature) {
                matched = matched.or(Some(index));
            }
        }
    }
    matched
}

/// Whether both are the same bytes; their length is no secret.
pub(crate) fn equal(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> digest::Digest {
    digest::digest(&digest::SHA256, bytes)
}
