//! Adyen's standard notifications: each item of the body has its own HMAC over eight of its fields, and every one must match.

use serde_json::Value;

use super::{Encoding, Known, Proof};
use crate::{
    mac::{self, Hash},
    webhook::{Refused, find, request::Seen},
};

/// What is signed, with `:` between. Nothing is escaped, and what is not there is empty.
const FIELDS: [&str; 8] = [
    "pspReference",
    "originalReference",
    "merchantAccountCode",
    "merchantReference",
    "amount.value",
    "amount.currency",
    "eventCode",
    "success",
];

pub(super) fn prove(seen: &Seen<'_>, known: &Known<'_>) -> Result<Proof, Refused> {
    let body = seen.json().ok_or(Refused::BadBody("JSON"))?;
    let items = find::at(body, "notificationItems").and_then(Value::as_array);
    let items = items.filter(|items| !items.is_empty());
    let mut key = 0;
    for item in items.ok_or(Refused::MissingField("notificationItems"))? {
        let item = item.get("NotificationRequestItem");
        key = one(
            item.ok_or(Refused::MissingField("NotificationRequestItem"))?,
            known,
        )?;
    }
    Ok(Proof {
        key,
        ..Proof::default()
    })
}

fn one(item: &Value, known: &Known<'_>) -> Result<usize, Refused> {
    let signature = find::field(item, "additionalData.hmacSignature");
    let signature = signature.ok_or(Refused::MissingField("additionalData.hmacSignature"))?;
    let signature = Encoding::Base64.decode(signature.as_bytes())?;
    let (bytes, expected) = (signature.len(), Hash::Sha256.bytes());
    if bytes != expected {
        return Err(Refused::BadLength { bytes, expected });
    }
    let fields = FIELDS.map(|path| find::field(item, path).unwrap_or_default());
    let text = fields.join(":");
    let secrets = known.secrets.iter();
    let tags: Vec<_> = secrets
        .map(|secret| mac::mac(Hash::Sha256, secret.bytes(), [text.as_bytes()]))
        .collect();
    mac::matching(&tags, &[signature]).ok_or(Refused::Mismatch)
}
