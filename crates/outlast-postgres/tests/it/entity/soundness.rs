//! The invariants of entities that the schema checks of itself: each is broken on purpose, and found by its name.

use super::Office;
use crate::sql::{self, run};

const PLACE: &str = "every job has ended, is ready, waits for its time or a person, or is in work";
const LOOK: &str = "no mark of an entity lies where nobody looks";
const DEAD: &str = "what is to be cleaned up of an entity is due";
const JOB: &str = "an entity has its job, and nobody else has one of its kind";
const FENCE: &str = "an entity in work has a fence number below what was drawn";

const BREACHES: [(&str, &str); 11] = [
    (PLACE, "delete from outlast._job_ready"),
    (PLACE, "delete from outlast._job_claimed"),
    (PLACE, "update outlast._job_state set incident_at = null"),
    (
        PLACE,
        "update outlast._entity set converged_at = null where entity_id = 'done'",
    ),
    (
        PLACE,
        "update outlast._entity set converged_at = outlast.clock(), again = false where entity_id = 'ready'",
    ),
    (
        LOOK,
        "insert into outlast._entity_look values ('99999999', (select max(id) from outlast._entity_mark), 0, outlast.clock())",
    ),
    (
        DEAD,
        "update outlast._entity set converged_at = outlast.clock(), again = false where entity_id = 'dead'",
    ),
    (
        DEAD,
        "update outlast._tombstone set entity = gen_random_uuid()",
    ),
    (JOB, "delete from outlast._entity where entity_id = 'done'"),
    (
        JOB,
        "update outlast._job set key = 'other' where key = 'ready'",
    ),
    (
        FENCE,
        "update outlast._entity set fence = 1000000 where entity_id = 'work'",
    ),
];

#[tokio::test]
async fn each_broken_invariant_of_entities_is_found_by_its_name() {
    let office = Office::new().await;
    for (key, last) in [("done", "complete"), ("stopped", "permanent"), ("work", "")] {
        office.changed(key).await;
        let one = office.take().await;
        match last {
            "complete" => office.complete(&one).await,
            "" => {}
            class => assert_eq!(office.fail(&one, class).await, "quarantined"),
        }
    }
    office.deleted("dead", "1").await;
    office.changed("ready").await;
    office.count("select outlast._fold_marks(10)::bigint").await;
    office.changed("fresh").await;
    office.must_be_sound().await;
    for (invariant, breach) in BREACHES {
        run(&office.client, &format!("begin; {breach}")).await;
        let broken = sql::broken(&office.client).await;
        assert!(
            broken.iter().any(|found| found.starts_with(invariant)),
            "{breach}: {broken:?}"
        );
        run(&office.client, "rollback").await;
    }
}
