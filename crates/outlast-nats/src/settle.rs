//! What was delivered, and how it is settled.

use std::{sync::Arc, time::Duration};

use async_nats::Message;
use bytes::Bytes;
use outlast_core::broker::{Acked, BoxFuture, Delivered, Settle};
use tokio::time::Instant;

use crate::{
    api::nanos,
    link::{Link, Unanswered},
    message,
};

/// Where a delivery is settled, and what is written in that address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) reply: String,
    pub(crate) stream: String,
    pub(crate) sequence: u64,
    /// Which delivery of it this is, from 1.
    pub(crate) number: u32,
}

impl Place {
    /// Reads `$JS.ACK.<stream>.<consumer>.<delivered>.<stream sequence>.<..>`, or the longer one with domain and account.
    pub(crate) fn read(reply: &str) -> Option<Self> {
        let parts: Vec<_> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let at = match parts.len() {
            7 => 0,
            9.. => 2,
            _ => return None,
        };
        Some(Self {
            reply: reply.to_owned(),
            stream: parts[at].to_owned(),
            number: parts[at + 2].parse().ok()?,
            sequence: parts[at + 3].parse().ok()?,
        })
    }
}

/// Something to settle at the server.
pub(crate) struct Settling {
    pub(crate) link: Arc<Link>,
    pub(crate) place: Place,
}

pub(crate) fn delivered(link: &Arc<Link>, message: Message, place: Place) -> Delivered {
    Delivered {
        attributes: message::attributes(message.headers.as_ref()),
        body: message.payload,
        broker_id: format!("{}/{}", place.stream, place.sequence),
        number: Some(place.number),
        settle: Box::new(Settling {
            link: Arc::clone(link),
            place,
        }),
    }
}

impl Settling {
    /// Acks, and waits until the server has said that it knows.
    pub(crate) async fn acked(&self, by: Instant) -> Acked {
        let ack = Bytes::from_static(b"+ACK");
        match self.link.ask(&self.place.reply, None, ack, by).await {
            Ok(_) => Acked::Confirmed,
            // There is no such consumer any more.
            Err(Unanswered::NoResponders) => Acked::Lost,
            Err(_) => Acked::Unknown,
        }
    }

    /// Says something that is not answered. Without a connection nothing is said: the server's own time runs out then.
    async fn say(&self, what: String) {
        if self.link.is_up() {
            let said = self
                .link
                .client()
                .publish(self.place.reply.clone(), what.into());
            // Bounded: a connection that takes nothing is given up after some seconds.
            let _ = said.await;
        }
    }

    pub(crate) async fn put_back(&self, after: Duration) {
        self.say(format!("-NAK {{\"delay\": {}}}", nanos(after)))
            .await;
    }
}

impl Settle for Settling {
    fn ack(self: Box<Self>, within: Duration) -> BoxFuture<'static, Acked> {
        Box::pin(async move { self.acked(Instant::now() + within).await })
    }

    fn release(self: Box<Self>, after: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.put_back(after).await })
    }

    /// The server begins its time to settle anew: that long, however long is asked for.
    fn extend(&self, _by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(self.say("+WPI".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_an_address_are_read() {
        let short = Place::read("$JS.ACK.orders.mail=sender.3.42.7.1700000000.0").expect("short");
        let long =
            Place::read("$JS.ACK.hub.abc.orders.mail=sender.3.42.7.1700000000.0").expect("long");
        let longer =
            Place::read("$JS.ACK._.abc.orders.mail=sender.3.42.7.1700000000.0.x").expect("longer");
        for place in [short, long, longer] {
            let read = (&*place.stream, place.number, place.sequence);
            assert_eq!(read, ("orders", 3, 42));
        }
        for other in ["", "$JS.ACK.a.b", "_INBOX.a.1.2", "$JS.ACK.s.c.x.y.z.1.0"] {
            assert_eq!(Place::read(other), None, "{other}");
        }
    }
}
