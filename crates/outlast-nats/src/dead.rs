//! What came too many times. NATS has no list of dead messages: it stops delivering and says so once, to whoever listens.
//!
//! So our own consumers have no limit at the server. Who receives a message once too often copies it into a stream of the
//! dead, waits until that has confirmed it, and only then acks it: whoever dies in between, it comes again, and the copy has
//! the same id. For consumers that somebody else made with a limit the same stream captures what the server says, and the
//! body is fetched from its stream by its number.

use std::{sync::Arc, time::Duration};

use async_nats::{HeaderMap, HeaderName, Message};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use outlast_core::broker::{BrokerError, Delivered, Published, Subscription, Why};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    api::{Api, Refused, nanos},
    link::Link,
    message, publish,
    receive::Reading,
    settle::{Place, Settling, delivered},
};

/// What the server says when it gives up: `.<stream>.<consumer>` follows.
pub(crate) const ADVISORY: &str = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES";
const COPY: &str = "outlast.dead";
/// How long whoever takes over dead messages has for one.
const ACK_WAIT: Duration = Duration::from_secs(60);
/// How long putting one aside may take; and how long it rests when that fails.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the dead of one consumer go.
#[derive(Clone, Debug)]
pub(crate) struct Dead {
    stream: String,
    consumer: String,
    deliveries: u32,
}

impl Dead {
    pub(crate) fn new(stream: &str, consumer: &str, deliveries: u32) -> Self {
        Self {
            stream: stream.to_owned(),
            consumer: consumer.to_owned(),
            deliveries,
        }
    }

    pub(crate) fn is_over(&self, number: u32) -> bool {
        number > self.deliveries
    }

    /// Copies it, then acks it. When the copy is not confirmed the message rests, and comes again.
    pub(crate) async fn put_aside(&self, link: &Arc<Link>, message: Message, place: Place) {
        let by = Instant::now() + PATIENCE;
        let subject = format!("{COPY}.{}.{}", self.stream, self.consumer);
        let mut headers = HeaderMap::new();
        for (name, value) in message::attributes(message.headers.as_ref()) {
            if let Ok(name) = name.parse::<HeaderName>() {
                headers.append(name, value.as_str());
            }
        }
        let id = format!("dead:{}:{}:{}", self.stream, self.consumer, place.sequence);
        headers.insert("Nats-Msg-Id", id.as_str());
        let said = link.ask(&subject, Some(headers), message.payload, by).await;
        let kept = said.is_ok_and(|answer| publish::read(&answer) == Published::Confirmed);
        let settling = Settling {
            link: Arc::clone(link),
            place,
        };
        if kept {
            // Lost or not: a second copy is dropped by its id, or is another duty of whoever takes over.
            let _ = settling.acked(by).await;
        } else {
            let (stream, sequence) = (&self.stream, settling.place.sequence);
            tracing::warn!(
                stream,
                sequence,
                "message {sequence} of {stream} could not be put aside as dead"
            );
            settling.put_back(PATIENCE).await;
        }
    }
}

/// What `ensure` asks the server to make for the dead.
pub(crate) fn stream(name: &str, replicas: usize, window: Duration, advisories: bool) -> Value {
    let mut subjects = vec![format!("{COPY}.*.*")];
    subjects.extend(advisories.then(|| format!("{ADVISORY}.*.*")));
    json!({
        "name": name,
        "description": "messages that Outlast's consumers have given up on",
        "subjects": subjects,
        // What somebody has taken over goes; everything else stays.
        "retention": "workqueue",
        "discard": "new",
        "storage": "file",
        "num_replicas": replicas,
        "max_msgs": -1, "max_bytes": -1, "max_age": 0, "max_consumers": -1, "max_msg_size": -1,
        "duplicate_window": nanos(window),
        "allow_direct": true,
    })
}

/// Reads the dead of one consumer.
pub(crate) async fn read(
    link: &Arc<Link>,
    api: &Api,
    dead_stream: &str,
    of: &Dead,
    most: usize,
    by: Instant,
) -> Result<Vec<Delivered>, BrokerError> {
    let name = format!("{}_{}", of.stream, of.consumer);
    make_reader(link, api, dead_stream, of, &name, by).await?;
    let reading = Reading {
        link: Arc::clone(link),
        api: api.clone(),
        stream: dead_stream.to_owned(),
        wanted: Subscription::new(&*name, dead_stream),
        consumer: name,
        dead: Dead::new(dead_stream, "", u32::MAX),
        pending: usize::MAX,
    };
    let mut found = Vec::new();
    for (message, place) in reading.there(most, by).await? {
        found.push(match message.subject.starts_with(ADVISORY) {
            false => delivered(link, message, place),
            true => fetched(link, api, message, place, by).await?,
        });
        // Which delivery it was is a matter of the other stream.
        found.iter_mut().for_each(|one| one.number = None);
    }
    Ok(found)
}

