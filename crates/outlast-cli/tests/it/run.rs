//! `outlast run` of the product.

use outlast_testkit::{pg::Database, process::Process};

use crate::{PATIENCE, command, database, execute, number, outlast};

fn start(database: &Database, args: &[&str]) -> Process {
    let mut command = command(&["run", "--database", database.url()]);
    command.args(args);
    Process::spawn(&mut command).expect("outlast starts")
}

#[tokio::test]
async fn it_says_that_it_has_no_handlers_and_ends_on_sigterm() {
    let (database, _client) = database().await;
    let watch = start(&database, &[]);
    watch
        .line("handlers live in your own binary", PATIENCE)
        .await;
    watch.line("worker is running", PATIENCE).await;
    watch.terminate();
    assert_eq!(watch.exit(PATIENCE).await.code(), Some(0), "{watch:?}");
    // Not a terminal: one JSON object a line.
    for line in watch.lines() {
        let parsed: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(parsed["message"].is_string(), "{line}");
    }
}

#[tokio::test]
async fn it_refuses_a_foreign_deployment_and_a_stopped_database() {
    let (database, client) = database().await;
    execute(
        &client,
        "update outlast._house set deployment = 'production'",
    )
    .await;
    outlast(database.url(), &["run"])
        .await
        .with(5)
        .says("OUT-0006")
        .says("deployment `production`");
    execute(
        &client,
        "update outlast._house set stopped = 'restored from backup'",
    )
    .await;
    let ours = ["run", "--set", "deployment=production"];
    outlast(database.url(), &ours)
        .await
        .with(5)
        .says("restored from backup");
    execute(&client, "update outlast._house set stopped = null").await;
    let watch = start(
        &database,
        &["--set", "deployment=production", "--log", "pretty"],
    );
    watch.line("worker is running", PATIENCE).await;
    watch.terminate();
    assert_eq!(watch.exit(PATIENCE).await.code(), Some(0), "{watch:?}");
}

#[tokio::test]
async fn maintenance_alone_is_a_process_that_neither_listens_nor_claims() {
    let (database, client) = database().await;
    let keeper = start(&database, &["--only", "maintenance"]);
    keeper.line("worker is running", PATIENCE).await;
    let listens = "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen%'";
    assert_eq!(number(&client, listens).await, 0);
    keeper.terminate();
    assert_eq!(keeper.exit(PATIENCE).await.code(), Some(0), "{keeper:?}");
}
