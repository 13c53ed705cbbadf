//! What is parked with a failed event, and how it is let go.

use super::{Yard, ids};
use crate::sql;

#[tokio::test]
async fn later_events_of_a_failed_one_go_behind_it_uncharged_and_other_keys_go_on() {
    let yard = Yard::new(1).await;
    let emitted = yard.emit("k j k k j -").await;
    let batch = yard.claim().await;
    assert_eq!(ids(&batch), emitted);

    assert_eq!(yard.fail(&batch[0], "retry").await, "retry");
    assert_eq!(
        yard.parked().await,
        ["k retry retry 1", "k behind behind 0", "k behind behind 0"]
    );
    assert_eq!(yard.keys().await, ["k 2"]);
    let refused = sql::complete(&yard.client, batch[2].token, batch[2].id).await;
    assert_eq!(sql::state(refused), "OL003", "it must not overtake");
    for event in [&batch[1], &batch[4], &batch[5]] {
        yard.complete(event).await;
    }
    assert_eq!(yard.finish(&batch[0]).await, 0, "nothing is left over");
    yard.must_be_sound().await;

    // New events of the key go behind as well, in the claim's own commit.
    let later = yard.emit("k j").await;
    let batch = yard.claim().await;
    assert_eq!(ids(&batch), later[1..]);
    yard.done(&batch[0]).await;
    assert_eq!(yard.keys().await, ["k 3"]);
    yard.must_be_sound().await;

    // One at a time, in the order of the log, each as its first try.
    let order = [emitted[0], emitted[2], emitted[3], later[0]];
    for (nth, expected) in order.into_iter().enumerate() {
        let due = yard.due().await;
        assert_eq!(ids(&due), [expected], "the {nth}th");
        assert_eq!(due[0].attempt, if nth == 0 { 2 } else { 1 });
        yard.complete(&due[0]).await;
        assert!(yard.due().await.is_empty(), "before its try has ended");
        yard.must_be_sound().await;
        assert_eq!(yard.finish(&due[0]).await, 0);
        yard.must_be_sound().await;
    }
    assert_eq!(yard.keys().await, Vec::<String>::new());
    yard.emit("k").await;
    assert_eq!(yard.claim().await.len(), 1, "the key is free");
}

#[tokio::test]
async fn two_failing_keys_of_one_batch_do_not_meet() {
    let yard = Yard::new(1).await;
    let emitted = yard.emit("k j k j i").await;
    let batch = yard.claim().await;
    assert_eq!(yard.fail(&batch[0], "retry").await, "retry");
    assert_eq!(yard.fail(&batch[1], "permanent").await, "quarantined");
    yard.complete(&batch[4]).await;
    assert_eq!(yard.finish(&batch[0]).await, 0);
    assert_eq!(yard.keys().await, ["j 1", "k 1"]);
    for expected in [emitted[0], emitted[2]] {
        let due = yard.due().await;
        assert_eq!(ids(&due), [expected]);
        yard.done(&due[0]).await;
    }
    assert_eq!(
        yard.parked().await,
        ["j quarantined permanent 1", "j behind behind 0"],
        "what a person must look at keeps its key"
    );
    assert!(yard.due().await.is_empty());
    yard.must_be_sound().await;
}

#[tokio::test]
async fn a_swallowed_failure_charges_the_first_of_its_key_and_nobody_behind() {
    let yard = Yard::new(1).await;
    yard.emit("k k j -").await;
    let batch = yard.claim().await;
    assert_eq!(yard.finish(&batch[0]).await, 4);
    assert_eq!(
        yard.parked().await,
        [
            "k retry unsealed 1",
            "k behind behind 0",
            "j retry unsealed 1",
            "- retry unsealed 1"
        ]
    );
    yard.must_be_sound().await;
}

#[tokio::test]
async fn what_fails_out_of_turn_goes_behind_the_one_before_it() {
    let yard = Yard::new(1).await;
    let emitted = yard.emit("k k k").await;
    let batch = yard.claim().await;
    assert_eq!(yard.fail(&batch[1], "permanent").await, "behind");
    assert_eq!(
        yard.parked().await,
        [
            "k retry behind 0",
            "k behind permanent 1",
            "k behind behind 0"
        ]
    );
    assert_eq!(yard.finish(&batch[0]).await, 0);
    let due = yard.due().await;
    assert_eq!(ids(&due), emitted[..1]);
    yard.done(&due[0]).await;
    assert_eq!(
        yard.parked().await,
        ["k quarantined permanent 1", "k behind behind 0"],
        "in its turn it is judged by what it said"
    );
    yard.must_be_sound().await;
}

