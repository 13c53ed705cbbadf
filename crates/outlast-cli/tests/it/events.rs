//! `outlast events` and `outlast consumers`: what is there, for people and for programs.

use serde_json::json;
use tokio_postgres::Client;

use crate::{database, execute, outlast};

async fn text(client: &Client, sql: &str) -> String {
    client
        .query_one(sql, &[])
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
        .get(0)
}

/// Claims one event for a consumer in SQL, as any language would.
async fn claim(client: &Client, consumer: &str) -> (String, String) {
    let sql = format!("select token::text, id::text from outlast.claim('event', '{consumer}', 1)");
    let row = client
        .query_one(&sql, &[])
        .await
        .expect("there is one to claim");
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn ls_filters_and_the_newest_is_first() {
    let (database, client) = database().await;
    execute(
        &client,
        "select outlast.emit('a', '{}', key => 'k/1'); select outlast.emit('b', '{}', tenant => 't');
         select outlast.emit('a', '[]', key => 'k/2')",
    )
    .await;
    let ls = async |args: &[&str]| {
        let all = [&["events", "ls", "--json"], args].concat();
        let ran = outlast(database.url(), &all).await.fine();
        ran.json()
            .iter()
            .map(|event| event["log_id"].as_i64().expect("a number"))
            .collect::<Vec<_>>()
    };
    assert_eq!(ls(&[]).await, [3, 2, 1]);
    assert_eq!(ls(&["--type", "a"]).await, [3, 1]);
    assert_eq!(ls(&["--tenant", ""]).await, [3, 1]);
    assert_eq!(ls(&["--tenant", "t"]).await, [2]);
    assert_eq!(ls(&["--key", "k/1"]).await, [1]);
    assert_eq!(ls(&["--limit", "1"]).await, [3]);
    assert_eq!(ls(&["--since", "1h"]).await, [3, 2, 1]);
    assert_eq!(ls(&["--since", "2999-01-01"]).await, [0_i64; 0]);
    outlast(database.url(), &["events", "ls", "--since", "yesterday"])
        .await
        .with(2)
        .says("such as 90s");
    outlast(database.url(), &["events", "ls", "--since", "2026-02-31"])
        .await
        .with(7);
    let table = outlast(database.url(), &["events", "ls"]).await.fine();
    let headings: Vec<_> = table
        .out
        .lines()
        .next()
        .expect("headings")
        .split_whitespace()
        .collect();
    assert_eq!(
        headings,
        ["ID", "EMITTED", "TYPE", "VERSION", "TENANT", "KEY", "BYTES"]
    );
}

#[tokio::test]
async fn the_list_reads_as_few_rows_as_it_shows() {
    let (_database, client) = database().await;
    execute(
        &client,
        "select count(*) from outlast.emit_all('a', (select array_agg('{}'::text) from generate_series(1, 20000)));
         analyze outlast._event",
    )
    .await;
    let sql = include_str!("../../sql/event/list.sql");
    let sql = sql
        .replace("$6", "50")
        .replace("$1", "null")
        .replace("$2", "null")
        .replace("$3", "null");
    let sql = sql.replace("$4", "null").replace("$5", "null");
    let rows = client
        .query(&format!("explain (analyze, format text) {sql}"), &[])
        .await
        .expect("a plan");
    let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(
        !plan.iter().any(|line| line.contains("Seq Scan on _event")),
        "{}",
        plan.join("\n")
    );
}

#[tokio::test]
async fn show_says_where_an_event_stands_for_each_consumer() {
    let (database, client) = database().await;
    for consumer in ["done", "quarantined", "in-flight", "waiting"] {
        execute(
            &client,
            &format!("select outlast.register('{consumer}', '{{a}}')"),
        )
        .await;
    }
    let id = text(
        &client,
        "select id::text from outlast.emit('a', '{\"n\":12345678901234567890}', aggregate_version => 9223372036854775807,
           headers => '{\"big\": 123456789012345678901234567890.5}')",
    )
    .await;
    execute(&client, "select outlast.register('late', '{a}')").await;
    let (token, _) = claim(&client, "done").await;
    execute(
        &client,
        &format!("select outlast.complete('{token}', '{id}')"),
    )
    .await;
    let (token, _) = claim(&client, "quarantined").await;
    execute(
        &client,
        &format!("select outlast.fail('{token}', '{id}', 'permanent', 'no such booking')"),
    )
    .await;
    claim(&client, "in-flight").await;
    execute(&client, "select outlast.pause('waiting', 'holiday')").await;

    let shown = outlast(database.url(), &["events", "show", &id, "--json"])
        .await
        .fine();
    // Compared as text: whoever reads them as doubles has lost them.
    for exact in [
        "12345678901234567890",
        "9223372036854775807",
        "123456789012345678901234567890.5",
    ] {
        assert!(shown.out.contains(exact), "{exact} is not in {}", shown.out);
    }
    let event = &shown.json()[0];
    let standing = |name: &str| {
        let all = event["consumers"].as_array().expect("a list");
        let one = all
            .iter()
            .find(|one| one["consumer"] == name)
            .unwrap_or_else(|| panic!("{name} is not in {all:?}"));
        (one["state"].clone(), one["reason"].clone())
    };
    assert_eq!(standing("done"), (json!("done"), json!(null)));
    assert_eq!(
        standing("quarantined"),
        (json!("quarantined"), json!("no such booking"))
    );
    assert_eq!(standing("in-flight"), (json!("in flight"), json!(null)));
    assert_eq!(
        standing("waiting"),
        (json!("waiting"), json!("paused: holiday"))
    );
    assert_eq!(standing("late"), (json!("not for it"), json!(null)));
    outlast(database.url(), &["events", "show", &id])
        .await
        .fine()
        .says("aggregate version  9223372036854775807");

    let unknown = "01890a5d-ac96-774b-bcce-b302099a8057";
    outlast(database.url(), &["events", "show", unknown])
        .await
        .with(1)
        .says("no such event");
    outlast(database.url(), &["events", "show", "42"])
        .await
        .with(2);
}

