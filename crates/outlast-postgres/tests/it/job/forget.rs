//! What is kept of jobs, and for how long: what has not ended is never removed.

use super::{Shop, complete, enqueue, finish};
use crate::house::forward;
use crate::sql::{self, one, run};

const DAY: i32 = 86_400;
const JOBS: &str = "select count(*) from outlast._job";

async fn forget(shop: &Shop) -> i64 {
    let mut all = 0_i64;
    loop {
        let gone: i32 = one(&shop.client, "select outlast._forget_jobs(2)", &[]).await;
        if gone == 0 {
            return all;
        }
        all += i64::from(gone);
    }
}

#[tokio::test]
async fn an_ended_job_is_kept_as_long_as_the_setting_says_and_one_that_waits_for_ever() {
    let shop = Shop::with_movable_clock().await;
    let done = shop.enqueue("mail", 5).await;
    let jobs = shop.claim("mail", 5).await;
    complete(&shop.client, jobs[0].token, &done[..4])
        .await
        .expect("completes");
    sql::fail(&shop.client, jobs[0].token, done[4], "permanent")
        .await
        .expect("fails");
    finish(&shop.client, jobs[0].token).await.expect("finishes");
    shop.enqueue("paused", 3).await;
    enqueue(&shop.client, "'paused', '{}', after_ms => 3600000").await;
    forward(&shop.client, 29 * DAY).await;
    assert_eq!((forget(&shop).await, shop.count(JOBS).await), (0, 9));
    forward(&shop.client, 2 * DAY).await;
    assert_eq!((forget(&shop).await, shop.count(JOBS).await), (4, 5));
    forward(&shop.client, 3650 * DAY).await;
    assert_eq!((forget(&shop).await, shop.count(JOBS).await), (0, 5));
    assert_eq!(shop.state(done[4]).await, "waiting!");
    shop.due().await;
    assert_eq!(shop.claim("paused", 9).await.len(), 4);
    shop.must_be_sound().await;
}

#[tokio::test]
async fn a_key_outlives_its_job_and_is_forgotten_a_week_after_its_life() {
    let shop = Shop::with_movable_clock().await;
    let call =
        "select new, expired, id from outlast.enqueue('mail', '1', key => $1, lifetime_ms => $2)";
    let ask = async |key: &str| {
        let row = shop
            .client
            .query_one(call, &[&key, &(60_i64 * 86_400_000)])
            .await
            .expect("asks");
        (row.get::<_, bool>(0), row.get::<_, bool>(1))
    };
    assert_eq!(
        (ask("ended").await, ask("waits").await),
        ((true, false), (true, false))
    );
    let job = shop.claim("mail", 1).await.remove(0);
    complete(&shop.client, job.token, &[job.id])
        .await
        .expect("completes");
    finish(&shop.client, job.token).await.expect("finishes");
    forward(&shop.client, 35 * DAY).await;
    assert_eq!((forget(&shop).await, shop.count(JOBS).await), (1, 1));
    assert_eq!(
        ask("ended").await,
        (false, false),
        "the job is gone, its key is not"
    );
    forward(&shop.client, 30 * DAY).await;
    forget(&shop).await;
    assert_eq!(ask("ended").await, (false, true));
    forward(&shop.client, 3 * DAY).await;
    assert_eq!(forget(&shop).await, 1);
    assert_eq!(ask("ended").await, (true, false));
    assert_eq!(
        ask("waits").await,
        (false, true),
        "a job that has not ended keeps its key"
    );
}

#[tokio::test]
async fn nothing_is_removed_while_the_settings_contradict_each_other() {
    let shop = Shop::with_movable_clock().await;
    shop.enqueue("mail", 1).await;
    let job = shop.claim("mail", 1).await.remove(0);
    complete(&shop.client, job.token, &[job.id])
        .await
        .expect("completes");
    forward(&shop.client, 40 * DAY).await;
    run(
        &shop.client,
        "begin; insert into outlast._setting (name, value) values ('retention.log', '90d')",
    )
    .await;
    assert_eq!(forget(&shop).await, 0);
    run(&shop.client, "rollback").await;
    assert_eq!(forget(&shop).await, 1);
}
