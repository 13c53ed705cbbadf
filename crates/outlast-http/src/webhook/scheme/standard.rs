//! Standard Webhooks, `v1` (HMAC) and `v1a` (Ed25519), by the names of the standard or those of Svix: read by the one reader of
//! [`signature`](crate::signature).

use super::{Known, Proof};
use crate::{
    mac,
    signature::{Message, Names, tag},
    webhook::{How, Refused, request::Seen},
};

pub(super) fn prove(seen: &Seen<'_>, known: &Known<'_>) -> Result<Proof, Refused> {
    let request = seen.request;
    // Svix sends both sets of names to some receivers: the standard's are asked first, and are the only ones then.
    let is_svix = !request.headers.contains_key(Names::STANDARD.signature)
        && request.headers.contains_key(Names::SVIX.signature);
    let names = if is_svix {
        Names::SVIX
    } else {
        Names::STANDARD
    };
    let message = Message::read(request.headers, names)?;
    known.is_in_time(message.at)?;
    let mut why = Refused::NoKnownVersion;
    let mut matched = None;
    if !known.secrets.is_empty() {
        let signatures = message.signatures("v1,");
        let secrets = known.secrets.iter();
        let of = |secret: &crate::webhook::Secret| {
            tag(secret.bytes(), message.id, message.timestamp, request.body)
        };
        match signatures {
            Ok(given) => {
                why = Refused::Mismatch;
                matched = mac::matching(&secrets.map(of).collect::<Vec<_>>(), &given);
            }
            Err(none) => why = none.into(),
        }
    }
    if matched.is_none() && !known.public_keys.is_empty() {
        let signatures = message.signatures("v1a,");
        let parts = [
            message.id.as_bytes(),
            message.timestamp.as_bytes(),
            request.body,
        ];
        let text = parts.join(&b'.');
        if let Ok(given) = signatures {
            why = Refused::Mismatch;
            let mut signers = given
                .iter()
                .map(|signature| known.signer(&text, How::Ed25519, signature));
            matched = signers.find_map(Result::ok);
        }
    }
    Ok(Proof {
        key: matched.ok_or(why)?,
        at: Some(message.at),
        delivery: Some(message.id.to_owned()),
    })
}
