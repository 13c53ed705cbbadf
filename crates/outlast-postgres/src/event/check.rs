//! What cannot be emitted, or enqueued. The same rules as `functions/check.sql`, before a statement is sent.

use super::{Body, Envelope, Envelopes};
use crate::Error;
use outlast_core::name;
use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

/// How large a payload may be: 256 KiB.
pub const PAYLOAD_LIMIT: usize = 256 * 1024;
/// How deep JSON may be nested; deeper no reader can be trusted with.
pub const DEPTH_LIMIT: usize = 100;
/// How many characters a key or dedup key may have.
pub const KEY_LIMIT: usize = 500;
/// How many characters a tenant may have.
pub const TENANT_LIMIT: usize = 200;

/// How many characters whatever stands beside a payload may have: source, subject, actor, trace context, codec key.
pub const ABOUT_LIMIT: usize = 500;
/// How large headers may be, in bytes.
pub const HEADERS_LIMIT: usize = 16 * 1024;

/// The newest version that the schema can store.
const VERSION_LIMIT: u16 = i16::MAX as u16;

/// What is about to be written, for the messages: `emit paid`.
#[derive(Clone, Copy)]
pub(crate) struct Of<'a> {
    verb: &'static str,
    name: &'a str,
}

impl<'a> Of<'a> {
    fn event(name: &'a str) -> Self {
        Self { verb: "emit", name }
    }

    pub(crate) fn command(name: &'a str) -> Self {
        Self {
            verb: "command",
            name,
        }
    }

    pub(crate) fn job(name: &'a str) -> Self {
        Self {
            verb: "enqueue",
            name,
        }
    }

    pub(crate) fn entity(name: &'a str) -> Self {
        Self { verb: "mark", name }
    }
}

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.name)
    }
}

pub(super) fn envelope(e: &Envelope<'_>) -> Result<(), Error> {
    let of = Of::event(e.name);
    heading(of, e.version, e.tenant)?;
    key(of, e.key)?;
    key(of, e.dedup)?;
    if e.strict_key && e.key.is_none() {
        return Err(Error::BadName(format!(
            "{of}: a strict key numbers the events of a key, and there is none"
        )));
    }
    let rest = [e.source, e.subject, e.actor, e.traceparent, e.codec_key];
    rest.into_iter()
        .flatten()
        .try_for_each(|text| about(of, text))?;
    headers(of, e.headers)?;
    digest(of, e.digest)?;
    e.id.map_or(Ok(()), |id| event_id(id, SystemTime::now()))?;
    body(of, e.body, e.codec_key.is_some())
}

/// A payload, and what it says that it is. What is encoded is read by nobody here.
pub(crate) fn body(of: Of<'_>, body: Body<'_>, encoded: bool) -> Result<(), Error> {
    match body {
        Body::Json(json) => payload(of, json.as_bytes(), true),
        Body::Bytes {
            bytes,
            content_type,
        } => {
            payload(of, bytes, !encoded && is_json(content_type))?;
            content_type_of(of, content_type)
        }
    }
}

pub(crate) fn digest(of: Of<'_>, digest: Option<&[u8]>) -> Result<(), Error> {
    match digest.map(<[u8]>::len) {
        Some(bytes) if !(16..=64).contains(&bytes) => {
            let why = format!("{of}: a digest of {bytes} bytes is not 16 to 64");
            Err(Error::BadName(why))
        }
        _ => Ok(()),
    }
}

/// What is refused in a JSON payload; for one that is encrypted afterwards.
///
/// # Errors
/// [`Error::TooLarge`], [`Error::BadPayload`].
pub fn check_json(name: &str, json: &str) -> Result<(), Error> {
    payload(Of::event(name), json.as_bytes(), true)
}

pub(super) fn envelopes(e: &Envelopes<'_>) -> Result<(), Error> {
    let of = Of::event(e.name);
    heading(of, e.version, e.tenant)?;
    let rest = [e.source, e.actor, e.traceparent];
    rest.into_iter()
        .flatten()
        .try_for_each(|text| about(of, text))?;
    e.events.iter().try_for_each(|(json, about)| {
        key(of, about.as_deref())?;
        payload(of, json.as_bytes(), true)
    })
}

pub(crate) fn heading(of: Of<'_>, version: u16, tenant: &str) -> Result<(), Error> {
    name::check(of.name).map_err(|bad| Error::BadName(bad.to_string()))?;
    if !(1..=VERSION_LIMIT).contains(&version) {
        return Err(Error::BadName(format!(
            "{of}: version {version} is not between 1 and {VERSION_LIMIT}"
        )));
    }
    if tenant.chars().count() > TENANT_LIMIT || tenant.chars().any(char::is_control) {
        let why = format!(
            "{of}: the tenant is longer than {TENANT_LIMIT} characters or has control characters"
        );
        return Err(Error::BadName(why));
    }
    Ok(())
}

