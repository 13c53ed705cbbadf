//! Restored databases: jobs that were in work are given back, and a rewound history lets nothing out.

use uuid::Uuid;

use super::{Shop, ask, complete, enqueue, ids};
use crate::sql::{self, one, run};

#[tokio::test]
async fn after_a_rewind_no_job_leaves_until_a_person_has_looked() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 2).await;
    let running = shop.claim("mail", 1).await.remove(0);
    let process = Uuid::new_v4();
    run(
        &shop.client,
        &format!("select outlast._rewound('{process}', 7)"),
    )
    .await;
    for refused in [
        sql::state(ask("mail", 1).claim(&shop.client).await),
        sql::state(
            shop.client
                .execute("select outlast._reclaim_jobs(1)", &[])
                .await,
        ),
        sql::state(
            shop.client
                .execute("select outlast.claim('job', 'mail')", &[])
                .await,
        ),
    ] {
        assert_eq!(refused, "OL020");
    }
    // What runs may still end, and what is new is accepted.
    complete(&shop.client, running.token, &sent[..1])
        .await
        .expect("completes");
    enqueue(&shop.client, "'mail', '{}'").await;
    run(&shop.client, "select outlast._confirm('looked', 'jo')").await;
    assert_eq!(shop.claim("mail", 9).await.len(), 2);
}

/// As logical replication leaves it: the rows are there, the sequence and the transaction ids are not.
#[tokio::test]
async fn a_copy_gives_back_what_was_in_work_and_draws_its_numbers_above_all_that_wait() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 5).await;
    let old = shop.claim("mail", 2).await;
    super::start(&shop.client, old[0].token, &ids(&old))
        .await
        .expect("marks");
    let top = "select max(seq) from outlast._job_ready";
    let before = shop.count(top).await;
    run(
        &shop.client,
        "update outlast._marker set own_xid = own_xid + 1; select setval('outlast._event_id', 1)",
    )
    .await;
    assert!(
        sql::broken(&shop.client)
            .await
            .iter()
            .any(|b| b.starts_with("ids are drawn"))
    );
    assert_eq!(
        sql::state(ask("mail", 1).claim(&shop.client).await),
        "OL004"
    );
    run(&shop.client, "select outlast._confirm('copied', 'jo')").await;
    shop.must_be_sound().await;
    let late = complete(&shop.client, old[0].token, &sent[..2]).await;
    assert_eq!(sql::state(late), "OL001");
    enqueue(&shop.client, "'mail', '{}'").await;
    let drawn: i64 = one(
        &shop.client,
        "select pg_sequence_last_value('outlast._event_id')",
        &[],
    )
    .await;
    assert!(drawn > before);
    let jobs = shop.claim("mail", 9).await;
    assert_eq!(jobs.len(), 6);
    assert!(
        jobs.iter().all(|job| (job.attempt, job.lapses) == (1, 0)),
        "nobody's worker has died"
    );
    assert_eq!(ids(&jobs)[..3], sent[2..]);
}