#[tokio::test]
async fn of_a_batch_that_was_lost_twice_only_what_started_is_charged() {
    let yard = Yard::new(1).await;
    let emitted = yard.emit("k k j k").await;
    yard.claim().await;
    yard.lapse().await;
    let second = sql::reclaim(&yard.client, yard.consumer, 10).await;
    let second = second.expect("reclaims");
    let start = "select outlast._start($1, $2)";
    let started = [emitted[0]];
    yard.client
        .execute(start, &[&second[0].token, &&started[..]])
        .await
        .expect("marks");
    yard.lapse().await;
    let third = sql::reclaim(&yard.client, yard.consumer, 10).await;
    let third = third.expect("reclaims");
    assert_eq!(
        ids(&third),
        [emitted[2]],
        "the suspect's key is not handed out"
    );
    assert_eq!(
        yard.parked().await,
        [
            "k retry crashed 1",
            "k behind behind 0",
            "k behind behind 0"
        ]
    );
    yard.must_be_sound().await;

    // A worker that drains gives back, and charges nobody, behind or not.
    sql::hand_back(&yard.client, third[0].token, &[])
        .await
        .expect("gives back");
    let suspect = yard.due().await;
    sql::hand_back(&yard.client, suspect[0].token, &[])
        .await
        .expect("gives back");
    assert_eq!(yard.parked().await[0], "k retry crashed 1");
    yard.must_be_sound().await;
}

#[tokio::test]
async fn a_hand_back_after_the_seal_hands_the_key_on() {
    let yard = Yard::new(1).await;
    let emitted = yard.emit("k k").await;
    let batch = yard.claim().await;
    yard.fail(&batch[0], "retry").await;
    yard.finish(&batch[0]).await;
    let due = yard.due().await;
    yard.complete(&due[0]).await;
    sql::hand_back(&yard.client, due[0].token, &[])
        .await
        .expect("gives back");
    yard.must_be_sound().await;
    assert_eq!(ids(&yard.due().await), emitted[1..]);
}

#[tokio::test]
async fn a_worker_that_dies_after_the_seal_leaves_a_lease_that_hands_the_key_on() {
    let yard = Yard::new(1).await;
    let emitted = yard.emit("k k").await;
    let batch = yard.claim().await;
    yard.fail(&batch[0], "retry").await;
    yard.finish(&batch[0]).await;
    let due = yard.due().await;
    yard.complete(&due[0]).await;
    assert!(yard.due().await.is_empty());
    yard.lapse().await;
    let none = sql::reclaim(&yard.client, yard.consumer, 10).await;
    assert!(none.expect("sweeps").is_empty());
    yard.must_be_sound().await;
    assert_eq!(ids(&yard.due().await), emitted[1..]);
}

/// Parked by one connection while another one's seal of the same event is not committed yet: then it is done.
#[tokio::test]
async fn a_leader_that_was_sealed_side_by_side_lets_its_key_go() {
    for ended_first in [true, false] {
        let yard = Yard::new(1).await;
        let other = yard.house.connect().await;
        let emitted = yard.emit("k k").await;
        let batch = yard.claim().await;
        sql::run(&other, "begin").await;
        sql::complete(&other, batch[0].token, batch[0].id)
            .await
            .expect("completes");
        assert_eq!(yard.fail(&batch[0], "retry").await, "retry");
        sql::run(&other, "commit").await;
        if ended_first {
            assert_eq!(yard.finish(&batch[0]).await, 0);
        } else {
            assert!(yard.due().await.is_empty(), "it is done");
        }
        assert_eq!(ids(&yard.due().await), emitted[1..]);
        yard.finish(&batch[0]).await;
        yard.must_be_sound().await;
    }
}

#[tokio::test]
async fn an_event_that_waits_for_a_newer_worker_keeps_the_order_of_its_key() {
    let yard = Yard::new(1).await;
    let emitted = yard.emit("k k j").await;
    let batch = yard.claim().await;
    let wait = "select outlast._wait_for_version($1, $2)";
    yard.client
        .execute(wait, &[&batch[0].token, &batch[0].id])
        .await
        .expect("waits");
    yard.complete(&batch[2]).await;
    yard.finish(&batch[0]).await;
    assert_eq!(
        yard.parked().await,
        ["k waiting-version waiting-version 0", "k behind behind 0"]
    );
    let claim = "select event_id, token from outlast._claim_parked($1, 10, 60000, $2, $3)";
    let taken = async |types: &[&str], versions: &[i32]| {
        let rows = yard
            .client
            .query(claim, &[&yard.consumer, &types, &versions])
            .await
            .expect("claims");
        rows.iter()
            .map(|row| (row.get(0), row.get(1)))
            .collect::<Vec<(uuid::Uuid, uuid::Uuid)>>()
    };
    assert_eq!(taken(&["b"], &[9]).await, []);
    let got = taken(&["a"], &[1]).await;
    assert_eq!(got[0].0, emitted[0]);
    sql::complete(&yard.client, got[0].1, got[0].0)
        .await
        .expect("completes");
    sql::finish(&yard.client, &[got[0].1])
        .await
        .expect("finishes");
    // The next one is due, and too new for this worker: it waits for another, uncharged, and the key with it.
    assert_eq!(taken(&["b"], &[9]).await, []);
    assert_eq!(yard.parked().await, ["k waiting-version waiting-version 0"]);
    assert_eq!(taken(&["a"], &[1]).await[0].0, emitted[1]);
    yard.must_be_sound().await;
}
