//! Several relays share an outbox, and survive each other.

use std::time::{Duration, Instant};

use outlast_testkit::broker::memory::{Fault, Gate, Memory};

use super::{emptied, few_at_once, ids, numbers, relaying, with_encore, write};
use crate::given::Given;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_dies_is_succeeded_within_its_lease_and_a_second() {
    let given = with_encore().await;
    let broker = Memory::new().with_topic("pings").without_dedup();
    let gate = Gate::new();
    broker.then(Fault::Late(gate.clone()));
    let first = relaying(&given, &broker, Given::settings());
    write(&given.sql, 0..1).await;
    gate.reached(1).await;
    let second = relaying(&given, &broker, Given::settings());
    write(&given.sql, 1..2).await;
    // The second one is there, and leaves alone what the first one has.
    given.until("select count(*) from public.outbox", 1).await;
    // Taken by the broker, not confirmed; nobody renews any more.
    first.worker.abort();
    let died = Instant::now();
    emptied(&given).await;
    let took = died.elapsed();
    assert!(
        took < Given::settings().lease + Duration::from_secs(3),
        "{took:?}"
    );
    assert_eq!(broker.accepted_count(), 3, "the first row once by each");
    assert_eq!(ids(&broker, 0).len(), 1);
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_publish_everything_once_while_nothing_fails() {
    let given = with_encore().await;
    let broker = Memory::new().with_topic("pings").without_dedup();
    let (_one, _two) = (
        relaying(&given, &broker, few_at_once()),
        relaying(&given, &broker, few_at_once()),
    );
    write(&given.sql, 0..400).await;
    emptied(&given).await;
    assert_eq!(numbers(&broker), (0..400).collect::<Vec<_>>());
    assert_eq!(broker.accepted_count(), 400, "none twice");
}

#[tokio::test]
async fn a_drain_waits_for_the_confirmation_and_leaves_nothing_claimed() {
    let given = with_encore().await;
    let broker = Memory::new().with_topic("pings").without_dedup();
    let gate = Gate::new();
    broker.then(Fault::Late(gate.clone()));
    let mut relay = relaying(&given, &broker, Given::settings());
    write(&given.sql, 0..1).await;
    gate.reached(1).await;
    relay.ask_to_stop();
    gate.open();
    relay.stop().await.unwrap();
    emptied(&given).await;
    assert_eq!(broker.accepted_count(), 1);
}

#[tokio::test]
async fn rows_that_others_delete_or_lock_hold_nobody_up() {
    let given = with_encore().await;
    let broker = Memory::new().with_topic("pings").without_dedup();
    let gate = Gate::new();
    broker.then(Fault::Late(gate.clone()));
    write(&given.sql, 0..10).await;
    let _relay = relaying(&given, &broker, Given::settings());
    gate.reached(1).await;
    // Deleted under us, and locked by somebody who looks at it.
    let other = given.database.connect().await;
    other
        .batch_execute("delete from public.outbox where id = 3")
        .await
        .unwrap();
    other
        .batch_execute("begin; select * from public.outbox where id = 5 for update")
        .await
        .unwrap();
    gate.open();
    given.until("select count(*) from public.outbox", 1).await;
    write(&given.sql, 10..20).await;
    given.until("select count(*) from public.outbox", 1).await;
    other.batch_execute("rollback").await.unwrap();
    emptied(&given).await;
    assert_eq!(numbers(&broker), (0..20).collect::<Vec<_>>());
}
