//! What is said to Pub/Sub: the few messages of `google.pubsub.v1` that are needed, with the fields that are needed.
//!
//! Written by hand from the published protocol, because the official client keeps its calls for publishing, pulling and
//! settling to itself, and the whole protocol is fifty thousand lines. The tests speak with the official client from the
//! other side. Unknown fields are passed over, missing ones are empty: so a newer server is no matter.

use std::{collections::HashMap, time::Duration as Time};

use bytes::Bytes;
use prost::Message;

/// A call: what is asked, where, and what is answered.
pub(crate) trait Call: Message + 'static {
    type Answer: Message + Default + 'static;
    const PATH: &'static str;
    /// What the call is about, for the server's routing: `topic=projects/p/topics/t`.
    fn about(&self) -> (&'static str, &str);
}

macro_rules! call {
    ($ask:ident -> $answer:ident, $path:literal, $about:literal = $field:ident) => {
        impl Call for $ask {
            type Answer = $answer;
            const PATH: &'static str = $path;
            fn about(&self) -> (&'static str, &str) {
                ($about, &self.$field)
            }
        }
    };
}

call!(Publish -> Ids, "/google.pubsub.v1.Publisher/Publish", "topic" = topic);
call!(GetTopic -> Topic, "/google.pubsub.v1.Publisher/GetTopic", "topic" = topic);
call!(Topic -> Topic, "/google.pubsub.v1.Publisher/CreateTopic", "name" = name);
call!(ListSubscriptions -> Names, "/google.pubsub.v1.Publisher/ListTopicSubscriptions", "topic" = topic);
call!(GetSubscription -> Subscription, "/google.pubsub.v1.Subscriber/GetSubscription", "subscription" = subscription);
call!(Subscription -> Subscription, "/google.pubsub.v1.Subscriber/CreateSubscription", "name" = name);
call!(Pull -> Pulled, "/google.pubsub.v1.Subscriber/Pull", "subscription" = subscription);
call!(Acknowledge -> Nothing, "/google.pubsub.v1.Subscriber/Acknowledge", "subscription" = subscription);
call!(Deadline -> Nothing, "/google.pubsub.v1.Subscriber/ModifyAckDeadline", "subscription" = subscription);
call!(Permissions -> Permitted, "/google.iam.v1.IAMPolicy/TestIamPermissions", "resource" = resource);

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Nothing {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PubsubMessage {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) data: Bytes,
    #[prost(map = "string, string", tag = "2")]
    pub(crate) attributes: HashMap<String, String>,
    #[prost(string, tag = "3")]
    pub(crate) message_id: String,
    #[prost(string, tag = "5")]
    pub(crate) ordering_key: String,
}

/// A [`PubsubMessage`] to be sent, written piece by piece: no attribute is copied into a map first.
pub(crate) struct Encoded(Vec<u8>);

impl Encoded {
    // Number of the field, and that its length comes next: all of them are below 16.
    const DATA: u8 = 1 << 3 | 2;
    const ATTRIBUTE: u8 = 2 << 3 | 2;
    const ORDERING_KEY: u8 = 5 << 3 | 2;
    const NAME: u8 = 1 << 3 | 2;
    const VALUE: u8 = 2 << 3 | 2;

    /// Room for so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(crate) fn data(&mut self, data: &[u8]) {
        self.field(Self::DATA, data);
    }

    pub(crate) fn attribute(&mut self, name: &str, value: &str) {
        self.begin(Self::ATTRIBUTE, Self::pair_len(name, value));
        self.field(Self::NAME, name.as_bytes());
        self.field(Self::VALUE, value.as_bytes());
    }

    pub(crate) fn ordering_key(&mut self, key: &str) {
        self.field(Self::ORDERING_KEY, key.as_bytes());
    }

    /// The bytes of data or of an ordering key.
    pub(crate) fn field_len(value: &[u8]) -> usize {
        match value.len() {
            0 => 0,
            len => 1 + prost::length_delimiter_len(len) + len,
        }
    }

    pub(crate) fn attribute_len(name: &str, value: &str) -> usize {
        let pair = Self::pair_len(name, value);
        1 + prost::length_delimiter_len(pair) + pair
    }

    fn pair_len(name: &str, value: &str) -> usize {
        Self::field_len(name.as_bytes()) + Self::field_len(value.as_bytes())
    }

    /// What is empty is left out.
    fn field(&mut self, tag: u8, value: &[u8]) {
        if !value.is_empty() {
            self.begin(tag, value.len());
            self.0.extend_from_slice(value);
        }
    }

    fn begin(&mut self, tag: u8, len: usize) {
        self.0.push(tag);
        // Invariant: a vector has always room.
        prost::encode_length_delimiter(len, &mut self.0).expect("there is room");
    }
}

