//! `outlast verify` finds what is broken.

use crate::{database, execute, outlast};

#[tokio::test]
async fn a_healthy_database_passes_and_a_planted_violation_is_named() {
    let (database, client) = database().await;
    execute(&client, "select outlast.register('mailer', '{a}')").await;
    execute(&client, "select outlast.emit('a', '{}')").await;
    outlast(database.url(), &["verify"])
        .await
        .fine()
        .says("hold");

    execute(
        &client,
        "insert into outlast._lease (token, room, consumer, lane, seq, expires_at)
         values (gen_random_uuid(), 'batch', 1, 0, 99, outlast.clock())",
    )
    .await;
    let broken = outlast(database.url(), &["verify"]).await.with(1);
    let broken = broken
        .says("broken: every lease names what it leases")
        .says("1 invariant of");
    assert_eq!(broken.err, "");
    let lines = outlast(database.url(), &["verify", "--json"])
        .await
        .with(1)
        .json();
    let violated: Vec<_> = lines
        .iter()
        .filter(|line| line["violations"] != 0)
        .collect();
    assert_eq!(violated.len(), 1, "{lines:#?}");
    assert_eq!(violated[0]["invariant"], "every lease names what it leases");

    // An event that a consumer has passed and never got.
    execute(&client, "delete from outlast._lease").await;
    execute(
        &client,
        "select count(*) from outlast.claim('event', 'mailer', 1)",
    )
    .await;
    execute(&client, "delete from outlast._lease").await;
    let lost = outlast(database.url(), &["verify"]).await.with(1);
    lost.says("broken: every event a consumer has passed is sealed, parked or in flight")
        .says("mailer ");
}
