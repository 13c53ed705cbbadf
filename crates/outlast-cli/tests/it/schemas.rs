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
        &["relay", "status"],
        &["config", "show"],
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

/// A login of its own with these rights, and a schema whose roles nobody has made yet.
async fn stranger(rights: &str) -> (pg::Database, String, String) {
    let database = pg::empty().await;
    let url = database.login(rights).await;
    let admin = database.connect().await;
    execute(
        &admin,
        &format!("grant create on database {} to public", database.name()),
    )
    .await;
    let schema = format!("s_{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
    (database, url, schema)
}

#[tokio::test]
async fn migrate_prints_what_an_administrator_has_to_run_and_is_content_after_it() {
    let (database, url, schema) = stranger("nocreaterole").await;
    let migrate = ["migrate", "--schema", &schema];
    let first = outlast(&url, &migrate)
        .await
        .fine()
        .says("an administrator has still to run");
    let admin = database.connect().await;
    let mut statements = 0;
    for line in first.out.lines().filter(|line| line.ends_with(';')) {
        execute(&admin, line).await;
        statements += 1;
    }
    assert_eq!(statements, 5, "{first:#?}");
    let second = outlast(&url, &migrate).await.fine().says("was up to date");
    assert!(!second.out.contains("administrator"), "{second:#?}");
    let engine = database.login(&format!("in role {schema}_engine")).await;
    outlast(&engine, &["emit", "paid", "{}", "--schema", &schema])
        .await
        .fine();
}

#[tokio::test]
async fn a_login_that_may_not_make_a_schema_is_told_what_it_needs() {
    let database = pg::empty().await;
    let url = database.login("").await;
    let refused = outlast(&url, &["migrate"]).await.with(7);
    let grant = format!("grant create on database {} to LOGIN", database.name());
    refused.says("OUT-0020").says(&grant);
}

#[tokio::test]
async fn commands_say_which_role_a_login_needs() {
    let (database, _client) = crate::database().await;
    let emitter = database.login("in role outlast_emitter").await;
    outlast(&emitter, &["emit", "paid", "{}"]).await.fine();
    outlast(&emitter, &["events", "ls"])
        .await
        .with(7)
        .says("OUT-0020")
        .says("grant outlast_engine to LOGIN");
    let reader = database.login("in role outlast_reader").await;
    for args in [
        &["consumers", "ls"][..],
        &["incidents", "ls"],
        &["parked", "ls"],
        &["migrate", "status"],
    ] {
        outlast(&reader, args).await.fine();
    }
    outlast(&reader, &["emit", "paid", "{}"])
        .await
        .with(7)
        .says("grant outlast_emitter to LOGIN");
}
