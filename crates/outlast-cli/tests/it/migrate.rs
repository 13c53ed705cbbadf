//! `outlast migrate`.

use std::time::{Duration, Instant};

use outlast_testkit::{
    pg::{self, Database},
    process::Process,
    wait_for,
};
use tokio_postgres::Client;

use crate::{PATIENCE, command, database, execute, number, outlast, schema};

const LAST: usize = outlast_postgres::migrate::MIGRATIONS.len();

/// The command, started and not waited for.
fn start(database: &Database, args: &[&str]) -> Process {
    let mut command = command(args);
    command.args(["--database", database.url()]);
    Process::spawn(&mut command).expect("outlast starts")
}

async fn versions(client: &Client) -> i64 {
    number(client, "select count(*) from outlast._migration").await
}

#[tokio::test]
async fn plan_names_every_step_and_changes_nothing() {
    let database = pg::empty().await;
    let client = database.connect().await;
    for _ in 0..2 {
        outlast(database.url(), &["migrate", "plan"])
            .await
            .fine()
            .says("has no schema of Outlast")
            .says("0001 house")
            .says("functions");
        let there = "select count(*) from pg_namespace where nspname = 'outlast'";
        assert_eq!(number(&client, there).await, 0);
    }
    let plan = outlast(database.url(), &["migrate", "plan", "--json"])
        .await
        .fine()
        .json();
    assert_eq!(plan[0]["found"], 0);
    assert_eq!(plan[0]["known"], LAST);
    assert_eq!(plan[0]["pending"].as_array().map(Vec::len), Some(LAST));
    assert_eq!(plan[0]["pending"][0]["name"], "house");
    assert_eq!(plan[0]["current"], false);
}

#[tokio::test]
async fn run_reports_each_step_and_a_second_run_has_nothing_to_do() {
    let database = pg::empty().await;
    outlast(database.url(), &["migrate", "status"])
        .await
        .with(4);
    let first = outlast(database.url(), &["migrate"]).await.fine();
    let steps: Vec<_> = first
        .out
        .lines()
        .filter(|line| line.starts_with("applied "))
        .collect();
    assert_eq!(steps.len(), LAST + 1, "{first:#?}");
    outlast(database.url(), &["migrate", "status"])
        .await
        .fine()
        .says("nothing to do");
    let second = outlast(database.url(), &["migrate", "run", "--json"])
        .await
        .fine();
    assert_eq!(
        second.json(),
        [
            serde_json::json!({ "done": { "from": LAST, "to": LAST, "functions": false, "deployment": null } })
        ]
    );
}

#[tokio::test]
async fn two_runs_at_once_take_turns() {
    let database = pg::empty().await;
    let client = database.connect().await;
    let runs = [
        start(&database, &["migrate"]),
        start(&database, &["migrate"]),
    ];
    for run in &runs {
        assert!(run.exit(PATIENCE).await.success(), "{run:?}");
    }
    let applied = |run: &Process| {
        run.lines()
            .iter()
            .filter(|line| line.starts_with("applied "))
            .count()
    };
    assert_eq!(applied(&runs[0]) + applied(&runs[1]), LAST + 1, "{runs:?}");
    assert_eq!(versions(&client).await, LAST as i64);
    outlast(database.url(), &["verify"]).await.fine();
}

#[tokio::test]
async fn a_run_that_was_killed_half_way_goes_on_where_it_stopped() {
    // Goal: SIGKILL in the middle of step 3. Method: an event trigger makes that step wait for a lock that we hold.
    let database = pg::empty().await;
    let (client, holder) = (database.connect().await, database.connect().await);
    execute(
        &client,
        "create function hold() returns event_trigger language plpgsql as
           $$ begin perform pg_advisory_xact_lock_shared(4711); end $$;
         create event trigger hold on ddl_command_end when tag in ('CREATE TYPE') execute function hold()",
    )
    .await;
    execute(&holder, "select pg_advisory_lock(4711)").await;
    let run = start(&database, &["migrate"]);
    run.line("applied 0002", PATIENCE).await;
    let waits = "select count(*) from pg_locks where locktype = 'advisory' and objid = 4711 and not granted";
    wait_for("step 3 to wait", PATIENCE, async || {
        (number(&client, waits).await == 1).then_some(())
    })
    .await;
    run.kill();
    run.exit(PATIENCE).await;
    assert_eq!(versions(&client).await, 2);
    execute(&holder, "select pg_advisory_unlock(4711)").await;
    execute(&client, "drop event trigger hold").await;

    outlast(database.url(), &["migrate", "status"])
        .await
        .with(4)
        .says("has schema version 2");
    let rest = outlast(database.url(), &["migrate"])
        .await
        .fine()
        .says("applied 0003");
    assert!(!rest.out.contains("applied 0002"), "{rest:#?}");
    execute(&client, "drop function hold()").await;
    assert_eq!(
        schema::dump(&database),
        schema::dump(&crate::database().await.0)
    );
}

