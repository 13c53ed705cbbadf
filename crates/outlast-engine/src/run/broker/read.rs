//! From a message to an event: its envelope is read, and what has none is kept as it came.

use std::collections::HashSet;

use bytes::Bytes;
use outlast_core::broker::{Delivered, Envelope, Settle};
use outlast_postgres::{
    Error,
    store::{Claimed, Store},
};

/// An event that a broker has delivered.
pub(super) struct Arrived {
    pub(super) event: Claimed,
    pub(super) settle: Box<dyn Settle>,
    raw: Raw,
}

/// A message as it came.
struct Raw {
    attributes: Vec<(String, String)>,
    body: Bytes,
    broker_id: String,
    number: Option<u32>,
}

/// A message that is no event.
pub(super) struct Unreadable {
    why: String,
    raw: Raw,
    settle: Box<dyn Settle>,
}

/// Reads all; none stands in the way of another.
pub(super) fn all(messages: Vec<Delivered>) -> (Vec<Arrived>, Vec<Unreadable>) {
    let (mut events, mut unreadable) = (Vec::new(), Vec::new());
    for message in messages {
        let Delivered {
            attributes,
            body,
            broker_id,
            number,
            settle,
        } = message;
        let raw = Raw {
            attributes,
            body,
            broker_id,
            number,
        };
        let read = Envelope::from_attributes(&raw.attributes)
            .map_err(|why| why.to_string())
            .and_then(|envelope| Claimed::delivered(envelope, &raw.body));
        match read {
            Ok(event) => events.push(Arrived { event, settle, raw }),
            Err(why) => unreadable.push(Unreadable { why, raw, settle }),
        }
    }
    (events, unreadable)
}

/// The first of each event, and those that came besides.
pub(super) fn distinct(events: Vec<Arrived>) -> (Vec<Arrived>, Vec<Arrived>) {
    let mut seen = HashSet::new();
    events
        .into_iter()
        .partition(|one| seen.insert(one.event.event_id))
}

impl Arrived {
    /// As it came.
    pub(super) fn into_delivered(self) -> Delivered {
        let Raw {
            attributes,
            body,
            broker_id,
            number,
        } = self.raw;
        Delivered {
            attributes,
            body,
            broker_id,
            number,
            settle: self.settle,
        }
    }

    /// It has an envelope, and is no event all the same.
    pub(super) fn unreadable(self, why: String) -> Unreadable {
        Unreadable {
            why,
            raw: self.raw,
            settle: self.settle,
        }
    }
}

impl Unreadable {
    /// Stores it for a person. Answers what may be acked then, or what may not.
    pub(super) async fn keep(
        self,
        store: &Store,
        consumer: i32,
    ) -> Result<Box<dyn Settle>, (Box<dyn Settle>, Error)> {
        let Raw {
            attributes,
            body,
            broker_id,
            ..
        } = &self.raw;
        let kept = store
            .keep_unreadable(consumer, broker_id, &self.why, attributes, body)
            .await;
        match kept {
            Ok(id) => {
                tracing::error!(message.id = %id, broker_id, reason = %self.why, "a message that is no event was put before a person");
                Ok(self.settle)
            }
            Err(error) => Err((self.settle, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_core::broker::{Acked, BoxFuture};
    use std::time::{Duration, UNIX_EPOCH};
    use uuid::Uuid;

    struct Nothing;

    impl Settle for Nothing {
        fn ack(self: Box<Self>, _: Duration) -> BoxFuture<'static, Acked> {
            Box::pin(std::future::ready(Acked::Sent))
        }

        fn release(self: Box<Self>, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }

        fn extend(&self, _: Duration) -> BoxFuture<'_, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    fn message(attributes: Vec<(String, String)>) -> Delivered {
        Delivered {
            attributes,
            body: Bytes::from_static(b"{}"),
            broker_id: "7".into(),
            number: None,
            settle: Box::new(Nothing),
        }
    }

    #[test]
    fn what_is_no_event_stands_in_nobodys_way_and_one_that_came_twice_is_one() {
        let good = |n| Envelope::new(Uuid::from_u128(n), "a", UNIX_EPOCH).to_attributes();
        let spoiled = vec![("ce-specversion".into(), "1.0".into())];
        let all_of_them = [vec![], good(1), spoiled, good(2), good(1)];
        let (events, unreadable) = all(all_of_them.map(message).into());
        let why: Vec<_> = unreadable.iter().map(|one| one.why.as_str()).collect();
        assert_eq!(
            why,
            [
                "the attribute ce-specversion is missing",
                "the attribute ce-time is missing"
            ]
        );
        let (first, doubles) = distinct(events);
        let ids = |some: &[Arrived]| -> Vec<u128> {
            some.iter()
                .map(|one| one.event.event_id.as_u128())
                .collect()
        };
        assert_eq!((ids(&first), ids(&doubles)), (vec![1, 2], vec![1]));
    }
}
