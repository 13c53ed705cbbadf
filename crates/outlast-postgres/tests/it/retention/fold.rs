//! Folding: a completion that became a bit answers as its row did, to everybody who asks.

use uuid::Uuid;

use super::Barn;
use crate::sql::{self, Claim};

/// What anybody may ask about an event and a consumer.
async fn answers(barn: &Barn, id: Uuid) -> Vec<String> {
    let sql = "
        select 'sealed ' || count(*) from outlast._sealed($1, array[$2::uuid])
        union all select 'with log id ' || count(*) from outlast._sealed($1, array[$2::uuid], array[outlast._log_id($1, $2)])
        union all select 'proof ' || outlast._proof($1, $2)
        union all select 'landed ' || outlast._landed($1, $2, '3')
        union all select 'view ' || coalesce(string_agg(outcome || coalesce(': ' || reason, ''), ','), '') from outlast.processed where id = $2 and consumer = 'c'
        union all select 'lost ' || count(*) from outlast._lost($1) l where l = $2";
    let rows = barn
        .client
        .query(sql, &[&barn.consumer, &id])
        .await
        .expect("answers");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Rows away, as if their leaf was swept.
async fn only_bits(barn: &Barn) {
    let sql = "delete from outlast._processed_event p where not exists (
        select from outlast._unfolded u where u.slot = p.slot and u.consumer = p.consumer and u.event_id = p.event_id)";
    sql::run(&barn.client, sql).await;
}

#[tokio::test]
async fn every_answer_is_the_same_before_and_after() {
    let barn = Barn::new().await;
    let done = barn.work(9).await;
    // One skipped, one quarantined, one that waits; one that is another's; one without commit.
    let others = barn.emit(3).await;
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
    sql::fail(&barn.client, token, others[1], "permanent")
        .await
        .expect("fails");
    barn.client
        .execute(
            "select outlast.fail($1, $2, 'retry', 'why', 600000000)",
            &[&token, &others[2]],
        )
        .await
        .expect("fails");
    sql::finish(&barn.client, &[token]).await.expect("finishes");
    let foreign = sql::emit(&barn.client, "other", None).await;

    let all: Vec<Uuid> = done
        .iter()
        .chain(&others)
        .chain([&foreign])
        .copied()
        .collect();
    let mut before = Vec::new();
    for id in &all {
        before.push(answers(&barn, *id).await);
    }
    assert_eq!(
        before[0],
        [
            "sealed 1",
            "with log id 1",
            "proof done",
            "landed true",
            "view done",
            "lost 0"
        ]
    );
    assert_eq!(
        before[9][2..5],
        ["proof skipped", "landed true", "view skipped: not ours"]
    );
    assert_eq!(before[10][2..5], ["proof open", "landed false", "view "]);

    assert_eq!(barn.fold(barn.consumer).await, 0, "not a day old");
    barn.days(2).await;
    assert_eq!(barn.fold(barn.consumer).await, 9);
    for (id, before) in all.iter().zip(&before) {
        assert_eq!(
            &answers(&barn, *id).await,
            before,
            "folded, rows still there"
        );
    }
    only_bits(&barn).await;
    assert_eq!(
        barn.count("select count(*) from outlast._processed_event")
            .await,
        1,
        "the skipped one"
    );
    for (id, before) in all.iter().zip(&before) {
        assert_eq!(&answers(&barn, *id).await, before, "only bits");
    }
    barn.must_be_sound().await;
    let lost = "update outlast._folded set done = set_bit(done, 3, 0), completed = completed - 1";
    sql::run(&barn.client, lost).await;
    assert_eq!(
        sql::broken(&barn.client).await.len(),
        1,
        "a bit that is lost is found"
    );
}

