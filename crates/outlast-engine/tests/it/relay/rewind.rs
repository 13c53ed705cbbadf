//! A rewind publishes once more what the log still holds, with the same ids: a broker that was wiped is refilled by one.

use outlast_core::broker::Why;
use outlast_testkit::broker::memory::{Fault, Memory};

use super::{Given, emit, number, numbers, relaying, with_route};

const DONE: &str = "select count(*) from outlast.rewind where state = 'done'";

async fn rewind(given: &Given) -> i64 {
    let sql = "select events from outlast.rewind('pings', outlast.clock() - interval '1 hour', reason => 'wiped')";
    given.sql.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_wiped_broker_is_refilled_by_one_rewind_in_the_order_of_each_key() {
    let given = with_route(true).await;
    let broker = Memory::new().with_topic("pings");
    let _relay = relaying(&given, &broker, Given::settings()).await;
    emit(&given, 0..1200, 30).await;
    given.processed(1200).await;
    let before = broker.accepted();
    assert_eq!(before.len(), 1200);
    broker.wipe();
    // Some of it fails at first, and one message can never be taken any more.
    broker
        .then(Fault::ConfirmLost)
        .then(Fault::NotSent(Why::Unavailable));
    broker.meanwhile(Fault::refuse(|m| {
        (number(m) == 1150).then_some(Why::Message)
    }));
    assert_eq!(rewind(&given).await, 1200);
    given.until(DONE, 1).await;
    let again: Vec<_> = broker.accepted().split_off(1200);
    assert!(again.iter().all(|m| m.round == 1));
    let mut keys = std::collections::HashMap::new();
    for message in &again {
        let last = keys.insert(message.ordering_key.clone(), number(message));
        assert!(last < Some(number(message)), "its key went back");
    }
    let mut ids: Vec<_> = again.iter().map(|m| m.envelope.id).collect();
    let mut were: Vec<_> = before
        .iter()
        .filter(|m| number(m) != 1150)
        .map(|m| m.envelope.id)
        .collect();
    ids.sort();
    were.sort();
    // What follows the refused one of its key within a call waits for the next, and is published.
    assert_eq!(ids, were, "the same ids, each once");
    let row = given
        .sql
        .query_one("select sent, refused, events from outlast.rewind", &[])
        .await
        .unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (1199, 1));
    given.verified().await;
}

#[tokio::test]
async fn a_rewind_goes_on_where_a_dead_relay_left_it_and_can_be_cancelled() {
    let given = with_route(false).await;
    let broker = Memory::new().with_topic("pings");
    let first = relaying(&given, &broker, Given::settings()).await;
    emit(&given, 0..600, 30).await;
    given.processed(600).await;
    assert_eq!(numbers(&broker).len(), 600);
    // The second page finds nobody.
    broker.then(Fault::Refuse(std::sync::Arc::new(|_| None)));
    rewind(&given).await;
    given
        .until(
            "select count(*) from outlast.rewind where sent >= 500 or state = 'done'",
            1,
        )
        .await;
    first.worker.abort();
    let _second = relaying(&given, &broker, Given::settings()).await;
    given.until(DONE, 1).await;
    let again = broker.accepted_count() - 600;
    assert!(
        (600..=1100).contains(&again),
        "{again}: at most a page twice"
    );

    broker.down();
    rewind(&given).await;
    given
        .sql
        .batch_execute("select outlast.cancel_rewind('pings')")
        .await
        .unwrap();
    broker.up();
    given
        .until(
            "select count(*) from outlast.lease where room = 'rewind'",
            0,
        )
        .await;
    assert_eq!(
        given
            .count("select count(*) from outlast.rewind where state = 'cancelled'")
            .await,
        1
    );
}

#[tokio::test]
async fn what_cannot_be_rewound_is_refused_with_the_reason() {
    let given = with_route(false).await;
    let broker = Memory::new().with_topic("pings");
    let relay = relaying(&given, &broker, Given::settings()).await;
    let refused = |sql: &'static str| {
        let client = &given.sql;
        async move {
            let error = client.query(sql, &[]).await.expect_err(sql);
            error.as_db_error().expect(sql).message().to_owned()
        }
    };
    let none = refused("select outlast.rewind('pings', outlast.clock() - interval '1 hour')").await;
    assert!(none.contains("holds none"), "{none}");
    let when = refused("select outlast.rewind('pings', outlast.clock() + interval '1 hour')").await;
    assert!(when.contains("no time"), "{when}");
    let who = refused("select outlast.rewind('nobody', outlast.clock() - interval '1 hour')").await;
    assert!(who.contains("not registered"), "{who}");
    emit(&given, 0..3, 1).await;
    given.processed(3).await;
    relay.stop().await.unwrap();
    rewind(&given).await;
    let twice =
        refused("select outlast.rewind('pings', outlast.clock() - interval '1 hour')").await;
    assert!(twice.contains("one is running"), "{twice}");
}
