//! Routes come, change and go while a relay runs, and each is a world of its own.

use outlast_core::broker::{Limits, Why};
use outlast_engine::Outlast;
use outlast_testkit::broker::memory::{Fault, Memory};

use super::{Given, Running, emit, number, relaying, route, with_route};
use crate::given::given;

/// A process that relays to this broker, and these consumers are served.
async fn relaying_all(given: &Given, broker: &Memory, consumers: &[&str]) -> Running {
    let worker = Outlast::new()
        .worker(())
        .database(given.database.url())
        .settings(Given::settings())
        .relay("memory", broker.clone());
    let running = Given::run(worker);
    for consumer in consumers {
        running.registered_as(given, consumer).await;
    }
    running
}

#[tokio::test]
async fn a_changed_route_publishes_to_its_new_topic_from_where_it_was() {
    let given = with_route(true).await;
    let broker = Memory::new().with_topic("pings").with_topic("pongs");
    let _relay = relaying(&given, &broker, Given::settings()).await;
    emit(&given, 0..50, 5).await;
    given.processed(50).await;
    route(&given, "pings", "pongs", true).await;
    let pongs = |broker: &Memory| {
        broker
            .accepted()
            .iter()
            .filter(|m| &*m.topic == "pongs")
            .count()
    };
    let mut n = 50;
    outlast_testkit::wait_for("the new topic", super::SOON, async || {
        emit(&given, n..n + 1, 5).await;
        n += 1;
        (pongs(&broker) > 0).then_some(())
    })
    .await;
    given.processed(n).await;
    assert_eq!(super::numbers(&broker), (0..n).collect::<Vec<_>>());
    assert_eq!(broker.accepted_count() as i64, n);
}

