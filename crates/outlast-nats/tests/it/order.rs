//! Order of keys: read only where the server keeps it, and nothing is passed over.

use std::time::Duration;

use outlast_core::broker::{Broker, Delivered, Published, Why};
use outlast_nats::NatsSettings;
use outlast_testkit::broker::{NatsServer, nats_server::is_installed};
use serde_json::{Value, json};

use crate::{PATIENCE, api, connect, messages, nats, scene, scene_in_order};

/// Changes settings of the consumer `reader`, as an operator does, and answers all that it has then.
async fn change(server: &NatsServer, with: Value) -> Value {
    let there = api(server, "CONSUMER.INFO.bookings.reader", json!({})).await;
    let mut config = there["config"].clone();
    for (name, value) in with.as_object().expect("settings") {
        config[name] = value.clone();
    }
    let body = json!({ "stream_name": "bookings", "config": config });
    let what = "CONSUMER.DURABLE.CREATE.bookings.reader";
    let changed = api(server, what, body).await;
    assert!(changed["error"].is_null(), "{changed}");
    changed["config"].clone()
}

#[tokio::test]
async fn a_consumer_that_gives_out_several_at_once_is_not_read_in_order() {
    if !is_installed() {
        return;
    }
    let server = NatsServer::start().await.expect("a server");
    let nats = nats(&server).await;
    let mut subscription = scene(&nats, "bookings").await;
    subscription.ordered = true;
    let refused = nats.subscribe(&subscription, PATIENCE).await;
    let refused = refused.err().expect("it gives out 10,000 at once");
    assert_eq!(refused.why, Why::Configuration, "{refused}");
    assert!(refused.reason.contains("--max-pending 1"), "{refused}");

    change(&server, json!({ "max_ack_pending": 1 })).await;
    let reader = nats.subscribe(&subscription, PATIENCE).await;
    let mut reader = reader.expect("one after another");
    reader.health(PATIENCE).await.expect("as it should be");
    // Somebody finds it slow while it is read.
    for slow in [
        json!({ "max_ack_pending": 100 }),
        json!({ "max_ack_pending": 1, "max_deliver": 3 }),
    ] {
        change(&server, slow).await;
        let sick = reader
            .health(PATIENCE)
            .await
            .expect_err("no order any more");
        assert_eq!(sick.why, Why::Configuration, "{sick}");
    }
}

#[tokio::test]
async fn in_order_nothing_is_put_aside_however_often_it_comes() {
    if !is_installed() {
        return;
    }
    let server = NatsServer::start().await.expect("a server");
    let mut settings = NatsSettings::at(server.url());
    settings.deliveries = 1;
    let nats = connect(settings).await;
    let subscription = scene_in_order(&nats, "bookings").await;
    let sent = messages("bookings", 2);
    let said = nats.publish(&sent, PATIENCE).await;
    assert_eq!(said, [Published::Confirmed, Published::Confirmed]);
    let reader = nats.subscribe(&subscription, PATIENCE).await;
    let mut reader = reader.expect("subscribed");
    let next = async |reader: &mut Box<dyn outlast_core::broker::Subscribed>| -> Delivered {
        let mut given = reader.next(2, PATIENCE).await.expect("next");
        assert_eq!(given.len(), 1, "{given:?}");
        given.remove(0)
    };
    for number in 1..=4 {
        let first = next(&mut reader).await;
        assert_eq!((&first.body, first.number), (&sent[0].body, Some(number)));
        first.settle.release(Duration::ZERO).await;
    }
    let first = next(&mut reader).await;
    assert_eq!(first.body, sent[0].body);
    first.settle.ack(PATIENCE).await;
    assert_eq!(next(&mut reader).await.body, sent[1].body);
    let dead = nats.dead(&subscription, 1, PATIENCE).await.expect("dead");
    assert!(dead.is_empty(), "{dead:?}");
}
