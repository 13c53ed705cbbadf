//! Questions to JetStream itself, and what of its answers we look at. Fields that we do not know are passed over, so that a
//! newer server can be read.

use std::time::Duration;

use outlast_core::broker::{BrokerError, Why};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::Instant;

use crate::link::{Link, Unanswered};

/// How long one question waits for its answer before it is asked again.
const AGAIN: Duration = Duration::from_secs(2);

/// Where JetStream listens.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    prefix: String,
}

/// What JetStream refuses, in its own words and numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Refused {
    pub(crate) code: u16,
    pub(crate) err_code: u32,
    pub(crate) description: String,
}

impl Refused {
    pub(crate) const CONSUMER_NOT_FOUND: u32 = 10_014;
    pub(crate) const NO_MESSAGE: u32 = 10_037;
    pub(crate) const STREAM_NAME_TAKEN: u32 = 10_058;
    pub(crate) const STREAM_NOT_FOUND: u32 = 10_059;
    pub(crate) const SUBJECTS_OVERLAP: u32 = 10_065;
    pub(crate) const CONSUMER_EXISTS: [u32; 3] = [10_013, 10_105, 10_148];

    pub(crate) fn is(&self, code: u32) -> bool {
        self.err_code == code
    }

    /// What is the matter, for a relay. JetStream has not done what it refuses.
    pub(crate) fn why(&self) -> Why {
        match self.err_code {
            // Size of the message, of its headers.
            10_054 | 10_097 => Why::Message,
            Self::STREAM_NOT_FOUND | Self::CONSUMER_NOT_FOUND => Why::Missing,
            // Of the account, of the server's memory and store; the stream is full; too many requests.
            10_002 | 10_023 | 10_028 | 10_047 | 10_077 | 10_122 | 10_167 => Why::Throttled,
            // No leader, no quorum, too few servers, not ready yet.
            10_004..=10_009 | 10_041 | 10_118 | 10_119 => Why::Unavailable,
            _ if self.code >= 500 && !matches!(self.err_code, 10_039 | 10_076) => Why::Unavailable,
            _ => Why::Configuration,
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.description, self.err_code)
    }
}

impl From<Refused> for BrokerError {
    fn from(refused: Refused) -> Self {
        Self::new(refused.why(), refused)
    }
}

impl From<Unanswered> for BrokerError {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::NoResponders => Self::new(
                Why::Unavailable,
                "JetStream does not answer: is it switched on?",
            ),
            Unanswered::Denied(text) => Self::new(Why::Denied, text),
            Unanswered::NotSent(text) | Unanswered::Unknown(text) => {
                Self::new(Why::Unavailable, text)
            }
        }
    }
}

