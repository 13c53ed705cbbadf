//! The invariants of jobs that the schema checks of itself: each is broken on purpose, and found by its name.

use super::{Shop, complete, enqueue, start};
use crate::sql::{self, run};

const PLACE: &str = "every job has ended, is ready, waits for its time or a person, or is in work";
const LEASE: &str = "every job in work is under a lease";
const LEFT: &str = "nothing is left of a job that is not there";
const IDS: &str = "ids are drawn one by one and above all there are";

const BREACHES: [(&str, &str); 14] = [
    (PLACE, "delete from outlast._job_end"),
    (PLACE, "delete from outlast._job_ready"),
    (PLACE, "delete from outlast._job_later where not alone"),
    (PLACE, "delete from outlast._job_later where alone"),
    (PLACE, "delete from outlast._job_claimed"),
    (PLACE, "update outlast._job_state set incident_at = null"),
    (
        PLACE,
        "insert into outlast._job_end select id, outlast.clock(), 'd' from outlast._job_claimed",
    ),
    (
        PLACE,
        "insert into outlast._job_later select id, outlast.clock(), name, false from outlast._job_ready",
    ),
    (
        PLACE,
        "insert into outlast._job_claimed select id, gen_random_uuid() from outlast._job_end",
    ),
    (
        PLACE,
        "update outlast._job_state s set incident_at = outlast.clock() from outlast._job_later l where l.id = s.id and l.alone",
    ),
    (LEASE, "delete from outlast._lease where room = 'job'"),
    (
        LEFT,
        "delete from outlast._job where id = (select id from outlast._job_end)",
    ),
    (
        LEFT,
        "delete from outlast._job where id = (select id from outlast._job_ready)",
    ),
    (IDS, "select setval('outlast._event_id', 1)"),
];

#[tokio::test]
async fn each_broken_invariant_of_jobs_is_found_by_its_name() {
    let shop = Shop::new().await;
    // One that ended, one stopped, one alone, one in work, one for later, one ready.
    let sent = shop.enqueue("mail", 4).await;
    let jobs = shop.claim("mail", 3).await;
    complete(&shop.client, jobs[0].token, &sent[..1])
        .await
        .expect("completes");
    sql::fail(&shop.client, jobs[0].token, sent[1], "permanent")
        .await
        .expect("fails");
    start(&shop.client, jobs[0].token, &sent[2..3])
        .await
        .expect("marks");
    shop.lose().await;
    enqueue(&shop.client, "'mail', '{}', after_ms => 3600000").await;
    shop.enqueue("other", 1).await;
    shop.claim("other", 1).await;
    shop.must_be_sound().await;
    let last = shop.count("select last_value from outlast._event_id").await;
    for (invariant, breach) in BREACHES {
        run(&shop.client, &format!("begin; {breach}")).await;
        let broken = sql::broken(&shop.client).await;
        assert!(
            broken.iter().any(|found| found.starts_with(invariant)),
            "{breach}: {broken:?}"
        );
        run(
            &shop.client,
            &format!("rollback; select setval('outlast._event_id', {last})"),
        )
        .await;
    }
}
