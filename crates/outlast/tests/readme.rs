//! The README's first ten minutes, done for real: the hello world as a process, killed and started again.

use std::time::Duration;

use outlast_testkit::{pg, process::Process, wait_for};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn the_hello_world_of_the_readme_is_the_example() {
    let readme = include_str!("../../../README.md");
    assert!(readme.contains(include_str!("../examples/hello.rs")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hello_world_runs_a_job_is_killed_comes_back_and_stops_what_it_cannot_read() {
    let database = pg::outlast().await;
    let sql = database.connect().await;
    let enqueue = async |payload: &str| {
        sql.execute("select outlast.enqueue('greet', $1::text)", &[&payload])
            .await
            .unwrap();
    };
    let worker = example("hello", database.url());
    enqueue(r#"{"name":"Ada"}"#).await;
    worker.line("hello Ada, attempt 1", SOON).await;
    worker.kill();
    gone(&sql).await;

    enqueue(r#"{"name":"Bob"}"#).await;
    let worker = example("hello", database.url());
    worker.line("hello Bob, attempt 1", SOON).await;

    enqueue(r#"{"nme":"Eve"}"#).await;
    let stopped = "select count(*) from outlast.incident where kind = 'stopped job' and reason like 'unreadable%'";
    wait_for("the incident", SOON, async || {
        let n: i64 = sql.query_one(stopped, &[]).await.unwrap().get(0);
        (n == 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_greets_is_killed_comes_back_and_shows_what_it_cannot_read() {
    let database = pg::outlast().await;
    let sql = database.connect().await;
    let emit = async |payload: &str| {
        sql.execute("select outlast.emit('greeted', $1::text)", &[&payload])
            .await
            .unwrap();
    };
    let count = async |what: &str| sql.query_one(what, &[]).await.unwrap().get::<_, i64>(0);

    let worker = example("consumer", database.url());
    wait_for("the consumer's registration", SOON, async || {
        (count("select count(*) from outlast.consumer").await == 1).then_some(())
    })
    .await;
    emit(r#"{"name":"Ada"}"#).await;
    worker.line("hello Ada, try 1", SOON).await;
    worker.kill();
    gone(&sql).await;

    emit(r#"{"name":"Bob"}"#).await;
    let worker = example("consumer", database.url());
    worker.line("hello Bob, try 1", SOON).await;

    emit(r#"{"nme":"Eve"}"#).await;
    wait_for("the incident", SOON, async || {
        (count("select count(*) from outlast.incident where reason like 'unreadable%'").await == 1)
            .then_some(())
    })
    .await;
}

/// Waits until the server has noticed that the worker is dead: a claim that was under way takes what is written by then, too, and
/// its next try comes with the lease's end.
async fn gone(sql: &tokio_postgres::Client) {
    let others = "select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()";
    wait_for(
        "the end of the killed worker's sessions",
        SOON,
        async || {
            let n: i64 = sql.query_one(others, &[]).await.unwrap().get(0);
            (n == 0).then_some(())
        },
    )
    .await;
}

/// An example, which cargo builds beside the tests of this crate.
fn example(name: &str, url: &str) -> Process {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(std::path::Path::parent).unwrap();
    let program = folder.join("examples").join(name);
    Process::spawn(std::process::Command::new(program).env("OUTLAST_DATABASE_URL", url)).unwrap()
}
