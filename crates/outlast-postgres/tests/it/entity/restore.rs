//! Restored databases: numbers that a provider has seen are not given out again, and no mark is left where nobody looks.

use super::{Office, claim};
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
