//! What people decide about jobs: another try, giving up; each with its line in the audit.

use uuid::Uuid;

use super::{Shop, complete, enqueue, ids, start};
use crate::sql::{self, one};

async fn retry(shop: &Shop, id: Uuid) -> String {
    one(&shop.client, "select outlast.retry_job($1, 'jo')", &[&id]).await
}

async fn abandon(shop: &Shop, id: Uuid) -> String {
    one(
        &shop.client,
        "select outlast.abandon_job($1, 'the person is gone', 'jo')",
        &[&id],
    )
    .await
}

async fn audited(shop: &Shop, what: &str) -> i64 {
    one(
        &shop.client,
        "select count(*) from outlast._audit where action = $1 and actor = 'jo'",
        &[&what],
    )
    .await
}

/// One job that a person must look at.
async fn stopped(shop: &Shop) -> Uuid {
    let id = shop.enqueue("mail", 1).await[0];
    let token = shop.claim("mail", 1).await[0].token;
    sql::fail(&shop.client, token, id, "permanent")
        .await
        .expect("fails");
    id
}

#[tokio::test]
async fn a_person_lets_a_stopped_job_run_again_with_a_full_budget() {
    let shop = Shop::new().await;
    let id = stopped(&shop).await;
    assert_eq!(retry(&shop, id).await, "ready");
    assert_eq!(
        (
            retry(&shop, id).await.as_str(),
            audited(&shop, "job.retried").await
        ),
        ("ready", 1)
    );
    let job = shop.claim("mail", 1).await.remove(0);
    assert_eq!((job.id, job.attempt), (id, 1));
    assert_eq!(retry(&shop, id).await, "running");
    complete(&shop.client, job.token, &[id])
        .await
        .expect("completes");
    assert_eq!(retry(&shop, id).await, "done");
    assert_eq!(retry(&shop, Uuid::new_v4()).await, "absent");
    assert_eq!(shop.count("select count(*) from outlast.incident").await, 0);
    shop.must_be_sound().await;
}

#[tokio::test]
async fn what_waits_for_its_time_or_to_run_alone_is_let_go_at_once() {
    let shop = Shop::new().await;
    let later = enqueue(&shop.client, "'mail', '{}', after_ms => 3600000").await;
    let alone = shop.enqueue("other", 1).await[0];
    let token = shop.claim("other", 1).await[0].token;
    start(&shop.client, token, &[alone]).await.expect("marks");
    shop.lose().await;
    assert_eq!(
        (retry(&shop, later).await, retry(&shop, alone).await),
        ("ready".into(), "ready".into())
    );
    assert_eq!(ids(&shop.claim("mail", 1).await), [later]);
    let job = shop.claim("other", 1).await.remove(0);
    assert_eq!((job.id, job.attempt, job.lapses), (alone, 1, 0));
    shop.must_be_sound().await;
}

#[tokio::test]
async fn a_person_gives_up_only_what_waits_for_him() {
    let shop = Shop::new().await;
    let ready = shop.enqueue("other", 1).await[0];
    assert_eq!(abandon(&shop, ready).await, "waiting");
    let id = stopped(&shop).await;
    assert_eq!(abandon(&shop, id).await, "abandoned");
    assert_eq!(
        (abandon(&shop, id).await, shop.state(id).await),
        ("abandoned".into(), "abandoned".into())
    );
    assert_eq!(
        (
            audited(&shop, "job.abandoned").await,
            retry(&shop, id).await.as_str()
        ),
        (1, "abandoned")
    );
    assert_eq!(abandon(&shop, Uuid::new_v4()).await, "absent");
    shop.must_be_sound().await;
}

#[tokio::test]
async fn the_view_of_jobs_says_how_each_stands() {
    let shop = Shop::new().await;
    let stopped = stopped(&shop).await;
    let later = enqueue(
        &shop.client,
        "'mail', '{}', after_ms => 3600000, key => 'k', tenant => 't'",
    )
    .await;
    let done = shop.enqueue("mail", 1).await[0];
    let token = shop.claim("mail", 1).await[0].token;
    let ready = shop.enqueue("mail", 1).await[0];
    let running = shop.enqueue("other", 1).await[0];
    shop.claim("other", 1).await;
    complete(&shop.client, token, &[done])
        .await
        .expect("completes");
    let sql = "select state, due_at is not null, ended_at is not null, incident_at is not null, class from outlast.job where id = $1";
    for (id, wanted) in [
        (stopped, ("waiting", false, false, true, Some("permanent"))),
        (later, ("waiting", true, false, false, None)),
        (done, ("done", false, true, false, None)),
        (ready, ("waiting", false, false, false, None)),
        (running, ("running", false, false, false, None)),
    ] {
        let row = shop.client.query_one(sql, &[&id]).await.expect("looks");
        let got = (
            row.get::<_, &str>(0),
            row.get(1),
            row.get(2),
            row.get(3),
            row.get::<_, Option<&str>>(4),
        );
        assert_eq!(got, wanted);
    }
}
