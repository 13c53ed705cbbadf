//! Signatures of Standard Webhooks, version 1: made by a [`push`](crate::push), checked by a receiver.
//!
//! What is signed is `ID.TIMESTAMP.BODY`, by HMAC-SHA-256 with a shared key. The id is the same at every attempt, the
//! timestamp is that of the attempt. A key is never shown: its `Debug` hides it.

mod key;
mod verify;

pub use key::{BadKey, Key, Keys};
pub(crate) use verify::{Message, Names};
pub use verify::{Refused, Verified, Verifier};

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::hmac::Tag;

use crate::mac::{self, Hash};

/// The header of the id.
pub const ID: &str = "webhook-id";
/// The header of the time of the attempt, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The header of the signatures.
pub const SIGNATURE: &str = "webhook-signature";

/// What stands before the base64 of a signature of this version.
const V1: &str = "v1,";

/// The value of `webhook-signature`: one signature for each key, so that a receiver may know any of them.
///
/// ```
/// use outlast_http::signature::{Keys, sign};
///
/// let keys: Keys = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
/// let signed = sign(&keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b"{\"test\": 2432232314}");
/// assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
/// # Ok::<(), outlast_http::signature::BadKey>(())
/// ```
pub fn sign(keys: &Keys, id: &str, at: u64, body: &[u8]) -> String {
    let at = at.to_string();
    let one = |key: &Key| {
        let tag = tag(key.bytes(), id, &at, body);
        format!("{V1}{}", STANDARD.encode(tag))
    };
    let all: Vec<String> = keys.iter().map(one).collect();
    all.join(" ")
}

/// What a key makes of a message.
pub(crate) fn tag(key: &[u8], id: &str, at: &str, body: &[u8]) -> Tag {
    let parts = [id.as_bytes(), b".", at.as_bytes(), b".", body];
    mac::mac(Hash::Sha256, key, parts)
}
