//! Workers that are lost while they have jobs, and those that drain.

use std::{sync::Arc, time::Duration};

use outlast_core::Failure;
use outlast_engine::{Attempt, Settings};
use outlast_testkit::proxy::Proxy;
use tokio::sync::{Semaphore, mpsc};

use super::{Task, completing};
use crate::given::{Given, Told, given, next};

type State = (Told, Arc<Semaphore>);

async fn held((told, gate): State, task: Attempt<Task>) -> Result<(), Failure> {
    let _ = told.send(task.n);
    let _ = gate.acquire().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_finishes_what_runs_and_gives_the_rest_back_without_a_charge() {
    let given = given().await;
    given.enqueue(0..20).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let settings = Settings {
        concurrency: 2,
        ..Given::settings()
    };
    let worker = given.worker_with((told, gate.clone()), settings).job(held);
    let mut worker = Given::run(worker);
    next(&mut hears).await;
    next(&mut hears).await;
    worker.ask_to_stop();
    gate.add_permits(2);
    worker.stop().await.unwrap();
    given.jobs(2, "done").await;
    let waiting = "select count(*) from outlast.job where state = 'waiting' and attempt = 0 and due_at is null";
    assert_eq!(given.count(waiting).await, 18);
    let worker = completing(&given);
    given.jobs(20, "done").await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_not_started_is_not_kept_from_others_by_a_process_that_drains() {
    async fn quick_then_held(state: State, task: Attempt<Task>) -> Result<(), Failure> {
        match task.n < 100 {
            true => held(state, task).await,
            false => Ok(()),
        }
    }
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let settings = Settings {
        concurrency: 2,
        ..Given::settings()
    };
    let worker = given.worker_with((told, gate.clone()), settings);
    let mut worker = Given::run(worker.job(quick_then_held));
    // Quick ones teach it to claim ahead.
    given.enqueue(100..110).await;
    given.jobs(10, "done").await;
    let four = "select count(outlast.enqueue('task', json_build_object('n', n)::text)) from generate_series(0, 3) n";
    given.count(four).await;
    next(&mut hears).await;
    next(&mut hears).await;
    given
        .until("select count(*) from outlast._job_claimed", 4)
        .await;
    worker.ask_to_stop();
    let other = completing(&given);
    given
        .until("select count(*) from outlast.job where state = 'done'", 12)
        .await;
    gate.add_permits(2);
    given.jobs(14, "done").await;
    worker.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_runs_out_gives_back_what_still_runs() {
    let given = given().await;
    given.enqueue(0..4).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let settings = Settings {
        drain: Duration::from_millis(300),
        grace: Duration::from_millis(100),
        ..Given::settings()
    };
    let worker = Given::run(given.worker_with((told, gate.clone()), settings).job(held));
    for _ in 0..4 {
        next(&mut hears).await;
    }
    worker.stop().await.unwrap();
    let waiting = "select count(*) from outlast.job where state = 'waiting' and attempt = 0";
    assert_eq!(given.count(waiting).await, 4);
    let worker = completing(&given);
    given.jobs(4, "done").await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_lost_worker_had_goes_on_elsewhere_and_its_late_answer_is_refused() {
    let given = given().await;
    given.enqueue(0..4).await;
    let claimed = given
        .sql
        .query("select token, id from outlast._claim_jobs(array['task'], array[1], array[4], 1000000, 500)", &[])
        .await
        .unwrap();
    assert_eq!(claimed.len(), 4);
    let worker = completing(&given);
    given.jobs(4, "done").await;
    // Nobody is charged: nothing was known to have started.
    let charged =
        "select count(*) from outlast._job_state where failures > 0 or crashes > 0 or lapses <> 1";
    assert_eq!(given.count(charged).await, 0);
    let (token, id): (uuid::Uuid, uuid::Uuid) = (claimed[0].get(0), claimed[0].get(1));
    let late = given
        .sql
        .execute("select outlast.complete($1, $2)", &[&token, &id])
        .await
        .unwrap_err();
    assert_eq!(late.code().map(|state| state.code()), Some("OL001"));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_longer_than_its_lease_keeps_it_by_renewal() {
    async fn long(told: Told, task: Attempt<Task>) -> Result<(), Failure> {
        let _ = told.send(task.n);
        // Three leases; nothing is waited for here but time itself.
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(())
    }
    let given = given().await;
    given.enqueue(0..1).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let one = Given::run(given.worker(told.clone()).job(long));
    next(&mut hears).await;
    let two = Given::run(given.worker(told).job(long));
    given.jobs(1, "done").await;
    assert!(hears.try_recv().is_err(), "it ran once");
    one.stop().await.unwrap();
    two.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_loses_its_lease_stops_and_what_it_returns_is_not_recorded() {
    async fn until_lost(told: Told, task: Attempt<Task>) -> Result<(), Failure> {
        if task.n == 7 {
            let _ = told.send(task.n);
            task.lost().await;
            let _ = told.send(-1);
        }
        Ok(())
    }
    let given = given().await;
    given.enqueue(7..8).await;
    let proxy = Proxy::before(given.database.url()).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let behind = given.worker(told).database(proxy.url()).job(until_lost);
    let behind = Given::run(behind);
    assert_eq!(next(&mut hears).await, 7);
    // The database is away for longer than the lease, and somebody takes over.
    proxy.freeze();
    assert_eq!(next(&mut hears).await, -1);
    let worker = completing(&given);
    given.jobs(1, "done").await;
    proxy.thaw();
    given.enqueue(8..9).await;
    given.jobs(2, "done").await;
    worker.stop().await.unwrap();
    drop(behind);
    given.verified().await;
}