/// Whoever begins before the end of a batch and wakes after its folding.
#[tokio::test]
async fn an_old_token_completes_nothing_that_was_folded_in_any_isolation_level() {
    for level in ["read committed", "repeatable read", "serializable"] {
        let barn = Barn::new().await;
        let ids = barn.emit(9).await;
        let batch = Claim::of(barn.consumer)
            .next(&barn.client)
            .await
            .expect("claims");
        let token = batch[0].token;
        let sleeper = barn.house.connect().await;
        sql::run(
            &sleeper,
            &format!("begin isolation level {level}; select count(*) from outlast._lease"),
        )
        .await;
        sql::seal(&barn.client, token, &ids).await.expect("seals");
        sql::finish(&barn.client, &[token]).await.expect("finishes");
        barn.days(2).await;
        assert_eq!(barn.fold(barn.consumer).await, 9);
        only_bits(&barn).await;
        let refused = sql::state(sql::complete(&sleeper, token, ids[0]).await);
        let expected = if level == "read committed" {
            "OL001"
        } else {
            "40001"
        };
        assert_eq!(refused, expected, "{level}");
        let ended = sleeper.batch_execute("commit").await;
        drop(ended);
        assert_eq!(
            barn.count("select count(*) from outlast._processed_event")
                .await,
            0,
            "{level}"
        );
    }
}

#[tokio::test]
async fn what_is_in_flight_or_behind_a_consumer_is_not_folded() {
    let barn = Barn::new().await;
    barn.work(9).await;
    let ids = barn.emit(9).await;
    let batch = Claim::of(barn.consumer)
        .next(&barn.client)
        .await
        .expect("claims");
    sql::seal(&barn.client, batch[0].token, &ids)
        .await
        .expect("seals");
    barn.emit(5).await;
    barn.days(2).await;
    assert_eq!(
        barn.fold(barn.consumer).await,
        9,
        "the batch in flight stops it"
    );
    sql::finish(&barn.client, &[batch[0].token])
        .await
        .expect("finishes");
    assert_eq!(barn.fold(barn.consumer).await, 9, "the same range again");
    assert_eq!(barn.count("select count(*) from outlast._folded").await, 1);
    assert_eq!(
        barn.count("select completed::bigint from outlast._folded")
            .await,
        18
    );
    assert_eq!(barn.drain(barn.consumer).await.len(), 5);
    barn.must_be_sound().await;
}

#[tokio::test]
async fn a_range_waits_for_a_transaction_that_may_own_one_of_its_ids() {
    let barn = Barn::new().await;
    let writer = barn.house.connect().await;
    sql::run(&writer, "begin").await;
    let low = sql::emit(&writer, "a", None).await;
    barn.work(9).await;
    barn.days(2).await;
    assert_eq!(barn.fold(barn.consumer).await, 0);
    sql::run(&writer, "commit").await;
    assert_eq!(
        barn.fold(barn.consumer).await,
        0,
        "it is to be delivered first"
    );
    assert_eq!(barn.drain(barn.consumer).await, [low]);
    assert_eq!(barn.fold(barn.consumer).await, 10);
    only_bits(&barn).await;
    barn.must_be_sound().await;
}

#[tokio::test]
async fn a_full_range_is_folded_at_once_and_a_handful_keeps_its_rows() {
    let barn = Barn::new().await;
    barn.work(3).await;
    // Ids of others.
    sql::run(&barn.client, "select setval('outlast._event_id', 8190)").await;
    barn.work(1).await;
    barn.emit(1).await;
    barn.drain(barn.consumer).await;
    barn.hours(25).await;
    let rows = barn
        .client
        .query(
            "select first, last, completed, kept from outlast._fold($1)",
            &[&barn.consumer],
        )
        .await
        .expect("folds");
    let row = rows.first().expect("the first range is full");
    let row: (i64, i64, i32, i32) = (row.get(0), row.get(1), row.get(2), row.get(3));
    assert_eq!(row, (1, 8191, 0, 4), "not worth a kilobyte");
    assert_eq!(
        barn.fold(barn.consumer).await,
        0,
        "the second one may still grow"
    );
    only_bits(&barn).await;
    assert_eq!(
        barn.count("select count(*) from outlast.processed").await,
        4
    );
}
