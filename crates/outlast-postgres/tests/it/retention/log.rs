//! The ring of the log: a leaf is emptied an hour after nobody needs it any more, and not before.

use std::time::Duration;

use super::{Barn, empty};
use crate::house::forward;
use crate::sql::{self, Claim};

/// A slot whose events are done and folded, with everything waited for but what a test is about.
async fn ready(barn: &Barn) -> i16 {
    let slot = barn.log_slot().await;
    barn.work(10).await;
    barn.days(2).await;
    assert_eq!(barn.fold(barn.consumer).await, 10);
    assert_eq!(barn.due("log").await, Vec::<String>::new());
    barn.days(3).await;
    barn.due("log").await;
    barn.hours(1).await;
    slot
}

#[tokio::test]
async fn a_slot_is_emptied_an_hour_after_the_log_was_kept_for_long_enough() {
    let barn = Barn::new().await;
    let slot = barn.log_slot().await;
    barn.work(10).await;
    assert_eq!(barn.holds("log", slot).await, ["window"]);
    barn.hours(23).await;
    assert_eq!(barn.holds("log", slot).await, ["fold"]);
    barn.hours(25).await;
    barn.fold(barn.consumer).await;
    for (hours, held) in [(1, "settings"), (71, "settings"), (1, "hour")] {
        assert_eq!(barn.due("log").await, Vec::<String>::new());
        assert_eq!(barn.holds("log", slot).await, [held]);
        assert_eq!(barn.empty("log", slot, "empty").await, "not yet");
        barn.hours(hours).await;
    }
    assert_eq!(barn.due("log").await, [format!("{slot} empty")]);
    assert_eq!(barn.empty("log", slot, "empty").await, "emptied");
    assert_eq!(barn.count("select count(*) from outlast._event").await, 0);
    assert_eq!(
        barn.count("select count(*) from outlast._audit where action = 'retention.empty'")
            .await,
        1
    );
    barn.must_be_sound().await;
    barn.work(3).await;
    barn.must_be_sound().await;
}

#[tokio::test]
async fn a_slot_waits_for_a_consumer_that_lags_and_for_a_batch_in_flight_but_not_for_a_retired_one()
{
    let barn = Barn::new().await;
    let late = sql::register(&barn.client, "late", &["a"], "now", None).await;
    let slot = ready(&barn).await;
    assert_eq!(barn.due("log").await, Vec::<String>::new());
    assert!(
        barn.holds("log", slot)
            .await
            .contains(&"consumer".to_owned())
    );
    let batch = Claim::of(late).next(&barn.client).await.expect("claims");
    assert_eq!(batch.len(), 10, "nothing of it is gone");
    assert!(barn.holds("log", slot).await.contains(&"batch".to_owned()));

    sql::run(
        &barn.client,
        "update outlast._consumer set state = 'retired' where name = 'late'",
    )
    .await;
    assert!(
        barn.holds("log", slot).await.contains(&"batch".to_owned()),
        "what is in flight counts"
    );
    sql::finish(&barn.client, &[batch[0].token])
        .await
        .expect("finishes");
    barn.fold(late).await;
    barn.due("log").await;
    // After three days its number is the current one.
    barn.days(4).await;
    barn.due("log").await;
    barn.hours(1).await;
    assert_eq!(
        barn.due("log").await,
        [format!("{slot} empty")],
        "its ten are parked: copies"
    );
    assert_eq!(barn.empty("log", slot, "empty").await, "emptied");
    assert_eq!(barn.count("select count(*) from outlast._parked").await, 10);
    barn.must_be_sound().await;
}

/// A transaction that has drawn a low id commits after its neighbours were passed.
async fn straggler(barn: &Barn) -> (i16, tokio_postgres::Client) {
    let writer = barn.house.connect().await;
    let slot = barn.log_slot().await;
    sql::run(&writer, "begin").await;
    sql::emit(&writer, "a", None).await;
    barn.work(3).await;
    (slot, writer)
}

/// Everything else that a slot waits for is over.
async fn as_if_long_ago(barn: &Barn) {
    barn.days(2).await;
    sql::run(
        &barn.client,
        "insert into outlast._fold_place select id, 1000000 from outlast._consumer;
         update outlast._ring_slot set passed_at = outlast.clock() - interval '9 days', removable_at = outlast.clock() - interval '2 hours'
         where ring = 'log'",
    )
    .await;
}

#[tokio::test]
async fn a_committed_straggler_holds_its_slot_and_by_ids_alone_it_would_be_lost() {
    for by_ids in [false, true] {
        let barn = Barn::new().await;
        if by_ids {
            let fault = [(
                "outlast._sees((_saw.tick).snap, (_saw.tick).hi, (_saw.tick).base, _saw.id, _saw.xid)",
                "_saw.id <= (_saw.tick).hi",
            )];
            barn.house.plant("_saw", &fault).await;
        }
        let (slot, writer) = straggler(&barn).await;
        sql::run(&writer, "commit").await;
        as_if_long_ago(&barn).await;
        let answer = barn.empty("log", slot, "empty").await;
        let found = barn.drain(barn.consumer).await.len();
        if by_ids {
            assert_eq!(
                (answer.as_str(), found),
                ("emptied", 0),
                "the fault must be seen"
            );
        } else {
            assert!(
                answer.starts_with("consumer: c, lane 0 has not passed event"),
                "{answer}"
            );
            assert_eq!(found, 1);
        }
    }
}

