//! Restored databases: numbers that a provider has seen are not given out again, and no mark is left where nobody looks.

use super::{Office, claim, keep};
use crate::house::forward;
use crate::sql::{self, run};

#[tokio::test]
async fn after_a_rewind_nothing_leaves_until_a_person_has_looked_and_then_with_higher_numbers() {
    let office = Office::new().await;
    office.changed("a").await;
    let first = office.take().await;
    run(
        &office.client,
        "select outlast._rewound(gen_random_uuid(), 7)",
    )
    .await;
    office.changed("a").await;
    assert_eq!(sql::state(claim(&office.client, "crm", 1).await), "OL020");
    run(&office.client, "select outlast._confirm('looked', 'jo')").await;
    office.complete(&first).await;
    let second = office.take().await;
    assert!(second.fence >> 44 > first.fence >> 44, "another epoch");
    office.must_be_sound().await;
}

/// As logical replication leaves it: the rows are there, the sequence and the transaction ids are not.
#[tokio::test]
async fn in_a_copy_marks_are_looked_for_from_the_beginning() {
    let office = Office::new().await;
    for _ in 0..3 {
        forward(&office.client, 10).await;
        office.changed("a").await;
        let one = office.take().await;
        office.complete(&one).await;
    }
    office.changed("a").await;
    let old = office.take().await;
    office.changed("b").await;
    run(
        &office.client,
        "insert into outlast._entity_look select '9999999'::xid8, 1000000, 1000000, outlast.clock();
         update outlast._marker set own_xid = own_xid + 1; select setval('outlast._event_id', 1)",
    )
    .await;
    // Accepted already, with low numbers.
    office.changed("c").await;
    assert_eq!(sql::state(claim(&office.client, "crm", 1).await), "OL004");
    run(&office.client, "select outlast._confirm('copied', 'jo')").await;
    let mut keys: Vec<_> = office
        .claim(10)
        .await
        .into_iter()
        .map(|one| one.key)
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c"]);
    assert_eq!(
        sql::state(super::complete(&office.client, &old).await),
        "OL001"
    );
    office.must_be_sound().await;
}

/// The statement of docs/entities.md.
const LOOK_AGAIN: &str = "select count(outlast.changed(name, entity_id, tenant => tenant, exclusive => exclusive)) from outlast.entity";

#[tokio::test]
async fn after_a_restore_nothing_is_converged_again_by_itself_and_one_statement_lets_all_look_again()
 {
    let office = Office::new().await;
    let mark = "select outlast.changed('crm', 'a', exclusive => 'chat/7', payload => '{\"n\": 1}')";
    run(&office.client, mark).await;
    let first = office.take().await;
    keep(&office.client, &first, Some("1"))
        .await
        .expect("keeps");
    office.complete(&first).await;
    office.changed("stopped").await;
    let stopped = office.take().await;
    office.fail(&stopped, "permanent").await;
    // Nobody has taken this one yet.
    office.changed("new").await;
    run(
        &office.client,
        "select outlast._rewound(gen_random_uuid(), 7)",
    )
    .await;
    run(&office.client, "select outlast._confirm('looked', 'jo')").await;
    let new = office.take().await;
    assert_eq!(
        new.key, "new",
        "of the others nothing says that they differ"
    );
    office.complete(&new).await;

    assert_eq!(office.count(LOOK_AGAIN).await, 3);
    let all = office.claim(10).await;
    let by = |key: &str| all.iter().find(|one| one.key == key);
    let again = by("a").expect("it looks again");
    assert_eq!(
        (again.refs.as_deref(), again.payload.as_str()),
        (Some("1"), "{\"n\": 1}")
    );
    assert!(again.fence > first.fence);
    assert!(by("new").is_some());
    assert!(by("stopped").is_none(), "it waits for its person");
    let held = "select count(*) from outlast._exclusive where key = 'chat/7' and held";
    assert_eq!(office.count(held).await, 1, "under its key of exclusion");
    office.must_be_sound().await;
}
