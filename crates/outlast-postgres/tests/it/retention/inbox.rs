//! The ring of the inbox: rows go when bits prove them, bits go when nobody may ask for them, and then nothing is new.

use uuid::Uuid;

use super::Barn;
use crate::sql::{self, Claim};

/// With fewer rows that a sweep may carry, so that a test needs no thousands.
async fn carrying(most: usize) -> Barn {
    let barn = Barn::new().await;
    let sql = format!(
        "create or replace function outlast._carried_most() returns int language sql stable as 'select {most}'"
    );
    sql::run(&barn.client, &sql).await;
    barn
}

/// A consumer of the type `a` on a broker.
async fn on_a_broker(barn: &Barn) -> i32 {
    let sql = "select id from outlast._register_delivered('d', '{a}', 'memory', 'orders', 'd')";
    sql::one(&barn.client, sql, &[]).await
}

/// What becomes of an event that a broker delivers: its verdict; if it is to run it is completed.
async fn delivered(barn: &Barn, consumer: i32, id: Uuid) -> String {
    let envelope = "select jsonb_build_array(jsonb_build_object('id', $1::uuid, 'type', 'a', 'version', 1, \
        'content_type', 'application/json', 'emitted_at', outlast._v7_time($1)))";
    let envelope: serde_json::Value = sql::one(&barn.client, envelope, &[&id]).await;
    let claim =
        "select verdict, token from outlast._claim_delivered($1, $2, array['{}'::bytea], 60000)";
    let row = barn
        .client
        .query_one(claim, &[&consumer, &envelope])
        .await
        .expect("judges");
    let verdict: String = row.get(0);
    if verdict == "run" {
        let token: Uuid = row.get(1);
        sql::seal(&barn.client, token, &[id]).await.expect("seals");
        sql::finish(&barn.client, &[token]).await.expect("ends");
    }
    verdict
}

/// Completed by a consumer on a broker, of this moment.
async fn from_a_broker(barn: &Barn, consumer: i32, n: usize) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for _ in 0..n {
        let id = sql::one(&barn.client, "select outlast._v7(outlast.clock())", &[]).await;
        assert_eq!(delivered(barn, consumer, id).await, "run");
        ids.push(id);
    }
    ids
}

/// Given: a leaf with completions that bits prove, and more of a consumer on a broker than a sweep may carry. When: maintenance goes on.
/// Then: they are moved out in pages, the leaf is swept, and each completion is known as before until its time is over.
#[tokio::test]
async fn a_leaf_with_many_completions_from_a_broker_is_swept_after_they_were_moved_out_in_pages() {
    let barn = carrying(5).await;
    let done = barn.work(20).await;
    let on_broker = on_a_broker(&barn).await;
    let from = from_a_broker(&barn, on_broker, 12).await;
    let slot = barn.inbox_slot(done[0]).await;
    let moved = "select outlast._move_out(4)::bigint";
    barn.days(4).await;
    assert_eq!(
        barn.count(moved).await,
        0,
        "what is not folded waits for that"
    );
    barn.fold(barn.consumer).await;
    assert_eq!(barn.due("inbox").await, Vec::<String>::new());
    assert!(barn.holds("inbox", slot).await.contains(&"rows".to_owned()));

    assert_eq!(barn.count(moved).await, 4);
    assert_eq!(delivered(&barn, on_broker, from[0]).await, "done", "moved");
    assert_eq!(
        delivered(&barn, on_broker, from[11]).await,
        "done",
        "not moved"
    );
    barn.must_be_sound().await;
    assert_eq!(barn.count(moved).await, 4);
    assert_eq!(barn.count(moved).await, 0, "the rest is carried");
    assert_eq!(barn.due("inbox").await, Vec::<String>::new());
    barn.hours(1).await;
    assert_eq!(barn.due("inbox").await, [format!("{slot} sweep")]);
    assert_eq!(barn.empty("inbox", slot, "sweep").await, "emptied");
    let rows = "select count(*) from outlast._processed_event";
    assert_eq!(barn.count(rows).await, 4);
    let known = "select count(distinct (consumer, id)) from outlast.processed";
    assert_eq!(barn.count(known).await, 32);
    for id in &from {
        assert_eq!(delivered(&barn, on_broker, *id).await, "done");
    }
    for id in &done {
        assert_eq!(barn.proof(*id).await, "done");
    }
    barn.must_be_sound().await;

    barn.days(36).await;
    barn.due("inbox").await;
    barn.hours(1).await;
    barn.due("inbox").await;
    assert_eq!(barn.empty("inbox", slot, "empty").await, "emptied");
    while barn.count("select outlast._forget(3)::bigint").await > 0 {}
    assert_eq!(
        barn.count("select count(*) from outlast._moved_event")
            .await,
        0
    );
    assert_eq!(
        delivered(&barn, on_broker, from[0]).await,
        "kept",
        "it may have been done: a person looks"
    );
}

