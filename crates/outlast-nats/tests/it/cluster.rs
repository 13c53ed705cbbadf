//! Three servers, a stream on all of them, and one that dies.

use std::time::Duration;

use outlast_core::broker::{
    Broker, Ensure, Message, Published, Severity, Subscription, Topology, Why,
};
use outlast_nats::{Nats, NatsSettings};
use outlast_testkit::{
    broker::{NatsServer, conformance::Server, nats_server::is_installed},
    wait::{until, wait_for},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{PATIENCE, api, connect, ensure, messages};

const SOON: Duration = Duration::from_secs(5);

/// The stream on all three, as the cluster sees it.
async fn stream(server: &NatsServer) -> Value {
    api(server, "STREAM.INFO.bookings=confirmed", json!({})).await
}

/// Three servers, connected to all of them, and a stream on all three.
///
/// Until they know each other there are too few for three replicas. At times one never hears of another when all start at
/// once; then others are started.
async fn cluster() -> ([NatsServer; 3], Nats, Subscription) {
    let topic = Topology::topic("bookings.confirmed", true);
    for _ in 0..5 {
        let servers = NatsServer::start_cluster().await.expect("a cluster");
        let mut settings = NatsSettings::default();
        settings.urls = servers.iter().map(NatsServer::url).collect();
        let nats = connect(settings).await;
        let made = until(Duration::from_secs(8), async || {
            let made = nats.ensure(&topic, Ensure::Create, SOON).await;
            if let Err(why) = &made {
                assert_eq!(why.why, Why::Unavailable, "{why}");
            }
            made.ok()
        });
        if made.await.is_none() {
            continue;
        }
        let subscription = Subscription::new("reader", "bookings.confirmed");
        let wanted = Topology::Subscription(subscription.clone());
        wait_for("a consumer", PATIENCE, async || {
            nats.ensure(&wanted, Ensure::Create, SOON).await.ok()
        })
        .await;
        return (servers, nats, subscription);
    }
    panic!("five clusters, and none of three servers that know each other");
}

/// One attempt; what is not confirmed stays, in its order.
async fn attempt(nats: &Nats, left: Vec<Message>) -> Vec<Message> {
    let said = nats.publish(&left, Duration::from_secs(2)).await;
    let both = left.into_iter().zip(said);
    both.filter(|(_, said)| !said.is_confirmed())
        .map(|(message, _)| message)
        .collect()
}

#[tokio::test]
async fn the_death_of_the_streams_leader_loses_and_doubles_nothing() {
    if !is_installed() {
        return;
    }
    let (servers, nats, subscription) = cluster().await;
    let found = ensure(
        &nats,
        &Topology::topic("bookings.confirmed", true),
        Ensure::Verify,
    )
    .await;
    let about = found.iter().filter(|one| one.about.starts_with("stream"));
    let worst = about.map(|one| one.severity).max();
    assert_eq!(
        worst,
        Some(Severity::Good),
        "three replicas and nothing to complain of: {found:?}"
    );

    let sent: Vec<_> = (0..10)
        .map(|_| messages("bookings.confirmed", 50))
        .collect();
    let leader = stream(&servers[0]).await["cluster"]["leader"].clone();
    let is_leader = async |server: &NatsServer| {
        let client = async_nats::connect(server.url())
            .await
            .expect("a connection");
        client.server_info().server_name == leader.as_str().unwrap_or_default()
    };
    let mut place = None;
    for (n, server) in servers.iter().enumerate() {
        if is_leader(server).await {
            place = Some(n);
        }
    }
    let place = place.expect("one of the three leads");
    let end = Instant::now() + PATIENCE * 2;
    for (n, call) in sent.iter().enumerate() {
        let mut left = call.clone();
        if n == 5 {
            servers[place].kill().await;
        }
        while !left.is_empty() {
            assert!(Instant::now() < end, "{} are not confirmed", left.len());
            left = attempt(&nats, left).await;
        }
    }
    let other = &servers[(place + 1) % 3];
    assert_eq!(stream(other).await["state"]["messages"], 500);

    // Errors pass while a new leader is found.
    let mut reader = wait_for("the consumer", PATIENCE, async || {
        nats.subscribe(&subscription, SOON).await.ok()
    })
    .await;
    let mut seen = std::collections::HashSet::new();
    while seen.len() < 500 {
        assert!(Instant::now() < end, "{} of 500 came", seen.len());
        for one in reader
            .next(100, Duration::from_secs(2))
            .await
            .unwrap_or_default()
        {
            seen.insert(
                one.attributes
                    .iter()
                    .find(|(name, _)| name == "ce-id")
                    .cloned(),
            );
            let _ = one.settle.ack(PATIENCE).await;
        }
    }
}

#[tokio::test]
async fn without_a_quorum_nothing_is_confirmed_and_calls_end_in_time() {
    if !is_installed() {
        return;
    }
    let (servers, nats, _) = cluster().await;
    let sent = messages("bookings.confirmed", 5);
    for server in &servers[1..] {
        server.kill().await;
    }
    let short = Duration::from_secs(1);
    for _ in 0..3 {
        let asked = Instant::now();
        let said = nats.publish(&sent, short).await;
        assert!(!said.iter().any(Published::is_confirmed), "{said:?}");
        assert!(asked.elapsed() < short * 2, "it took {:?}", asked.elapsed());
    }
}
