//! What a case plays on, and the few moves that most cases make.

use std::{any::Any, collections::HashSet, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use outlast_core::broker::{
    Acked, Broker, Delivered, Ensure, Envelope, Message, Published, Severity, Subscribed,
    Subscription, Topology,
};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::wait::until;

/// How long one call of the suite's own may take, where it is not the call that is judged.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// How much later than its time a call may return: what the watchdog of a relay gives it.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// A broker with names of its own, for one case.
pub struct Stage {
    /// The adapter under test.
    pub broker: Arc<dyn Broker>,
    /// The same adapter with a connection of its own, as if in another process.
    pub other: Arc<dyn Broker>,
    /// Begins the names of everything: a letter first, then letters, digits and `-`.
    pub names: String,
    /// What this broker can do beyond what every broker can.
    pub can: Can,
    /// The server, if it can be harmed without harming other cases.
    pub server: Option<Box<dyn Server>>,
    /// What has to live as long as the stage.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// What a broker can do beyond what every broker can.
#[derive(Clone, Copy, Debug)]
pub struct Can {
    /// Drops a copy with the same id.
    pub dedups: bool,
    /// Waits before it delivers again.
    pub delays: bool,
    /// After how many deliveries it gives up on a message and keeps it.
    pub deliveries: Option<u32>,
    /// Has after a kill what it had before.
    pub survives: bool,
    /// The shortest time to settle that it takes.
    pub ack_within: Duration,
    /// How long is waited for what has to come.
    pub patience: Duration,
}

/// A server that the suite may harm.
pub trait Server: Send + Sync {
    /// It stands still, with its connections open (SIGSTOP).
    fn freeze(&self);
    /// It goes on (SIGCONT).
    fn thaw(&self);
    /// It is gone at once (SIGKILL), and has ended when this returns.
    fn kill(&self) -> LocalBoxFuture<'_, ()>;
    /// It is started again, with its store and at its address, and answers when this returns.
    fn start(&self) -> LocalBoxFuture<'_, ()>;
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage")
            .field("kind", &self.broker.kind())
            .field("names", &self.names)
            .field("can", &self.can)
            .finish_non_exhaustive()
    }
}

impl Stage {
    /// A stage whose server nobody may harm.
    pub fn new(
        broker: Arc<dyn Broker>,
        other: Arc<dyn Broker>,
        names: impl Into<String>,
        can: Can,
    ) -> Self {
        Self {
            broker,
            other,
            names: names.into(),
            can,
            server: None,
            keep: Box::new(()),
        }
    }

    /// With a server that may be frozen and killed.
    #[must_use]
    pub fn with_server(mut self, server: Box<dyn Server>) -> Self {
        self.server = Some(server);
        self
    }

    /// With something that has to live as long.
    #[must_use]
    pub fn keeping(mut self, keep: impl Any + Send + Sync) -> Self {
        self.keep = Box::new(keep);
        self
    }

    pub(super) fn server(&self) -> &dyn Server {
        &**self
            .server
            .as_ref()
            .expect("the case says that it needs one")
    }

    pub(super) fn name(&self, what: &str) -> String {
        format!("{}-{what}", self.names)
    }

    /// Makes an ordered topic.
    pub(super) async fn topic(&self, what: &str) -> String {
        let topic = self.name(what);
        self.create(&Topology::topic(&topic, true)).await;
        topic
    }

    /// Makes a subscription whose deliveries stay ours for a minute.
    pub(super) async fn subscription(&self, topic: &str) -> Subscription {
        self.subscription_of(topic, Duration::from_secs(60)).await
    }

    pub(super) async fn subscription_of(&self, topic: &str, within: Duration) -> Subscription {
        let mut wanted = Subscription::new(format!("{topic}-reader"), topic);
        wanted.ack_within = within;
        self.create(&Topology::Subscription(wanted.clone())).await;
        wanted
    }

    pub(super) async fn create(&self, topology: &Topology) {
        let made = self.broker.ensure(topology, Ensure::Create, PATIENCE);
        let findings = made
            .await
            .unwrap_or_else(|why| panic!("{topology:?}: {why}"));
        for one in findings {
            assert!(
                one.severity < Severity::Bad,
                "{topology:?} was made: {one:?}"
            );
        }
    }

    /// Publishes, and looks at the clock.
    pub(super) async fn publish(&self, messages: &[Message]) -> Vec<Published> {
        self.publish_within(messages, PATIENCE).await
    }

    pub(super) async fn publish_within(
        &self,
        messages: &[Message],
        within: Duration,
    ) -> Vec<Published> {
        let said = timeout(within + GRACE, self.broker.publish(messages, within)).await;
        let said = said
            .unwrap_or_else(|_| panic!("publish within {within:?} did not return a second later"));
        assert_eq!(said.len(), messages.len(), "one outcome for each message");
        said
    }

    /// Publishes what has to be confirmed, one call after another as the limits have it.
    pub(super) async fn confirmed(&self, messages: &[Message]) {
        for call in self.calls(messages) {
            let said = self.publish(&call).await;
            assert!(said.iter().all(Published::is_confirmed), "{said:?}");
        }
    }

    /// Cuts messages into calls that keep to the limits, in their order.
    pub(super) fn calls(&self, messages: &[Message]) -> Vec<Vec<Message>> {
        let limits = self.broker.limits();
        let (mut calls, mut call, mut keys, mut bytes) = (vec![], vec![], HashSet::new(), 0);
        for message in messages {
            let key = message.ordering_key.clone();
            let key = key.filter(|_| !limits.ordered_batches);
            let doubled = key.is_some_and(|key| !keys.insert((message.topic.clone(), key)));
            if doubled || call.len() == limits.messages || bytes + message.size() > limits.bytes {
                calls.push(std::mem::take(&mut call));
                keys.clear();
                keys.extend(
                    message
                        .ordering_key
                        .clone()
                        .map(|key| (message.topic.clone(), key)),
                );
                bytes = 0;
            }
            bytes += message.size();
            call.push(message.clone());
        }
        calls.push(call);
        calls
    }

    pub(super) async fn subscribe(&self, subscription: &Subscription) -> Box<dyn Subscribed> {
        let subscribed = self.broker.subscribe(subscription, PATIENCE).await;
        subscribed.unwrap_or_else(|why| panic!("{subscription:?}: {why}"))
    }

    /// Reads and acks until all of these have come, and gives everything that came, in its order.
    pub(super) async fn read(&self, subscription: &Subscription, wanted: &[Message]) -> Vec<Read> {
        let mut reader = self.subscribe(subscription).await;
        let mut missing: HashSet<_> = wanted.iter().map(|one| one.envelope.id).collect();
        let (mut all, end) = (Vec::new(), Instant::now() + self.can.patience);
        while !missing.is_empty() {
            assert!(
                Instant::now() < end,
                "{} of {} never came",
                missing.len(),
                wanted.len()
            );
            for delivered in take(&mut *reader, 100, Duration::from_secs(2)).await {
                let read = settle(delivered).await;
                missing.remove(&read.envelope.id);
                all.push(read);
            }
        }
        reader.drain(PATIENCE).await;
        all
    }

    /// Reads everything that there is: until a last message, published now, has come, and then nothing more.
    pub(super) async fn read_all(&self, subscription: &Subscription) -> Vec<Read> {
        let last = [message(&subscription.topic, "last")];
        self.confirmed(&last).await;
        let mut all = self.read(subscription, &last).await;
        let mut reader = self.subscribe(subscription).await;
        loop {
            let more = take(&mut *reader, 100, Duration::from_millis(500)).await;
            if more.is_empty() {
                break;
            }
            for delivered in more {
                all.push(settle(delivered).await);
            }
        }
        all.retain(|one| one.envelope.id != last[0].envelope.id);
        all
    }

    /// Waits until the broker answers again.
    pub(super) async fn reachable(&self) {
        let probe = async || self.broker.probe(GRACE).await.ok();
        let came = until(PATIENCE, probe).await;
        assert!(
            came.is_some(),
            "the broker does not answer {PATIENCE:?} after it was started"
        );
    }
}

/// What was delivered, and acked.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) envelope: Envelope,
    pub(super) attributes: Vec<(String, String)>,
    pub(super) body: Bytes,
}

