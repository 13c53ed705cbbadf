//! Bounds: how many wait behind one key, how long for a newer worker, how many lanes a claim takes.

use super::{Yard, ids};
use crate::house::forward;
use crate::sql::{self, Claim};

const INCIDENTS: &str = "select kind || ' ' || coalesce(key, '-') || ' ' || count from outlast.incident order by opened_at";

async fn incidents(yard: &Yard) -> Vec<String> {
    let rows = yard.client.query(INCIDENTS, &[]).await.expect("looks");
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn too_many_behind_one_key_pause_its_lane_and_no_other() {
    let yard = Yard::new(2).await;
    sql::run(&yard.client, "update outlast._consumer set behind_most = 3").await;
    // Two keys in different lanes.
    let mut other = String::new();
    for n in 0.. {
        other = format!("j{n}");
        let differ = "select outlast._lane('k', 0, 2) <> outlast._lane($1, 0, 2)";
        if sql::one::<bool>(&yard.client, differ, &[&other]).await {
            break;
        }
    }
    yard.emit("k").await;
    let leader = yard.claim().await;
    yard.fail(&leader[0], "permanent").await;
    yard.finish(&leader[0]).await;

    yard.emit("k k").await;
    assert!(yard.claim().await.is_empty());
    assert_eq!(yard.keys().await, ["k 2"]);
    assert_eq!(incidents(&yard).await, ["quarantined event k 1"]);
    yard.emit("k k").await;
    assert!(yard.claim().await.is_empty());
    assert_eq!(yard.keys().await, ["k 4"], "a batch may go beyond");
    let both = ["quarantined event k 1", "paused lane k 4"];
    let mut seen = incidents(&yard).await;
    seen.sort_by_key(|one| one.starts_with("paused"));
    assert_eq!(seen, both);

    yard.emit(&format!("k {other} k {other}")).await;
    let batch = yard.claim().await;
    assert_eq!(batch.len(), 2, "the other lane goes on");
    assert!(
        batch
            .iter()
            .all(|event| event.key.as_deref() == Some(&*other))
    );
    for event in &batch {
        yard.complete(event).await;
    }
    yard.finish(&batch[0]).await;
    assert_eq!(yard.keys().await, ["k 4"], "and this one is not read");

    // Let go, the lane is read again as soon as it is below the bound.
    let skip = "select outcome from outlast.skip('c', $1, 'done by hand')";
    assert_eq!(
        sql::one::<String>(&yard.client, skip, &[&leader[0].id]).await,
        "skipped"
    );
    let due = yard.due().await;
    yard.done(&due[0]).await;
    assert_eq!(yard.keys().await, ["k 2"]);
    assert!(yard.claim().await.is_empty());
    assert_eq!(yard.keys().await, ["k 4"]);
    yard.must_be_sound().await;
}

#[tokio::test]
async fn to_wait_for_a_newer_worker_is_an_incident_after_ten_minutes_and_not_before() {
    let yard = Yard::new(1).await;
    yard.house.movable_clock().await;
    yard.emit("k k j").await;
    let batch = yard.claim().await;
    for event in [&batch[0], &batch[2]] {
        let wait = "select outlast._wait_for_version($1, $2)";
        let waits = yard.client.execute(wait, &[&event.token, &event.id]).await;
        waits.expect("waits");
    }
    assert_eq!(yard.finish(&batch[0]).await, 0);
    assert!(incidents(&yard).await.is_empty());
    forward(&yard.client, 590).await;
    assert!(incidents(&yard).await.is_empty(), "not before ten minutes");
    forward(&yard.client, 20).await;
    let sql = "select kind || ' ' || consumer || ' ' || type || ' ' || version || ' ' || count from outlast.incident where about = $1";
    assert_eq!(
        sql::one::<String>(&yard.client, sql, &[&batch[0].id]).await,
        "waiting version c a 1 2",
        "one for all of a kind, about the oldest; the one behind is none"
    );
    yard.must_be_sound().await;
}

#[tokio::test]
async fn a_claim_for_one_lane_takes_the_one_that_has_the_first_event() {
    let yard = Yard::new(16).await;
    let emitted = yard.emit("a b c d e f g h").await;
    let one = |lanes| Claim {
        lanes,
        ..Claim::of(yard.consumer)
    };
    let first = one(2).run(&yard.client).await.expect("claims").events;
    let mut seen = ids(&first);
    let mut tokens: Vec<_> = first.iter().map(|event| event.token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 2, "as many lanes as were asked for");
    assert_eq!(seen[0], emitted[0], "those of the first events");
    while seen.len() < emitted.len() {
        let batch = one(1).run(&yard.client).await.expect("claims").events;
        assert!(!batch.is_empty(), "a claim finds what there is at once");
        assert!(batch.iter().all(|event| event.token == batch[0].token));
        tokens.push(batch[0].token);
        seen.extend(ids(&batch));
    }
    seen.sort_by_key(|id| emitted.iter().position(|other| other == id));
    assert_eq!(seen, emitted, "each once");
    assert!(
        one(1)
            .run(&yard.client)
            .await
            .expect("claims")
            .events
            .is_empty()
    );

    let later = yard.emit("a b c d e f g h").await;
    assert!(
        one(16).next(&yard.client).await.expect("claims").is_empty(),
        "one batch in flight in a lane"
    );
    for token in &tokens {
        let of = "select f.event_id from outlast._batch y join outlast._lease l on (y.consumer, y.lane, y.seq) = (l.consumer, l.lane, l.seq)
          cross join lateral outlast._left(y) f where l.token = $1";
        let rows = yard.client.query(of, &[token]).await.expect("looks");
        for row in rows {
            sql::complete(&yard.client, *token, row.get(0))
                .await
                .expect("completes");
        }
    }
    sql::finish(&yard.client, &tokens).await.expect("finishes");
    let mut all = Vec::new();
    loop {
        let batches = one(16).next(&yard.client).await.expect("claims");
        if batches.is_empty() {
            break;
        }
        all.extend(ids(&batches));
    }
    all.sort_by_key(|id| later.iter().position(|other| other == id));
    assert_eq!(all, later);
    yard.must_be_sound().await;
}

#[tokio::test]
async fn another_language_gets_the_batch_of_one_lane_and_then_what_is_behind() {
    let yard = Yard::new(1).await;
    let register = "select outlast.register('o', array['a'], 'now', true, 4)";
    sql::run(&yard.client, register).await;
    let as_registered = "select ordered and lanes = 4 from outlast.consumer where name = 'o'";
    assert!(sql::one::<bool>(&yard.client, as_registered, &[]).await);
    let emitted = yard.emit("k k").await;
    let claim = async || {
        let sql = "select token, id, attempt from outlast.claim('event', 'o', 10, holder => 'me')";
        let rows = yard.client.query(sql, &[]).await.expect("claims");
        rows.iter()
            .map(|row| (row.get(0), row.get(1), row.get(2)))
            .collect::<Vec<(uuid::Uuid, uuid::Uuid, i32)>>()
    };
    let batch = claim().await;
    assert_eq!(batch.iter().map(|row| row.1).collect::<Vec<_>>(), emitted);
    let failed = sql::fail(&yard.client, batch[0].0, batch[0].1, "retry").await;
    assert_eq!(failed.expect("fails"), "retry");
    assert_eq!(claim().await, [], "nothing is due");
    yard.emit("k").await;
    sql::run(
        &yard.client,
        "update outlast._parked set next_at = outlast.clock() where state = 'retry'",
    )
    .await;
    // No row means that nothing is due: so each claim has the next one of the key.
    for attempt in [2, 1, 1] {
        let due = claim().await;
        assert_eq!(due.iter().map(|row| row.2).collect::<Vec<_>>(), [attempt]);
        sql::complete(&yard.client, due[0].0, due[0].1)
            .await
            .expect("completes");
        yard.must_be_sound().await;
    }
    assert_eq!(claim().await, []);
    assert_eq!(yard.keys().await, Vec::<String>::new());
}
