//! The relay: what was committed is published until the broker has confirmed it, always with the same id; nothing that
//! befalls one message, key or route holds up another.
//!
//! The broker is one in memory, which says what it really took; real servers are in the crates of their adapters.

mod order;
mod outage;
mod rewind;
mod routes;
mod share;

use std::time::Duration;

use outlast_core::broker::{Message, Why};
use outlast_engine::{Outlast, Settings};
use outlast_testkit::broker::memory::{Fault, Memory, Taken};
use uuid::Uuid;

use crate::given::{Given, Running, SOON, given};

/// A database with one route for pings, to the topic `pings` of the broker `memory`.
pub(crate) async fn with_route(ordered: bool) -> Given {
    let given = given().await;
    route(&given, "pings", "pings", ordered).await;
    given
}

/// Makes this the only route.
pub(crate) async fn route(given: &Given, name: &str, topic: &str, ordered: bool) {
    let routes = serde_json::json!({
        name: {"broker": "memory", "topic": topic, "types": ["ping"], "ordered": ordered, "attributes": {"team": "a"}}
    });
    let sql = "select count(*) from outlast._apply_routes($1)";
    given.sql.query(sql, &[&routes]).await.unwrap();
}

/// A process that relays to this broker, and its route is served.
pub(crate) async fn relaying(given: &Given, broker: &Memory, settings: Settings) -> Running {
    let worker = Outlast::new()
        .worker(())
        .database(given.database.url())
        .settings(settings)
        .relay("memory", broker.clone());
    let running = Given::run(worker);
    running.registered_as(given, "relay/pings").await;
    running
}

/// Emits pings of these numbers, each in a transaction of its own, with one of so many keys.
pub(crate) async fn emit(given: &Given, numbers: std::ops::Range<i64>, keys: i64) {
    for n in numbers {
        let sql = "select outlast.emit(type => 'ping', payload => $1::text, key => $2)";
        let (payload, key) = (format!("{{\"n\":{n}}}"), format!("k{}", n % keys));
        given.sql.execute(sql, &[&payload, &key]).await.unwrap();
    }
}

pub(crate) fn number(message: &Message) -> i64 {
    let ping: crate::given::Ping = serde_json::from_slice(&message.body).expect("a ping");
    ping.n
}