/// Asks for deliveries, and looks at the clock and their number.
pub(super) async fn take(
    reader: &mut dyn Subscribed,
    most: usize,
    within: Duration,
) -> Vec<Delivered> {
    let came = timeout(within + GRACE, reader.next(most, within)).await;
    let came =
        came.unwrap_or_else(|_| panic!("next within {within:?} did not return a second later"));
    let came = came.unwrap_or_else(|why| panic!("next: {why}"));
    assert!(
        came.len() <= most,
        "{} came, and {most} were asked for",
        came.len()
    );
    came
}

pub(super) fn read(delivered: &Delivered) -> Read {
    let envelope = Envelope::from_attributes(&delivered.attributes);
    Read {
        envelope: envelope.unwrap_or_else(|why| panic!("{why}, in {:?}", delivered.attributes)),
        attributes: delivered.attributes.clone(),
        body: delivered.body.clone(),
    }
}

pub(super) async fn settle(delivered: Delivered) -> Read {
    let read = read(&delivered);
    let acked = delivered.settle.ack(PATIENCE).await;
    assert!(
        matches!(acked, Acked::Confirmed | Acked::Sent),
        "ack: {acked:?}"
    );
    read
}

/// An unordered message with this body.
pub(super) fn message(topic: &str, body: impl Into<Bytes>) -> Message {
    // To the microsecond, as events have it.
    let now = std::time::UNIX_EPOCH + Duration::from_micros(1_790_000_000_123_456);
    let envelope = Envelope::new(Uuid::now_v7(), "conformance.played", now);
    Message::new(topic, Arc::new(envelope), body.into())
}

/// So many messages, of this key if there is one, numbered in their bodies.
pub(super) fn messages(topic: &str, key: Option<&str>, count: usize) -> Vec<Message> {
    let of = |n: usize| {
        let mut one = message(topic, n.to_string());
        one.ordering_key = key.map(str::to_owned);
        one
    };
    (0..count).map(of).collect()
}

pub(super) fn ids(read: &[Read]) -> HashSet<Uuid> {
    read.iter().map(|one| one.envelope.id).collect()
}
