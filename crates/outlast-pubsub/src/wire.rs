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