/// Looked at first, a straggler had not committed; when the lock is had, he has.
#[tokio::test]
async fn what_commits_between_the_look_and_the_lock_is_seen_under_the_lock() {
    for unchecked in [false, true] {
        let barn = Barn::new().await;
        let patient = ("'30ms'", "'50s'");
        barn.house
            .plant("_take_leaf", &[patient, ("1..100", "1..1")])
            .await;
        if unchecked {
            let again = "  if why is not null then return why; end if;";
            barn.house.plant("_empty_now", &[(again, "")]).await;
        }
        let (slot, writer) = straggler(&barn).await;
        as_if_long_ago(&barn).await;
        let cleaner = barn.house.connect().await;
        let pid = sql::pid(&cleaner).await;
        let emptied = tokio::spawn(async move { empty(&cleaner, "log", slot, "empty").await });
        sql::until_blocked(&barn.client, pid).await;
        sql::run(&writer, "commit").await;
        let answer = emptied.await.expect("answers");
        let found = barn.drain(barn.consumer).await.len();
        if unchecked {
            assert_eq!(
                (answer.as_str(), found),
                ("emptied", 0),
                "the fault must be seen"
            );
        } else {
            assert!(answer.starts_with("consumer: c"), "{answer}");
            assert_eq!(found, 1);
        }
    }
}

#[tokio::test]
async fn an_open_writer_or_reader_of_a_leaf_keeps_it_and_is_not_waited_for() {
    let barn = Barn::new().await;
    let slot = ready(&barn).await;
    let reader = barn.house.connect().await;
    sql::run(
        &reader,
        &format!("begin; lock table only outlast._event_{slot} in access share mode"),
    )
    .await;
    let asked = std::time::Instant::now();
    assert_eq!(barn.empty("log", slot, "empty").await, "lock");
    assert!(
        asked.elapsed() < Duration::from_secs(20),
        "{:?}",
        asked.elapsed()
    );
    assert!(barn.holds("log", slot).await.contains(&"lock".to_owned()));
    assert_eq!(
        barn.due("log").await,
        Vec::<String>::new(),
        "at most once a minute"
    );
    sql::run(&reader, "commit").await;
    forward(&barn.client, 60).await;
    assert_eq!(barn.due("log").await, [format!("{slot} empty")]);
    assert_eq!(barn.empty("log", slot, "empty").await, "emptied");
}

#[tokio::test]
async fn nothing_is_emptied_while_an_old_snapshot_is_seen_or_the_settings_contradict_each_other() {
    let barn = Barn::new().await;
    let slot = ready(&barn).await;
    let patience = [(
        "clock_timestamp() - interval '1 minute'",
        "clock_timestamp()",
    )];
    barn.house.plant("_old_snapshots", &patience).await;
    let dump = barn.house.connect().await;
    sql::run(&dump, "begin isolation level repeatable read; select 1").await;
    let answer = barn.empty("log", slot, "empty").await;
    assert!(answer.starts_with("snapshot: backend"), "{answer}");
    assert!(
        barn.holds("log", slot)
            .await
            .contains(&"snapshot".to_owned())
    );
    sql::run(&dump, "commit").await;

    sql::run(
        &barn.client,
        "insert into outlast._setting (name, value) values ('retention.inbox', '2d')",
    )
    .await;
    let answer = barn.empty("log", slot, "empty").await;
    assert!(
        answer.starts_with("settings: retention.inbox = 2d"),
        "{answer}"
    );
    assert_eq!(barn.count("select count(*) from outlast._event").await, 10);
    sql::run(&barn.client, "delete from outlast._setting").await;
    assert_eq!(barn.empty("log", slot, "empty").await, "emptied");
}

#[tokio::test]
async fn a_late_slot_grows_when_the_ring_comes_round_and_goes_with_its_youngest_events() {
    let barn = Barn::new().await;
    let late = sql::register(&barn.client, "late", &["a"], "now", None).await;
    let slot = barn.log_slot().await;
    barn.work(10).await;
    barn.days(8).await;
    assert_eq!(barn.log_slot().await, slot);
    barn.work(5).await;
    assert_eq!(barn.drain(late).await.len(), 15, "of both rounds");
    for _ in 0..2 {
        barn.days(2).await;
        barn.fold(barn.consumer).await;
        barn.fold(late).await;
    }
    barn.due("log").await;
    barn.days(3).await;
    barn.due("log").await;
    barn.hours(1).await;
    assert_eq!(barn.due("log").await, [format!("{slot} empty")]);
    assert_eq!(barn.empty("log", slot, "empty").await, "emptied");
    barn.must_be_sound().await;

    // By its number it was over for long; its rows say that it is not.
    barn.work(1).await;
    sql::run(
        &barn.client,
        "update outlast._ring_slot set passed_at = outlast.clock() - interval '9 days', removable_at = outlast.clock() - interval '2 hours' where ring = 'log'",
    )
    .await;
    let slot = barn.log_slot().await;
    assert!(
        barn.empty("log", slot, "empty")
            .await
            .starts_with("window: emit")
    );
}
