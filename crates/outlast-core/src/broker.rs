//! Brokers: what a relay publishes to and what consumers on a broker read from, as one contract.
//!
//! A broker is an adapter without opinions. It makes one attempt and says honestly what came of it; retries, order,
//! parking, leases and the inbox are ours, in PostgreSQL, and the same for every broker. `outlast_testkit::broker` has the
//! suite that each adapter has to pass.

mod consume;
mod envelope;
mod message;
mod topology;

use std::{fmt, pin::Pin, time::Duration};

pub use consume::{Acked, Delivered, Settle, Subscribed, Subscription};
pub use envelope::{Envelope, LogPlace, Unreadable};
pub use message::{Message, NotSent, Published, Why};
pub use topology::{Ensure, Finding, Severity, Topology};

/// A future of an adapter. It is never dropped half-way by us except by a watchdog, after its time is over.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A message broker.
///
/// Everything here makes one attempt, holds nothing of ours open, and returns within the time that it was given: who
/// cannot, is given up by a watchdog a second later, and what he was doing counts as unknown.
pub trait Broker: Send + Sync + 'static {
    /// What kind it is, one word: `nats`, `pubsub`. For settings, logs and metrics.
    fn kind(&self) -> &'static str;

    /// What it can do and how much it takes.
    fn limits(&self) -> Limits;

    /// Judges one message without sending it: names, size, attributes.
    ///
    /// # Errors
    /// Why this message can never be sent; it is quarantined with that reason, and the others go on.
    fn validate(&self, message: &Message) -> Result<(), String>;

    /// Publishes once, and answers one outcome for each message, in their order.
    ///
    /// [`Published::Confirmed`] only when the broker has said so. What was not handed to the network is
    /// [`Published::NotSent`]; what was, and was not answered, is [`Published::Unknown`]. One bad message fails alone: an
    /// adapter whose broker refuses a whole request takes it apart before it judges.
    ///
    /// Of one ordering key, nothing is confirmed after a message that was not: later ones are not sent. Who cannot keep that
    /// says so in [`Limits::ordered_batches`], and gets at most one message of a key in a call.
    fn publish<'a>(
        &'a self,
        messages: &'a [Message],
        within: Duration,
    ) -> BoxFuture<'a, Vec<Published>>;

    /// Makes, or only checks, what a relay or a consumer needs, and reports what the server says of it, not what was
    /// asked for.
    ///
    /// # Errors
    /// When the server cannot be asked. What it has and should not have is a [`Finding`].
    fn ensure<'a>(
        &'a self,
        topology: &'a Topology,
        how: Ensure,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Finding>, BrokerError>>;

    /// Begins to receive. Nothing is fetched before [`Subscribed::next`] asks for it.
    ///
    /// Of an ordered subscription nothing of a key is given to anybody while an earlier message of that key is not settled:
    /// whoever claims first would run first, and nobody could see that the one before it is still on its way to another.
    ///
    /// # Errors
    /// When the subscription is not there or cannot be read. [`Why::Configuration`] when order is asked for and what the
    /// server has does not keep it: such a one is never read.
    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
        within: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Subscribed>, BrokerError>>;

    /// Whether the broker answers, now.
    ///
    /// # Errors
    /// Why it does not.
    fn probe(&self, within: Duration) -> BoxFuture<'_, Result<(), BrokerError>>;

    /// Reads messages that the broker has given up on, with their original envelopes; at most `most`.
    ///
    /// # Errors
    /// When they cannot be read, and for brokers that keep none.
    fn dead<'a>(
        &'a self,
        subscription: &'a Subscription,
        most: usize,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Delivered>, BrokerError>>;
}

/// What a broker can do and how much it takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The most messages of one call.
    pub messages: usize,
    /// The most bytes of one call: bodies, attributes and keys.
    pub bytes: usize,
    /// The most bytes of one message.
    pub message_bytes: usize,
    /// Many messages of one ordering key may go into one call.
    pub ordered_batches: bool,
    /// What may stand beside the body of one message.
    pub beside: Beside,
    /// Of an ordered subscription one message is out at a time, whatever its key: what is not settled holds up all others.
    pub one_by_one: bool,
}

