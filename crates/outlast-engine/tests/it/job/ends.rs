//! How tries end: done, skipped, failed and tried again, stopped for a person, cancelled while they ran.

use std::{sync::Arc, time::Duration};

use outlast_core::{Failure, Outcome};
use outlast_engine::{Attempt, Outlast, Sealed, Settings};
use outlast_postgres::{
    job::Cancel,
    tx::{OwnedTx, Pool},
};
use tokio::sync::{Semaphore, mpsc};

use super::Task;
use crate::given::{Given, Told, given, next};

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_try_is_repeated_with_the_same_id_and_its_number() {
    async fn third_time(told: Told, task: Attempt<Task>) -> Result<(), Failure> {
        let _ = told.send(i64::from(task.number()));
        match task.number() {
            3 => Ok(()),
            n => Err(Failure::retry(format!("not yet: {n}"))),
        }
    }
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker(told).job(third_time));
    given.enqueue(0..1).await;
    for n in 1..=3 {
        assert_eq!(next(&mut hears).await, n);
    }
    given.jobs(1, "done").await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_failure_stops_with_an_incident_and_a_person_lets_it_run_again() {
    async fn mended(
        mended: Arc<std::sync::atomic::AtomicBool>,
        task: Attempt<Task>,
    ) -> Result<(), Failure> {
        match task.n == 13 && !mended.load(std::sync::atomic::Ordering::SeqCst) {
            true => Err(Failure::permanent("no such booking: 13")),
            false => Ok(()),
        }
    }
    let given = given().await;
    let switch = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let worker = Given::run(given.worker(switch.clone()).job(mended));
    let accepted = given.enqueue(10..16).await;
    given.jobs(5, "done").await;
    let row = given
        .sql
        .query_one(
            "select kind, consumer, class, reason, failures, about from outlast.incident",
            &[],
        )
        .await
        .unwrap();
    assert_eq!((row.get(0), row.get(1)), ("stopped job", "task"));
    assert_eq!(
        (row.get(2), row.get(3)),
        ("permanent", "no such booking: 13")
    );
    assert_eq!((row.get::<_, i32>(4), row.get(5)), (1, accepted[3].id));
    switch.store(true, std::sync::atomic::Ordering::SeqCst);
    let said: String = given
        .sql
        .query_one("select outlast.retry_job($1, 'jane')", &[&accepted[3].id])
        .await
        .unwrap()
        .get(0);
    assert_eq!(said, "ready");
    given.jobs(6, "done").await;
    assert_eq!(
        given.count("select count(*) from outlast.incident").await,
        0
    );
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn spent_attempts_stop_a_job_by_the_settings_or_by_its_own_word() {
    async fn never(told: Told, task: Attempt<Task>) -> Result<(), Failure> {
        let _ = told.send(task.n);
        Err(Failure::retry("never"))
    }
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let settings = Settings {
        attempts: 3,
        ..Given::settings()
    };
    let worker = Given::run(given.worker_with(told, settings).job(never));
    given.enqueue(1..2).await;
    let mut tx = given.pool.begin().await.unwrap();
    let once = Task { n: 2 };
    Outlast::new()
        .enqueue(&mut tx, &once)
        .attempts(1)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut heard = Vec::new();
    for _ in 0..4 {
        heard.push(next(&mut hears).await);
    }
    heard.sort_unstable();
    assert_eq!(heard, [1, 1, 1, 2]);
    given
        .until("select count(*) from outlast.incident", 2)
        .await;
    worker.stop().await.unwrap();
    assert!(hears.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_try_waits_as_told_and_spends_nothing() {
    async fn throttled(told: Told, task: Attempt<Task>) -> Result<(), Failure> {
        // Which try it is does not grow by it.
        let _ = told.send(i64::from(task.number()));
        Err(Failure::throttled(Duration::from_secs(3000)))
    }
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker(told).job(throttled));
    given.enqueue(0..1).await;
    assert_eq!(next(&mut hears).await, 1);
    let waits = "select count(*) from outlast.job where state = 'waiting' and attempt = 0 and class = 'throttled'
        and due_at between outlast.clock() + interval '2900 seconds' and outlast.clock() + interval '3001 seconds'";
    given.until(waits, 1).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_a_failure_with_its_text_and_a_text_of_5_mb_is_cut() {
    async fn hostile(_: (), task: Attempt<Task>) -> Result<(), Failure> {
        match task.n {
            0 => panic!("gave up on {}", task.n),
            _ => Err(Failure::permanent("\u{1b}[31mx\0".repeat(1_000_000))),
        }
    }
    let given = given().await;
    let settings = Settings {
        attempts: 1,
        ..Given::settings()
    };
    let worker = Given::run(given.worker_with((), settings).job(hostile));
    given.enqueue(0..2).await;
    given
        .until("select count(*) from outlast.incident", 2)
        .await;
    let panicked = "select count(*) from outlast.incident where reason = 'panicked: gave up on 0' and class = 'unclassified'";
    assert_eq!(given.count(panicked).await, 1);
    let cut = "select count(*) from outlast.incident where length(reason) between 1000 and 4096 and reason !~ '[\\x01-\\x08\\x1b]'";
    assert_eq!(given.count(cut).await, 1);
    given.verified().await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_say_that_there_is_nothing_to_do() {
    async fn not_ours(_: (), _: Attempt<Task>) -> Result<Outcome, Failure> {
        Ok(Outcome::skipped("not ours"))
    }
    let given = given().await;
    let worker = Given::run(given.worker(()).job(not_ours));
    given.enqueue(0..3).await;
    given.jobs(3, "skipped").await;
    let told = "select count(*) from outlast.job where reason = 'not ours'";
    assert_eq!(given.count(told).await, 3);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_handler_and_the_completion_are_one_commit() {
    async fn writes(pool: deadpool_postgres::Pool, task: Attempt<Task>) -> Result<Sealed, Failure> {
        let tx = pool.begin().await?;
        tx.execute("insert into effect values ($1, $2)", &[&task.id(), &task.n])
            .await?;
        if task.number() == 1 {
            return Err(Failure::retry("after the row, before the seal"));
        }
        task.seal(tx).await
    }
    let given = given().await;
    let worker = Given::run(given.worker(given.pool.clone()).job(writes));
    given.enqueue(0..5).await;
    given.jobs(5, "done").await;
    assert_eq!(given.count("select count(*) from effect").await, 5);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_cancelled_while_it_runs_has_no_other_try() {
    type State = (Told, Arc<Semaphore>);
    async fn held((told, gate): State, task: Attempt<Task>) -> Result<(), Failure> {
        let _ = told.send(task.n);
        let _ = gate.acquire().await;
        match task.n {
            0 => Err(Failure::retry("would be tried again")),
            _ => Ok(()),
        }
    }
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let worker = Given::run(given.worker((told, gate.clone())).job(held));
    let accepted = given.enqueue(0..2).await;
    next(&mut hears).await;
    next(&mut hears).await;
    let mut tx = given.pool.begin().await.unwrap();
    for one in &accepted {
        let said = Outlast::new()
            .cancel(&mut tx, one.id, "no more")
            .await
            .unwrap();
        assert_eq!(said, Cancel::Requested);
    }
    tx.commit().await.unwrap();
    gate.add_permits(2);
    given.jobs(1, "cancelled").await;
    // What has succeeded all the same is done.
    given.jobs(1, "done").await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_never_returns_is_charged_and_left_and_others_go_on() {
    async fn hangs(told: Told, task: Attempt<Task>) -> Result<(), Failure> {
        let _ = told.send(task.n);
        if task.n == 0 && task.number() == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let settings = Settings {
        deadline: Duration::from_millis(200),
        grace: Duration::from_millis(100),
        concurrency: 2,
        drain: Duration::from_millis(500),
        ..Given::settings()
    };
    let worker = Given::run(given.worker_with(told, settings).job(hangs));
    given.enqueue(0..1).await;
    assert_eq!(next(&mut hears).await, 0);
    given.enqueue(1..20).await;
    given.jobs(20, "done").await;
    let late = "select count(*) from outlast.job where reason like 'the deadline of 200ms%' or attempt = 1";
    assert_eq!(given.count(late).await, 1);
    worker.stop().await.unwrap();
}
