//! The ring of the inbox: rows go when bits prove them, bits go when nobody may ask for them, and then nothing is new.

use super::Barn;
use crate::sql::{self, Claim};

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
