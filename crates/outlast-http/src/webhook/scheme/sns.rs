//! Amazon SNS: the fields of the message, a line each, signed by the key of a certificate that is at an address of SNS.

use super::{Encoding, Known, Proof};
use crate::webhook::{CertHost, How, Refused, Unit, find, request::Seen};

/// What is signed of a notification; a subject only if there is one.
const NOTIFICATION: &[&str] = &[
    "Message",
    "MessageId",
    "Subject",
    "Timestamp",
    "TopicArn",
    "Type",
];
/// What is signed when a subscription begins or ends.
const CONFIRMATION: &[&str] = &[
    "Message",
    "MessageId",
    "SubscribeURL",
    "Timestamp",
    "Token",
    "TopicArn",
    "Type",
];

pub(super) fn prove(seen: &Seen<'_>, known: &Known<'_>) -> Result<Proof, Refused> {
    let body = seen.json().ok_or(Refused::BadBody("JSON"))?;
    // An empty text is signed as one.
    let text = |name: &str| body.get(name).and_then(serde_json::Value::as_str);
    let certificate = text("SigningCertURL").ok_or(Refused::MissingField("SigningCertURL"))?;
    let certificate = CertHost::Sns.allows(certificate);
    certificate.ok_or(Refused::UntrustedCertUrl)?;
    let how = match text("SignatureVersion") {
        Some("2") => How::RsaSha256,
        Some("1") if known.settings.allow_sha1 => How::RsaSha1,
        _ => return Err(Refused::BadAlgorithm),
    };
    let fields = match text("Type") {
        Some("Notification") => NOTIFICATION,
        Some("SubscriptionConfirmation" | "UnsubscribeConfirmation") => CONFIRMATION,
        _ => return Err(Refused::MissingField("Type")),
    };
    let mut message = String::new();
    for &name in fields {
        match text(name) {
            Some(value) => message.extend([name, "\n", value, "\n"]),
            None if name == "Subject" => {}
            None => return Err(Refused::MissingField(name)),
        }
    }
    let signature = find::field(body, "Signature").ok_or(Refused::MissingField("Signature"))?;
    let signature = Encoding::Base64.decode(signature.as_bytes())?;
    let at = Unit::Rfc3339.read(text("Timestamp").unwrap_or_default());
    let at = at.ok_or(Refused::BadTimestamp)?;
    known.is_in_time(at)?;
    let key = known.signer(message.as_bytes(), how, &signature)?;
    // Everybody has topics, and Amazon signs for all of them.
    let topic = text("TopicArn").unwrap_or_default();
    if !known.settings.topics.iter().any(|known| known == topic) {
        return Err(Refused::WrongTopic);
    }
    Ok(Proof {
        key,
        at: Some(at),
        delivery: None,
    })
}