#[tokio::test]
async fn nobody_waits_long_behind_a_step_that_waits_for_a_lock() {
    // Goal: emits go on while a long reader keeps a step from its lock. Method: an event trigger makes the step want
    // the strongest lock on the log, a reader holds the weakest one, and an emitter measures its own waits.
    let (database, client) = database().await;
    let (reader, emitter) = (database.connect().await, database.connect().await);
    execute(
        &client,
        "create function want() returns event_trigger language plpgsql as
           $$ begin lock table outlast._event in access exclusive mode; end $$;
         create event trigger want on ddl_command_start when tag in ('CREATE FUNCTION') execute function want();
         update outlast._functions set digest = 'older'",
    )
    .await;
    execute(&reader, "begin; select from outlast._event limit 1").await;
    let run = start(&database, &["migrate"]);
    let asked = Instant::now();

    // An emit that comes while a try waits has to queue behind it: that is how the tries are seen.
    let (mut worst, mut tries) = (Duration::ZERO, 0);
    while tries < 3 {
        let began = Instant::now();
        execute(&emitter, "select id from outlast.emit('greeting', '{}')").await;
        let waited = began.elapsed();
        worst = worst.max(waited);
        tries += u32::from(waited > Duration::from_millis(100));
        assert!(asked.elapsed() < PATIENCE, "no emit met a try: {run:?}");
    }
    assert!(worst < Duration::from_secs(1), "an emit waited {worst:?}");
    run.line("waiting for a lock behind session", PATIENCE)
        .await;
    execute(&reader, "commit").await;
    assert!(run.exit(PATIENCE).await.success(), "{run:?}");
    run.line("applied functions", PATIENCE).await;
}

#[tokio::test]
async fn the_printed_file_makes_the_same_schema_as_run() {
    let printed = command(&["migrate", "--sql"])
        .output()
        .expect("outlast runs");
    assert!(printed.status.success() && printed.stderr.is_empty());
    let by_file = pg::empty().await;
    schema::psql(&by_file, &["-1", "-f", "-"], &printed.stdout);
    let (by_run, _) = database().await;
    assert_eq!(schema::dump(&by_file), schema::dump(&by_run));
    outlast(by_file.url(), &["migrate", "status"]).await.fine();
    outlast(by_file.url(), &["verify"]).await.fine();
}

#[tokio::test]
async fn a_newer_schema_is_left_alone_and_used_only_if_it_breaks_nothing() {
    let (database, client) = database().await;
    let newer = |breaking| {
        format!(
            "delete from outlast._migration where version = 999;
             insert into outlast._migration (version, name, breaking, applied_by) values (999, 'later', {breaking}, '9.9')"
        )
    };
    execute(&client, &newer(false)).await;
    outlast(database.url(), &["events", "ls"]).await.fine();
    outlast(database.url(), &["migrate", "status"])
        .await
        .fine()
        .says("works with it");
    let before = schema::dump(&database);
    outlast(database.url(), &["migrate"])
        .await
        .with(4)
        .says("OUT-0003")
        .says("next: install");
    assert_eq!(schema::dump(&database), before);
    execute(&client, &newer(true)).await;
    for args in [
        &["events", "ls"][..],
        &["migrate", "status"],
        &["emit", "a", "{}"],
        &["verify"],
    ] {
        outlast(database.url(), args)
            .await
            .with(4)
            .says("schema version 999");
    }
}

#[tokio::test]
async fn a_database_is_named_once() {
    let database = pg::empty().await;
    let name = |name| ["migrate", "--deployment", name];
    outlast(database.url(), &name("Not A Name"))
        .await
        .with(2)
        .says("is not 1 to 100 of");
    outlast(database.url(), &name("production"))
        .await
        .fine()
        .says("is deployment production");
    outlast(database.url(), &name("production")).await.fine();
    outlast(database.url(), &name("staging"))
        .await
        .with(5)
        .says("deployment production already");
    outlast(database.url(), &["migrate", "plan", "--deployment", "x"])
        .await
        .with(2);
}

#[tokio::test]
async fn commands_say_what_to_do_before_the_first_migration() {
    let database = pg::empty().await;
    for args in [
        &["events", "ls"][..],
        &["consumers", "ls"],
        &["emit", "a", "{}"],
        &["verify"],
        &["incidents", "ls"],
    ] {
        let ran = outlast(database.url(), args)
            .await
            .with(4)
            .says("OUT-0002")
            .says("run `outlast migrate`");
        assert_eq!(ran.out, "", "{ran:#?}");
    }
    let ran = outlast(database.url(), &["verify", "--json"]).await.with(4);
    let error: serde_json::Value =
        serde_json::from_str(&ran.err).expect("one JSON document on stderr");
    assert_eq!(
        (&error["error"]["code"], &error["exit"]),
        (&"OUT-0002".into(), &4.into())
    );
}
