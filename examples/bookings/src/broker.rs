//! The broker that the consumers read from, if the environment names one. Nothing else of the application knows of it.

use anyhow::Result;
use outlast::broker::{Broker, Subscription};
use std::{env, sync::Arc, time::Duration};

/// What the relay publishes to: every event of ours.
pub const TOPIC: &str = "bookings";

/// Who has a subscription of its own there.
pub const CONSUMERS: [&str; 3] = ["ledger", "mailer", "archive"];

/// What this consumer reads. A message of a worker that was killed comes again after ten seconds.
pub fn subscription(consumer: &str) -> Subscription {
    let mut subscription = Subscription::new(consumer, TOPIC);
    subscription.ack_within = Duration::from_secs(10);
    subscription
}

/// `NATS_URL` names a NATS server, `PUBSUB_PROJECT` a project of Google Pub/Sub (with `PUBSUB_EMULATOR_HOST`, of the
/// emulator); without either of them the consumers read the tables. The topic and the subscriptions are made if they are
/// not there.
pub async fn from_env() -> Result<Option<Arc<dyn Broker>>> {
    match (env::var("NATS_URL"), env::var("PUBSUB_PROJECT")) {
        (Err(_), Err(_)) => Ok(None),
        (nats, pubsub) => connect(nats.ok(), pubsub.ok()).await.map(Some),
    }
}

#[cfg(feature = "brokers")]
async fn connect(nats: Option<String>, pubsub: Option<String>) -> Result<Arc<dyn Broker>> {
    use outlast_nats::{Nats, NatsSettings};
    use outlast_pubsub::{Options, PubSub};

    let broker: Arc<dyn Broker> = match (nats, pubsub) {
        (Some(url), None) => Arc::new(Nats::connect(NatsSettings::at(url)).await?),
        (None, Some(project)) => Arc::new(PubSub::new(Options::new(project))?),
        _ => anyhow::bail!("NATS_URL and PUBSUB_PROJECT: one of them"),
    };
    make(&*broker).await?;
    Ok(broker)
}

/// What a topic does not have yet. A topic of Pub/Sub keeps nothing for a subscription that comes later.
#[cfg(feature = "brokers")]
async fn make(broker: &dyn Broker) -> Result<()> {
    use outlast::broker::{Ensure, Severity, Topology};

    const WITHIN: Duration = Duration::from_secs(20);
    let subscriptions = CONSUMERS.map(|name| Topology::Subscription(subscription(name)));
    for topology in [Topology::topic(TOPIC, false)].iter().chain(&subscriptions) {
        for finding in broker.ensure(topology, Ensure::Create, WITHIN).await? {
            if finding.severity == Severity::Bad {
                anyhow::bail!("{}: {}", finding.about, finding.found);
            }
        }
    }
    Ok(())
}

#[cfg(not(feature = "brokers"))]
async fn connect(_: Option<String>, _: Option<String>) -> Result<Arc<dyn Broker>> {
    anyhow::bail!("this was built without brokers: cargo build --features brokers")
}
