//! The ring under windows: which leaves hold an event is decided by times, and times jump.

use super::crowd::Crowd;
use crate::house::{House, forward};
use crate::seeds;
use crate::sql::{self, Claim};

/// Between the drawing of an id and the reading of its time a machine may be suspended, as between any two statements.
const GAP_IN_EMIT: (&str, &str) = (
    "    _at := outlast.clock();",
    "    perform pg_sleep(random() * 0.01);\n    _at := outlast.clock();",
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_the_clock_jumps_over_borders_of_slots() {
    for seed in seeds::seeds(1) {
        let house = House::new().await;
        house.movable_clock().await;
        house.plant("emit", &[GAP_IN_EMIT]).await;
        let gap = "perform pg_sleep(random() * 0.004);\n  ";
        let steps = [
            "t.snap := pg_current_snapshot()",
            "t.hi := coalesce(pg_sequence_last_value",
            "t.h := pg_current_xact_id()",
        ];
        let slowed = steps.map(|step| (step, format!("{gap}{step}")));
        house
            .plant(
                "_tick",
                &slowed.each_ref().map(|(step, slow)| (*step, slow.as_str())),
            )
            .await;
        let account = Crowd {
            clock_jumps: true,
            ..Crowd::of(seed)
        }
        .run(&house)
        .await;
        let client = house.connect().await;
        let slots: i64 = sql::one(
            &client,
            "select count(distinct slot) from outlast._event",
            &[],
        )
        .await;
        println!("seed {seed}: {slots} slots, {account}");
        assert!(slots >= 8, "seed {seed}: the clock moved too little");
        assert!(account.is_clean(), "seed {seed}: {account}");
        assert_eq!(
            sql::broken(&client).await,
            Vec::<String>::new(),
            "seed {seed}"
        );
    }
}

/// An id drawn before the border, its time read long after it, while a reader passes in between.
#[tokio::test]
async fn an_event_whose_time_was_read_a_slot_after_its_id_is_not_lost() {
    let house = House::new().await;
    house.movable_clock().await;
    let (writer, reader, gate) = (
        house.connect().await,
        house.connect().await,
        house.connect().await,
    );
    let consumer = sql::register(&reader, "c", &["a"], "now", None).await;
    sql::emit(&reader, "other", None).await;
    house
        .plant(
            "emit",
            &[(
                "    _at := outlast.clock();",
                "    perform pg_advisory_xact_lock_shared(4711);\n    _at := outlast.clock();",
            )],
        )
        .await;

    sql::run(&gate, "select pg_advisory_lock(4711)").await;
    let pid = sql::pid(&writer).await;
    let emitted = tokio::spawn(async move { sql::emit(&writer, "a", None).await });
    sql::until_blocked(&gate, pid).await;
    assert!(
        Claim::of(consumer)
            .next(&reader)
            .await
            .expect("claims")
            .is_empty(),
        "its tick knows the id"
    );
    forward(&gate, 14 * 3600).await;
    sql::run(&gate, "select pg_advisory_unlock(4711)").await;
    let event = emitted.await.expect("emits");

    let got = Claim::of(consumer).next(&reader).await.expect("claims");
    assert_eq!(
        got.iter().map(|event| event.id).collect::<Vec<_>>(),
        [event]
    );
    sql::complete(&reader, got[0].token, event)
        .await
        .expect("completes");
    assert_eq!(
        sql::finish(&reader, &[got[0].token])
            .await
            .expect("finishes"),
        [0]
    );
}

/// A consumer that slept for twelve days: its window is wider than the ring.
#[tokio::test]
async fn a_window_wider_than_the_ring_is_read_in_the_order_of_ids() {
    let house = House::new().await;
    house.movable_clock().await;
    let client = house.connect().await;
    let asleep = sql::register(&client, "asleep", &["a"], "now", None).await;
    let mut emitted = Vec::new();
    for _ in 0..24 {
        for _ in 0..3 {
            emitted.push(sql::emit(&client, "a", None).await);
        }
        forward(&client, 12 * 3600).await;
    }
    let mut got = Vec::new();
    loop {
        let page = Claim::of(asleep)
            .n(10)
            .run(&client)
            .await
            .expect("claims")
            .events;
        let Some(first) = page.first() else { break };
        let ids: Vec<_> = page.iter().map(|event| event.id).collect();
        sql::seal(&client, first.token, &ids).await.expect("seals");
        assert_eq!(
            sql::finish(&client, &[first.token])
                .await
                .expect("finishes"),
            [0]
        );
        got.extend(ids);
    }
    assert_eq!(got, emitted);
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
}
