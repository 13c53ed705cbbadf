//! NATS JetStream as a [`Broker`] of Outlast.
//!
//! A topic is a subject that a stream takes, a subscription a durable pull consumer of that stream. The stream drops copies
//! by `Nats-Msg-Id`, which is the topic, the event's id and, where something is published again on purpose, the round.
//! `docs/brokers.md` says what a stream has to be like, and [`ensure`](Broker::ensure) whether it is.
//!
//! ```no_run
//! use outlast_core::broker::{Broker, Ensure, Topology};
//! use outlast_nats::{Nats, NatsSettings};
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let nats = Nats::connect(NatsSettings::at("nats://127.0.0.1:4222")).await?;
//! let topic = Topology::topic("bookings.confirmed", true);
//! for finding in nats.ensure(&topic, Ensure::Create, Duration::from_secs(5)).await? {
//!     println!("{:?} {}: {}", finding.severity, finding.about, finding.found);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The connection is kept by `async-nats`, which connects again by itself. One thing it cannot survive: a message whose
//! headers are not valid (somebody else's: a client of NATS cannot send such) closes the connection of who receives it.

mod acks;
mod api;
mod dead;
mod findings;
mod link;
mod login;
mod message;
mod monitor;
mod names;
mod order;
mod publish;
mod receive;
mod settings;
mod settle;
mod topology;

use std::{path::PathBuf, sync::Arc, time::Duration};

use outlast_core::broker::{
    Beside, BoxFuture, Broker, BrokerError, Delivered, Ensure, Finding, Limits, Message, Published,
    Subscribed, Subscription, Topology, Why,
};
use tokio::time::Instant;

pub use settings::NatsSettings;

use api::Api;
use dead::Dead;
use link::Link;
use receive::Reading;

/// Messages and bytes of one call: what a client writes in one go, and what a slow server confirms in a second.
const MESSAGES: usize = 1_000;
const BYTES: usize = 8 << 20;

/// NATS JetStream. Its clones share one connection.
#[derive(Clone, Debug)]
pub struct Nats {
    link: Arc<Link>,
    api: Api,
    settings: Arc<NatsSettings>,
}

/// Why there can be no connection, ever, with these settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// All that is wrong with the settings.
    #[error("settings of NATS: {}", .0.join("; "))]
    Settings(Vec<String>),
    /// A file that they name cannot be read.
    #[error("read {}: {}", .0.display(), .1)]
    File(PathBuf, String),
    /// The client does not start.
    #[error("connect to NATS: {0}")]
    Connect(String),
}

impl Nats {
    /// Connects in the background, and again whenever the connection is lost.
    ///
    /// A server that is not there is no error here: [`probe`](Broker::probe) tells. Needs a running tokio runtime.
    ///
    /// # Errors
    /// When the settings cannot be right, or a file that they name cannot be read.
    pub async fn connect(settings: NatsSettings) -> Result<Self, NatsError> {
        let settings = Arc::new(settings);
        let link = Link::open(Arc::clone(&settings)).await?;
        Ok(Self {
            link: Arc::new(link),
            api: Api::new(settings.domain.as_deref()),
            settings,
        })
    }

    async fn find(
        &self,
        wanted: &Subscription,
        by: Instant,
    ) -> Result<(String, String), BrokerError> {
        let missing = |what: String| BrokerError::new(Why::Missing, what);
        let bad = |why: String| missing(format!("{}: {why}", wanted.name));
        let name = names::encode(&wanted.name).map_err(bad)?;
        names::check_subject(&wanted.topic).map_err(bad)?;
        self.link.ready(by).await?;
        let stream = self.api.stream_of(&self.link, &wanted.topic, by).await?;
        let none = || missing(format!("no stream takes the subject {}", wanted.topic));
        Ok((stream.ok_or_else(none)?, name))
    }
}

impl Broker for Nats {
    fn kind(&self) -> &'static str {
        "nats"
    }

    fn limits(&self) -> Limits {
        let message = self.link.max_payload();
        let beside = Beside::ANYTHING.attribute_bytes(message::HEADERS);
        Limits::new(MESSAGES, BYTES.max(message), message)
            .with_ordered_batches()
            .with_beside(beside)
            .with_one_by_one()
    }

    fn validate(&self, message: &Message) -> Result<(), String> {
        message::check(message, self.link.max_payload())
    }

    fn publish<'a>(
        &'a self,
        messages: &'a [Message],
        within: Duration,
    ) -> BoxFuture<'a, Vec<Published>> {
        let by = Instant::now() + within;
        Box::pin(publish::publish(&self.link, &self.api, messages, by))
    }

    fn ensure<'a>(
        &'a self,
        topology: &'a Topology,
        how: Ensure,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Finding>, BrokerError>> {
        let by = Instant::now() + within;
        Box::pin(topology::ensure(self, topology, how, by))
    }

    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
        within: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Subscribed>, BrokerError>> {
        let by = Instant::now() + within;
        Box::pin(async move {
            let (stream, consumer) = self.find(subscription, by).await?;
            let there = self
                .api
                .consumer(&self.link, &stream, &consumer, by)
                .await?;
            let Some(there) = there else {
                let what = format!("there is no consumer {consumer} on the stream {stream}");
                return Err(BrokerError::new(Why::Missing, what));
            };
            order::check(subscription, &consumer, &there.config)?;
            // What is not positive is no limit.
            let pending = usize::try_from(there.config.max_ack_pending).unwrap_or(usize::MAX);
            let dead = Dead::new(&stream, &consumer, self.settings.deliveries);
            let reading = Reading {
                link: Arc::clone(&self.link),
                api: self.api.clone(),
                stream,
                consumer,
                dead,
                wanted: subscription.clone(),
                pending: if pending == 0 { usize::MAX } else { pending },
            };
            Ok(Box::new(reading) as Box<dyn Subscribed>)
        })
    }

    fn probe(&self, within: Duration) -> BoxFuture<'_, Result<(), BrokerError>> {
        let by = Instant::now() + within;
        Box::pin(async move {
            self.link.ready(by).await?;
            // JetStream, not only the server before it.
            let account =
                self.api
                    .ask::<serde_json::Value>(&self.link, "INFO", serde_json::Value::Null, by);
            account.await?.map(drop).map_err(Into::into)
        })
    }

    fn dead<'a>(
        &'a self,
        subscription: &'a Subscription,
        most: usize,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Delivered>, BrokerError>> {
        let by = Instant::now() + within;
        Box::pin(async move {
            if most == 0 {
                return Ok(Vec::new());
            }
            let (stream, consumer) = self.find(subscription, by).await?;
            let of = Dead::new(&stream, &consumer, self.settings.deliveries);
            dead::read(
                &self.link,
                &self.api,
                &self.settings.dead_stream,
                &of,
                most,
                by,
            )
            .await
        })
    }
}
