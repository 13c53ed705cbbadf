//! The way between us and the server: lost confirmations, and connections that are neither open nor closed.

use std::time::Duration;

use outlast_core::broker::{Broker, Published};
use outlast_nats::NatsSettings;
use outlast_testkit::{
    broker::{NatsServer, Wire, nats_server::is_installed},
    wait_for,
};
use serde_json::json;
use tokio::time::Instant;

use crate::{PATIENCE, api, connect, messages, scene};

const SHORT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn what_was_stored_and_not_confirmed_is_unknown_and_once_there_when_it_is_published_again() {
    if !is_installed() {
        return;
    }
    let server = NatsServer::start().await.expect("a server");
    let wire = Wire::before(&server.url()).await;
    let nats = connect(NatsSettings::at(format!("nats://{}", wire.address()))).await;
    scene(&nats, "bookings.confirmed").await;
    wire.lose_answers();
    let sent = messages("bookings.confirmed", 5);
    let said = nats.publish(&sent, SHORT).await;
    assert!(
        said.iter().all(|one| matches!(one, Published::Unknown(_))),
        "{said:?}"
    );
    assert!(wire.lost() > 0, "the server has answered nothing");
    let there = async || {
        let stream = api(&server, "STREAM.INFO.bookings=confirmed", json!({})).await;
        stream["state"]["messages"].as_u64()
    };
    assert_eq!(there().await, Some(5), "they were stored");
    wire.cut();
    // Until the client has found out, too, and has connected again.
    wait_for("confirmations", PATIENCE, async || {
        let said = nats.publish(&sent, SHORT).await;
        said.iter().all(Published::is_confirmed).then_some(())
    })
    .await;
    assert_eq!(there().await, Some(5), "copies were dropped");
}

#[tokio::test]
async fn a_half_open_connection_is_given_up_within_seconds() {
    if !is_installed() {
        return;
    }
    let server = NatsServer::start().await.expect("a server");
    let wire = Wire::before(&server.url()).await;
    let nats = connect(NatsSettings::at(format!("nats://{}", wire.address()))).await;
    let subscription = scene(&nats, "bookings.confirmed").await;
    let mut reader = nats
        .subscribe(&subscription, PATIENCE)
        .await
        .expect("subscribed");
    wire.hold_open();
    let held = Instant::now();
    let sent = messages("bookings.confirmed", 1);
    while !nats.publish(&sent, SHORT).await[0].is_confirmed() {
        assert!(
            held.elapsed() < Duration::from_secs(12),
            "still on the dead connection"
        );
    }
    let given = reader.next(1, PATIENCE).await.expect("next");
    assert_eq!(given.len(), 1, "and receiving goes on");
}

#[tokio::test]
async fn a_connection_that_is_cut_under_a_call_is_answered_at_once() {
    if !is_installed() {
        return;
    }
    let server = NatsServer::start().await.expect("a server");
    let wire = Wire::before(&server.url()).await;
    let nats = connect(NatsSettings::at(format!("nats://{}", wire.address()))).await;
    scene(&nats, "bookings.confirmed").await;
    wire.lose_answers();
    let sent = messages("bookings.confirmed", 5);
    let cutting = async {
        while wire.lost() == 0 {
            tokio::task::yield_now().await;
        }
        wire.cut();
    };
    let asked = Instant::now();
    let (said, ()) = tokio::join!(nats.publish(&sent, PATIENCE), cutting);
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "it waited {:?}",
        asked.elapsed()
    );
    assert!(
        said.iter().all(|one| matches!(one, Published::Unknown(_))),
        "{said:?}"
    );
}