impl From<Encoded> for Bytes {
    fn from(encoded: Encoded) -> Self {
        encoded.0.into()
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Publish {
    #[prost(string, tag = "1")]
    pub(crate) topic: String,
    /// Each a [`PubsubMessage`], encoded once: on the wire a message within a message and bytes are the same, so that a
    /// request that is taken apart copies nothing.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) messages: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ids {
    #[prost(string, repeated, tag = "1")]
    pub(crate) message_ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetTopic {
    #[prost(string, tag = "1")]
    pub(crate) topic: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Topic {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) storage: Option<Storage>,
    #[prost(message, optional, tag = "6")]
    pub(crate) schema: Option<Schema>,
    #[prost(message, optional, tag = "8")]
    pub(crate) retention: Option<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Storage {
    #[prost(string, repeated, tag = "1")]
    pub(crate) regions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Schema {
    #[prost(string, tag = "1")]
    pub(crate) schema: String,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Span {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

impl Span {
    pub(crate) fn of(time: Time) -> Self {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        Self { seconds, nanos: 0 }
    }

    /// Whole seconds.
    pub(crate) fn time(self) -> Time {
        Time::from_secs(u64::try_from(self.seconds).unwrap_or(0))
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListSubscriptions {
    #[prost(string, tag = "1")]
    pub(crate) topic: String,
    #[prost(int32, tag = "2")]
    pub(crate) page_size: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Names {
    #[prost(string, repeated, tag = "1")]
    pub(crate) names: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetSubscription {
    #[prost(string, tag = "1")]
    pub(crate) subscription: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Subscription {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) topic: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) push: Option<Push>,
    #[prost(int32, tag = "5")]
    pub(crate) ack_deadline_seconds: i32,
    #[prost(message, optional, tag = "8")]
    pub(crate) retention: Option<Span>,
    #[prost(bool, tag = "10")]
    pub(crate) ordered: bool,
    #[prost(message, optional, tag = "11")]
    pub(crate) expiration: Option<Expiration>,
    #[prost(string, tag = "12")]
    pub(crate) filter: String,
    #[prost(message, optional, tag = "13")]
    pub(crate) dead_letter: Option<DeadLetter>,
    #[prost(message, optional, tag = "14")]
    pub(crate) retry: Option<Retry>,
    #[prost(bool, tag = "15")]
    pub(crate) detached: bool,
    #[prost(bool, tag = "16")]
    pub(crate) exactly_once: bool,
    /// 2: what it exports to cannot be written.
    #[prost(int32, tag = "19")]
    pub(crate) state: i32,
}

impl Subscription {
    /// It sends to somebody, and cannot be pulled from.
    pub(crate) fn pushes(&self) -> bool {
        self.push
            .as_ref()
            .is_some_and(|push| !push.endpoint.is_empty())
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Push {
    #[prost(string, tag = "1")]
    pub(crate) endpoint: String,
}

/// There and without a time: never.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Expiration {
    #[prost(message, optional, tag = "1")]
    pub(crate) idle: Option<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeadLetter {
    #[prost(string, tag = "1")]
    pub(crate) topic: String,
    #[prost(int32, tag = "2")]
    pub(crate) deliveries: i32,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Retry {
    #[prost(message, optional, tag = "1")]
    pub(crate) least: Option<Span>,
    #[prost(message, optional, tag = "2")]
    pub(crate) most: Option<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Pull {
    #[prost(string, tag = "1")]
    pub(crate) subscription: String,
    #[prost(int32, tag = "3")]
    pub(crate) most: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Pulled {
    #[prost(message, repeated, tag = "1")]
    pub(crate) messages: Vec<Received>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Received {
    #[prost(string, tag = "1")]
    pub(crate) ack_id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) message: Option<PubsubMessage>,
    /// 0: not counted, because there is no dead-letter topic.
    #[prost(int32, tag = "3")]
    pub(crate) delivery: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Acknowledge {
    #[prost(string, tag = "1")]
    pub(crate) subscription: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) ack_ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Deadline {
    #[prost(string, tag = "1")]
    pub(crate) subscription: String,
    #[prost(int32, tag = "3")]
    pub(crate) seconds: i32,
    #[prost(string, repeated, tag = "4")]
    pub(crate) ack_ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Permissions {
    #[prost(string, tag = "1")]
    pub(crate) resource: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) permissions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Permitted {
    #[prost(string, repeated, tag = "1")]
    pub(crate) permissions: Vec<String>,
}

/// `google.rpc.Status`: what an error says beside its code.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
}

/// `google.rpc.ErrorInfo`: of an exactly-once subscription, what became of each ack.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ErrorInfo {
    #[prost(map = "string, string", tag = "3")]
    pub(crate) metadata: HashMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_piece_by_piece_is_read_as_a_message_and_as_long_as_was_said() {
        let long = "v".repeat(1_024);
        for (data, key, pairs) in [
            ("", "", vec![]),
            ("{}", "", vec![("a", "")]),
            ("{}", "k", vec![("ce-id", "7"), ("x", &long)]),
        ] {
            let lengths = pairs.iter().map(|(n, v)| Encoded::attribute_len(n, v));
            let fields = [data, key].map(|one| Encoded::field_len(one.as_bytes()));
            let said = lengths.chain(fields).sum();
            let mut encoded = Encoded::with_capacity(said);
            encoded.data(data.as_bytes());
            for (name, value) in &pairs {
                encoded.attribute(name, value);
            }
            encoded.ordering_key(key);
            let encoded = Bytes::from(encoded);
            assert_eq!(encoded.len(), said);
            let owned = pairs.iter().map(|(n, v)| (n.to_string(), v.to_string()));
            let expected = PubsubMessage {
                data: Bytes::copy_from_slice(data.as_bytes()),
                attributes: owned.collect(),
                message_id: String::new(),
                ordering_key: key.to_owned(),
            };
            assert_eq!(PubsubMessage::decode(encoded.clone()), Ok(expected.clone()));
            assert_eq!(encoded.len(), expected.encoded_len());
        }
    }
}