/// The numbers of what the broker took, each once, in order.
pub(crate) fn numbers(broker: &Memory) -> Vec<i64> {
    let mut all: Vec<i64> = broker.accepted().iter().map(number).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[tokio::test]
async fn what_was_committed_is_published_whole_and_what_was_rolled_back_is_not() {
    let given = with_route(false).await;
    let broker = Memory::new().with_topic("pings");
    let relay = relaying(&given, &broker, Given::settings()).await;
    given
        .sql
        .batch_execute("begin; select outlast.emit('ping', '{\"n\":-1}'); rollback")
        .await
        .unwrap();
    let sql = "select id from outlast.emit(type => 'ping', payload => '{\"n\": 7}', key => 'é/1', tenant => 'acme',
        headers => '{\"region\": \"eu\"}', actor => 'jane', version => 3, source => 'shop', subject => 's', aggregate_version => 9)";
    let id: Uuid = given.sql.query_one(sql, &[]).await.unwrap().get(0);
    given.processed(1).await;

    let [message] = &broker.accepted()[..] else {
        panic!("one message: {:?}", broker.accepted());
    };
    let e = &message.envelope;
    assert_eq!((e.id, &*e.name, e.version), (id, "ping", 3));
    assert_eq!((&*e.tenant, e.key.as_deref()), ("acme", Some("é/1")));
    assert_eq!(e.actor.as_deref(), Some("jane"));
    assert_eq!(
        (e.source.as_deref(), e.subject.as_deref()),
        (Some("shop"), Some("s"))
    );
    assert_eq!(
        (e.aggregate_version, &*e.content_type),
        (Some(9), "application/json")
    );
    assert_eq!(e.headers.get("region").map(String::as_str), Some("eu"));
    assert_eq!(&message.body[..], br#"{"n": 7}"#, "byte for byte");
    assert_eq!(&*message.topic, "pings");
    assert_eq!(message.ordering_key, None, "the route keeps no order");
    assert!(
        message
            .all_attributes()
            .contains(&("team".into(), "a".into()))
    );
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn a_lost_confirmation_is_published_again_with_the_same_id() {
    let given = with_route(false).await;
    let broker = Memory::new().with_topic("pings").without_dedup();
    broker.then(Fault::ConfirmLost).then(Fault::RequestLost);
    let _relay = relaying(&given, &broker, Given::settings()).await;
    emit(&given, 0..1, 1).await;
    given.processed(1).await;
    let ids: Vec<Uuid> = broker.accepted().iter().map(|m| m.envelope.id).collect();
    assert_eq!(
        ids.len(),
        2,
        "once with the confirmation lost, once confirmed"
    );
    assert_eq!(ids[0], ids[1]);
}

#[tokio::test]
async fn one_message_that_can_never_be_sent_is_quarantined_alone() {
    for ordered in [false, true] {
        let given = with_route(ordered).await;
        let broker = Memory::new().with_topic("pings");
        broker.meanwhile(Fault::refuse(|message| {
            (number(message) == 13).then_some(Why::Message)
        }));
        emit(&given, 0..100, 10).await;
        route(&given, "pings", "pings", ordered).await;
        let _relay = relaying(&given, &broker, Given::settings()).await;
        emit(&given, 0..100, 10).await;
        let quarantined = "select count(*) from outlast.parked where state = 'quarantined'";
        given.until(quarantined, 1).await;
        // On an ordered route what follows of its key waits behind it.
        let behind = if ordered { 8 } else { 0 };
        given
            .until("select count(*) from outlast.processed", 99 - behind)
            .await;
        given
            .until(
                "select count(*) from outlast.parked where state = 'behind'",
                behind,
            )
            .await;
        let why = given
            .sql
            .query_one("select reason from outlast.incident", &[])
            .await;
        let why: String = why.unwrap().get(0);
        assert!(why.contains("the message is refused"), "{why}");
        assert!(!numbers(&broker).contains(&13));
    }
}

#[tokio::test]
async fn a_message_over_the_limit_is_never_sent_and_told_with_its_size() {
    let given = with_route(false).await;
    let broker = Memory::new().with_topic("pings");
    let limits = outlast_core::broker::Limits::new(100, 10_000, 2_000);
    let broker = broker.with_limits(limits);
    let _relay = relaying(&given, &broker, Given::settings()).await;
    let pad = "x".repeat(3_000);
    let payload = format!("{{\"n\":0,\"pad\":\"{pad}\"}}");
    given
        .sql
        .execute("select outlast.emit('ping', $1::text)", &[&payload])
        .await
        .unwrap();
    emit(&given, 1..50, 5).await;
    given
        .until("select count(*) from outlast.processed", 49)
        .await;
    given
        .until("select count(*) from outlast.incident", 1)
        .await;
    assert!(
        broker
            .calls()
            .iter()
            .flatten()
            .all(|m| m.body.len() < 2_000)
    );
}

#[tokio::test]
async fn a_call_that_never_returns_is_given_up_and_nothing_is_lost() {
    let given = with_route(false).await;
    let broker = Memory::new().with_topic("pings");
    broker.then(Fault::Hang(Taken::Yes)).then(Fault::Panic);
    let _relay = relaying(&given, &broker, Given::settings()).await;
    emit(&given, 0..20, 5).await;
    given.processed(20).await;
    assert_eq!(numbers(&broker), (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_drain_waits_for_the_confirmation_and_leaves_nothing_half_done() {
    let given = with_route(false).await;
    let broker = Memory::new().with_topic("pings");
    let gate = outlast_testkit::broker::memory::Gate::new();
    broker.then(Fault::Late(gate.clone()));
    let mut relay = relaying(
        &given,
        &broker,
        Settings {
            lease: Duration::from_secs(15),
            ..Given::settings()
        },
    )
    .await;
    emit(&given, 0..1, 1).await;
    tokio::time::timeout(SOON, gate.reached(1))
        .await
        .expect("it publishes");
    relay.ask_to_stop();
    gate.open();
    relay.stop().await.unwrap();
    given.processed(1).await;
    assert_eq!(broker.calls().len(), 1);
}

/// What counts is that it was sent, not that sending failed.
#[tokio::test]
async fn a_message_that_is_never_confirmed_is_put_before_a_person_after_its_tries_and_the_others_go_on()
 {
    let given = with_route(false).await;
    let broker = Memory::new().with_topic("pings");
    broker.meanwhile(Fault::lose(|message| number(message) == 13));
    let settings = Settings {
        attempts: 2,
        ..Given::settings()
    };
    let _relay = relaying(&given, &broker, settings).await;
    emit(&given, 0..20, 5).await;
    let quarantined = "select count(*) from outlast.parked where state = 'quarantined'";
    let (mut n, end) = (20, tokio::time::Instant::now() + SOON);
    while given.count(quarantined).await == 0 {
        assert!(tokio::time::Instant::now() < end, "it is still tried");
        // The others succeed meanwhile: it is no outage.
        emit(&given, n..n + 1, 5).await;
        n += 1;
    }
    given
        .until("select count(*) from outlast.processed", n - 1)
        .await;
    let calls = broker.calls();
    let tries = calls.iter().flatten().filter(|one| number(one) == 13);
    assert_eq!(tries.count(), 2);
}

#[tokio::test]
async fn no_session_is_in_a_transaction_or_holds_a_lock_while_a_broker_is_called() {
    let given = with_route(true).await;
    let broker = Memory::new().with_topic("pings");
    let gate = outlast_testkit::broker::memory::Gate::new();
    broker.then(Fault::Held(gate.clone()));
    let settings = Settings {
        lease: Duration::from_secs(15),
        ..Given::settings()
    };
    let relay = relaying(&given, &broker, settings).await;
    emit(&given, 0..3, 3).await;
    tokio::time::timeout(SOON, gate.reached(1))
        .await
        .expect("it publishes");
    let open = "select count(*) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and state like 'idle in transaction%'";
    let locks = "select count(*) from pg_locks l join pg_stat_activity a using (pid)
        where a.datname = current_database() and pid <> pg_backend_pid() and locktype = 'advisory' and a.state = 'idle'";
    assert_eq!((given.count(open).await, given.count(locks).await), (0, 0));
    gate.open();
    given.processed(3).await;
    relay.stop().await.unwrap();
}
