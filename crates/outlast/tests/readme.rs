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
async fn the_hello_world_greets_is_killed_comes_back_and_shows_what_it_cannot_read() {
    let database = pg::outlast().await;
    let sql = database.connect().await;
    let emit = async |payload: &str| {
        sql.execute("select outlast.emit('greeted', $1::text)", &[&payload])
            .await
            .unwrap();
    };
    let count = async |what: &str| sql.query_one(what, &[]).await.unwrap().get::<_, i64>(0);

    let worker = hello(database.url());
    wait_for("the consumer's registration", SOON, async || {
        (count("select count(*) from outlast.consumer").await == 1).then_some(())
    })
    .await;
    emit(r#"{"name":"Ada"}"#).await;
    worker.line("hello Ada, try 1", SOON).await;
    worker.kill();

    emit(r#"{"name":"Bob"}"#).await;
    let worker = hello(database.url());
    worker.line("hello Bob, try 1", SOON).await;

    emit(r#"{"nme":"Eve"}"#).await;
    wait_for("the incident", SOON, async || {
        (count("select count(*) from outlast.incident where reason like 'unreadable%'").await == 1)
            .then_some(())
    })
    .await;
}

/// The example, which cargo builds beside the tests of this crate.
fn hello(url: &str) -> Process {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(std::path::Path::parent).unwrap();
    let program = folder.join("examples").join("hello");
    Process::spawn(std::process::Command::new(program).env("OUTLAST_DATABASE_URL", url)).unwrap()
}
