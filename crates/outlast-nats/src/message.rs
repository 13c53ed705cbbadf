//! A message as NATS has it: attributes are headers, and the id by which a stream drops copies is one of them.

use std::borrow::Cow;

use async_nats::{HeaderMap, HeaderName, header::NATS_MESSAGE_ID};
use outlast_core::broker::Message;

use crate::names;

/// The stream stores the length of the headers in 16 bits.
pub(crate) const HEADERS: usize = 65_535;
const MSG_ID: &str = "Nats-Msg-Id";
/// Begins the headers by which a message commands the stream: roll-up, time to live, expectations.
const COMMAND: &str = "nats-";

/// The headers of a message, if it can be sent at all.
///
/// # Errors
/// Why it can never be sent.
pub(crate) fn headers(message: &Message, max_payload: usize) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let own = |name: Cow<'static, str>, value: &str| {
        // Invariant: a name of an envelope's attribute is printable ASCII without a colon, and its value has no line breaks.
        let name = match name {
            Cow::Borrowed(name) => HeaderName::from_static(name),
            Cow::Owned(name) => name.try_into().expect("it is a name"),
        };
        headers.append(name, value);
    };
    judge(message, max_payload, own)?;
    for (name, value) in message.attributes.iter() {
        let bad = |_| format!("the attribute {name} cannot be a header");
        headers.append(name.parse::<HeaderName>().map_err(bad)?, value.as_str());
    }
    headers.append(NATS_MESSAGE_ID, message.dedup_id());
    Ok(headers)
}

/// Whether a message can be sent at all.
///
/// # Errors
/// Why it can never be sent.
pub(crate) fn check(message: &Message, max_payload: usize) -> Result<(), String> {
    judge(message, max_payload, |_, _| {})
}

/// Judges a message, and tells the attributes of its envelope on the way.
fn judge(
    message: &Message,
    max_payload: usize,
    mut own: impl FnMut(Cow<'static, str>, &str),
) -> Result<(), String> {
    names::check_subject(&message.topic)?;
    let routes = &message.attributes;
    // As it goes over the line: a version, lines of `name: value`, an empty line.
    let line = |name: &str, value: &str| name.len() + value.len() + ": \r\n".len();
    let mut size = "NATS/1.0\r\n\r\n".len() + line(MSG_ID, &message.dedup_id());
    let mut taken = None;
    message.envelope.each_attribute(|name, value| {
        size += line(&name, value);
        let mut same = routes
            .iter()
            .filter(|one| one.0.eq_ignore_ascii_case(&name));
        taken = taken.or(same.next());
        own(name, value);
    });
    for (name, value) in routes.iter() {
        check_attribute(name, value)?;
        size += line(name, value);
    }
    if let Some((name, _)) = taken {
        return Err(format!("the attribute {name} is the envelope's"));
    }
    if size > HEADERS {
        return Err(format!(
            "headers of {size} bytes; at most {HEADERS} are taken"
        ));
    }
    let whole = size + message.body.len();
    if whole > max_payload {
        return Err(format!(
            "it has {whole} bytes, and the server takes {max_payload}"
        ));
    }
    Ok(())
}

/// Accepts an attribute of a route that arrives as it was sent.
fn check_attribute(name: &str, value: &str) -> Result<(), String> {
    let shown = outlast_core::text::clean(name, 100);
    if name.is_empty() || name.contains(|c: char| !c.is_ascii_graphic() || c == ':') {
        return Err(format!(
            "the attribute `{shown}` cannot be the name of a header"
        ));
    }
    if name.to_ascii_lowercase().starts_with(COMMAND) {
        return Err(format!("the attribute {shown} would command the stream"));
    }
    // Space at the ends is not kept on the way.
    if value.contains(char::is_control) || value.trim() != value {
        return Err(format!(
            "the value of the attribute {shown} cannot be that of a header"
        ));
    }
    Ok(())
}

/// The attributes of what was delivered, without what is between the stream and us.
pub(crate) fn attributes(headers: Option<&HeaderMap>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, values) in headers.into_iter().flat_map(HeaderMap::iter) {
        let name: &str = name.as_ref();
        if name.to_ascii_lowercase().starts_with(COMMAND) {
            continue;
        }
        all.extend(
            values
                .iter()
                .map(|value| (name.to_owned(), value.as_str().to_owned())),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::UNIX_EPOCH};

    use outlast_core::broker::Envelope;
    use uuid::Uuid;

    use super::*;

    fn message(attribute: (&str, &str)) -> Message {
        let envelope = Envelope::new(Uuid::from_u128(7), "a", UNIX_EPOCH);
        let mut message = Message::new("t", Arc::new(envelope), "body".into());
        message.attributes = Arc::new([(attribute.0.into(), attribute.1.into())]);
        message
    }

    #[test]
    fn a_route_cannot_command_the_stream_or_change_the_envelope() {
        for bad in [
            ("Nats-Rollup", "all"),
            ("nAtS-TTL", "1s"),
            ("CE-ID", "1"),
            ("a:b", "c"),
            ("", "c"),
            ("a", "b\r\nNats-Rollup: all"),
            ("a", " b"),
            ("a", "b\u{a0}"),
        ] {
            assert!(headers(&message(bad), 1 << 20).is_err(), "{bad:?}");
            assert!(check(&message(bad), 1 << 20).is_err(), "{bad:?}");
        }
        assert!(headers(&message(("region", "Zürich 1")), 1 << 20).is_ok());
    }

    #[test]
    fn the_size_is_the_one_of_the_line_to_the_byte() {
        let message = message(("a", "b"));
        let lines = headers(&message, 1 << 20).expect("it fits");
        let pairs = lines.iter().flat_map(|(name, values)| {
            let name: &str = name.as_ref();
            values
                .iter()
                .map(move |value| name.len() + value.as_str().len() + 4)
        });
        let size = 12 + pairs.sum::<usize>() + message.body.len();
        assert!(headers(&message, size).is_ok() && check(&message, size).is_ok());
        assert!(headers(&message, size - 1).is_err() && check(&message, size - 1).is_err());
    }

    #[test]
    fn a_copy_has_the_same_id_and_another_round_another_one() {
        let mut message = message(("a", "b"));
        let id = |message: &Message| {
            let headers = headers(message, 1 << 20).expect("it fits");
            headers.get(MSG_ID).map(|id| id.as_str().to_owned())
        };
        let first = id(&message);
        assert_eq!(first, id(&message));
        message.round = 2;
        assert_ne!(first, id(&message));
    }
}
