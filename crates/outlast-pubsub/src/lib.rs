//! Google Pub/Sub as a broker of Outlast.
//!
//! [`PubSub`] is made from [`Options`] and given to a relay or to a consumer. It makes one attempt and says what came of it;
//! retries, order, parking and the inbox are Outlast's.
//!
//! | room | what |
//! |---|---|
//! | `options`, `name` | where, as whom, and what things are called |
//! | `check` | Pub/Sub's limits on a message |
//! | `publish` | messages into requests, and an outcome for each |
//! | `receive`, `settle` | deliveries, and what becomes of them |
//! | `topology` | topics and subscriptions: made, or looked at |
//! | `rpc`, `wire`, `outcome` | one call, what is said in it, what its errors mean |
//!
//! ```no_run
//! use outlast_core::broker::{Broker, Ensure, Topology};
//! use outlast_pubsub::{Options, PubSub};
//! use std::time::Duration;
//!
//! # async fn run() -> Result<(), outlast_core::broker::BrokerError> {
//! let pubsub = PubSub::new(Options::new("my-project"))?;
//! let topic = Topology::topic("bookings", true);
//! for finding in pubsub.ensure(&topic, Ensure::Create, Duration::from_secs(10)).await? {
//!     println!("{}: {}", finding.about, finding.found);
//! }
//! # Ok(()) }
//! ```

mod check;
mod name;
mod options;
mod outcome;
mod publish;
mod receive;
mod rpc;
mod settle;
mod topology;
mod wire;

use std::{fmt, sync::Arc, time::Duration};

use outlast_core::broker::{
    Beside, BoxFuture, Broker, BrokerError, Delivered, Ensure, Finding, Limits, Message, Published,
    Subscribed, Subscription, Topology,
};
use tokio::{sync::Semaphore, time::Instant};
use tonic::Code;

pub use options::Options;
use wire::GetTopic;

/// The most messages of one call of [`publish`](Broker::publish); of a request they are at most 1,000.
const CALL_MESSAGES: usize = 10_000;
const CALL_BYTES: usize = 36_000_000;

/// A project of Google Pub/Sub. Clones are the same one.
#[derive(Clone)]
pub struct PubSub {
    server: Arc<Server>,
    dead: Arc<receive::Dead>,
}

/// What all of it shares.
struct Server {
    options: Options,
    rpc: rpc::Rpc,
    /// One for each request to publish that may be under way.
    requests: Semaphore,
}

impl PubSub {
    /// Reads the credentials. Connects when something is asked of it; inside a runtime of tokio.
    ///
    /// # Errors
    /// All [`problems`](Options::problems) of the options, or what is the matter with the credentials.
    pub fn new(options: Options) -> Result<Self, BrokerError> {
        let rpc = rpc::Rpc::new(&options)?;
        let requests = Semaphore::new(options.requests_in_flight);
        let server = Arc::new(Server {
            options,
            rpc,
            requests,
        });
        let dead = Arc::default();
        Ok(Self { server, dead })
    }
}

impl Server {
    /// What Pub/Sub orders a message of this key by: the key, or the bucket that it falls into. To Pub/Sub an empty key is
    /// none; to us it is one like any other.
    fn ordered_by(&self, key: Option<&str>) -> Option<String> {
        let key = match key? {
            "" => "outlast-empty",
            key => key,
        };
        let Some(buckets) = self.options.ordering_buckets else {
            return Some(key.to_owned());
        };
        // FNV-1a: the same in every process and every version, or keys would change their buckets with messages in flight.
        let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, b| {
            (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        Some(format!("outlast-{}", hash % u64::from(buckets.get())))
    }
}

impl fmt::Debug for PubSub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PubSub")
            .field("options", &self.server.options)
            .finish_non_exhaustive()
    }
}

impl Broker for PubSub {
    fn kind(&self) -> &'static str {
        "pubsub"
    }

    fn limits(&self) -> Limits {
        let beside = Beside::ANYTHING
            .attributes(check::ATTRIBUTES, check::NAME_BYTES, check::VALUE_BYTES)
            .key_bytes(check::KEY_BYTES);
        Limits::new(CALL_MESSAGES, CALL_BYTES, check::MESSAGE_BYTES)
            .with_ordered_batches()
            .with_beside(beside)
    }

    fn validate(&self, message: &Message) -> Result<(), String> {
        let key = message.ordering_key.as_deref();
        let ordered_by = self.server.ordered_by(key);
        check::size(message, ordered_by.as_deref()).map(drop)
    }

    fn publish<'a>(
        &'a self,
        messages: &'a [Message],
        within: Duration,
    ) -> BoxFuture<'a, Vec<Published>> {
        Box::pin(publish::publish(&self.server, messages, within))
    }

    fn ensure<'a>(
        &'a self,
        topology: &'a Topology,
        how: Ensure,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Finding>, BrokerError>> {
        Box::pin(topology::ensure(&self.server, topology, how, within))
    }

    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
        within: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Subscribed>, BrokerError>> {
        Box::pin(async move {
            let until = Instant::now() + within;
            let stream = receive::subscribe(&self.server, subscription, until).await?;
            Ok(Box::new(stream) as Box<dyn Subscribed>)
        })
    }

    /// Asks for a topic that need not be there: who answers that there is none, or that we may not look, answers.
    fn probe(&self, within: Duration) -> BoxFuture<'_, Result<(), BrokerError>> {
        Box::pin(async move {
            let until = Instant::now() + within;
            let topic = format!(
                "projects/{}/topics/outlast-probe",
                self.server.options.project
            );
            match self.server.rpc.call(GetTopic { topic }, until).await {
                Ok(_) => Ok(()),
                Err(failed) if [Code::NotFound, Code::PermissionDenied].contains(&failed.code) => {
                    Ok(())
                }
                Err(failed) => Err(outcome::error("look whether Pub/Sub answers", &failed)),
            }
        })
    }

    fn dead<'a>(
        &'a self,
        subscription: &'a Subscription,
        most: usize,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Delivered>, BrokerError>> {
        Box::pin(receive::dead(
            &self.server,
            &self.dead,
            subscription,
            most,
            within,
        ))
    }
}
