//! Delay: not before its time, soon after it, also in a process that has nothing else to do.

use std::time::{Duration, Instant, SystemTime};

use outlast_core::Failure;
use outlast_engine::{Attempt, Outlast};
use outlast_postgres::tx::{OwnedTx, Pool};
use tokio::sync::mpsc;

use super::Task;
use crate::given::{Given, Told, given, next};

async fn note(told: Told, task: Attempt<Task>) -> Result<(), Failure> {
    let _ = told.send(task.n);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_runs_a_delayed_job_at_its_time() {
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker(told).job(note));
    given.enqueue(0..1).await;
    assert_eq!(next(&mut hears).await, 0);
    given.jobs(1, "done").await;
    let pause = Duration::from_millis(1200);
    let mut tx = given.pool.begin().await.unwrap();
    let began = Instant::now();
    Outlast::new()
        .enqueue(&mut tx, &Task { n: 1 })
        .after(pause)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(next(&mut hears).await, 1);
    let took = began.elapsed();
    assert!(took >= pause, "{took:?} is too early");
    assert!(
        took < pause + Duration::from_millis(700),
        "{took:?} is late"
    );
    given.jobs(2, "done").await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_of_the_past_is_now_and_one_of_the_future_is_kept() {
    let given = given().await;
    let outlast = Outlast::new();
    let mut tx = given.pool.begin().await.unwrap();
    let hour = Duration::from_secs(3600);
    let future = SystemTime::now() + hour;
    outlast
        .enqueue(&mut tx, &Task { n: 0 })
        .at(SystemTime::now() - hour)
        .await
        .unwrap();
    let later = outlast
        .enqueue(&mut tx, &Task { n: 1 })
        .at(future)
        .await
        .unwrap();
    let status = outlast.status(&mut tx, later.id).await.unwrap().unwrap();
    let off = future
        .duration_since(status.due_at.unwrap())
        .unwrap_or_default();
    assert!(off < Duration::from_millis(1), "{off:?}");
    tx.commit().await.unwrap();
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker(told).job(note));
    assert_eq!(next(&mut hears).await, 0);
    given.jobs(1, "done").await;
    given.jobs(1, "waiting").await;
    worker.stop().await.unwrap();
    assert!(hears.try_recv().is_err());
}
