//! The adapter against real servers, one for each test.

mod cluster;
mod conformance;
mod consume;
mod dead;
mod login;
mod order;
mod rights;
mod server;
mod way;

use std::{sync::Arc, time::Duration};

use outlast_core::broker::{
    Broker, Ensure, Envelope, Finding, Message, Severity, Subscription, Topology,
};
use outlast_nats::{Nats, NatsSettings};
use outlast_testkit::broker::NatsServer;
use serde_json::Value;
use uuid::Uuid;

/// Long enough for a loaded machine; nothing waits so long when all is well.
const PATIENCE: Duration = Duration::from_secs(20);

async fn connect(settings: NatsSettings) -> Nats {
    Nats::connect(settings)
        .await
        .expect("the settings are right")
}

async fn nats(server: &NatsServer) -> Nats {
    connect(NatsSettings::at(server.url())).await
}

fn messages(topic: &str, count: usize) -> Vec<Message> {
    let of = |n: usize| {
        let envelope = Envelope::new(Uuid::now_v7(), "tested", std::time::UNIX_EPOCH);
        Message::new(topic, Arc::new(envelope), n.to_string().into())
    };
    (0..count).map(of).collect()
}

async fn ensure(nats: &Nats, topology: &Topology, how: Ensure) -> Vec<Finding> {
    let found = nats.ensure(topology, how, PATIENCE).await;
    found.unwrap_or_else(|why| panic!("{topology:?}: {why}"))
}

/// A topic and a subscription of it.
async fn scene(nats: &Nats, topic: &str) -> Subscription {
    scene_of(nats, Subscription::new("reader", topic)).await
}

/// A topic and a subscription of it whose keys come in order.
async fn scene_in_order(nats: &Nats, topic: &str) -> Subscription {
    let mut subscription = Subscription::new("reader", topic);
    subscription.ordered = true;
    scene_of(nats, subscription).await
}

async fn scene_of(nats: &Nats, subscription: Subscription) -> Subscription {
    let topic = &*subscription.topic;
    for wanted in [
        Topology::topic(topic, true),
        Topology::Subscription(subscription.clone()),
    ] {
        let found = ensure(nats, &wanted, Ensure::Create).await;
        assert!(worst(&found) < Severity::Bad, "{found:?}");
    }
    subscription
}

fn worst(found: &[Finding]) -> Severity {
    let worst = found.iter().map(|one| one.severity).max();
    worst.expect("something was found")
}

/// Asks JetStream as somebody else would.
async fn api(server: &NatsServer, what: &str, body: Value) -> Value {
    let client = async_nats::connect(server.url())
        .await
        .expect("a connection");
    let body = body.to_string().into();
    let answer = client
        .request(format!("$JS.API.{what}"), body)
        .await
        .expect("an answer");
    serde_json::from_slice(&answer.payload).expect("JSON")
}
