//! What a person decides about a parked event, and what becomes of those behind it.

use uuid::Uuid;

use super::{Yard, ids};
use crate::sql;

async fn skip(yard: &Yard, id: Uuid) -> (String, i32, Option<Uuid>) {
    let sql = "select outcome, behind, next from outlast.skip('c', $1, 'lost cause', 'jane')";
    let row = yard.client.query_one(sql, &[&id]).await.expect("answers");
    (row.get(0), row.get(1), row.get(2))
}

async fn retry(yard: &Yard, id: Uuid) -> (String, i32, bool) {
    let sql = "select outcome, behind, changed from outlast.retry('c', $1, 'jane')";
    let row = yard.client.query_one(sql, &[&id]).await.expect("answers");
    (row.get(0), row.get(1), row.get(2))
}

async fn audit(yard: &Yard) -> Vec<String> {
    let sql = "select actor || ' ' || action || ' ' || (detail->>'was') || ' ' || (detail->>'behind') from outlast._audit order by id";
    let rows = yard.client.query(sql, &[]).await.expect("looks");
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn a_quarantined_leader_keeps_its_key_until_it_is_retried_or_skipped() {
    let yard = Yard::new(1).await;
    let emitted = yard.emit("k k k k").await;
    let batch = yard.claim().await;
    yard.fail(&batch[0], "permanent").await;
    assert_eq!(yard.finish(&batch[0]).await, 0);
    assert!(yard.due().await.is_empty());

    // Again, at the head of its key.
    assert_eq!(retry(&yard, emitted[0]).await, ("retry".into(), 3, true));
    assert_eq!(retry(&yard, emitted[0]).await, ("retry".into(), 3, false));
    assert_eq!(retry(&yard, emitted[1]).await, ("behind".into(), 0, false));
    let due = yard.due().await;
    assert_eq!(ids(&due), emitted[..1]);
    assert_eq!(retry(&yard, emitted[0]).await, ("running".into(), 3, false));
    assert_eq!(skip(&yard, emitted[0]).await, ("running".into(), 0, None));
    assert_eq!(yard.fail(&due[0], "permanent").await, "quarantined");
    yard.finish(&due[0]).await;
    yard.must_be_sound().await;

    // Of those behind, one is skipped; then the leader: the next one is let go, the last waits for it.
    let (leader, second) = (emitted[0], emitted[1]);
    assert_eq!(
        skip(&yard, second).await,
        ("skipped".into(), 2, Some(leader))
    );
    yard.must_be_sound().await;
    let third = emitted[2];
    assert_eq!(
        skip(&yard, leader).await,
        ("skipped".into(), 1, Some(third))
    );
    yard.must_be_sound().await;
    assert_eq!(skip(&yard, leader).await, ("absent".into(), 0, None));
    assert_eq!(retry(&yard, leader).await, ("absent".into(), 0, false));
    for expected in &emitted[2..] {
        let due = yard.due().await;
        assert_eq!(ids(&due), [*expected]);
        yard.done(&due[0]).await;
    }
    let ended = "select string_agg(outcome || coalesce(': ' || reason, ''), ', ' order by id) from outlast.processed";
    assert_eq!(
        sql::one::<String>(&yard.client, ended, &[]).await,
        "skipped: lost cause, skipped: lost cause, done, done"
    );
    assert_eq!(
        audit(&yard).await,
        [
            "jane parked.retried quarantined 3",
            "jane parked.skipped behind 2",
            "jane parked.skipped quarantined 1"
        ]
    );
    yard.must_be_sound().await;
}

#[tokio::test]
async fn what_is_complete_already_is_not_skipped_and_a_reason_is_asked_for() {
    let yard = Yard::new(1).await;
    let other = yard.house.connect().await;
    let emitted = yard.emit("k").await;
    let batch = yard.claim().await;
    sql::run(&other, "begin").await;
    sql::complete(&other, batch[0].token, batch[0].id)
        .await
        .expect("completes");
    yard.fail(&batch[0], "permanent").await;
    sql::run(&other, "commit").await;
    assert_eq!(skip(&yard, emitted[0]).await, ("done".into(), 0, None));
    yard.finish(&batch[0]).await;
    for (consumer, reason, state) in [("c", "", "OL005"), ("nobody", "x", "OL012")] {
        let refused = yard
            .client
            .execute(
                "select outlast.skip($1, $2, $3)",
                &[&consumer, &emitted[0], &reason],
            )
            .await;
        assert_eq!(sql::state(refused), state);
    }
    yard.must_be_sound().await;
}

#[tokio::test]
async fn a_try_whose_worker_died_can_be_skipped_once_its_lease_has_lapsed() {
    let yard = Yard::new(1).await;
    let emitted = yard.emit("k k").await;
    let batch = yard.claim().await;
    yard.fail(&batch[0], "retry").await;
    yard.finish(&batch[0]).await;
    yard.due().await;
    assert_eq!(skip(&yard, emitted[0]).await.0, "running");
    yard.lapse().await;
    assert_eq!(
        skip(&yard, emitted[0]).await,
        ("skipped".into(), 0, Some(emitted[1]))
    );
    yard.must_be_sound().await;
}
