//! What a user of a relay and one of a consumer must be allowed, as docs/brokers.md says; and what is told when one is not.

use std::time::Duration;

use outlast_core::broker::{
    Acked, Broker, Ensure, Published, Severity, Subscription, Topology, Why,
};
use outlast_nats::NatsSettings;
use outlast_testkit::broker::{NatsServer, nats_server::is_installed};

use crate::{PATIENCE, connect, ensure, messages, scene, worst};

/// As in docs/brokers.md, for the stream of one topic.
const RELAY: &str = r#"
    publish: ["bookings.confirmed", "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.bookings=confirmed"]
    subscribe: ["_INBOX.>"]
"#;
const READER: &str = r#"
    publish: [
        "$JS.API.INFO", "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.INFO.bookings=confirmed", "$JS.API.STREAM.INFO.outlast-dead",
        "$JS.API.CONSUMER.INFO.bookings=confirmed.reader", "$JS.API.CONSUMER.MSG.NEXT.bookings=confirmed.reader",
        "$JS.ACK.bookings=confirmed.reader.>",
        "outlast.dead.bookings=confirmed.reader",
        "$JS.API.CONSUMER.INFO.outlast-dead.bookings=confirmed_reader",
        "$JS.API.CONSUMER.CREATE.outlast-dead.bookings=confirmed_reader",
        "$JS.API.CONSUMER.MSG.NEXT.outlast-dead.bookings=confirmed_reader",
        "$JS.ACK.outlast-dead.bookings=confirmed_reader.>"
    ]
    subscribe: ["_INBOX.>"]
"#;

/// A server on which `all` may do everything, and `one` what these say.
async fn server(permissions: &str) -> NatsServer {
    let users = format!(
        "authorization {{ users: [ {{ user: all, password: p }}, {{ user: one, password: p, permissions: {{ {permissions} }} }} ] }}"
    );
    NatsServer::start_with(&users).await.expect("a server")
}

fn user(server: &NatsServer, name: &str) -> NatsSettings {
    let mut settings = NatsSettings::at(server.url());
    settings.user = Some(name.into());
    settings.password = Some("p".into());
    settings
}

#[tokio::test]
async fn a_relay_needs_no_more_than_its_topic_and_three_questions() {
    if !is_installed() {
        return;
    }
    let server = server(RELAY).await;
    let all = connect(user(&server, "all")).await;
    scene(&all, "bookings.confirmed").await;
    let relay = connect(user(&server, "one")).await;
    relay.probe(PATIENCE).await.expect("it may ask that");
    let topic = Topology::topic("bookings.confirmed", true);
    let found = ensure(&relay, &topic, Ensure::Verify).await;
    assert!(worst(&found) < Severity::Bad, "{found:?}");
    let said = relay
        .publish(&messages("bookings.confirmed", 2), PATIENCE)
        .await;
    assert_eq!(said, [Published::Confirmed, Published::Confirmed]);
    // Making one is another right.
    let other = Topology::topic("others", true);
    let denied = relay.ensure(&other, Ensure::Create, PATIENCE).await;
    let denied = denied.expect_err("it may not make streams");
    assert_eq!(denied.why, Why::Denied, "{denied}");
    assert!(
        denied.reason.contains("$JS.API.STREAM.CREATE.others"),
        "{denied}"
    );
    assert!(denied.reason.contains("permissions"), "{denied}");
}

#[tokio::test]
async fn a_consumer_needs_no_more_than_its_subscription_and_its_dead() {
    if !is_installed() {
        return;
    }
    let server = server(READER).await;
    let all = connect(user(&server, "all")).await;
    let subscription = scene(&all, "bookings.confirmed").await;
    all.publish(&messages("bookings.confirmed", 1), PATIENCE)
        .await;
    let mut settings = user(&server, "one");
    settings.deliveries = 1;
    let nats = connect(settings).await;
    let wanted = Topology::Subscription(subscription.clone());
    let found = ensure(&nats, &wanted, Ensure::Verify).await;
    assert!(worst(&found) < Severity::Bad, "{found:?}");
    let reader = nats.subscribe(&subscription, PATIENCE).await;
    let mut reader = reader.expect("subscribed");
    let first = reader.next(1, PATIENCE).await.expect("next").remove(0);
    first.settle.release(Duration::ZERO).await;
    // The second time it is put aside, and nothing is left.
    let second = reader.next(1, Duration::from_secs(1)).await.expect("next");
    assert_eq!(second.len(), 0);
    let mut dead = nats.dead(&subscription, 10, PATIENCE).await.expect("dead");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead.remove(0).settle.ack(PATIENCE).await, Acked::Confirmed);
}

#[tokio::test]
async fn a_consumer_that_may_not_ask_for_messages_says_so_and_is_not_just_silent() {
    if !is_installed() {
        return;
    }
    let may = READER.replace(
        "\"$JS.API.CONSUMER.MSG.NEXT.bookings=confirmed.reader\",",
        "",
    );
    let server = server(&may).await;
    let all = connect(user(&server, "all")).await;
    let subscription: Subscription = scene(&all, "bookings.confirmed").await;
    let nats = connect(user(&server, "one")).await;
    let reader = nats.subscribe(&subscription, PATIENCE).await;
    let denied = reader.expect("it may look").next(1, PATIENCE).await;
    let denied = denied.map(drop).expect_err("it may not ask");
    assert_eq!(denied.why, Why::Denied, "{denied}");
    assert!(
        denied
            .reason
            .contains("CONSUMER.MSG.NEXT.bookings=confirmed.reader"),
        "{denied}"
    );
}

#[tokio::test]
async fn who_may_not_listen_for_answers_is_told_and_sends_nothing() {
    if !is_installed() {
        return;
    }
    let server = server("publish: [\">\"]\nsubscribe: [\"mine.>\"]").await;
    let all = connect(user(&server, "all")).await;
    scene(&all, "bookings.confirmed").await;
    let mut settings = user(&server, "one");
    let deaf = connect(settings.clone()).await;
    // The refusal comes after the connection: what was sent before may be there.
    let denied = outlast_testkit::wait_for("the refusal", PATIENCE, async || {
        let refused = deaf.probe(Duration::from_secs(1)).await.err()?;
        (refused.why == Why::Denied).then_some(refused)
    })
    .await;
    assert!(denied.reason.contains("_INBOX"), "{denied}");
    assert!(denied.reason.contains("inbox_prefix"), "{denied}");
    let said = deaf
        .publish(&messages("bookings.confirmed", 1), PATIENCE)
        .await;
    assert!(
        matches!(&said[0], Published::NotSent(not) if not.why == Why::Denied),
        "{said:?}"
    );
    settings.inbox_prefix = Some("mine".into());
    let heard = connect(settings).await;
    let said = heard
        .publish(&messages("bookings.confirmed", 1), PATIENCE)
        .await;
    assert_eq!(said, [Published::Confirmed]);
}
