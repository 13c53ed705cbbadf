//! What is published: messages as a relay makes them of the events that [`Database::backlog`] leaves.
//!
//! [`Database::backlog`]: crate::server::Database::backlog

use std::{sync::Arc, time::SystemTime};

use outlast::broker::{Envelope, Message};
use uuid::Uuid;

pub fn messages(topic: &str, events: u64, keys: u64) -> Vec<Message> {
    let topic: Arc<str> = topic.into();
    let of = |n: u64| {
        let mut envelope = Envelope::new(Uuid::now_v7(), "load", SystemTime::now());
        envelope.key = (keys > 0).then(|| format!("k{}", n % keys));
        let body = format!("{{\"n\":{n},\"note\":\"{}\"}}", "x".repeat(180));
        let key = envelope.key.clone();
        let mut message = Message::new(topic.clone(), Arc::new(envelope), body.into());
        message.ordering_key = key;
        message
    };
    (1..=events).map(of).collect()
}
