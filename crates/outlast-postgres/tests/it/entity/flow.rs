//! Writers in every isolation level, one hot entity, opposite orders: none fails, none waits, nothing is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::Client;

use super::{Office, changed, claim, complete};
use crate::sql::run;

const WRITERS: i32 = 8;
const ROUNDS: i32 = 40;

/// What the business holds: how often each writer has changed an entity. Inserts only, so that nothing but marks could conflict.
const BUSINESS: &str = "create table change (writer int, n int, entity text)";

async fn write(client: Client, writer: i32) {
    let level = ["serializable", "repeatable read", "read committed"][writer as usize % 3];
    for n in 1..=ROUNDS {
        run(&client, &format!("begin isolation level {level}")).await;
        let mut both = ["a", "b"];
        if writer % 2 == 0 {
            both.reverse();
        }
        for entity in both {
            let sql = "insert into change values ($1, $2, $3)";
            client
                .execute(sql, &[&writer, &n, &entity])
                .await
                .expect("writes");
            changed(&client, entity)
                .await
                .expect("marks, whoever else does");
        }
        client
            .batch_execute("commit")
            .await
            .expect("commits, whoever else does");
    }
}

type Seen = BTreeMap<(String, i32), i32>;

/// Converges until nobody writes any more and nothing is left: what it has read of each.
async fn converge(client: Client, over: Arc<AtomicBool>) -> (Seen, usize) {
    let (mut seen, mut runs) = (Seen::new(), 0);
    loop {
        let was_over = over.load(Ordering::SeqCst);
        let all = claim(&client, "crm", 2).await.expect("claims");
        if all.is_empty() && was_over {
            return (seen, runs);
        }
        for one in all {
            let sql = "select writer, max(n) from change where entity = $1 group by writer";
            for row in client.query(sql, &[&one.key]).await.expect("reads") {
                seen.insert((one.key.clone(), row.get(0)), row.get(1));
            }
            complete(&client, &one).await.expect("completes");
            runs += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_writers_of_one_hot_entity_never_fail_and_the_last_run_has_read_all_they_wrote() {
    let office = Office::new().await;
    run(&office.client, BUSINESS).await;
    let over = Arc::new(AtomicBool::new(false));
    let worker = tokio::spawn(converge(office.house.connect().await, over.clone()));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 1..=WRITERS {
        writers.spawn(write(office.house.connect().await, writer));
    }
    writers.join_all().await;
    over.store(true, Ordering::SeqCst);
    let (seen, runs) = worker.await.expect("ends");
    assert_eq!(seen.len(), 2 * WRITERS as usize);
    assert!(seen.values().all(|n| *n == ROUNDS), "{seen:?}");
    assert!(runs >= 2);
    office.must_be_sound().await;
}

#[tokio::test]
async fn two_transactions_that_mark_in_opposite_orders_do_not_wait_for_each_other() {
    let office = Office::new().await;
    let (one, two) = (office.house.connect().await, office.house.connect().await);
    for client in [&one, &two] {
        run(
            client,
            "set lock_timeout = '300ms'; begin isolation level serializable",
        )
        .await;
    }
    changed(&one, "a").await.expect("marks");
    changed(&two, "b").await.expect("marks");
    changed(&one, "b").await.expect("marks");
    changed(&two, "a").await.expect("marks");
    run(&one, "commit").await;
    run(&two, "commit").await;
    assert_eq!(office.claim(10).await.len(), 2);
}
