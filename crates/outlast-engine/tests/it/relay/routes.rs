//! Routes come, change and go while a relay runs, and each is a world of its own.

use outlast_core::broker::Why;
use outlast_testkit::broker::memory::{Fault, Memory};

use super::{Given, emit, number, relaying, route, with_route};

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
