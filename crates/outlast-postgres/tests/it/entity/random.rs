//! Several people do random things to a few entities, leases are killed meanwhile; in the end every change was read by a try that
//! began after it, and all refs that were deleted were handed to a try that has completed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::{Office, Try, claim, complete, keep};
use crate::seeds;
use crate::sql::{self, run};

/// What the business holds, and what whoever has completed had read of it and had in hand.
const WITNESS: &str = "
create table change (n bigint, entity text);
create table burial (entity text, refs text);
create table reading (entity text, n bigint);
create table buried (entity text, refs text);";

const PEOPLE: u64 = 4;
const STEPS: usize = 120;

/// What somebody has in hand, and what he has read since.
type Hand = (Try, i64);

async fn step(client: &Client, rng: &mut Rng, hands: &mut Vec<Hand>, next: &AtomicI64) {
    let entity = format!("e{}", rng.u8(..4));
    match rng.u8(..12) {
        0..=3 => {
            let n = next.fetch_add(1, Ordering::SeqCst);
            run(client, "begin").await;
            let sql = "insert into change values ($1, $2)";
            client.execute(sql, &[&n, &entity]).await.expect("writes");
            super::changed(client, &entity).await.expect("marks");
            let end = if rng.u8(..5) == 0 {
                "rollback"
            } else {
                "commit"
            };
            run(client, end).await;
        }
        4 => {
            let refs = rng.u8(..5).to_string();
            run(client, "begin").await;
            let sql = "insert into burial values ($1, $2)";
            client
                .execute(sql, &[&entity, &refs])
                .await
                .expect("writes");
            super::deleted(client, &entity, &refs).await.expect("marks");
            run(client, "commit").await;
        }
        5..=7 => {
            for one in claim(client, "crm", rng.i32(1..3)).await.expect("claims") {
                let sql = "select coalesce(max(n), -1) from change where entity = $1";
                let read = sql::one(client, sql, &[&one.key]).await;
                hands.push((one, read));
            }
        }
        8 | 9 if !hands.is_empty() => {
            let (one, read) = hands.swap_remove(rng.usize(..hands.len()));
            run(client, "begin").await;
            let done = complete(client, &one).await;
            if done.is_ok() {
                let sql = "insert into reading values ($1, $2)";
                client
                    .execute(sql, &[&one.key, &read])
                    .await
                    .expect("writes");
                for refs in one.deleted() {
                    let sql = "insert into buried values ($1, $2)";
                    client
                        .execute(sql, &[&one.key, &refs])
                        .await
                        .expect("writes");
                }
            }
            run(client, if done.is_ok() { "commit" } else { "rollback" }).await;
        }
        10 if !hands.is_empty() => {
            let (one, _) = hands.swap_remove(rng.usize(..hands.len()));
            match rng.u8(..3) {
                0 => drop(sql::fail(client, one.token, one.id, "retry").await),
                1 => drop(keep(client, &one, Some("\"g\"")).await.expect("answers")),
                _ => {}
            }
        }
        _ => {
            let sql = "update outlast._lease set expires_at = outlast.clock() - interval '1 second' where token in (
                select token from outlast._lease where room = 'job' limit 1);
                select outlast._reclaim_jobs(3);
                update outlast._job_later set due_at = outlast.clock() - interval '1 second'; select outlast._promote(100)";
            // Two who do this at once may meet.
            drop(client.batch_execute(sql).await);
        }
    }
}

async fn drain(office: &Office) {
    let sql = "update outlast._lease set expires_at = 'epoch' where room = 'job';
        select outlast._reclaim_jobs(1000);
        select outlast.retry_entity(name, entity_id, tenant) from outlast.entity where incident_at is not null;
        update outlast._job_later set due_at = outlast.clock() - interval '1 second'; select outlast._promote(100)";
    for _ in 0..50 {
        run(&office.client, sql).await;
        let all = office.claim(10).await;
        if all.is_empty() {
            return;
        }
        for one in all {
            let sql =
                "insert into reading select $1, coalesce(max(n), -1) from change where entity = $1";
            office
                .client
                .execute(sql, &[&one.key])
                .await
                .expect("writes");
            for refs in one.deleted() {
                let sql = "insert into buried values ($1, $2)";
                office
                    .client
                    .execute(sql, &[&one.key, &refs])
                    .await
                    .expect("writes");
            }
            office.complete(&one).await;
        }
    }
    panic!("it does not come to an end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_done_to_entities_in_the_end_the_last_change_was_read_and_nothing_is_unburied()
{
    for seed in seeds::seeds(2) {
        let office = Office::new().await;
        run(&office.client, WITNESS).await;
        let next = Arc::new(AtomicI64::new(0));
        let mut people = JoinSet::new();
        for person in 0..PEOPLE {
            let (client, next) = (office.house.connect().await, next.clone());
            people.spawn(async move {
                let mut rng = Rng::with_seed(seed * 1000 + person);
                let mut hands = Vec::new();
                for _ in 0..STEPS {
                    step(&client, &mut rng, &mut hands, &next).await;
                }
            });
        }
        people.join_all().await;
        office.must_be_sound().await;
        drain(&office).await;
        office.must_be_sound().await;
        let unread = office
            .count(
                "select count(*) from (select entity, max(n) as n from change group by entity) c
                where not exists (select from reading r where r.entity = c.entity and r.n >= c.n)",
            )
            .await;
        assert_eq!(unread, 0, "seed {seed}: a change that nobody has read");
        let rows = "select entity || ' ' || refs from burial except select entity || ' ' || refs from buried";
        let rows = office.client.query(rows, &[]).await.expect("reads");
        let unburied: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
        assert!(unburied.is_empty(), "seed {seed}: {unburied:?}");
        let left = "select count(*) from outlast.entity where state <> 'converged'";
        assert_eq!(office.count(left).await, 0, "seed {seed}");
    }
}