/// How much may stand beside the body of one message. What has no limit is `usize::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Beside {
    /// The most attributes.
    pub attributes: usize,
    /// The most bytes of an attribute's name.
    pub name_bytes: usize,
    /// The most bytes of an attribute's value.
    pub value_bytes: usize,
    /// The most bytes of all names and values together.
    pub attribute_bytes: usize,
    /// The most bytes of an ordering key.
    pub key_bytes: usize,
}

impl Beside {
    /// No limit of its own: what stands there counts with the message.
    pub const ANYTHING: Self = Self {
        attributes: usize::MAX,
        name_bytes: usize::MAX,
        value_bytes: usize::MAX,
        attribute_bytes: usize::MAX,
        key_bytes: usize::MAX,
    };

    /// So many attributes, with names and values of so many bytes.
    pub const fn attributes(mut self, most: usize, name_bytes: usize, value_bytes: usize) -> Self {
        self.attributes = most;
        self.name_bytes = name_bytes;
        self.value_bytes = value_bytes;
        self
    }

    /// So many bytes of attributes together.
    pub const fn attribute_bytes(mut self, bytes: usize) -> Self {
        self.attribute_bytes = bytes;
        self
    }

    /// So many bytes of an ordering key.
    pub const fn key_bytes(mut self, bytes: usize) -> Self {
        self.key_bytes = bytes;
        self
    }
}

impl Limits {
    /// These amounts; at most one message of a key in a call.
    pub const fn new(messages: usize, bytes: usize, message_bytes: usize) -> Self {
        Self {
            messages,
            bytes,
            message_bytes,
            ordered_batches: false,
            beside: Beside::ANYTHING,
            one_by_one: false,
        }
    }

    /// With limits of what stands beside a body.
    pub const fn with_beside(mut self, beside: Beside) -> Self {
        self.beside = beside;
        self
    }

    /// Many messages of one ordering key may go into one call.
    pub const fn with_ordered_batches(mut self) -> Self {
        self.ordered_batches = true;
        self
    }

    /// Of an ordered subscription one message is out at a time: a consumer acks it as soon as its database has it whole, so
    /// that a key in work holds up no other.
    pub const fn with_one_by_one(mut self) -> Self {
        self.one_by_one = true;
        self
    }
}

/// Why a broker could not be asked something other than to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerError {
    /// What is the matter.
    pub why: Why,
    /// For people: cleaned, at most 4 KiB.
    pub reason: String,
}

impl BrokerError {
    /// This matter, in these words. They come from outside: control characters go, the rest is cut.
    pub fn new(why: Why, reason: impl fmt::Display) -> Self {
        let reason = crate::text::clean(&reason.to_string(), crate::text::LIMIT);
        Self { why, reason }
    }
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.why, self.reason)
    }
}

impl std::error::Error for BrokerError {}

impl<B: Broker + ?Sized> Broker for std::sync::Arc<B> {
    fn kind(&self) -> &'static str {
        (**self).kind()
    }

    fn limits(&self) -> Limits {
        (**self).limits()
    }

    fn validate(&self, message: &Message) -> Result<(), String> {
        (**self).validate(message)
    }

    fn publish<'a>(
        &'a self,
        messages: &'a [Message],
        within: Duration,
    ) -> BoxFuture<'a, Vec<Published>> {
        (**self).publish(messages, within)
    }

    fn ensure<'a>(
        &'a self,
        topology: &'a Topology,
        how: Ensure,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Finding>, BrokerError>> {
        (**self).ensure(topology, how, within)
    }

    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
        within: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Subscribed>, BrokerError>> {
        (**self).subscribe(subscription, within)
    }

    fn probe(&self, within: Duration) -> BoxFuture<'_, Result<(), BrokerError>> {
        (**self).probe(within)
    }

    fn dead<'a>(
        &'a self,
        subscription: &'a Subscription,
        most: usize,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Delivered>, BrokerError>> {
        (**self).dead(subscription, most, within)
    }
}

// Invariant: a broker is behind a pointer everywhere, so that it is no type parameter of anything.
const _: fn(&dyn Broker) = |_| ();
