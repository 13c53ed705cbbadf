//! The property of windows, under a crowd and with gaps between the steps of a tick; and that the same account finds
//! every fault that an earlier draft or a hurried reader would have had.

use super::crowd::Crowd;
use crate::house::House;
use crate::seeds;
use crate::sql::{self, Claim};

/// Random milliseconds between snapshot and `hi`, and between `hi` and `h`.
const GAPS: [(&str, &str); 2] = [
    (
        "select coalesce(pg_sequence_last_value",
        "perform pg_sleep(random() * 0.004);\n  select coalesce(pg_sequence_last_value",
    ),
    (
        "t.h := pg_current_xact_id()",
        "perform pg_sleep(random() * 0.004);\n  t.h := pg_current_xact_id()",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_committed_event_is_claimed_once_and_after_what_it_followed() {
    for seed in seeds::seeds(3) {
        let house = House::new().await;
        house.plant("_tick", &GAPS).await;
        let huge = match (seed, seeds::long()) {
            (1, true) => 200_000,
            (1, false) => 20_000,
            _ => 0,
        };
        let account = Crowd {
            huge,
            ..Crowd::of(seed)
        }
        .run(&house)
        .await;
        println!("seed {seed}: {account}");
        assert!(
            account.committed > 300,
            "seed {seed}: the crowd wrote too little to prove anything"
        );
        assert!(account.is_clean(), "seed {seed}: {account}");
        assert_eq!(
            sql::broken(&house.connect().await).await,
            Vec::<String>::new(),
            "seed {seed}"
        );
    }
}

/// Runs crowds with this fault planted until the account shows it.
async fn must_be_found(what: &str, function: &str, pieces: &[(&str, &str)], ddl: &str) {
    for seed in 1..=10 {
        let house = House::new().await;
        let mut tick = GAPS.to_vec();
        if function == "_tick" {
            tick = [pieces, &GAPS].concat();
        } else {
            house.plant(function, pieces).await;
        }
        house.plant("_tick", &tick).await;
        sql::run(&house.connect().await, ddl).await;
        let account = Crowd::of(seed).run(&house).await;
        println!("{what}, seed {seed}: {account}");
        if !account.is_clean() {
            return;
        }
    }
    panic!("{what}: not found in 10 crowds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_range_of_stragglers_is_found() {
    let piece =
        "lo := case when exists (select from outlast._stragglers(a, b)) then 0 else (a).hi end;";
    must_be_found(
        "no stragglers at all",
        "_claim",
        &[(piece, "lo := (a).hi;")],
        "",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stragglers_only_among_the_open_ones_is_found() {
    let piece = "t.young := pg_snapshot_xmax(t.snap);";
    must_be_found(
        "no stragglers above xmax",
        "_tick",
        &[(piece, "t.young := null;")],
        "",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hi_before_the_snapshot_is_found() {
    let snap = "select pg_current_snapshot() into t.snap;\n  ";
    let hi = "select coalesce(pg_sequence_last_value('outlast._event_id'), 0) into t.hi;\n";
    let pieces = [
        (snap, ""),
        (
            hi,
            &format!("{hi}  perform pg_sleep(random() * 0.02);\n  {snap}"),
        ),
    ];
    must_be_found("hi before the snapshot", "_tick", &pieces, "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h_before_hi_is_found() {
    let hi = "select coalesce(pg_sequence_last_value('outlast._event_id'), 0) into t.hi;\n";
    let h = "  t.h := pg_current_xact_id();\n";
    let pieces = [(h, ""), (hi, &format!("{}  {hi}", h.trim_start()))];
    must_be_found("h before hi", "_tick", &pieces, "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_in_a_transaction_that_has_an_id_is_found() {
    let piece = "if pg_current_xact_id_if_assigned() is not null then";
    let pieces = [(piece, "perform pg_current_xact_id();\n  if false then")];
    must_be_found(
        "an own transaction id before the tick",
        "_tick",
        &pieces,
        "",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_only_when_the_sequence_moved_is_found() {
    let pieces = [
        (
            "if (t).open is not null and exists (",
            "if false and exists (",
        ),
        ("if (t).young is not null then", "if false then"),
    ];
    must_be_found(
        "a tick only when the sequence moved",
        "_beyond",
        &pieces,
        "",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_ticks_at_once_are_found() {
    let piece = "perform pg_advisory_xact_lock(outlast._lane_lock(c.id, 0));";
    // Without the lock the primary key of the batches still stops the second one; that is no answer, only a net.
    must_be_found("two ticks at once", "_claim", &[(piece, "")], "").await;
    let no_net =
        "alter table outlast._batch drop constraint _batch_pkey; drop index outlast._lease_batch";
    must_be_found(
        "two ticks at once, without the net",
        "_claim",
        &[(piece, "")],
        no_net,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_kept_in_reserve_are_refused_and_would_be_found() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["said.a"], "now", None).await;
    sql::run(&client, "alter sequence outlast._event_id cache 20").await;
    sql::emit(&client, "said.a", None).await;
    assert_eq!(sql::state(Claim::of(consumer).run(&client).await), "OL011");

    let pieces = [(
        "'outlast._event_id'::regclass) <> 1 then",
        "'outlast._event_id'::regclass) < 1 then",
    )];
    must_be_found(
        "ids kept in reserve",
        "_tick",
        &pieces,
        "alter sequence outlast._event_id cache 20",
    )
    .await;
}
