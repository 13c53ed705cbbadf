//! The statements and their bounds.

use std::collections::BTreeMap;

use super::{Attic, Statistics, batch};
use crate::house::{House, forward};
use crate::seeds;
use crate::sql;

/// Often enough for generic plans, which come with the sixth call.
const ROUNDS: usize = 8;

const CLAIM: &str = "select * from outlast._claim($1, 100, 4194304, 10000, 60000, 1)";

async fn costs(statistics: Statistics) {
    let attic = Attic::new(statistics).await;
    let mut most = BTreeMap::new();
    let mut note = |what: &'static str, bound: i64, read: i64| {
        let entry = most.entry(what).or_insert((bound, 0));
        entry.1 = entry.1.max(read);
    };
    whole_batches(&attic, &mut note).await;
    narrow_filters_and_stragglers(&attic, &mut note).await;
    idle(&attic, &mut note).await;
    check(statistics, &most);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fresh_tables_a_statement_reads_what_it_needs() {
    costs(Statistics::None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_statistics_of_empty_tables_a_statement_reads_what_it_needs() {
    if seeds::long() {
        costs(Statistics::Stale).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_fresh_statistics_a_statement_reads_what_it_needs() {
    costs(Statistics::Fresh).await;
}

async fn whole_batches(attic: &Attic, note: &mut impl FnMut(&'static str, i64, i64)) {
    for _ in 0..ROUNDS {
        // What was parked a round ago was parked a while ago.
        forward(&attic.client, 600).await;
        let (rows, read) = attic.measure(CLAIM, &[&attic.consumer]).await;
        assert!(rows.is_empty());
        note("a claim of nothing", 60, read);

        attic.emit("a", 100).await;
        let (rows, read) = attic.measure(CLAIM, &[&attic.consumer]).await;
        let (token, ids) = batch(&rows);
        assert_eq!(ids.len(), 100);
        note("a claim of 100", 300, read);
        let (_, read) = attic
            .measure("select outlast._renew_all($1, 60000)", &[&&[token][..]])
            .await;
        note("a renewal", 20, read);
        let (_, read) = attic
            .measure("select outlast.complete($1, $2)", &[&token, &ids[0]])
            .await;
        note("one completion", 40, read);
        let (_, read) = attic
            .measure(
                "select outlast._seal_last($1, $2) from set_config('outlast.begun', 'yes', true)",
                &[&token, &ids[1]],
            )
            .await;
        note("a seal with its commit", 20, read);
        let (_, read) = attic
            .measure("select outlast._seal($1, $2)", &[&token, &&ids[2..90]])
            .await;
        note("a seal of 88", 150, read);
        let (_, read) = attic
            .measure(
                "select outlast.fail($1, $2, 'retry', 'why', 3600000)",
                &[&token, &ids[90]],
            )
            .await;
        note("one failure", 40, read);
        let (_, read) = attic
            .measure(
                "select outlast._wait_for_version($1, $2)",
                &[&token, &ids[91]],
            )
            .await;
        note("one that waits", 40, read);
        let (_, read) = attic
            .measure("select outlast._start($1, $2)", &[&token, &&ids[92..94]])
            .await;
        note("a mark", 20, read);

        let lapse = "update outlast._lease set expires_at = outlast.clock() - interval '1 second'";
        sql::run(&attic.client, lapse).await;
        let (rows, read) = attic
            .measure(
                "select * from outlast._reclaim($1, 60000, 1)",
                &[&attic.consumer],
            )
            .await;
        let (token, left) = batch(&rows);
        assert_eq!(left, ids[92..]);
        note("a reclaim of 100", 600, read);
        let (_, read) = attic
            .measure("select outlast._hand_back($1, $2)", &[&token, &&left[..2]])
            .await;
        note("a hand back", 20, read);
        let (rows, read) = attic
            .measure("select * from outlast._finish($1)", &[&&[token][..]])
            .await;
        assert_eq!(rows[0].get::<_, i32>(1), 8);
        note("a finish of 100", 350, read);

        sql::run(&attic.client, "update outlast._parked set next_at = outlast.clock() where class = 'unsealed' and state = 'retry'").await;
        let (rows, read) = attic
            .measure(
                "select * from outlast._claim_parked($1, 8, 60000, array['a'], array[1])",
                &[&attic.consumer],
            )
            .await;
        assert_eq!(rows.len(), 8);
        note("a claim of 8 parked", 2000, read);
        for row in &rows {
            let (token, id): (uuid::Uuid, uuid::Uuid) = (row.get("token"), row.get("event_id"));
            let (_, read) = attic
                .measure("select outlast.complete($1, $2)", &[&token, &id])
                .await;
            note("one completion of a parked one", 30, read);
            let (_, read) = attic
                .measure("select * from outlast._finish($1)", &[&&[token][..]])
                .await;
            note("a finish of a parked one", 30, read);
        }
    }
}

async fn narrow_filters_and_stragglers(
    attic: &Attic,
    note: &mut impl FnMut(&'static str, i64, i64),
) {
    let slow = attic.house.connect().await;
    for _ in 0..ROUNDS {
        attic.emit("b", 3000).await;
        attic.emit("a", 1).await;
        let (rows, read) = attic.measure(CLAIM, &[&attic.consumer]).await;
        let (token, ids) = batch(&rows);
        note("a claim of 1 in 3,000", 3200, read);
        sql::seal(&attic.client, token, &ids).await.expect("seals");
        let (_, read) = attic
            .measure("select * from outlast._finish($1)", &[&&[token][..]])
            .await;
        note("a finish of 1 in 3,000", 100, read);

        // A straggler of five pages, among the retained rows.
        sql::run(&slow, "begin").await;
        let sql = "select count(*) from outlast.emit_all('a', array(select '{}' from generate_series(1, 500)))";
        slow.execute(sql, &[]).await.expect("emits");
        attic.emit("a", 1).await;
        let (rows, _) = attic.measure(CLAIM, &[&attic.consumer]).await;
        let (token, ids) = batch(&rows);
        sql::seal(&attic.client, token, &ids).await.expect("seals");
        sql::finish(&attic.client, &[token])
            .await
            .expect("finishes");
        sql::run(&slow, "commit").await;
        for _ in 0..5 {
            let (rows, read) = attic.measure(CLAIM, &[&attic.consumer]).await;
            let (token, ids) = batch(&rows);
            assert_eq!(ids.len(), 100);
            // The first one also takes the tenant apart, and the main lane looks at all of them.
            note("a claim of 100 stragglers of 500", 1000, read);
            sql::seal(&attic.client, token, &ids).await.expect("seals");
            let (_, read) = attic
                .measure("select * from outlast._finish($1)", &[&&[token][..]])
                .await;
            note("a finish of 100 stragglers", 400, read);
        }
        // The side lane comes back.
        while !attic.measure(CLAIM, &[&attic.consumer]).await.0.is_empty() {}
    }
}

/// Idle for a week: nothing is emitted, the consumer is asked, and the ring has turned.
async fn idle(attic: &Attic, note: &mut impl FnMut(&'static str, i64, i64)) {
    attic.emit("a", 1).await;
    let (rows, _) = attic.measure(CLAIM, &[&attic.consumer]).await;
    let (token, ids) = batch(&rows);
    sql::seal(&attic.client, token, &ids).await.expect("seals");
    sql::finish(&attic.client, &[token])
        .await
        .expect("finishes");
    forward(&attic.client, 7 * 24 * 3600).await;
    for _ in 0..ROUNDS {
        let (_, read) = attic.measure(CLAIM, &[&attic.consumer]).await;
        note("a claim of nothing after a week", 60, read);
    }
}

/// Somebody holds an old snapshot, so nothing that is deleted goes away: not the rows, not their index entries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_a_held_snapshot_a_batch_does_not_get_dearer() {
    let house = House::new().await;
    let attic = Attic::empty(house).await;
    let holder = attic.house.connect().await;
    sql::run(&holder, "begin isolation level repeatable read; select 1").await;
    let process = uuid::Uuid::new_v4();
    let mut most = BTreeMap::new();
    for round in 0..120i64 {
        let mut note = |what: &'static str, bound: i64, read: i64| {
            // The first ones show what it costs without the dead.
            if round >= 60 {
                let entry = most.entry(what).or_insert((bound, 0));
                entry.1 = entry.1.max(read);
            }
        };
        attic.emit("a", 4).await;
        let claim =
            "select * from outlast._claim($1, 100, 4194304, 10000, 60000, 1, $2, $3, $2, $4)";
        let (rows, read) = attic
            .measure(
                claim,
                &[&attic.consumer, &process, &(2 * round + 1), &(2 * round)],
            )
            .await;
        let (token, ids) = batch(&rows);
        note("a claim of 4", 120, read);
        sql::fail(&attic.client, token, ids[0], "retry")
            .await
            .expect("fails");
        let (_, read) = attic
            .measure("select outlast._seal($1, $2)", &[&token, &&ids[1..]])
            .await;
        note("a seal of 3", 20, read);
        let finish = "select * from outlast._finish($1, $2, $3, $2, $4)";
        let (_, read) = attic
            .measure(
                finish,
                &[&&[token][..], &process, &(2 * round + 2), &(2 * round + 1)],
            )
            .await;
        note("a finish of 4", 80, read);
        let (_, read) = attic.measure(CLAIM, &[&attic.consumer]).await;
        note("a claim of nothing", 40, read);
        // What was parked a while ago is tried again and done.
        forward(&attic.client, 600).await;
        let parked = "select * from outlast._claim_parked($1, 1, 60000, array['a'], array[1])";
        let (rows, _) = attic.measure(parked, &[&attic.consumer]).await;
        let (token, ids) = batch(&rows);
        let (_, read) = attic
            .measure("select outlast.complete($1, $2)", &[&token, &ids[0]])
            .await;
        note("one completion of a parked one", 20, read);
        sql::finish(&attic.client, &[token])
            .await
            .expect("finishes");
    }
    check(Statistics::None, &most);
}

fn check(statistics: Statistics, most: &BTreeMap<&'static str, (i64, i64)>) {
    let mut over = Vec::new();
    for (what, (bound, read)) in most {
        println!("{statistics:?}: {what} has read {read} rows, at most {bound}");
        if read > bound {
            over.push(format!("{what} has read {read} rows, more than {bound}"));
        }
    }
    assert!(over.is_empty(), "{statistics:?}:\n{}", over.join("\n"));
}
