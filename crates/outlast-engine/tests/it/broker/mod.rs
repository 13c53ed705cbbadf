//! Consumers on a broker, against a broker in memory and a real PostgreSQL: the same handlers and promises as on the log.

mod dead;
mod died;
mod forms;
mod order;
mod settled;
mod stream;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use outlast_core::broker::{Broker, Envelope, Message, Subscription};
use outlast_engine::Consumer;
use outlast_testkit::{broker::Memory, wait_for};
use uuid::Uuid;

use crate::given::{Given, SOON, given};

/// A database, a broker with a topic, and a subscription of it.
pub(crate) struct Post {
    pub(crate) given: Given,
    pub(crate) broker: Memory,
    pub(crate) subscription: Subscription,
}

impl Post {
    pub(crate) async fn new() -> Self {
        Self::of(Memory::new().without_dedup().with_deliveries(1000)).await
    }

    pub(crate) async fn of(broker: Memory) -> Self {
        let mut subscription = Subscription::new("mailer", "orders");
        subscription.ack_within = Duration::from_secs(1);
        Self {
            given: given().await,
            broker: broker.with_topic("orders"),
            subscription,
        }
    }

    /// The consumer `mailer`, on the broker.
    pub(crate) fn mailer<S: Clone + Send + Sync + 'static>(&self) -> Consumer<S> {
        Consumer::new("mailer")
            .from_broker(Arc::new(self.broker.clone()), self.subscription.clone())
    }

    /// A ping of this number, as a relay would publish it.
    pub(crate) fn ping(n: i64, key: Option<&str>) -> Envelope {
        let mut envelope = Envelope::new(Uuid::now_v7(), "ping", SystemTime::now());
        envelope.key = key.map(str::to_owned);
        envelope.log = Some(outlast_core::broker::LogPlace {
            log: "shop".into(),
            id: n + 1,
        });
        envelope
    }

    /// Publishes pings with these numbers; their ids.
    pub(crate) async fn publish(&self, numbers: std::ops::Range<i64>) -> Vec<Uuid> {
        let pings: Vec<_> = numbers.map(|n| (n, Self::ping(n, None))).collect();
        for (n, envelope) in &pings {
            self.send(*n, envelope).await;
        }
        pings.iter().map(|(_, envelope)| envelope.id).collect()
    }

    /// Publishes one message: as often as one likes, each is another one to the broker.
    pub(crate) async fn send(&self, n: i64, envelope: &Envelope) {
        let body = Bytes::from(format!("{{\"n\":{n}}}"));
        let mut message = Message::new("orders", Arc::new(envelope.clone()), body);
        message.ordering_key = envelope.key.clone();
        self.put(message).await;
    }

    pub(crate) async fn put(&self, message: Message) {
        let said = self.broker.publish(&[message], SOON).await;
        assert!(
            said.iter()
                .all(outlast_core::broker::Published::is_confirmed),
            "{said:?}"
        );
    }

    /// Waits until the broker has nothing for the consumer any more: all is acked.
    pub(crate) async fn settled(&self) {
        self.unsettled(0).await;
    }

    /// Waits until the broker has so many messages that are not acked.
    pub(crate) async fn unsettled(&self, count: usize) {
        wait_for(&format!("{count} unsettled messages"), SOON, async || {
            (self.broker.unsettled(&self.subscription) == count).then_some(())
        })
        .await;
    }

    /// Waits until so many are done and acked, and nothing is in work.
    pub(crate) async fn done(&self, count: i64) {
        self.given.processed(count).await;
        self.settled().await;
        let left = "select count(*) from outlast._delivered";
        self.given.until(left, 0).await;
    }
}
