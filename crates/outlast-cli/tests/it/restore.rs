//! The runbook of `docs/operating.md`, as an operator follows it.

use crate::{database, execute, number, outlast};

/// What a dump and restore leaves: the rows are the same, their transactions are others.
const RESTORED: &str = "create temp table was as select * from outlast._marker;
    truncate outlast._marker; insert into outlast._marker select * from was;
    update outlast._event set xid = (xid::text::bigint + 1000000)::text::xid8";

#[tokio::test]
async fn a_dump_is_refused_until_it_was_confirmed_and_then_everything_is_there() {
    let (database, client) = database().await;
    let url = database.url();
    execute(&client, "select outlast.register('mailer', '{a}')").await;
    execute(&client, "select outlast.emit('a', '{}')").await;
    execute(&client, RESTORED).await;
    execute(&client, "select outlast.emit('a', '{}')").await;

    let report = outlast(url, &["restore", "status"]).await.with(1);
    report
        .says("transaction ids restarted")
        .says("2 events, the newest of ")
        .says("outlast restore confirm --reason");
    let before = outlast(url, &["restore", "status", "--json"]).await.with(1);
    assert_eq!(before.json()[0]["xids_are_ours"], false, "{before:#?}");
    outlast(url, &["run"])
        .await
        .with(5)
        .says("OUT-0006")
        .says("outlast restore status");

    // Nobody is asked who is not there.
    let unasked = outlast(url, &["restore", "confirm", "--reason", "moved"]).await;
    unasked.with(2).says("--yes");
    let moved = ["restore", "confirm", "--reason", "moved", "--yes"];
    outlast(url, &moved)
        .await
        .fine()
        .says("makes the log right for this server")
        .says("confirmed");
    outlast(url, &["restore", "status"])
        .await
        .fine()
        .says("nothing waits for a person");
    let claimed = "select count(*) from outlast.claim('event', 'mailer', 10)";
    assert_eq!(number(&client, claimed).await, 2);
    outlast(url, &["verify"]).await.fine();
    let audit = "select count(*) from outlast._audit
        where action = 'restore.confirmed' and detail ->> 'reason' = 'moved' and detail -> 'rebased' is not null";
    assert_eq!(number(&client, audit).await, 1);
}

#[tokio::test]
async fn a_restored_backup_is_held_first_and_the_report_says_what_is_gone() {
    let (database, client) = database().await;
    let url = database.url();
    execute(&client, "select outlast.register('mailer', '{a}')").await;
    let hold = ["restore", "hold", "--reason", "restored to 12:00"];
    outlast(url, &hold)
        .await
        .fine()
        .says("waits until `outlast restore confirm`");
    execute(
        &client,
        "select outlast._remember('0190aaaa-0000-7000-8000-000000000001', 40, gen_random_uuid(), 0);
         update outlast._process set server = server - interval '1 hour';
         select outlast._rewound('0190aaaa-0000-7000-8000-000000000001', 47)",
    )
    .await;
    outlast(url, &["restore", "status"])
        .await
        .with(1)
        .says("held: restored to 12:00")
        .says("these wait, because their effects are outside: mailer")
        .says("0190aaaa-0000-7000-8000-000000000001  47    40    7")
        .says("have not reported to this run of the server");
    let confirmed = [
        "restore", "confirm", "--reason", "compared", "--yes", "--json",
    ];
    let confirmed = outlast(url, &confirmed).await.fine();
    let line = &confirmed.json()[0];
    assert_eq!(line["did"]["missing"][0]["told"], 47, "{confirmed:#?}");
    outlast(url, &["restore", "status"]).await.fine();

    outlast(url, &["restore", "hold", "--all", "--reason", "look"])
        .await
        .fine()
        .says("nothing is claimed");
    outlast(url, &["restore", "status"])
        .await
        .with(1)
        .says("stopped: look");
    let confirm = ["restore", "confirm", "--reason", "looked", "--yes"];
    let confirmed = outlast(url, &confirm).await.fine();
    assert!(!confirmed.out.contains("entit"), "{confirmed:#?}");
    // Of entities nobody here knows what their provider was told later.
    execute(&client, "select outlast.changed('crm', 'a')").await;
    execute(&client, "select * from outlast.claim('entity', 'other')").await;
    outlast(url, &confirm)
        .await
        .fine()
        .says("1 entity is known, and none looks again by itself");
}

#[tokio::test]
async fn a_copy_gets_a_name_of_its_own() {
    let (database, client) = database().await;
    let url = database.url();
    outlast(url, &["deployment", "show"])
        .await
        .fine()
        .says("no name");
    outlast(url, &["deployment", "set", "production"])
        .await
        .fine();
    outlast(url, &["deployment", "set", "staging"])
        .await
        .with(2)
        .says("production")
        .says("--yes");
    outlast(url, &["deployment", "set", "staging", "--yes"])
        .await
        .fine()
        .says("deployment = \"staging\"");
    outlast(url, &["deployment", "set", "Not a name", "--yes"])
        .await
        .with(2);
    let shown = outlast(url, &["deployment", "show", "--json"]).await.fine();
    assert_eq!(shown.json()[0]["deployment"], "staging");
    let audit = "select count(*) from outlast._audit where action = 'deployment.named'";
    assert_eq!(number(&client, audit).await, 2);

    execute(&client, "update outlast._house set database_oid = 1").await;
    outlast(url, &["restore", "status"])
        .await
        .with(1)
        .says("a copy of the database that was migrated");
}