async fn make_reader(
    link: &Link,
    api: &Api,
    dead_stream: &str,
    of: &Dead,
    name: &str,
    by: Instant,
) -> Result<(), BrokerError> {
    if api.consumer(link, dead_stream, name, by).await?.is_some() {
        return Ok(());
    }
    let Some(stream) = api.stream(link, dead_stream, by).await? else {
        let what = format!("there is no stream {dead_stream} for dead messages: ensure makes it");
        return Err(BrokerError::new(Why::Missing, what));
    };
    let advisories = stream
        .config
        .subjects
        .iter()
        .any(|subject| subject.starts_with(ADVISORY));
    let mut filters = vec![format!("{COPY}.{}.{}", of.stream, of.consumer)];
    filters.extend(advisories.then(|| format!("{ADVISORY}.{}.{}", of.stream, of.consumer)));
    let body = json!({
        "stream_name": dead_stream,
        "action": "create",
        "config": {
            "durable_name": name,
            "name": name,
            "filter_subjects": filters,
            "ack_policy": "explicit",
            "ack_wait": nanos(ACK_WAIT),
            "max_deliver": -1,
            "deliver_policy": "all",
            "replay_policy": "instant",
        },
    });
    let what = format!("CONSUMER.CREATE.{dead_stream}.{name}");
    match api.ask::<Value>(link, &what, body, by).await? {
        Ok(_) => Ok(()),
        // Another process was faster.
        Err(refused) if Refused::CONSUMER_EXISTS.contains(&refused.err_code) => Ok(()),
        Err(refused) => Err(refused.into()),
    }
}

#[derive(Deserialize)]
struct Advisory {
    stream: String,
    stream_seq: u64,
}

#[derive(Deserialize)]
struct Stored {
    message: StoredMessage,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredMessage {
    hdrs: String,
    data: String,
}

/// The message that an advisory speaks of. When it is gone the advisory itself is given: a person can read it.
async fn fetched(
    link: &Arc<Link>,
    api: &Api,
    mut advisory: Message,
    place: Place,
    by: Instant,
) -> Result<Delivered, BrokerError> {
    if let Ok(said) = serde_json::from_slice::<Advisory>(&advisory.payload) {
        let what = format!("STREAM.MSG.GET.{}", said.stream);
        let body = json!({ "seq": said.stream_seq });
        match api.ask::<Stored>(link, &what, body, by).await? {
            Ok(stored) => {
                let (headers, body) = unpacked(&stored.message);
                advisory.headers = Some(headers);
                advisory.payload = body;
            }
            Err(refused) if refused.is(Refused::NO_MESSAGE) => {}
            Err(refused) => return Err(refused.into()),
        }
    }
    Ok(delivered(link, advisory, place))
}

fn unpacked(stored: &StoredMessage) -> (HeaderMap, Bytes) {
    let bytes = |text: &str| STANDARD.decode(text).unwrap_or_default();
    let lines = bytes(&stored.hdrs);
    let mut headers = HeaderMap::new();
    for line in String::from_utf8_lossy(&lines).split("\r\n").skip(1) {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        if let (Ok(name), Ok(value)) = (
            name.parse::<HeaderName>(),
            value.trim().parse::<async_nats::HeaderValue>(),
        ) {
            headers.append(name, value);
        }
    }
    (headers, bytes(&stored.data).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_message_is_unpacked() {
        let stored = StoredMessage {
            hdrs: STANDARD.encode("NATS/1.0\r\nce-id: 7\r\nempty: \r\ncolon: a:b\r\n\r\n"),
            data: STANDARD.encode(b"\0\xff"),
        };
        let (headers, body) = unpacked(&stored);
        let value = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
        assert_eq!(value("ce-id").as_deref(), Some("7"));
        assert_eq!(value("empty").as_deref(), Some(""));
        assert_eq!(value("colon").as_deref(), Some("a:b"));
        assert_eq!(&body[..], b"\0\xff");
    }
}
