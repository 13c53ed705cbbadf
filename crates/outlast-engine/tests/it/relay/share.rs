//! Several relays share the routes, and survive each other.

use std::time::{Duration, Instant};

use outlast_testkit::broker::memory::{Fault, Gate, Memory};

use super::{Given, emit, numbers, relaying, with_route};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_dies_is_succeeded_within_its_lease_and_a_second() {
    let given = with_route(false).await;
    let broker = Memory::new().with_topic("pings").without_dedup();
    let gate = Gate::new();
    broker.then(Fault::Late(gate.clone()));
    let first = relaying(&given, &broker, Given::settings()).await;
    emit(&given, 0..1, 1).await;
    gate.reached(1).await;
    // Taken by the broker, not confirmed; nobody renews any more.
    first.worker.abort();
    let died = Instant::now();
    let _second = relaying(&given, &broker, Given::settings()).await;
    given.processed(1).await;
    let took = died.elapsed();
    assert!(
        took < Given::settings().lease + Duration::from_secs(3),
        "{took:?}"
    );
    let ids: Vec<_> = broker.accepted().iter().map(|m| m.envelope.id).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_publish_everything_once_while_nothing_fails() {
    let given = with_route(false).await;
    let broker = Memory::new().with_topic("pings").without_dedup();
    let settings = || outlast_engine::Settings {
        batch_rows: 20,
        ..Given::settings()
    };
    let (_one, _two) = (
        relaying(&given, &broker, settings()).await,
        relaying(&given, &broker, settings()).await,
    );
    emit(&given, 0..300, 7).await;
    given.processed(300).await;
    assert_eq!(numbers(&broker), (0..300).collect::<Vec<_>>());
    assert_eq!(broker.accepted_count(), 300, "none twice");
}
