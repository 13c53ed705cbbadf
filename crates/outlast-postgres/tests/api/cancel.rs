//! Callers that go away: a timeout or a client that hangs up drops the future at any of its awaits.

use super::{
    PATIENCE, client, database,
    end::{OPEN, nothing_stays_open},
    every_pool, one,
};
use outlast_postgres::{
    event::{Body, Envelope, emit},
    tx::{OwnedTx, Pool},
};
use std::{
    collections::BTreeSet,
    future::Future,
    pin::pin,
    task::{Context, Poll},
};
use tokio::task::JoinSet;
use uuid::Uuid;

/// So many for each driver, over a pool of a few connections.
const EMITS: usize = 1_000;
const AT_ONCE: usize = 10;
/// Whoever is not cancelled at one of the first polls is let through.
const POLLS: u32 = 16;

/// The future's output, unless it is dropped unfinished after that many polls.
async fn dropped_after<T>(polls: u32, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut left = polls;
    std::future::poll_fn(
        move |context: &mut Context<'_>| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => {
                left -= 1;
                Poll::Pending
            }
        },
    )
    .await
}

/// One request: begin, emit, commit. The id of the event, if the caller was told that it is committed.
async fn request(pool: &impl Pool) -> Uuid {
    let mut tx = pool.begin().await.expect("begins");
    let event = Envelope::new("paid", 1, Body::Json("1"));
    let accepted = emit(&mut tx, &event).await.expect("is accepted");
    tx.commit().await.expect("commits");
    accepted.id
}

/// Goal: every emit that was answered ok is present, and no connection of the pool is left inside a transaction.
/// Method: a few requests at once, each dropped after a random number of polls, many times; then others use the pool.
async fn cancelled_at_random(driver: &str, pool: &impl Pool, watcher: &tokio_postgres::Client) {
    let mut rng = fastrand::Rng::new();
    let (mut answered, mut cancelled) = (BTreeSet::new(), 0);
    for _ in 0..EMITS / AT_ONCE {
        let mut requests = JoinSet::new();
        for _ in 0..AT_ONCE {
            let (pool, polls) = (pool.clone(), rng.u32(..POLLS));
            requests.spawn(async move { dropped_after(polls, request(&pool)).await });
        }
        for answer in requests.join_all().await {
            match answer {
                Some(id) => _ = answered.insert(id),
                None => cancelled += 1,
            }
        }
        // Each time, because the next borrower's COMMIT would end what a former one left open.
        nothing_stays_open(watcher).await;
    }
    assert!(
        answered.len() > EMITS / 20 && cancelled > EMITS / 20,
        "{driver}: {} answered and {cancelled} cancelled prove little",
        answered.len()
    );

    let rows = watcher
        .query("select id from outlast.event", &[])
        .await
        .unwrap();
    let present: BTreeSet<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    let lost: Vec<_> = answered.difference(&present).collect();
    assert!(
        lost.is_empty(),
        "{driver}: answered and not there: {lost:?}"
    );
    // Committed after its caller had gone: allowed, he was told nothing.
    assert!(present.len() <= EMITS, "{driver}");

    // Others get connections that are clean: what they commit is there, what they do not is not.
    for _ in 0..2 * AT_ONCE {
        let id = tokio::time::timeout(PATIENCE, request(pool))
            .await
            .expect("a connection");
        let there = format!("select count(*)::text from outlast.event where id = '{id}'");
        assert_eq!(one(watcher, &there).await.as_deref(), Some("1"), "{driver}");
    }
    assert_eq!(one(watcher, OPEN).await.as_deref(), Some("0"), "{driver}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_ok_is_there_and_no_connection_stays_in_a_transaction_whenever_callers_go_away()
 {
    let db = database().await;
    let watcher = client(db.url()).await;
    every_pool!(db.url(), 3, |driver, pool| {
        watcher
            .batch_execute("truncate outlast._event")
            .await
            .unwrap();
        cancelled_at_random(driver, pool, &watcher).await;
    });
}
