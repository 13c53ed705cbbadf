//! `outlast parked` and `outlast incidents`: what failed, and the way back.

use crate::{database, execute, outlast};

#[tokio::test]
async fn a_permanent_failure_is_an_incident_and_can_be_retried() {
    let (database, client) = database().await;
    let url = database.url();
    outlast(url, &["incidents", "ls"])
        .await
        .fine()
        .says("nothing needs a person");
    outlast(url, &["parked", "ls"])
        .await
        .fine()
        .says("nothing is parked");
    execute(&client, "select outlast.register('mailer', '{a}')").await;
    execute(&client, "select outlast.emit('a', '{}', key => 'k')").await;
    let claim = "select token::text, id::text from outlast.claim('event', 'mailer', 1)";
    let row = client
        .query_one(claim, &[])
        .await
        .expect("there is one to claim");
    let (token, id): (&str, &str) = (row.get(0), row.get(1));
    execute(
        &client,
        &format!("select outlast.fail('{token}', '{id}', 'permanent', E'no such\\nbooking')"),
    )
    .await;

    let incidents = outlast(url, &["incidents", "ls", "--json"])
        .await
        .fine()
        .json();
    assert_eq!(
        (&incidents[0]["about"], &incidents[0]["consumer"]),
        (&id.into(), &"mailer".into())
    );
    outlast(url, &["incidents", "ls"])
        .await
        .fine()
        .says("outlast parked retry")
        .says("1 incident;");
    let parked = outlast(
        url,
        &[
            "parked",
            "ls",
            "--state",
            "quarantined",
            "--consumer",
            "mailer",
            "--json",
        ],
    )
    .await;
    assert_eq!(parked.fine().json()[0]["class"], "permanent");
    outlast(url, &["parked", "ls", "--state", "retry"])
        .await
        .fine()
        .says("nothing is parked");

    let retry = ["parked", "retry", id, "--consumer", "mailer"];
    outlast(url, &retry).await.fine().says("is due now");
    let again = client.query_one(claim, &[]).await.expect("it is due");
    assert_eq!(again.get::<_, &str>(1), id);
    outlast(url, &retry)
        .await
        .with(1)
        .says("it is not quarantined there");
    outlast(url, &["verify"]).await.fine();
}

#[tokio::test]
async fn what_waits_behind_a_failed_event_is_shown_and_let_go_when_that_is_skipped() {
    let (database, client) = database().await;
    let url = database.url();
    execute(
        &client,
        "select outlast.register('ledger', '{a}', ordered => true)",
    )
    .await;
    for _ in 0..3 {
        execute(&client, "select outlast.emit('a', '{}', key => 'k')").await;
    }
    let claim = "select token::text, id::text from outlast.claim('event', 'ledger', 10)";
    let rows = client.query(claim, &[]).await.expect("claims");
    let (token, id): (&str, &str) = (rows[0].get(0), rows[0].get(1));
    let next: &str = rows[1].get(1);
    execute(
        &client,
        &format!("select outlast.fail('{token}', '{id}', 'permanent', 'why')"),
    )
    .await;

    let led = ["parked", "ls", "--state", "quarantined", "--json"];
    assert_eq!(outlast(url, &led).await.fine().json()[0]["behind"], 2);
    let waits = outlast(url, &["parked", "ls", "--state", "behind", "--json"]).await;
    assert_eq!(waits.fine().json()[1]["waits_for"], id);
    outlast(url, &["parked", "ls"]).await.fine().says("after ");
    let shown = outlast(url, &["consumers", "show", "ledger"]).await.fine();
    shown.says("1 key blocked, 2 events behind");

    let skip = [
        "parked",
        "skip",
        id,
        "--consumer",
        "ledger",
        "--reason",
        "by hand",
        "--actor",
        "jane",
    ];
    outlast(url, &skip)
        .await
        .fine()
        .says("is skipped for ledger")
        .says(next)
        .says("1 wait behind it");
    outlast(url, &skip)
        .await
        .with(1)
        .says("it is not parked there");
    let audit = "select actor || ' ' || action from outlast._audit";
    let line = client.query_one(audit, &[]).await.expect("one line");
    assert_eq!(line.get::<_, &str>(0), "jane parked.skipped");
    outlast(url, &["verify"]).await.fine();
}
