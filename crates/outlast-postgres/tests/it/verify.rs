//! The invariants that the schema checks of itself: each is broken on purpose, and found by its name.

use crate::house::House;
use crate::sql::{self, Claim};

const BREACHES: [(&str, &str); 11] = [
    ("every event a consumer has passed is sealed, parked or in flight", "delete from outlast._processed_event"),
    ("every event a consumer has passed is sealed, parked or in flight", "delete from outlast._parked"),
    ("every event a consumer has passed is sealed, parked or in flight", "delete from outlast._lease"),
    (
        "nothing is parked that is sealed and not running",
        "insert into outlast._processed_event (event_id, at, consumer, slot, outcome)
         select event_id, outlast.clock(), consumer, outlast._inbox_slot(event_id), 'd' from outlast._parked",
    ),
    ("every lease names what it leases", "delete from outlast._batch where seq = (select seq from outlast._lease)"),
    ("no lease is older than ten longest leases", "update outlast._lease set expires_at = outlast.clock() - interval '1 hour'"),
    ("no lease ends further away than the longest lease", "update outlast._lease set expires_at = outlast.clock() + interval '1 hour'"),
    ("every lane of a consumer has a place", "update outlast._consumer set lanes = 2 where ordered"),
    ("ids are drawn one by one and above all there are", "select setval('outlast._event_id', 1)"),
    ("ids are drawn one by one and above all there are", "alter sequence outlast._event_id cache 20"),
    ("every event lies in the leaf of its time", "update outlast._event set emitted_at = emitted_at + interval '1 day'"),
];

#[tokio::test]
async fn each_broken_invariant_is_found_by_its_name() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    sql::register(&client, "ordered", &["b"], "now", Some(4)).await;
    // One done, one parked, one in flight.
    for _ in 0..2 {
        sql::emit(&client, "a", None).await;
    }
    let batch = Claim::of(consumer).next(&client).await.expect("claims");
    sql::complete(&client, batch[0].token, batch[0].id)
        .await
        .expect("completes");
    sql::fail(&client, batch[1].token, batch[1].id, "permanent")
        .await
        .expect("fails");
    sql::finish(&client, &[batch[0].token])
        .await
        .expect("finishes");
    sql::emit(&client, "a", None).await;
    Claim::of(consumer).next(&client).await.expect("claims");
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());

    for (invariant, breach) in BREACHES {
        sql::run(&client, &format!("begin; {breach}")).await;
        let broken = sql::broken(&client).await;
        assert!(
            broken.iter().any(|found| found.starts_with(invariant)),
            "{breach}: {broken:?}"
        );
        sql::run(&client, "rollback").await;
        // A sequence knows no roll-back.
        sql::run(&client, "select setval('outlast._event_id', 3)").await;
    }
    sql::run(&client, "update outlast._house set database_oid = 1").await;
    assert!(
        sql::broken(&client)
            .await
            .iter()
            .any(|found| found.starts_with("this is the database it was"))
    );
}
