//! A destination that fails for all is no fault of the messages: the route pauses with a probe, hardly anything is parked,
//! nobody is charged, and everything goes on when it is back.

use outlast_core::broker::Why;
use outlast_testkit::broker::memory::{Fault, Memory};

use super::{Given, emit, numbers, relaying, with_route};

const OUTAGE: &str = "select count(*) from outlast.outage where consumer = 'relay/pings'";

#[tokio::test]
async fn a_broker_that_is_down_pauses_its_route_and_loses_nothing() {
    for ordered in [false, true] {
        let given = with_route(ordered).await;
        let broker = Memory::new().with_topic("pings");
        let _relay = relaying(&given, &broker, Given::settings()).await;
        broker.down();
        emit(&given, 0..200, 20).await;
        given.until(OUTAGE, 1).await;
        let parked = given
            .count("select count(*) from outlast.parked where state <> 'behind'")
            .await;
        assert!(parked <= 12, "{parked} were parked");
        broker.up();
        given.processed(200).await;
        assert_eq!(numbers(&broker), (0..200).collect::<Vec<_>>());
        assert_eq!(
            given.count("select count(*) from outlast.incident").await,
            0
        );
        given.until(OUTAGE, 0).await;
    }
}

/// Goal: with few keys hardly anything can fail, because the rest waits behind; that must not spend the tries of what can.
#[tokio::test]
async fn a_broker_that_is_down_charges_nobody_however_few_keys_there_are() {
    for keys in [1, 3] {
        let given = with_route(true).await;
        let broker = Memory::new().with_topic("pings");
        let _relay = relaying(&given, &broker, Given::settings()).await;
        broker.down();
        emit(&given, 0..30, keys).await;
        given.until(OUTAGE, 1).await;
        let parked = "select count(*) from outlast.parked";
        assert_eq!(given.count(parked).await, 0, "{keys} keys");
        broker.up();
        given.processed(30).await;
        assert_eq!(numbers(&broker), (0..30).collect::<Vec<_>>());
        given.until(OUTAGE, 0).await;
    }
}

#[tokio::test]
async fn a_topic_that_is_missing_spends_no_attempts_and_is_published_to_when_it_is_there() {
    let given = with_route(false).await;
    let broker = Memory::new();
    let _relay = relaying(&given, &broker, Given::settings()).await;
    emit(&given, 0..30, 5).await;
    given.until(OUTAGE, 1).await;
    let charged = "select count(*) from outlast.parked where failures > 0";
    assert_eq!(given.count(charged).await, 0);
    let _same = broker.clone().with_topic("pings");
    given
        .until("select count(*) from outlast.processed", 30)
        .await;
}

#[tokio::test]
async fn what_came_too_fast_waits_without_a_charge() {
    let given = with_route(false).await;
    let broker = Memory::new().with_topic("pings");
    broker.then(Fault::NotSent(Why::Throttled));
    let _relay = relaying(&given, &broker, Given::settings()).await;
    emit(&given, 0..1, 1).await;
    let throttled =
        "select count(*) from outlast.parked where class = 'throttled' and failures = 0";
    given.until(throttled, 1).await;
    given.processed(1).await;
}
