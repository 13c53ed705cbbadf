//! A message on its way to a broker, and what may come of it.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use super::Envelope;
use crate::text;

/// One event for one topic.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Message {
    /// Where it goes: a subject, a topic.
    pub topic: Arc<str>,
    /// What it is. Its id is the same at every attempt.
    pub envelope: Arc<Envelope>,
    /// What the route adds, beside the attributes of the envelope.
    pub attributes: Arc<[(String, String)]>,
    /// Messages of one key are kept in order. `None`: in no order.
    pub ordering_key: Option<String>,
    /// The payload, byte for byte.
    pub body: Bytes,
    /// Which time it is published on purpose: 0, or the number of the rewind. A broker that drops doubles by an id appends it
    /// to that id; the envelope stays the same.
    pub round: u32,
}

impl Message {
    /// A message for a topic, unordered, of the first round.
    pub fn new(topic: impl Into<Arc<str>>, envelope: Arc<Envelope>, body: Bytes) -> Self {
        Self {
            topic: topic.into(),
            envelope,
            attributes: Arc::new([]),
            ordering_key: None,
            body,
            round: 0,
        }
    }

    /// All of its attributes: those of the envelope, then the route's.
    pub fn all_attributes(&self) -> Vec<(String, String)> {
        let mut all = self.envelope.to_attributes();
        all.extend(self.attributes.iter().cloned());
        all
    }

    /// What a broker that drops doubles knows it by: the topic, the event, the round.
    pub fn dedup_id(&self) -> String {
        match self.round {
            0 => format!("{}:{}", self.topic, self.envelope.id),
            n => format!("{}:{}#r{n}", self.topic, self.envelope.id),
        }
    }

    /// About how much of a request it is.
    pub fn size(&self) -> usize {
        let pair = |name: &str, value: &str| name.len() + value.len() + 8;
        let own = self.attributes.iter();
        let mut named: usize = own.map(|(name, value)| pair(name, value)).sum();
        self.envelope
            .each_attribute(|name, value| named += pair(&name, value));
        self.body.len() + named + self.ordering_key.as_ref().map_or(0, String::len)
    }
}

/// What came of one attempt to publish one message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Published {
    /// The broker has said that it has it.
    Confirmed,
    /// The broker has it not, for certain.
    NotSent(NotSent),
    /// It may have it: sent, and not answered. It is published again, with the same id.
    Unknown(String),
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotSent {
    /// What is the matter.
    pub why: Why,
    /// For people: cleaned, at most 4 KiB.
    pub reason: String,
}

/// What is the matter: what a relay does next depends on this alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// This message can never be sent. The only one that quarantines, and only this message.
    Message,
    /// There is no such topic, stream or subscription.
    Missing,
    /// We may not.
    Denied,
    /// The server or its settings do not fit what we need.
    Configuration,
    /// The broker asks to come later.
    Throttled,
    /// No answer, no connection, an error that passes.
    Unavailable,
    /// It waits behind an earlier message of its key that was not confirmed.
    Behind,
    /// We are stopping, or the time was over before it was sent.
    NotTried,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Message => "the message is refused",
            Self::Missing => "not found",
            Self::Denied => "denied",
            Self::Configuration => "configuration",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Behind => "behind an earlier message of its key",
            Self::NotTried => "not tried",
        })
    }
}

impl Published {
    /// Not sent, for this reason. The words come from outside: control characters go, the rest is cut.
    pub fn not_sent(why: Why, reason: impl fmt::Display) -> Self {
        let reason = text::clean(&reason.to_string(), text::LIMIT);
        Self::NotSent(NotSent { why, reason })
    }

    /// Sent, and nobody knows what became of it.
    pub fn unknown(reason: impl fmt::Display) -> Self {
        Self::Unknown(text::clean(&reason.to_string(), text::LIMIT))
    }

    /// Whether the broker has said that it has it.
    pub fn is_confirmed(&self) -> bool {
        *self == Self::Confirmed
    }
}