/// Given: somebody whose transaction has moved a completion out of its leaf, and has not committed. When: a broker delivers its event to
/// another. Then: it is done, before that commit and after.
#[tokio::test]
async fn a_completion_that_is_moved_at_this_moment_is_found_in_one_place_or_the_other() {
    let barn = carrying(1).await;
    barn.work(20).await;
    let on_broker = on_a_broker(&barn).await;
    let from = from_a_broker(&barn, on_broker, 3).await;
    barn.days(4).await;
    barn.fold(barn.consumer).await;
    let mover = barn.house.connect().await;
    sql::run(&mover, "begin").await;
    let moved: i32 = sql::one(&mover, "select outlast._move_out(10)", &[]).await;
    assert_eq!(moved, 3);
    assert_eq!(delivered(&barn, on_broker, from[0]).await, "done");
    sql::run(&mover, "commit").await;
    assert_eq!(delivered(&barn, on_broker, from[0]).await, "done");
    barn.must_be_sound().await;
}

/// There is nothing to gain: their rows are the proof, in whichever table.
#[tokio::test]
async fn a_leaf_that_brokers_fill_nearly_alone_is_left_as_it_is_and_counts_as_swept() {
    let barn = carrying(5).await;
    let done = barn.work(4).await;
    let on_broker = on_a_broker(&barn).await;
    let from = from_a_broker(&barn, on_broker, 12).await;
    let slot = barn.inbox_slot(done[0]).await;
    barn.days(4).await;
    barn.fold(barn.consumer).await;
    for _ in 0..2 {
        assert_eq!(barn.due("inbox").await, Vec::<String>::new());
        assert_eq!(barn.count("select outlast._move_out(100)::bigint").await, 0);
        barn.hours(1).await;
    }
    assert_eq!(
        barn.count("select count(*) from outlast._processed_event")
            .await,
        16
    );
    assert_eq!(barn.holds("inbox", slot).await, ["settings"]);
    assert_eq!(delivered(&barn, on_broker, from[0]).await, "done");
    barn.days(36).await;
    barn.due("inbox").await;
    barn.hours(1).await;
    assert_eq!(barn.due("inbox").await, [format!("{slot} empty")]);
}

#[tokio::test]
async fn a_folded_leaf_is_swept_and_keeps_what_no_bit_proves() {
    let barn = Barn::new().await;
    let done = barn.work(20).await;
    let others = barn.emit(2).await;
    let slot = barn.inbox_slot(done[0]).await;
    let batch = Claim::of(barn.consumer)
        .next(&barn.client)
        .await
        .expect("claims");
    let token = batch[0].token;
    barn.client
        .execute(
            "select outlast.complete($1, $2, 'skipped', 'not ours')",
            &[&token, &others[0]],
        )
        .await
        .expect("skips");
    sql::fail(&barn.client, token, others[1], "retry")
        .await
        .expect("fails");
    sql::finish(&barn.client, &[token]).await.expect("finishes");
    barn.days(1).await;
    assert_eq!(
        barn.holds("inbox", slot).await.first().map(String::as_str),
        Some("window")
    );
    barn.days(3).await;
    assert!(barn.holds("inbox", slot).await.contains(&"fold".to_owned()));
    barn.fold(barn.consumer).await;
    assert_eq!(barn.due("inbox").await, Vec::<String>::new());
    // Completed after its range was folded.
    let retried = sql::claim_parked(&barn.client, barn.consumer, 1)
        .await
        .expect("claims");
    sql::complete(&barn.client, retried[0].token, others[1])
        .await
        .expect("completes");
    sql::finish(&barn.client, &[retried[0].token])
        .await
        .expect("finishes");

    barn.hours(1).await;
    assert_eq!(barn.due("inbox").await, [format!("{slot} sweep")]);
    assert_eq!(barn.empty("inbox", slot, "sweep").await, "emptied");
    assert_eq!(
        barn.count("select count(*) from outlast._processed_event")
            .await,
        2
    );
    assert_eq!(
        barn.count("select count(*) from outlast.processed").await,
        22
    );
    for id in &done {
        assert_eq!(barn.proof(*id).await, "done");
    }
    assert_eq!(barn.proof(others[0]).await, "skipped");
    assert_eq!(barn.proof(others[1]).await, "done");
    barn.must_be_sound().await;
    barn.hours(5).await;
    assert_eq!(barn.due("inbox").await, Vec::<String>::new(), "once");
}

