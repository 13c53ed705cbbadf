//! Workers that drain or are lost while commands are under way.

use std::{sync::Arc, time::Duration};

use outlast_core::{Failure, Sent};
use outlast_engine::{Attempt, IfUnknown, Settings};
use tokio::sync::{Semaphore, mpsc};

use super::{Acme, Charge, ChargeId, charge, keyed, settled};
use crate::given::{Given, Told, named, next};

type State = (Told, Arc<Semaphore>);

async fn held((told, gate): State, c: Attempt<Charge>) -> Result<Sent<ChargeId>, Failure> {
    let _ = told.send(c.n);
    let _ = gate.acquire().await;
    Ok(settled())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_makes_unknown_only_what_was_on_its_way_and_what_still_answers_counts() {
    let given = named().await;
    given.give(0..20).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let settings = Settings {
        concurrency: 3,
        drain: Duration::from_millis(300),
        grace: Duration::from_millis(100),
        ..Given::settings()
    };
    let worker = given.worker_with((told, gate.clone()), settings);
    let worker = Given::run(worker.command(held, IfUnknown::ask_a_person()));
    for _ in 0..3 {
        next(&mut hears).await;
    }
    worker.stop().await.unwrap();
    let sql = "select count(*) from outlast.command where state = 'waiting' and not sent";
    assert_eq!(given.count(sql).await, 17);
    given.commands(3, "unknown").await;
    // They were detached, never dropped: what their provider says is evidence, and settles them.
    gate.add_permits(3);
    given.commands(3, "settled").await;

    let worker = Given::run(given.worker(Acme::default()).command(charge, keyed()));
    given.commands(20, "settled").await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_owner_settles_what_a_sleeper_then_finds_settled() {
    let given = named().await;
    given.give(0..1).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    // One place, which stays taken: the other worker gets it next.
    let settings = Settings {
        concurrency: 1,
        ..Given::settings()
    };
    let worker = given.worker_with((told, gate.clone()), settings);
    let worker = Given::run(worker.command(held, keyed()));
    next(&mut hears).await;
    // As after a sleep past the lease: somebody has taken it over.
    given
        .sql
        .batch_execute("update outlast._lease set expires_at = 'epoch' where room = 'job'; select outlast._reclaim_jobs(10)")
        .await
        .unwrap();
    given
        .until(
            "select count(*) from outlast.command where state = 'unknown'",
            1,
        )
        .await;
    let other = Given::run(given.worker(Acme::default()).command(charge, keyed()));
    given
        .until(
            "select count(*) from outlast.command where state = 'settled'",
            1,
        )
        .await;
    gate.add_permits(10);
    given
        .until(
            "select count(*) from outlast.evidence where what = 'late'",
            1,
        )
        .await;
    given.commands(1, "settled").await;
    assert_eq!(
        given
            .count("select count(*) from outlast.event where type = 'charge.resolved'")
            .await,
        1
    );
    assert_eq!(
        given.count("select count(*) from outlast.incident").await,
        0
    );
    worker.stop().await.unwrap();
    other.stop().await.unwrap();
}
