//! Receiving from a broker: a stream of deliveries, each settled by itself.

use std::time::Duration;

use bytes::Bytes;

use super::{BoxFuture, BrokerError};

/// Whose messages to receive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subscription {
    /// Its name at the broker: a durable consumer, a subscription.
    pub name: String,
    /// What it reads.
    pub topic: String,
    /// How long a delivery is ours before the broker gives it to another.
    pub ack_within: Duration,
    /// Keeps the order of each key: nothing of it is out while an earlier message of it is. A broker that cannot is not read.
    pub ordered: bool,
    /// How long the broker should keep at least what is not settled: as long as the log keeps events, so that what a longer
    /// outage has cost can be published again. Only looked at.
    pub keep: Duration,
}

impl Subscription {
    /// This name, on this topic; 60 s to settle, unordered, kept for 3 days at least.
    pub fn new(name: impl Into<String>, topic: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            topic: topic.into(),
            ack_within: Duration::from_secs(60),
            ordered: false,
            keep: Duration::from_hours(3 * 24),
        }
    }
}

/// A running subscription.
pub trait Subscribed: Send {
    /// Waits for deliveries, at most `most` and at most `within`; none when nothing came.
    ///
    /// Never more are taken from the broker than were asked for: what waits in memory is taken from another process.
    ///
    /// # Errors
    /// When the stream is broken; the caller subscribes anew.
    fn next(
        &mut self,
        most: usize,
        within: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivered>, BrokerError>>;

    /// Whether the stream still lives and keeps the order that was asked for, asked of the server: a silent one proves nothing.
    ///
    /// # Errors
    /// Why it does not.
    fn health(&mut self, within: Duration) -> BoxFuture<'_, Result<(), BrokerError>>;

    /// Takes nothing more and lets go of the stream. What was delivered can still be settled.
    fn drain(self: Box<Self>, within: Duration) -> BoxFuture<'static, ()>;
}

/// One delivery.
pub struct Delivered {
    /// Its attributes, as the broker has them: [`Envelope::from_attributes`](super::Envelope::from_attributes) reads them.
    pub attributes: Vec<(String, String)>,
    /// The payload.
    pub body: Bytes,
    /// What the broker calls it. For people; never an identity of ours.
    pub broker_id: String,
    /// Which delivery of it this is, from 1, if the broker counts.
    pub number: Option<u32>,
    /// Settles it.
    pub settle: Box<dyn Settle>,
}

impl std::fmt::Debug for Delivered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivered")
            .field("broker_id", &self.broker_id)
            .field("number", &self.number)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// What came of an ack. It never proves that nobody else was given the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acked {
    /// The broker has said that it will not deliver it again.
    Confirmed,
    /// It was sent, and this broker does not answer.
    Sent,
    /// The broker has given it to another meanwhile.
    Lost,
    /// Sent and not answered.
    Unknown,
}

/// Settles one delivery. Dropped without a call, the broker delivers it again after its time.
pub trait Settle: Send + Sync {
    /// It is done, or durably ours: no more deliveries.
    fn ack(self: Box<Self>, within: Duration) -> BoxFuture<'static, Acked>;

    /// Deliver it again, not before this long from now where the broker can wait.
    fn release(self: Box<Self>, after: Duration) -> BoxFuture<'static, ()>;

    /// It takes longer: this long from now.
    fn extend(&self, by: Duration) -> BoxFuture<'_, ()>;
}
