//! What is given up on, and is not lost by that.

use std::time::Duration;

use outlast_core::broker::{Broker, Ensure, Envelope, Published, Subscription, Topology};
use outlast_nats::NatsSettings;
use outlast_testkit::{
    broker::{NatsServer, nats_server::is_installed},
    wait_for,
};
use serde_json::json;

use crate::{PATIENCE, api, connect, ensure, messages, scene};

#[tokio::test]
async fn what_cannot_be_put_aside_comes_again_until_it_can() {
    if !is_installed() {
        return;
    }
    let server = NatsServer::start().await.expect("a server");
    let mut settings = NatsSettings::at(server.url());
    settings.deliveries = 1;
    let nats = connect(settings).await;
    let subscription = scene(&nats, "bookings.confirmed").await;
    let deleted = api(&server, "STREAM.DELETE.outlast-dead", json!({})).await;
    assert_eq!(deleted["success"], true, "{deleted}");

    let sent = messages("bookings.confirmed", 1);
    assert_eq!(nats.publish(&sent, PATIENCE).await, [Published::Confirmed]);
    let mut reader = nats
        .subscribe(&subscription, PATIENCE)
        .await
        .expect("subscribed");
    let first = reader.next(1, PATIENCE).await.expect("next").remove(0);
    first.settle.release(Duration::ZERO).await;
    // The second delivery is one too many, and there is no place for it.
    let second = reader.next(1, Duration::from_secs(1)).await.expect("next");
    assert!(second.is_empty(), "it was given once more: {second:?}");

    ensure(
        &nats,
        &Topology::Subscription(subscription.clone()),
        Ensure::Create,
    )
    .await;
    let dead = wait_for("the dead message", PATIENCE, async || {
        let given = reader.next(1, Duration::from_secs(1)).await.expect("next");
        assert!(given.is_empty(), "it was given once more: {given:?}");
        nats.dead(&subscription, 1, PATIENCE)
            .await
            .expect("dead")
            .pop()
    })
    .await;
    let envelope = Envelope::from_attributes(&dead.attributes).expect("an envelope");
    assert_eq!((&envelope, &dead.body), (&*sent[0].envelope, &sent[0].body));
}

#[tokio::test]
async fn what_the_server_gave_up_on_is_found_by_its_advisory() {
    if !is_installed() {
        return;
    }
    let server = NatsServer::start().await.expect("a server");
    let nats = connect(NatsSettings::at(server.url())).await;
    scene(&nats, "bookings.confirmed").await;
    // Made by somebody else, with a limit at the server, on the stream that ensure made.
    let theirs = json!({
        "stream_name": "bookings=confirmed",
        "config": {
            "durable_name": "theirs", "ack_policy": "explicit", "ack_wait": 1_000_000_000,
            "max_deliver": 1, "filter_subject": "bookings.confirmed",
        },
    });
    let made = api(
        &server,
        "CONSUMER.DURABLE.CREATE.bookings=confirmed.theirs",
        theirs,
    )
    .await;
    assert!(made["error"].is_null(), "{made}");
    let sent = messages("bookings.confirmed", 2);
    assert!(
        nats.publish(&sent, PATIENCE)
            .await
            .iter()
            .all(Published::is_confirmed)
    );

    let subscription = Subscription::new("theirs", "bookings.confirmed");
    let mut reader = nats
        .subscribe(&subscription, PATIENCE)
        .await
        .expect("subscribed");
    let both = reader.next(2, PATIENCE).await.expect("next");
    assert_eq!(both.len(), 2);
    for one in both {
        let is_first = one.body == sent[0].body;
        if is_first {
            one.settle.release(Duration::ZERO).await;
        } else {
            let _ = one.settle.ack(PATIENCE).await;
        }
    }
    let dead = wait_for("the dead message", PATIENCE, async || {
        // The server notices when somebody asks.
        let given = reader
            .next(1, Duration::from_millis(200))
            .await
            .expect("next");
        assert!(given.is_empty(), "{given:?}");
        nats.dead(&subscription, 5, PATIENCE)
            .await
            .expect("dead")
            .pop()
    })
    .await;
    let envelope = Envelope::from_attributes(&dead.attributes).expect("an envelope");
    assert_eq!((&envelope, &dead.body), (&*sent[0].envelope, &sent[0].body));
}
