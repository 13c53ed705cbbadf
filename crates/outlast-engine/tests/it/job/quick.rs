//! Quick jobs cost little: they are claimed by hundreds, and completed together.

use std::{sync::Arc, time::Duration};

use outlast_core::Failure;
use outlast_engine::{Attempt, Settings};
use tokio::sync::Semaphore;

use super::{Task, completing};
use crate::given::{Given, given};

/// How many commits have completed jobs.
const COMMITS: &str = "select count(distinct xmin::text) from outlast._job_end";

/// Odd ones wait for the gate.
async fn gated(gate: Arc<Semaphore>, task: Attempt<Task>) -> Result<(), Failure> {
    if task.n % 2 == 1 {
        drop(gate.acquire().await);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn quick_jobs_of_one_claim_are_completed_by_the_commit_that_ends_it() {
    let given = given().await;
    let settings = Settings {
        flush: Duration::from_secs(5),
        lease: Duration::from_secs(60),
        ..Given::settings()
    };
    let many = "select count(outlast.enqueue('task', '{\"n\":0}')) from generate_series(1, 8)";
    assert_eq!(given.count(many).await, 8);
    let worker = Given::run(
        given
            .worker_with(Arc::new(Semaphore::new(0)), settings)
            .job(gated),
    );
    given.jobs(8, "done").await;
    assert_eq!(given.count(COMMITS).await, 1);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_is_written_while_a_slow_job_of_its_claim_runs_on() {
    let given = given().await;
    let many = "select count(outlast.enqueue('task', '{\"n\":0}')) from generate_series(1, 7)";
    assert_eq!(given.count(many).await, 7);
    given.enqueue(1..2).await;
    let gate = Arc::new(Semaphore::new(0));
    let worker = Given::run(given.worker(gate.clone()).job(gated));
    let ended = "select count(*) from outlast._job_end";
    given.until(ended, 7).await;
    assert_eq!(
        given
            .count("select count(*) from outlast._job_claimed")
            .await,
        1
    );
    gate.add_permits(1);
    given.jobs(8, "done").await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_quick_jobs_is_claimed_by_hundreds() {
    let given = given().await;
    let many = "select count(outlast.enqueue('task', '{\"n\":0}')) from generate_series(1, 4000)";
    assert_eq!(given.count(many).await, 4000);
    let worker = completing(&given);
    given.jobs(4000, "done").await;
    let commits = given.count(COMMITS).await;
    assert!(commits < 4000 / 20, "{commits} commits for 4,000 jobs");
    worker.stop().await.unwrap();
}