pub(crate) fn key(of: Of<'_>, key: Option<&str>) -> Result<(), Error> {
    let Some(key) = key else { return Ok(()) };
    without_nul(of, key)?;
    if key.chars().count() > KEY_LIMIT {
        return Err(Error::BadName(format!(
            "{of}: a key is longer than {KEY_LIMIT} characters"
        )));
    }
    Ok(())
}

pub(crate) fn about(of: Of<'_>, text: &str) -> Result<(), Error> {
    without_nul(of, text)?;
    if text.chars().count() > ABOUT_LIMIT {
        return Err(Error::BadName(format!(
            "{of}: source, subject, actor, traceparent or codec key is longer than {ABOUT_LIMIT} characters"
        )));
    }
    Ok(())
}

fn without_nul(of: Of<'_>, text: &str) -> Result<(), Error> {
    if text.contains('\0') {
        return Err(Error::BadName(format!(
            "{of}: a NUL character, which PostgreSQL text cannot hold"
        )));
    }
    Ok(())
}

fn headers(of: Of<'_>, headers: Option<&str>) -> Result<(), Error> {
    let Some(text) = headers else { return Ok(()) };
    without_nul(of, text)?;
    if text.len() > HEADERS_LIMIT {
        return Err(Error::BadName(format!(
            "{of}: headers of {} bytes are over the limit of {HEADERS_LIMIT}",
            text.len()
        )));
    }
    let strings = serde_json::from_str::<std::collections::BTreeMap<String, String>>(text);
    let has_nul = matches!(look(text.as_bytes()), Looks::Nul);
    if strings.is_err() || has_nul {
        return Err(Error::BadName(format!(
            "{of}: headers are not a JSON object of strings without NUL"
        )));
    }
    Ok(())
}

/// The log has a place only for the last days, and the id says when it was minted.
fn event_id(id: Uuid, now: SystemTime) -> Result<(), Error> {
    const PAST: Duration = Duration::from_hours(7 * 24);
    const FUTURE: Duration = Duration::from_hours(12);
    if id.get_version_num() != 7 || id.get_variant() != uuid::Variant::RFC4122 {
        return Err(Error::BadId(format!(
            "event id {id} is not a version 7 UUID"
        )));
    }
    let minted = Duration::from_millis((id.as_u128() >> 80) as u64);
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    if minted < now.saturating_sub(PAST) || minted > now + FUTURE {
        return Err(Error::BadId(format!(
            "event id {id} was minted outside of the last 7 days"
        )));
    }
    Ok(())
}

fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default();
    let kind = kind.trim_end_matches(' ');
    kind.ends_with("/json") || kind.ends_with("+json")
}

fn content_type_of(of: Of<'_>, content_type: &str) -> Result<(), Error> {
    let token = |part: &str| {
        let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9') || b"!#$&^_.+-".contains(&b);
        (1..=80).contains(&part.len()) && part.bytes().all(allowed)
    };
    let (kind, parameters) = match content_type.split_once(';') {
        Some((kind, parameters)) => (kind.trim_end_matches(' '), parameters),
        None => (content_type, ""),
    };
    let readable = parameters.len() <= 200 && parameters.bytes().all(|b| matches!(b, b' '..=b'~'));
    match kind.split_once('/') {
        Some((kind, sub)) if token(kind) && token(sub) && readable => Ok(()),
        _ => {
            let shown = outlast_core::text::clean(content_type, 120);
            Err(Error::BadName(format!(
                "{of}: unknown content type `{shown}`"
            )))
        }
    }
}

fn payload(of: Of<'_>, bytes: &[u8], json: bool) -> Result<(), Error> {
    if bytes.len() > PAYLOAD_LIMIT {
        return Err(Error::TooLarge {
            bytes: bytes.len(),
            limit: PAYLOAD_LIMIT,
        });
    }
    if !json {
        return Ok(());
    }
    let refuse = |why: &str| Err(Error::BadPayload(format!("{of}: {why}")));
    match look(bytes) {
        Looks::Nul => return refuse("JSON holds a NUL character, which PostgreSQL text cannot"),
        Looks::Deep => return refuse("JSON is deeper than 100"),
        Looks::Fine => {}
    }
    // What serde wrote is JSON; bytes from elsewhere are read once, without keeping anything.
    match serde_json::from_slice::<serde::de::IgnoredAny>(bytes) {
        Ok(_) => Ok(()),
        Err(error) => refuse(&format!("the payload is not JSON: {error}")),
    }
}

enum Looks {
    Fine,
    Deep,
    Nul,
}