/// A stream, as far as a promise hangs on it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Stream {
    pub(crate) config: StreamConfig,
    pub(crate) state: StreamState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StreamConfig {
    pub(crate) name: String,
    pub(crate) subjects: Vec<String>,
    pub(crate) retention: String,
    pub(crate) discard: String,
    pub(crate) storage: String,
    pub(crate) num_replicas: usize,
    pub(crate) max_msgs: i64,
    pub(crate) max_bytes: i64,
    pub(crate) max_msgs_per_subject: i64,
    pub(crate) discard_new_per_subject: bool,
    pub(crate) max_msg_size: i64,
    /// In nanoseconds.
    pub(crate) max_age: u64,
    /// In nanoseconds.
    pub(crate) duplicate_window: u64,
    pub(crate) no_ack: bool,
    pub(crate) sealed: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StreamState {
    pub(crate) messages: u64,
    pub(crate) consumer_count: u64,
}

/// A durable consumer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Consumer {
    pub(crate) config: ConsumerConfig,
    #[serde(default)]
    pub(crate) paused: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConsumerConfig {
    pub(crate) durable_name: String,
    pub(crate) ack_policy: String,
    /// In nanoseconds.
    pub(crate) ack_wait: u64,
    pub(crate) max_deliver: i64,
    pub(crate) filter_subject: String,
    pub(crate) filter_subjects: Vec<String>,
    pub(crate) deliver_policy: String,
    pub(crate) deliver_subject: Option<String>,
    pub(crate) max_ack_pending: i64,
    pub(crate) headers_only: bool,
    pub(crate) mem_storage: bool,
    /// In nanoseconds.
    pub(crate) inactive_threshold: u64,
    pub(crate) backoff: Vec<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Names {
    streams: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Reply {
    error: Option<Refused>,
}

impl Api {
    pub(crate) fn new(domain: Option<&str>) -> Self {
        let prefix = match domain {
            Some(domain) => format!("$JS.{domain}.API"),
            None => "$JS.API".into(),
        };
        Self { prefix }
    }

    /// The subject of a question.
    pub(crate) fn subject(&self, what: &str) -> String {
        format!("{}.{what}", self.prefix)
    }

    /// Asks, and reads the answer. Asks again when nobody answers: while a cluster has no leader, questions are dropped. Every
    /// one of ours may be asked twice.
    ///
    /// # Errors
    /// Outside when there is no answer that can be read; inside when JetStream refuses.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        link: &Link,
        what: &str,
        body: Value,
        by: Instant,
    ) -> Result<Result<T, Refused>, BrokerError> {
        let body = match body {
            Value::Null => bytes::Bytes::new(),
            body => body.to_string().into(),
        };
        let subject = self.subject(what);
        let answer = loop {
            let soon = (Instant::now() + AGAIN).min(by);
            match link.ask(&subject, None, body.clone(), soon).await {
                Err(Unanswered::Unknown(_)) if Instant::now() < by => {}
                answer => break answer?,
            }
            link.ready(by).await?;
        };
        let unread = |why: serde_json::Error| {
            let what = format!("the answer to {what} cannot be read: {why}");
            BrokerError::new(Why::Configuration, what)
        };
        let reply: Reply = serde_json::from_slice(&answer.payload).map_err(unread)?;
        if let Some(refused) = reply.error {
            return Ok(Err(refused));
        }
        Ok(Ok(serde_json::from_slice(&answer.payload).map_err(unread)?))
    }

    /// The name of the stream that takes a subject.
    pub(crate) async fn stream_of(
        &self,
        link: &Link,
        subject: &str,
        by: Instant,
    ) -> Result<Option<String>, BrokerError> {
        let body = serde_json::json!({ "subject": subject });
        let names: Names = self.ask(link, "STREAM.NAMES", body, by).await??;
        Ok(names.streams.unwrap_or_default().into_iter().next())
    }

    pub(crate) async fn stream(
        &self,
        link: &Link,
        name: &str,
        by: Instant,
    ) -> Result<Option<Stream>, BrokerError> {
        let what = format!("STREAM.INFO.{name}");
        match self.ask(link, &what, Value::Null, by).await? {
            Ok(stream) => Ok(Some(stream)),
            Err(refused) if refused.is(Refused::STREAM_NOT_FOUND) => Ok(None),
            Err(refused) => Err(refused.into()),
        }
    }

    pub(crate) async fn consumer(
        &self,
        link: &Link,
        stream: &str,
        name: &str,
        by: Instant,
    ) -> Result<Option<Consumer>, BrokerError> {
        let what = format!("CONSUMER.INFO.{stream}.{name}");
        match self.ask(link, &what, Value::Null, by).await? {
            Ok(consumer) => Ok(Some(consumer)),
            Err(refused) if refused.why() == Why::Missing => Ok(None),
            Err(refused) => Err(refused.into()),
        }
    }
}

/// Nanoseconds, as JetStream counts everything.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_read_and_what_is_new_is_passed_over() {
        let text = r#"{"type":"io.nats.jetstream.api.v1.stream_info_response","config":{"name":"s","discard":"new",
            "something_new":{"a":1},"max_age":0,"num_replicas":3},"state":{"messages":7,"consumer_count":1},"ts":"x"}"#;
        let stream: Stream = serde_json::from_str(text).expect("it reads");
        assert_eq!(stream.config.num_replicas, 3);
        assert_eq!((stream.state.messages, stream.state.consumer_count), (7, 1));
    }

    #[test]
    fn only_a_message_that_can_never_go_is_the_messages_fault() {
        let why = |code, err_code| {
            let description = String::new();
            Refused {
                code,
                err_code,
                description,
            }
            .why()
        };
        assert_eq!(why(400, 10_054), Why::Message);
        assert_eq!(why(503, 10_077), Why::Throttled);
        assert_eq!(why(503, 10_008), Why::Unavailable);
        assert_eq!(why(500, 0), Why::Unavailable);
        assert_eq!(why(503, 10_039), Why::Configuration);
        assert_eq!(why(400, 10_109), Why::Configuration);
    }
}
