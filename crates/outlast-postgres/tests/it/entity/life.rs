//! Failures, lost workers, and what people decide.

use super::Office;
use crate::house::forward;
use crate::job::start;
use crate::sql::{self, one};

async fn told(office: &Office, sql: &str) -> String {
    one(&office.client, sql, &[]).await
}

#[tokio::test]
async fn a_failure_is_tried_again_later_and_a_mark_does_not_hasten_it() {
    let office = Office::new().await;
    office.changed("a").await;
    let first = office.take().await;
    assert_eq!(office.fail(&first, "retry").await, "retry");
    office.changed("a").await;
    assert!(office.claim(10).await.is_empty());
    assert_eq!(office.state("a").await, "waiting");
    office.due().await;
    let second = office.take().await;
    assert_eq!(second.attempt, 2);
    office.complete(&second).await;
    assert_eq!(
        office.state("a").await,
        "converged",
        "the mark was folded before that try"
    );
    office.changed("a").await;
    assert_eq!(office.take().await.attempt, 1, "a success ends the count");
    office.must_be_sound().await;
}

#[tokio::test]
async fn what_fails_for_good_or_too_often_waits_for_a_person_who_may_let_it_run_again() {
    for class in ["permanent", "retry"] {
        let office = Office::new().await;
        office.changed("a").await;
        for n in 1..=8 {
            let one = office.take().await;
            assert_eq!(one.attempt, n);
            if office.fail(&one, class).await == "quarantined" {
                break;
            }
            office.due().await;
        }
        assert_eq!(office.state("a").await, "waiting!");
        let incident =
            "select kind || ' ' || consumer || ' ' || key || ' ' || class from outlast.incident";
        assert_eq!(
            told(&office, incident).await,
            format!("stopped entity crm a {class}")
        );
        office.changed("a").await;
        assert!(
            office.claim(10).await.is_empty(),
            "it waits for a person still"
        );
        office.must_be_sound().await;
        assert_eq!(
            told(
                &office,
                "select outlast.retry_entity('crm', 'a', actor => 'jo')"
            )
            .await,
            "ready"
        );
        let audit = "select actor from outlast._audit where action = 'entity.retried'";
        assert_eq!(told(&office, audit).await, "jo");
        let one = office.take().await;
        assert_eq!(one.attempt, 1);
        assert_eq!(
            told(&office, "select outlast.retry_entity('crm', 'a')").await,
            "running"
        );
        office.complete(&one).await;
        assert_eq!(
            told(&office, "select outlast.retry_entity('crm', 'a')").await,
            "done"
        );
        office.must_be_sound().await;
    }
}

#[tokio::test]
async fn what_is_given_up_is_not_run_until_it_is_marked_again() {
    let office = Office::new().await;
    office.deleted("a", "1").await;
    let abandon =
        "select outlast.abandon_entity('crm', 'a', 'the customer is gone', actor => 'jo')";
    assert_eq!(
        office.count("select outlast._fold_marks(10)::bigint").await,
        1
    );
    assert_eq!(
        told(&office, abandon).await,
        "waiting",
        "it waits for nobody"
    );
    let one = office.take().await;
    office.fail(&one, "permanent").await;
    assert_eq!(told(&office, abandon).await, "abandoned");
    assert_eq!(office.state("a").await, "converged");
    let audit = "select actor || ' ' || (detail ->> 'tombstones') from outlast._audit where action = 'entity.abandoned'";
    assert_eq!(told(&office, audit).await, "jo 1");
    office.must_be_sound().await;
    office.changed("a").await;
    let one = office.take().await;
    assert_eq!((one.attempt, one.tombstones.len()), (1, 0));
    for unknown in [
        "select outlast.retry_entity('crm', 'b')",
        "select outlast.abandon_entity('crm', 'a', 'x', 'other tenant')",
        "select outlast.note_refs('mail', 'a', 'x')",
    ] {
        assert_eq!(
            sql::state(office.client.query_one(unknown, &[]).await),
            "OL012",
            "{unknown}"
        );
    }
    let silent = "select outlast.abandon_entity('crm', 'a', '')";
    assert_eq!(
        sql::state(office.client.query_one(silent, &[]).await),
        "OL005"
    );
}

#[tokio::test]
async fn an_entity_that_no_worker_survives_runs_alone_and_is_stopped_at_the_third() {
    let office = Office::new().await;
    office.changed("bad").await;
    office.changed("good").await;
    let both = office.claim(10).await;
    start(&office.client, both[0].token, &[both[0].id])
        .await
        .expect("marks");
    office.lose().await;
    let alone = office.take().await;
    assert_eq!((alone.key.as_str(), alone.attempt), ("bad", 2));
    office.lose().await;
    assert_eq!(office.take().await.key, "bad");
    office.lose().await;
    assert_eq!(office.state("bad").await, "waiting!");
    assert_eq!(
        told(&office, "select class from outlast.incident").await,
        "crashed"
    );
    assert_eq!(
        office.take().await.attempt,
        1,
        "nobody innocent was charged"
    );
    office.must_be_sound().await;
}

#[tokio::test]
async fn whoever_asks_how_an_entity_stands_is_told_of_marks_that_nobody_has_seen() {
    let office = Office::new().await;
    let look = "select concat_ws(' ', state, attempt, tombstones, unfolded, converged_at is not null) from outlast.entity_status('crm', 'a')";
    let view = "select concat_ws(' ', state, attempt, tombstones, unfolded, converged_at is not null) from outlast.entity where entity_id = 'a'";
    let stands = async |as_it_must: &str| {
        assert_eq!(told(&office, look).await, as_it_must);
        assert_eq!(told(&office, view).await, as_it_must, "in the view");
    };
    office.changed("a").await;
    stands("waiting 0 0 1 f").await;
    let one = office.take().await;
    stands("running 1 0 0 f").await;
    office.complete(&one).await;
    stands("converged 0 0 0 t").await;
    office.deleted("a", "1").await;
    stands("waiting 0 0 1 f").await;
    office.take().await;
    stands("running 1 1 0 f").await;
    forward(&office.client, 1).await;
    let status = format!(
        "select kind || ' ' || state from outlast.status('{}')",
        one.id
    );
    assert_eq!(told(&office, &status).await, "entity running");
    let cancel = format!("select outlast.cancel('{}', 'x')", one.id);
    assert_eq!(told(&office, &cancel).await, "absent");
    office.must_be_sound().await;
}