#[tokio::test]
async fn a_route_that_fails_holds_up_no_other_and_one_that_is_gone_keeps_its_place() {
    let given = with_route(false).await;
    let routes = serde_json::json!({
        "pings": {"broker": "memory", "topic": "pings", "types": ["ping"], "ordered": false, "attributes": {}},
        "bad": {"broker": "memory", "topic": "bad", "types": ["p*"], "ordered": true, "attributes": {}},
        "elsewhere": {"broker": "another", "topic": "x", "types": ["ping"], "ordered": false, "attributes": {}}
    });
    let apply = "select count(*) from outlast._apply_routes($1)";
    given.sql.query(apply, &[&routes]).await.unwrap();
    let broker = Memory::new().with_topic("pings");
    broker.meanwhile(Fault::refuse(|m| {
        (&*m.topic == "bad").then_some(Why::Denied)
    }));
    let relay = relaying(&given, &broker, Given::settings()).await;
    relay.registered_as(&given, "relay/bad").await;
    emit(&given, 0..40, 4).await;
    given
        .until(
            "select count(*) from outlast.processed where consumer = 'relay/pings'",
            40,
        )
        .await;
    let outage = "select count(*) from outlast.outage where consumer = 'relay/bad'";
    given.until(outage, 1).await;
    assert_eq!(
        given
            .count("select count(*) from outlast.consumer where name = 'relay/elsewhere'")
            .await,
        0
    );
    assert!(broker.calls().iter().flatten().all(|m| number(m) >= 0));

    route(&given, "pings", "pings", false).await;
    given.until(outage, 0).await;
    assert_eq!(
        given
            .count("select count(*) from outlast.consumer where name = 'relay/bad'")
            .await,
        1
    );
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn a_route_begins_with_what_is_emitted_from_now_on_or_with_all_that_is_kept_and_that_is_decided_once()
 {
    let given = given().await;
    let routes = |start: &str| {
        serde_json::json!({
            "late": {"broker": "memory", "topic": "late", "types": ["ping"], "ordered": false, "attributes": {}},
            "early": {"broker": "memory", "topic": "early", "types": ["ping"], "ordered": false, "attributes": {}, "start": start}
        })
    };
    let apply = "select count(*) from outlast._apply_routes($1)";
    emit(&given, 0..30, 3).await;
    given
        .sql
        .query(apply, &[&routes("earliest")])
        .await
        .unwrap();
    let broker = Memory::new().with_topic("late").with_topic("early");
    let relay = relaying_all(&given, &broker, &["relay/late", "relay/early"]).await;
    let of = |consumer: &str| {
        format!("select count(*) from outlast.processed where consumer = 'relay/{consumer}'")
    };
    given.until(&of("early"), 30).await;
    // Said again it changes nothing, and neither does another word.
    for start in ["earliest", "now"] {
        let changed = given.sql.query_one(apply, &[&routes(start)]).await.unwrap();
        let expected = i64::from(start == "now");
        assert_eq!(changed.get::<_, i64>(0), expected, "{start}");
    }
    emit(&given, 30..40, 3).await;
    given.until(&of("early"), 40).await;
    given.until(&of("late"), 10).await;
    let topics = |name: &str| {
        let all = broker.accepted();
        let mut all: Vec<_> = all
            .iter()
            .filter(|m| &*m.topic == name)
            .map(number)
            .collect();
        all.sort_unstable();
        all
    };
    assert_eq!(topics("early"), (0..40).collect::<Vec<_>>());
    assert_eq!(topics("late"), (30..40).collect::<Vec<_>>());
    let word = serde_json::json!({"x": {"broker": "memory", "topic": "x", "types": ["ping"], "ordered": false, "attributes": {}, "start": "soon"}});
    assert!(given.sql.query(apply, &[&word]).await.is_err());
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn what_a_relay_finds_of_its_broker_is_what_emit_refuses_until_the_broker_takes_more() {
    let given = with_route(true).await;
    let small = Limits::new(100, 1 << 20, 60_000).with_ordered_batches();
    let broker = Memory::new().with_topic("pings").with_limits(small);
    let large =
        "select id from outlast.emit('ping', jsonb_build_object('n', 1, 'x', repeat('x', 60000)))";
    // Nobody knows yet.
    given.sql.query_one(large, &[]).await.unwrap();
    let relay = relaying(&given, &broker, Given::settings()).await;
    let known = "select count(*) from outlast.route where limits ->> 'message_bytes' = '60000'";
    given.until(known, 1).await;
    let refused = given
        .sql
        .query_one(large, &[])
        .await
        .expect_err("it could never leave");
    let refused = refused.as_db_error().expect("by the database");
    assert_eq!(refused.code().code(), "OL021");
    assert!(
        refused
            .message()
            .contains("route pings could never send it"),
        "{}",
        refused.message()
    );
    relay.stop().await.unwrap();

    let relay = relaying(
        &given,
        &broker.with_limits(Limits::new(100, 1 << 20, 1 << 19)),
        Given::settings(),
    )
    .await;
    given.until(known, 0).await;
    let id: uuid::Uuid = given.sql.query_one(large, &[]).await.unwrap().get(0);
    let done = format!("select count(*) from outlast.processed where id = '{id}'");
    given.until(&done, 1).await;
    assert_eq!(
        given
            .count("select count(*) from outlast._audit where action = 'route.limits'")
            .await,
        2
    );
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn what_a_route_cannot_be_is_refused_and_nothing_is_changed() {
    let given = with_route(true).await;
    let refused = |routes: serde_json::Value| {
        let sql = &given.sql;
        async move {
            let error = sql
                .query("select outlast._apply_routes($1)", &[&routes])
                .await;
            error
                .expect_err("it is refused")
                .as_db_error()
                .expect("by the database")
                .message()
                .to_owned()
        }
    };
    let one = |ordered: bool, types: &str| serde_json::json!({"pings": {"broker": "memory", "topic": "pings", "types": [types], "ordered": ordered, "attributes": {}}});
    assert!(
        refused(one(false, "ping"))
            .await
            .contains("cannot be changed")
    );
    assert!(refused(one(true, "P!")).await.contains("P!"));
    let kept = "select count(*) from outlast.route where ordered and types = '{ping}'";
    assert_eq!(given.count(kept).await, 1);
    let audited = "select count(*) from outlast._audit where action = 'route.set'";
    assert_eq!(given.count(audited).await, 1);
}