#[tokio::test]
async fn hostile_text_does_not_reach_the_terminal_as_control_characters() {
    let (database, client) = database().await;
    execute(
        &client,
        "select outlast.emit('a', '{}', key => E'k\\x1b[2J\\u202e', subject => E'\\u009b31m')",
    )
    .await;
    for args in [&["events", "ls"][..], &["events", "ls", "--json"]] {
        let ran = outlast(database.url(), args).await.fine();
        assert!(
            !ran.out.contains(['\x1b', '\u{9b}', '\u{202e}']),
            "{ran:#?}"
        );
    }
    let ran = outlast(database.url(), &["events", "ls"]).await.fine();
    ran.says("k\\u{1b}[2J\\u{202e}");
    // Neither does what was typed and is repeated in an error.
    for args in [
        &["emit", "\x1b[2J\u{202e}", "{}"][..],
        &["emit", "\x1b[2J", "{}", "--json"],
    ] {
        let ran = outlast(database.url(), args).await.with(2);
        assert!(!ran.err.contains(['\x1b', '\u{202e}']), "{ran:#?}");
    }
}

#[tokio::test]
async fn consumers_are_listed_shown_paused_and_resumed() {
    let (database, client) = database().await;
    let url = database.url();
    outlast(url, &["consumers", "ls"])
        .await
        .fine()
        .says("no consumer has registered yet");
    execute(&client, "select outlast.register('mailer', '{a,b}')").await;
    execute(
        &client,
        "select outlast.register('ledger', '{a}', 'earliest')",
    )
    .await;
    execute(&client, "select outlast.emit('a', '{}')").await;
    let (_, id) = claim(&client, "ledger").await;

    outlast(
        url,
        &[
            "consumers",
            "pause",
            "mailer",
            "--reason",
            "provider is down",
        ],
    )
    .await
    .fine();
    let list = outlast(url, &["consumers", "ls", "--json"])
        .await
        .fine()
        .json();
    let names: Vec<_> = list
        .iter()
        .map(|one| one["name"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(names, ["ledger", "mailer"]);
    assert_eq!(
        (&list[0]["in_flight"], &list[0]["start"]),
        (&json!(1), &json!("earliest"))
    );
    assert_eq!(
        (&list[1]["state"], &list[1]["reason"]),
        (&json!("paused"), &json!("provider is down"))
    );
    assert_eq!(
        (&list[1]["types"], &list[1]["ids_behind"]),
        (&json!(["a", "b"]), &json!(1))
    );

    let shown = outlast(url, &["consumers", "show", "ledger", "--json"])
        .await
        .fine()
        .json();
    assert_eq!(
        (
            &shown[0]["leases"][0]["room"],
            &shown[0]["leases"][0]["lapsed"]
        ),
        (&json!("batch"), &json!(false))
    );
    outlast(url, &["consumers", "show", "mailer"])
        .await
        .fine()
        .says("paused: provider is down");
    outlast(url, &["consumers", "show", "nobody"])
        .await
        .with(2)
        .says("OUT-0007")
        .says("outlast consumers ls");
    assert!(!id.is_empty());

    outlast(url, &["pause", "--all", "--reason", "maintenance"])
        .await
        .fine()
        .says("ledger is paused");
    let unknown = outlast(url, &["pause", "mailer", "nobody", "--reason", "x"])
        .await
        .with(2);
    unknown.says("nobody");
    let list = outlast(url, &["consumers", "ls", "--json"])
        .await
        .fine()
        .json();
    assert_eq!(
        list[1]["reason"], "provider is down",
        "all or none of them, and a pause keeps its reason"
    );
    outlast(url, &["resume", "--all"])
        .await
        .fine()
        .says("mailer is active");
    outlast(url, &["resume", "--all"])
        .await
        .fine()
        .says("no consumer is paused");
    outlast(url, &["pause"]).await.with(2);
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_error() {
    use std::process::Stdio;
    let (database, client) = database().await;
    execute(
        &client,
        "select count(*) from outlast.emit_all('a', (select array_agg('{}'::text) from generate_series(1, 5000)))",
    )
    .await;
    let mut command = crate::command(&[
        "events",
        "ls",
        "--limit",
        "5000",
        "--json",
        "--database",
        database.url(),
    ]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("outlast runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}

#[tokio::test]
async fn an_encrypted_payload_is_named_as_one_and_not_shown_as_garbage() {
    let (database, client) = database().await;
    let sql = "select id::text from outlast.emit('a', bytes => '\\x41ff1b5b', codec_key => 'tenant/mary')";
    let id = text(&client, sql).await;
    let shown = outlast(database.url(), &["events", "show", &id])
        .await
        .fine()
        .says("4 bytes, encrypted with key tenant/mary");
    assert!(!shown.out.contains("41ff"), "{shown:#?}");
    let json = outlast(database.url(), &["events", "show", &id, "--json"])
        .await
        .fine();
    assert_eq!(json.json()[0]["codec_key"], "tenant/mary");
    assert_eq!(json.json()[0]["payload"], "41ff1b5b");
}
