//! What is sent besides the payload.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, header::USER_AGENT};
use outlast_core::{Failure, endpoint::Pushed};

use super::{ATTEMPT, CONSUMER, TOKEN, WITHIN};
use crate::signature::{ID, Keys, SIGNATURE, TIMESTAMP, sign};

/// Whose name we send.
const AGENT: &str = concat!("outlast/", env!("CARGO_PKG_VERSION"));

/// Headers of these beginnings are ours.
const PREFIXES: [&str; 3] = ["ce-", "outlast-", "webhook-"];
/// And these are ours or HTTP's.
const NAMES: [&str; 11] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "traceparent",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether nobody else may set it.
pub(super) fn is_ours(name: &HeaderName) -> bool {
    let name = name.as_str();
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// All headers of one attempt: the endpoint's own, the envelope, the lease, the signature.
///
/// # Errors
/// An envelope that no header can hold is permanent: tomorrow it is the same.
pub(super) fn headers(
    own: &HeaderMap,
    keys: &Keys,
    event: &Pushed,
    now: SystemTime,
    within: Duration,
) -> Result<HeaderMap, Failure> {
    let mut all = own.clone();
    all.entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(AGENT));
    for (name, value) in event.envelope.to_attributes() {
        put(&mut all, &name, &value)?;
    }
    let id = event.envelope.id.to_string();
    let at = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    put(&mut all, CONSUMER, &event.consumer)?;
    put(&mut all, TOKEN, &event.token.to_string())?;
    put(&mut all, ATTEMPT, &event.attempt.to_string())?;
    put(&mut all, WITHIN, &within.as_millis().to_string())?;
    put(&mut all, ID, &id)?;
    put(&mut all, TIMESTAMP, &at.to_string())?;
    put(&mut all, SIGNATURE, &sign(keys, &id, at, &event.body))?;
    if let Some(token) = all.get_mut(TOKEN) {
        token.set_sensitive(true);
    }
    Ok(all)
}

fn put(all: &mut HeaderMap, name: &str, value: &str) -> Result<(), Failure> {
    let wrong = || Failure::permanent(format_args!("the header {name} cannot be sent"));
    let header = HeaderName::try_from(name).map_err(|_| wrong())?;
    let value = HeaderValue::try_from(value).map_err(|_| wrong())?;
    all.insert(header, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::Verifier;
    use bytes::Bytes;
    use outlast_core::broker::Envelope;
    use uuid::Uuid;

    fn pushed() -> Pushed {
        let mut envelope = Envelope::new(Uuid::from_u128(7), "booking.confirmed", UNIX_EPOCH);
        envelope.tenant = "Zürich \n\"1%\"".into();
        envelope.key = Some("a\r\nx: y".into());
        envelope.source = Some("shop".into());
        envelope
            .headers
            .insert("X-Key: odd\r\n".into(), "v\tü\0".into());
        envelope.content_type = "application/json; charset=\"utf-8\"".into();
        let body = Bytes::from_static(b"{\"n\":1}");
        Pushed::new("shop", envelope, body, Uuid::from_u128(8))
    }

    #[test]
    fn the_envelope_comes_back_from_the_headers_whatever_is_in_it() {
        let event = pushed();
        let keys = Keys::from(crate::signature::Key::generate());
        let now = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let all = headers(
            &HeaderMap::new(),
            &keys,
            &event,
            now,
            Duration::from_secs(9),
        )
        .unwrap();
        let attributes: Vec<_> = all
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .filter(|(name, _)| !name.starts_with("webhook-"))
            .collect();
        assert_eq!(
            Envelope::from_attributes(&attributes),
            Ok(event.envelope.clone())
        );
        let of = |name: &str| {
            all.get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        assert_eq!(of(ID), event.envelope.id.to_string());
        assert_eq!(
            (of(TOKEN), of(ATTEMPT), of(CONSUMER), of(WITHIN)),
            (&*event.token.to_string(), "1", "shop", "9000")
        );
        assert!(of("user-agent").starts_with("outlast/"));
        assert!(
            Verifier::new(keys)
                .verify_at(&all, &event.body, now)
                .is_ok()
        );
        assert!(
            !format!("{all:?}").contains(&event.token.to_string()),
            "{all:?}"
        );
    }

    #[test]
    fn what_is_ours_cannot_be_set_by_others() {
        for name in [
            "Webhook-Id",
            "ce-id",
            "Outlast-Token",
            "Content-Length",
            "Host",
            "transfer-encoding",
        ] {
            assert!(is_ours(&HeaderName::try_from(name).unwrap()), "{name}");
        }
        for name in ["authorization", "x-api-key", "user-agent"] {
            assert!(!is_ours(&HeaderName::try_from(name).unwrap()), "{name}");
        }
    }
}
