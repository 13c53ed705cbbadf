//! Whether Pub/Sub can take a message at all, before it is sent: its limits, which do not move.

use std::collections::HashMap;

use bytes::Bytes;
use outlast_core::{broker::Message, text};

use crate::wire::Encoded;

/// The most bytes of a message with all that is around it; of a request it is a little more.
pub(crate) const MESSAGE_BYTES: usize = 9_990_000;
pub(crate) const ATTRIBUTES: usize = 100;
pub(crate) const NAME_BYTES: usize = 256;
pub(crate) const VALUE_BYTES: usize = 1024;
pub(crate) const KEY_BYTES: usize = 1024;

/// Checks it and encodes it as it is sent. `ordering_key`: what Pub/Sub is to order it by.
///
/// # Errors
/// Why Pub/Sub can never take it.
pub(crate) fn message(message: &Message, ordering_key: Option<&str>) -> Result<Bytes, String> {
    let bytes = size(message, ordering_key)?;
    let mut encoded = Encoded::with_capacity(bytes);
    encoded.data(&message.body);
    each(message, |name, value| encoded.attribute(name, value));
    encoded.ordering_key(ordering_key.unwrap_or_default());
    Ok(encoded.into())
}

/// Checks it. Answers how many bytes it has when it is encoded.
///
/// # Errors
/// Why Pub/Sub can never take it.
pub(crate) fn size(message: &Message, ordering_key: Option<&str>) -> Result<usize, String> {
    let key = message.ordering_key.as_deref();
    if key.is_some_and(|key| key.len() > KEY_BYTES) {
        return Err(format!(
            "its ordering key is longer than {KEY_BYTES} bytes, which Pub/Sub does not take"
        ));
    }
    let (mut count, mut bytes, mut refused) = (0, 0, Ok(()));
    each(message, |name, value| {
        count += 1;
        bytes += Encoded::attribute_len(name, value);
        if refused.is_ok() {
            refused = attribute(name, value);
        }
    });
    if count > ATTRIBUTES {
        return Err(format!(
            "it has {count} attributes with those of its envelope; Pub/Sub takes {ATTRIBUTES}"
        ));
    }
    refused?;
    once(message)?;
    if message.body.is_empty() && count == 0 {
        return Err("it has neither a payload nor attributes, which Pub/Sub does not take".into());
    }
    bytes += Encoded::field_len(&message.body);
    bytes += Encoded::field_len(ordering_key.unwrap_or_default().as_bytes());
    if bytes > MESSAGE_BYTES {
        return Err(format!(
            "it has {bytes} bytes with its attributes; Pub/Sub takes {MESSAGE_BYTES}"
        ));
    }
    Ok(bytes)
}

/// Tells all of its attributes: those of the envelope, then the route's.
fn each(message: &Message, mut tell: impl FnMut(&str, &str)) {
    message
        .envelope
        .each_attribute(|name, value| tell(&name, value));
    for (name, value) in message.attributes.iter() {
        tell(name, value);
    }
}

fn attribute(name: &str, value: &str) -> Result<(), String> {
    let shown = || text::clean(name, 100);
    if name.is_empty() || name.len() > NAME_BYTES {
        return Err(format!(
            "the name of the attribute `{}` has {} bytes; Pub/Sub takes 1 to {NAME_BYTES}",
            shown(),
            name.len()
        ));
    }
    if name.starts_with("goog") {
        return Err(format!(
            "the attribute `{}` begins with goog, which is Google's",
            shown()
        ));
    }
    if value.len() > VALUE_BYTES {
        return Err(format!(
            "the attribute `{}` has {} bytes; Pub/Sub takes {VALUE_BYTES}",
            shown(),
            value.len()
        ));
    }
    Ok(())
}

/// Only a route can name something twice: names of an envelope differ.
fn once(message: &Message) -> Result<(), String> {
    let routes = &message.attributes;
    if routes.is_empty() {
        return Ok(());
    }
    let mut seen: HashMap<String, String> = HashMap::new();
    let mut twice = None;
    each(message, |name, value| {
        let before = seen.insert(name.to_owned(), value.to_owned());
        if twice.is_none() {
            twice = before.map(|before| (name.to_owned(), before));
        }
    });
    let Some((name, value)) = twice else {
        return Ok(());
    };
    Err(format!(
        "the attribute `{}` is there twice, once as `{}`",
        text::clean(&name, 100),
        text::clean(&value, 100)
    ))
}

#[cfg(test)]
mod tests {
    use std::{
        sync::Arc,
        time::{Duration, UNIX_EPOCH},
    };

    use outlast_core::broker::Envelope;
    use prost::Message as _;

    use super::*;

    fn good() -> Message {
        let at = UNIX_EPOCH + Duration::from_secs(1);
        let envelope = Envelope::new(Default::default(), "booking.confirmed", at);
        Message::new("events", Arc::new(envelope), Bytes::from_static(b"{}"))
    }

    fn with(attribute: (&str, &str)) -> Message {
        let mut message = good();
        let (name, value) = attribute;
        message.attributes = Arc::new([(name.to_owned(), value.to_owned())]);
        message
    }

    fn why(message: &Message) -> Option<String> {
        super::message(message, None).err()
    }

    #[test]
    fn what_is_within_the_limits_is_taken() {
        let mut key = good();
        key.ordering_key = Some("k".repeat(KEY_BYTES));
        let mut empty = good();
        empty.body = Bytes::new();
        let long = "n".repeat(NAME_BYTES);
        let value = "v".repeat(VALUE_BYTES);
        for message in [good(), key, empty, with((&long, &value)), with(("a", ""))] {
            assert_eq!(why(&message), None);
        }
    }

    #[test]
    fn what_is_over_a_limit_is_told_by_name() {
        let mut key = good();
        key.ordering_key = Some("k".repeat(KEY_BYTES + 1));
        let mut body = good();
        body.body = vec![0; MESSAGE_BYTES].into();
        let mut many = good();
        let attributes = (0..ATTRIBUTES).map(|n| (format!("a{n}"), String::new()));
        many.attributes = attributes.collect();
        let name = "n".repeat(NAME_BYTES + 1);
        let value = "ü".repeat(VALUE_BYTES / 2 + 1);
        for (message, about) in [
            (key, "ordering key"),
            (body, "bytes with its attributes"),
            (many, "attributes"),
            (with((&name, "")), "257 bytes"),
            (with(("", "")), "0 bytes"),
            (with(("a", &value)), "1026 bytes"),
            (with(("googclient_x", "")), "Google's"),
            (with(("ce-id", "other")), "twice"),
        ] {
            let why = why(&message).expect(about);
            assert!(why.contains(about), "{about}: {why}");
        }
    }

    #[test]
    fn the_largest_message_fits_with_its_frame_into_a_request() {
        let mut largest = good();
        let around = super::message(&largest, None).expect("good");
        largest.body = vec![0; MESSAGE_BYTES - around.len() - 8].into();
        let encoded = super::message(&largest, None).expect("still good");
        let request = crate::wire::Publish {
            topic: "t".repeat(400),
            messages: vec![encoded],
        };
        assert!(request.encoded_len() <= 10_000_000);
    }
}