#[tokio::test]
async fn an_own_id_of_a_swept_window_is_waited_for_until_it_is_folded() {
    let barn = Barn::new().await;
    let done = barn.work(20).await;
    let slot = barn.inbox_slot(done[0]).await;
    let own: uuid::Uuid = sql::one(&barn.client, "select outlast._v7(outlast.clock())", &[]).await;
    barn.days(5).await;
    barn.fold(barn.consumer).await;
    barn.client
        .execute(
            "select outlast.emit(type => 'a', payload => '{}', event_id => $1)",
            &[&own],
        )
        .await
        .expect("an own id of five days ago");
    assert_eq!(barn.drain(barn.consumer).await, [own]);
    assert!(barn.holds("inbox", slot).await.contains(&"fold".to_owned()));
    barn.days(2).await;
    barn.fold(barn.consumer).await;
    barn.due("inbox").await;
    barn.hours(1).await;
    assert_eq!(barn.due("inbox").await, [format!("{slot} sweep")]);
    assert_eq!(barn.empty("inbox", slot, "sweep").await, "emptied");
    assert_eq!(barn.proof(own).await, "done");
}

#[tokio::test]
async fn a_leaf_waits_for_parked_and_undelivered_events_and_then_nothing_of_it_is_new() {
    let barn = Barn::new().await;
    let done = barn.work(20).await;
    let bad = barn.emit(1).await[0];
    let slot = barn.inbox_slot(done[0]).await;
    let batch = Claim::of(barn.consumer)
        .next(&barn.client)
        .await
        .expect("claims");
    sql::fail(&barn.client, batch[0].token, bad, "permanent")
        .await
        .expect("fails");
    sql::finish(&barn.client, &[batch[0].token])
        .await
        .expect("finishes");
    let late = sql::register(&barn.client, "late", &["a"], "now", None).await;
    let waiting = barn.emit(1).await[0];
    assert_eq!(barn.drain(barn.consumer).await, [waiting]);

    barn.days(36).await;
    barn.fold(barn.consumer).await;
    assert_eq!(barn.due("inbox").await, Vec::<String>::new());
    let holds = barn.holds("inbox", slot).await;
    assert!(
        holds.contains(&"parked".to_owned()) && holds.contains(&"consumer".to_owned()),
        "{holds:?}"
    );
    assert_eq!(barn.drain(late).await, [waiting]);
    barn.fold(late).await;
    assert_eq!(barn.holds("inbox", slot).await, ["parked"]);
    sql::run(
        &barn.client,
        "update outlast._parked set state = 'retry', next_at = outlast.clock()",
    )
    .await;
    let retried = sql::claim_parked(&barn.client, barn.consumer, 1)
        .await
        .expect("claims");
    assert_eq!(retried[0].id, bad);
    sql::complete(&barn.client, retried[0].token, bad)
        .await
        .expect("completes");
    sql::finish(&barn.client, &[retried[0].token])
        .await
        .expect("finishes");

    barn.due("inbox").await;
    barn.hours(1).await;
    assert_eq!(barn.due("inbox").await, [format!("{slot} empty")]);
    assert_eq!(barn.empty("inbox", slot, "empty").await, "emptied");
    assert_eq!(barn.proof(done[0]).await, "done", "its bit is still there");
    while barn.count("select outlast._forget(10)::bigint").await > 0 {}
    assert_eq!(barn.count("select count(*) from outlast._folded").await, 0);
    assert_eq!(
        barn.count("select count(*) from outlast._unfolded").await,
        0
    );
    for id in done.iter().chain([&bad, &waiting]) {
        assert_eq!(barn.proof(*id).await, "too-old");
    }
    assert_eq!(barn.proof(barn.emit(1).await[0]).await, "open");
    let foreign = uuid::Uuid::new_v4();
    assert_eq!(
        barn.proof(foreign).await,
        "too-old",
        "nobody knows how old it is"
    );
}

/// A replay, a redirect, a restored copy: they hand events out again by way of parked.
#[tokio::test]
async fn what_may_have_been_completed_long_ago_becomes_an_incident_and_is_never_run() {
    let barn = Barn::new().await;
    let id = barn.emit(1).await[0];
    let batch = Claim::of(barn.consumer)
        .next(&barn.client)
        .await
        .expect("claims");
    sql::fail(&barn.client, batch[0].token, id, "permanent")
        .await
        .expect("fails");
    sql::finish(&barn.client, &[batch[0].token])
        .await
        .expect("finishes");
    sql::run(
        &barn.client,
        "update outlast._parked set state = 'retry', next_at = outlast.clock()",
    )
    .await;
    barn.days(36).await;
    sql::run(&barn.client, "update outlast._ring_slot set emptied_until = outlast.clock() - interval '30 days' where ring = 'inbox'").await;
    assert_eq!(barn.proof(id).await, "too-old");
    for _ in 0..2 {
        let due = sql::claim_parked(&barn.client, barn.consumer, 1)
            .await
            .expect("claims");
        assert!(due.is_empty(), "{due:?}");
        let incident = barn
            .client
            .query_one("select kind, about, class from outlast.incident", &[])
            .await
            .expect("one");
        assert_eq!(
            (incident.get::<_, &str>(0), incident.get::<_, uuid::Uuid>(1)),
            ("too-old delivery", id)
        );
        // A person who asks for it again gets the same answer.
        sql::run(
            &barn.client,
            "update outlast._parked set state = 'retry', next_at = outlast.clock()",
        )
        .await;
    }
}