/// One pass over JSON: how deep it is, and whether it holds a NUL, plain or escaped.
fn look(json: &[u8]) -> Looks {
    let (mut depth, mut in_string) = (0_usize, false);
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        at += 1;
        match byte {
            0 => return Looks::Nul,
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                if json[at..].starts_with(b"u0000") {
                    return Looks::Nul;
                }
                at += 1;
            }
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > DEPTH_LIMIT {
                    return Looks::Deep;
                }
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Looks::Fine
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Result<(), Error> {
        envelope(&Envelope::new("paid", 1, Body::Json(text)))
    }

    #[test]
    fn odd_but_honest_json_is_taken() {
        let deep = format!("{}{}", "[".repeat(DEPTH_LIMIT), "]".repeat(DEPTH_LIMIT));
        let brackets = format!("\"{}\"", "[".repeat(5_000));
        let fine = [
            "null",
            "1",
            r#""\\u0000""#,
            r#"{"a":1,"a":2}"#,
            "18446744073709551615",
            "1e400",
            &deep,
            &brackets,
        ];
        for text in fine {
            assert!(
                json(text).is_ok(),
                "{:?}: {:?}",
                &text[..text.len().min(40)],
                json(text)
            );
        }
    }

    #[test]
    fn json_that_no_reader_could_be_trusted_with_is_refused() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        for text in [
            "",
            "{",
            "{'a':1}",
            r#""\u0000""#,
            r#"{"a\u0000":1}"#,
            "\"\0\"",
            &deep,
            "1 2",
        ] {
            assert!(
                matches!(json(text), Err(Error::BadPayload(_))),
                "{:?}",
                &text[..text.len().min(40)]
            );
        }
    }

    #[test]
    fn a_payload_over_the_limit_says_how_large_it_is() {
        let large = format!("\"{}\"", "x".repeat(PAYLOAD_LIMIT));
        let bytes = PAYLOAD_LIMIT + 2;
        assert!(
            matches!(json(&large), Err(Error::TooLarge { bytes: b, limit: PAYLOAD_LIMIT }) if b == bytes)
        );
        assert!(
            json(&large[..PAYLOAD_LIMIT - 1])
                .is_err_and(|error| matches!(error, Error::BadPayload(_)))
        );
    }

    #[test]
    fn bytes_are_judged_by_their_content_type() {
        let bytes = |bytes, content_type| {
            envelope(&Envelope::new(
                "scan",
                1,
                Body::Bytes {
                    bytes,
                    content_type,
                },
            ))
        };
        assert!(bytes(b"\0\xff", "application/octet-stream").is_ok());
        assert!(bytes(b"\xff", "application/json").is_err());
        assert!(bytes(b"{", "application/cloudevents+json; charset=utf-8").is_err());
        assert!(bytes(b"{}", "text/plain; charset=utf-8").is_ok());
        for unknown in [
            "",
            "json",
            "a/b/c",
            "text/plain\n",
            "Text/Plain",
            "text/plain; \0",
            "text/ä",
        ] {
            assert!(
                matches!(bytes(b"x", unknown), Err(Error::BadName(_))),
                "{unknown:?}"
            );
        }
    }

    #[test]
    fn hostile_arguments_are_refused_before_they_reach_the_database() {
        let long = "k".repeat(KEY_LIMIT + 1);
        let good = Envelope::new("paid", 1, Body::Json("1"));
        let hostile = [
            Envelope {
                name: "Paid'; drop table x",
                ..good.clone()
            },
            Envelope {
                version: 0,
                ..good.clone()
            },
            Envelope {
                version: 40_000,
                ..good.clone()
            },
            Envelope {
                tenant: "a\nb",
                ..good.clone()
            },
            Envelope {
                key: Some("a\0"),
                ..good.clone()
            },
            Envelope {
                key: Some(&long),
                ..good.clone()
            },
            Envelope {
                strict_key: true,
                ..good.clone()
            },
            Envelope {
                dedup: Some(&long),
                ..good.clone()
            },
            Envelope {
                actor: Some("\0"),
                ..good.clone()
            },
            Envelope {
                headers: Some("{"),
                ..good.clone()
            },
            Envelope {
                headers: Some(r#"{"a":1}"#),
                ..good.clone()
            },
            Envelope {
                headers: Some(r#"{"a":"\u0000"}"#),
                ..good.clone()
            },
        ];
        for bad in hostile {
            assert!(matches!(envelope(&bad), Err(Error::BadName(_))), "{bad:?}");
        }
        assert!(envelope(&good).is_ok());
    }

    #[test]
    fn an_own_id_is_a_v7_of_the_last_days() {
        let now = SystemTime::now();
        let id = Uuid::now_v7();
        assert!(event_id(id, now).is_ok());
        for (id, now) in [
            (Uuid::new_v4(), now),
            (Uuid::nil(), now),
            (id, now + Duration::from_hours(8 * 24)),
            (id, now - Duration::from_hours(13)),
        ] {
            assert!(matches!(event_id(id, now), Err(Error::BadId(_))), "{id}");
        }
    }
}
