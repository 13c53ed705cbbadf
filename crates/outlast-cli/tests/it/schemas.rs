//! `--schema`: every command in another schema than `outlast`.

use outlast_testkit::pg;

use crate::{command, execute, number, outlast, run, schema};

#[tokio::test]
async fn every_command_works_in_the_schema_that_it_is_given() {
    let database = pg::empty().await;
    let client = database.connect().await;
    let url = database.url();
    let with = |args: &[&'static str]| [args, &["--schema", "billing"]].concat();
    outlast(url, &with(&["migrate", "plan"]))
        .await
        .fine()
        .says("schema billing");
    outlast(url, &with(&["events", "ls"]))
        .await
        .with(4)
        .says("OUT-0002");
    outlast(url, &with(&["migrate"])).await.fine();
    outlast(url, &with(&["migrate", "status"])).await.fine();
    execute(&client, "select billing.register('mailer', array['paid'])").await;
    let emitted = outlast(url, &with(&["emit", "paid", "{}", "--json"]))
        .await
        .fine();
    let id = emitted.json()[0]["id"].as_str().expect("an id").to_owned();
    for args in [
        &["events", "ls", "--json"][..],
        &["events", "show", &id],
        &["consumers", "ls"],
        &["consumers", "show", "mailer"],
        &["pause", "mailer", "--reason", "a test"],
        &["resume", "mailer"],
        &["parked", "ls"],
        &["incidents", "ls"],
        &["verify"],
    ] {
        let args = [args, &["--schema", "billing"]].concat();
        outlast(url, &args).await.fine();
    }
    assert_eq!(
        number(&client, "select count(*) from billing.event").await,
        1
    );
    let there = "select count(*) from pg_namespace where nspname = 'outlast'";
    assert_eq!(
        number(&client, there).await,
        0,
        "nothing was done in the default schema"
    );

    // The environment names it too, and the flag wins.
    let mut by_environment = command(&["events", "ls", "--json", "--database", url]);
    by_environment.env("OUTLAST_SCHEMA", "billing");
    run(by_environment, b"").await.fine().says(&id);
    let mut shown = command(&["config", "show", "--json", "--schema", "shop"]);
    shown
        .env("OUTLAST_SCHEMA", "billing")
        .env("DATABASE_URL", url);
    run(shown, b"")
        .await
        .fine()
        .says(r#""name":"schema","value":"shop","origin":"--schema""#);
}

#[tokio::test]
async fn the_printed_file_is_for_the_schema_that_was_asked_for() {
    let printed = command(&["migrate", "--sql", "--schema", "billing"])
        .output()
        .expect("outlast runs");
    let database = pg::empty().await;
    schema::psql(&database, &["-1", "-f", "-"], &printed.stdout);
    outlast(
        database.url(),
        &["migrate", "status", "--schema", "billing"],
    )
    .await
    .fine();
    outlast(database.url(), &["migrate", "status"])
        .await
        .with(4);
}

#[tokio::test]
async fn a_name_that_cannot_be_one_is_refused_before_anything_is_tried() {
    for name in ["Billing", "a;b", "pg_x", "public", ""] {
        let args = [
            "migrate",
            "--database",
            "postgres://nowhere.invalid/x",
            "--schema",
            name,
        ];
        run(command(&args), b"").await.with(2).says("schema `");
        run(command(&["migrate", "--sql", "--schema", name]), b"")
            .await
            .with(2);
    }
}
