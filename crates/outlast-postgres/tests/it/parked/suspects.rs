//! When a worker dies: nobody is charged for a neighbour.

use uuid::Uuid;

use super::{Yard, ids, parked};
use crate::sql;

#[tokio::test]
async fn exactly_what_was_started_and_not_sealed_is_suspected_from_the_second_loss_on() {
    let yard = Yard::new().await;
    let emitted = yard.emit(6).await;
    assert_eq!(ids(&yard.claim().await), emitted);

    let second = yard.reclaim().await;
    assert_eq!(ids(&second), emitted, "the first loss charges nobody");
    assert!(
        second
            .iter()
            .all(|event| (event.attempt, event.reclaims) == (2, 1))
    );
    assert_eq!(yard.count("select count(*) from outlast._parked").await, 0);

    // Two flushes of marks; the first event is sealed, the fourth failed, the fifth and sixth never started.
    yard.start(second[0].token, &emitted[0..2]).await;
    yard.start(second[0].token, &emitted[2..4]).await;
    sql::complete(&yard.client, second[0].token, emitted[0])
        .await
        .expect("completes");
    sql::fail(&yard.client, second[0].token, emitted[3], "retry")
        .await
        .expect("fails");
    let third = yard.reclaim().await;
    assert_eq!(ids(&third), emitted[4..]);
    assert!(
        third
            .iter()
            .all(|event| (event.attempt, event.reclaims) == (3, 2))
    );
    for suspect in &emitted[1..3] {
        assert_eq!(
            yard.look(*suspect).await,
            Some(parked("retry", "crashed", 1, 1))
        );
    }
    assert_eq!(
        yard.look(emitted[3]).await,
        Some(parked("retry", "retry", 1, 0)),
        "it failed, it did not crash"
    );
    assert_eq!(
        yard.count("select count(*) from outlast._started").await,
        0,
        "the marks are used up"
    );

    // Lost before anything was started: nobody is suspected.
    let fourth = yard.reclaim().await;
    assert_eq!(ids(&fourth), emitted[4..]);
    assert_eq!(
        sql::finish(&yard.client, &[fourth[0].token])
            .await
            .expect("finishes"),
        [2]
    );
    yard.must_be_sound().await;
}

#[tokio::test]
async fn of_what_was_given_back_only_what_still_ran_is_suspected() {
    let yard = Yard::new().await;
    let emitted = yard.emit(3).await;
    yard.claim().await;
    // Its worker is told to stop after one was rolled back by a conflict and another one is still running.
    let batch = yard.reclaim().await;
    yard.start(batch[0].token, &emitted[0..2]).await;
    sql::hand_back(&yard.client, batch[0].token, &emitted[1..2])
        .await
        .expect("is given back");
    let next = sql::reclaim(&yard.client, yard.consumer, 10).await;
    let next = next.expect("reclaims");
    assert_eq!(ids(&next), [emitted[0], emitted[2]]);
    assert_eq!(
        yard.look(emitted[1]).await,
        Some(parked("retry", "crashed", 1, 1))
    );
    yard.must_be_sound().await;
}

#[tokio::test]
async fn suspects_run_alone_and_the_third_loss_quarantines() {
    let yard = Yard::new().await;
    let emitted = yard.emit(3).await;
    yard.claim().await;
    let batch = yard.reclaim().await;
    yard.start(batch[0].token, &emitted[0..2]).await;
    let rest = yard.reclaim().await;
    assert_eq!(ids(&rest), emitted[2..]);
    sql::fail(&yard.client, rest[0].token, emitted[2], "retry")
        .await
        .expect("fails");

    let process = Uuid::new_v4();
    let claim = async || {
        sql::run(&yard.client, "update outlast._parked set next_at = outlast.clock() - make_interval(secs => crashes) where state = 'retry'").await;
        let sql = "select event_id, token from outlast._claim_parked($1, 10, 60000, null, null, $2, (select coalesce(max(seq), 0) + 1 from outlast._process), $2, 0)";
        let rows = yard
            .client
            .query(sql, &[&yard.consumer, &process])
            .await
            .expect("claims");
        rows.iter()
            .map(|row| (row.get(0), row.get(1)))
            .collect::<Vec<(Uuid, Uuid)>>()
    };
    let alone = claim().await;
    assert_eq!(alone.len(), 1, "one suspect and nothing beside it");
    let suspect = alone[0].0;
    assert!(emitted[0..2].contains(&suspect));
    let beside = claim().await;
    assert_eq!(
        beside.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        [emitted[2]],
        "no second suspect in this process"
    );
    sql::complete(&yard.client, beside[0].1, emitted[2])
        .await
        .expect("completes");

    // The suspect kills its worker: the second loss under its own lease, then the third.
    sql::run(
        &yard.client,
        "update outlast._lease set expires_at = outlast.clock() - interval '1 second'",
    )
    .await;
    let mut seen = Vec::new();
    for _ in 0..6 {
        let got = claim().await;
        assert!(got.len() <= 1, "suspects run alone");
        seen.extend(got.iter().map(|(id, _)| *id));
        yard.lapse().await;
    }
    for id in &emitted[0..2] {
        assert_eq!(
            yard.look(*id).await,
            Some(parked("quarantined", "crashed", 3, 3))
        );
        assert!(seen.contains(id));
    }
    assert_eq!(yard.incidents().await.len(), 2);
    yard.reclaim().await;
    yard.must_be_sound().await;
}

/// A drain that runs out marks what still runs. Only whoever dies with it a second time is a suspect.
#[tokio::test]
async fn what_was_running_when_a_batch_was_handed_back_is_suspected_only_after_a_loss() {
    let yard = Yard::new().await;
    let emitted = yard.emit(2).await;
    let first = yard.claim().await;
    sql::hand_back(&yard.client, first[0].token, &emitted[0..1])
        .await
        .expect("hands back");
    let second = sql::reclaim(&yard.client, yard.consumer, 1)
        .await
        .expect("reclaims");
    assert_eq!(ids(&second), emitted, "a drain charges nobody");
    sql::hand_back(&yard.client, second[0].token, &emitted[1..2])
        .await
        .expect("hands back");
    let third = sql::reclaim(&yard.client, yard.consumer, 1)
        .await
        .expect("reclaims");
    assert_eq!(ids(&third), emitted[0..1]);
    assert_eq!(
        yard.look(emitted[1]).await,
        Some(parked("retry", "crashed", 1, 1)),
        "it ran through two ends of a worker"
    );
    yard.must_be_sound().await;
}
