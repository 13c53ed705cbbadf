//! Who has his turn: urgent before patient, every tenant, no name that nobody knows.

use std::{sync::Arc, time::Duration};

use outlast_core::{Failure, Job, Unreadable};
use outlast_engine::{Attempt, Outlast, Settings};
use outlast_postgres::tx::{OwnedTx, Pool};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc};

use super::{Task, completing};
use crate::given::{Given, Told, given, next};

async fn note(told: Told, task: Attempt<Task>) -> Result<(), Failure> {
    let _ = told.send(task.n);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_tenant_the_lower_priority_runs_sooner() {
    let given = given().await;
    for (n, priority) in [(1, 50), (2, 0), (3, -50), (4, 0)] {
        let mut tx = given.pool.begin().await.unwrap();
        let task = Task { n };
        Outlast::new()
            .enqueue(&mut tx, &task)
            .priority(priority)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }
    let (told, mut hears) = mpsc::unbounded_channel();
    let settings = Settings {
        concurrency: 1,
        ..Given::settings()
    };
    let worker = Given::run(given.worker_with(told, settings).job(note));
    let mut order = Vec::new();
    for _ in 0..4 {
        order.push(next(&mut hears).await);
    }
    assert_eq!(order, [3, 2, 4, 1]);
    given.jobs(4, "done").await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_waiting_jobs_of_one_tenant_do_not_delay_anothers() {
    type State = (Told, Arc<Semaphore>);
    async fn slow((told, gate): State, task: Attempt<Task>) -> Result<(), Failure> {
        let _ = told.send(task.n);
        if task.n == 0 {
            gate.acquire().await.unwrap().forget();
        }
        Ok(())
    }
    let given = given().await;
    let backlog = "select count(outlast.enqueue('task', '{\"n\":0}', tenant => 'crowd')) from generate_series(1, 10000)";
    assert_eq!(given.count(backlog).await, 10_000);
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let worker = Given::run(given.worker((told, gate.clone())).job(slow));
    for _ in 0..8 {
        assert_eq!(next(&mut hears).await, 0);
    }
    let mut tx = given.pool.begin().await.unwrap();
    let small = Outlast::new().tenant("small");
    small.enqueue(&mut tx, &Task { n: 1 }).await.unwrap();
    tx.commit().await.unwrap();
    // One place is free, then a second: one of them is for the other tenant.
    let mut turns = 0;
    loop {
        gate.add_permits(1);
        turns += 1;
        if next(&mut hears).await == 1 {
            break;
        }
        assert!(turns < 4, "still not its turn");
    }
    gate.add_permits(20_000);
    drop(worker);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_nobody_has_a_handler_for_waits_unchanged() {
    let given = given().await;
    given
        .sql
        .execute("select outlast.enqueue('unknown', '{}')", &[])
        .await
        .unwrap();
    let worker = completing(&given);
    given.enqueue(0..3).await;
    given.jobs(3, "done").await;
    let untouched = "select count(*) from outlast.job j where j.name = 'unknown' and j.state = 'waiting' and j.attempt = 0
        and not exists (select from outlast._job_state s where s.id = j.id)";
    assert_eq!(given.count(untouched).await, 1);
    worker.stop().await.unwrap();
}

#[derive(Serialize, Deserialize)]
struct Newer {
    n: i64,
    why: String,
}
impl Job for Newer {
    const NAME: &'static str = "task";
    const VERSION: u16 = 2;

    fn upcast(from: u16, old: serde_json::Value) -> Result<Self, Unreadable> {
        let old: Task = serde_json::from_value(old)?;
        Ok(Self {
            n: old.n,
            why: format!("from {from}"),
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_version_waits_for_a_process_that_reads_it_which_also_reads_the_older() {
    async fn newer(told: Told, job: Attempt<Newer>) -> Result<(), Failure> {
        let _ = told.send(job.n * 10 + i64::from(job.why == "from 1"));
        Ok(())
    }
    let given = given().await;
    let worker = completing(&given);
    given
        .sql
        .execute(
            "select outlast.enqueue('task', '{\"n\":2,\"why\":\"new\"}', version => 2)",
            &[],
        )
        .await
        .unwrap();
    let waits = "select count(*) from outlast.job where state = 'waiting' and class = 'waiting-version' and attempt = 0";
    given.until(waits, 1).await;
    worker.stop().await.unwrap();
    given.enqueue(1..2).await;
    // It was put off for some seconds; a person need not wait.
    given
        .sql
        .execute(
            "select outlast.retry_job(id) from outlast.job where version = 2",
            &[],
        )
        .await
        .unwrap();
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker(told).job(newer));
    let mut heard = [next(&mut hears).await, next(&mut hears).await];
    heard.sort_unstable();
    assert_eq!(heard, [11, 20]);
    given.jobs(2, "done").await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_name_waits_and_goes_on_at_once_when_it_is_resumed() {
    let given = given().await;
    given
        .sql
        .execute("select outlast.pause_job('task', 'provider is down')", &[])
        .await
        .unwrap();
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker(told).job(note));
    given.enqueue(0..3).await;
    // The election of the poller says that the process works.
    given
        .until(
            "select count(*) from outlast.lease where room = 'poller'",
            1,
        )
        .await;
    assert!(hears.try_recv().is_err());
    given
        .sql
        .execute("select outlast.resume_job('task')", &[])
        .await
        .unwrap();
    for _ in 0..3 {
        next(&mut hears).await;
    }
    given.jobs(3, "done").await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn never_more_run_at_once_than_the_concurrency_says_and_quick_ones_are_all_done() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    type State = Arc<(AtomicUsize, AtomicUsize)>;
    async fn counted(state: State, _: Attempt<Task>) -> Result<(), Failure> {
        let now = state.0.fetch_add(1, Ordering::SeqCst) + 1;
        state.1.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        state.0.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
    let given = given().await;
    let many = "select count(outlast.enqueue('task', '{\"n\":0}')) from generate_series(1, 1000)";
    given.count(many).await;
    let state: State = Arc::default();
    let settings = Settings {
        concurrency: 5,
        ..Given::settings()
    };
    let worker = Given::run(given.worker_with(state.clone(), settings).job(counted));
    given
        .until("select count(*) from outlast._job_end", 1000)
        .await;
    given.jobs(1000, "done").await;
    assert_eq!(state.1.load(Ordering::SeqCst), 5);
    worker.stop().await.unwrap();
}
