//! A project of the test's own, and what most tests do with it.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use outlast_core::broker::{
    Broker, Delivered, Ensure, Envelope, Message, Published, Severity, Subscribed, Subscription,
    Topology,
};
use outlast_pubsub::{Options, PubSub};
use outlast_testkit::broker::emulator;
use tokio::time::Instant;
use uuid::Uuid;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A project on the emulator that tests share.
pub(crate) struct Project {
    pub(crate) pubsub: PubSub,
    pub(crate) name: String,
    pub(crate) endpoint: String,
}

impl Project {
    /// `None` where there is no emulator, which has been said.
    pub(crate) async fn new() -> Option<Self> {
        let (address, name) = emulator::shared().await?;
        let endpoint = format!("http://{address}");
        Some(Self::at(endpoint, name))
    }

    pub(crate) fn at(endpoint: String, name: String) -> Self {
        let pubsub = PubSub::new(options(&endpoint, &name)).expect("the options are right");
        Self {
            pubsub,
            name,
            endpoint,
        }
    }

    pub(crate) fn topic(&self, id: &str) -> String {
        format!("projects/{}/topics/{id}", self.name)
    }

    pub(crate) fn subscription(&self, id: &str) -> String {
        format!("projects/{}/subscriptions/{id}", self.name)
    }

    /// Makes `events` and an ordered subscription `reader` of it.
    pub(crate) async fn events(&self) -> Subscription {
        let mut reader = Subscription::new("reader", "events");
        reader.ordered = true;
        self.make(&Topology::topic("events", true)).await;
        self.make(&Topology::Subscription(reader.clone())).await;
        reader
    }

    async fn make(&self, topology: &Topology) {
        let made = self.pubsub.ensure(topology, Ensure::Create, PATIENCE).await;
        let made = made.expect("it can be made");
        assert!(
            made.iter().all(|one| one.severity < Severity::Bad),
            "{made:#?}"
        );
    }

    pub(crate) async fn confirmed(&self, messages: &[Message]) {
        let said = self.pubsub.publish(messages, PATIENCE).await;
        assert!(said.iter().all(Published::is_confirmed), "{said:?}");
    }

    pub(crate) async fn subscribe(&self, subscription: &Subscription) -> Box<dyn Subscribed> {
        let subscribed = self.pubsub.subscribe(subscription, PATIENCE).await;
        subscribed.expect("it can be subscribed to")
    }
}

/// Google's clients for topics and subscriptions want it chosen, also without TLS.
pub(crate) fn cryptography() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

pub(crate) fn options(endpoint: &str, project: &str) -> Options {
    let mut options = Options::new(project);
    options.endpoint = Some(endpoint.to_owned());
    options
}

pub(crate) fn message(key: Option<&str>, body: impl Into<String>) -> Message {
    let at = UNIX_EPOCH + Duration::from_micros(1_790_000_000_123_456);
    let mut envelope = Envelope::new(Uuid::now_v7(), "booking.confirmed", at);
    envelope.key = key.map(str::to_owned);
    let mut message = Message::new("events", Arc::new(envelope), body.into().into());
    message.ordering_key = key.map(str::to_owned);
    message
}

/// `of_each` messages of each key, the keys taking turns, numbered in their bodies.
pub(crate) fn keyed(keys: usize, of_each: usize) -> Vec<Message> {
    let of = |n: usize| {
        let key = format!("key/{}", n % keys);
        message(Some(&key), (n / keys).to_string())
    };
    (0..keys * of_each).map(of).collect()
}

pub(crate) fn envelope(delivered: &Delivered) -> Envelope {
    Envelope::from_attributes(&delivered.attributes).expect("it is one of ours")
}

/// Takes and acks until so many different ones have come; gives them in the order in which they first came.
pub(crate) async fn take(reader: &mut dyn Subscribed, count: usize) -> Vec<(Envelope, String)> {
    let (mut all, mut seen) = (Vec::new(), HashSet::new());
    let end = Instant::now() + PATIENCE;
    while all.len() < count {
        assert!(Instant::now() < end, "{} of {count} came", all.len());
        let came = reader.next(100, Duration::from_secs(5)).await;
        for delivered in came.expect("next") {
            let one = envelope(&delivered);
            let body = String::from_utf8_lossy(&delivered.body).into_owned();
            delivered.settle.ack(PATIENCE).await;
            if seen.insert(one.id) {
                all.push((one, body));
            }
        }
    }
    all
}
