//! `outlast_cli::cli`: the commands of a user's own binary, with handlers.

use std::{
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use outlast_testkit::{
    pg::{self, Database},
    process::Process,
};
use serde_json::json;

use crate::{Folder, PATIENCE, Ran, clean, database, execute, outlast, run};

/// The example `held`, which cargo builds with the tests.
fn program() -> PathBuf {
    let outlast = PathBuf::from(env!("CARGO_BIN_EXE_outlast"));
    let held = outlast
        .parent()
        .expect("a program is in a folder")
        .join("examples/held");
    assert!(
        held.exists(),
        "{} is missing: cargo build -p outlast-cli --examples",
        held.display()
    );
    held
}

fn held(database: &Database, args: &[&str]) -> Command {
    let mut command = clean(Command::new(program()));
    command.args(args).args(["--database", database.url()]);
    command
}

async fn held_to_its_end(database: &Database, args: &[&str]) -> Ran {
    run(held(database, args), b"").await
}

/// A running worker, and an event in the hands of its handler.
async fn holding(database: &Database, folder: &Folder, args: &[&str]) -> (Process, String) {
    let worker =
        Process::spawn(&mut held(database, &[&["run"], args].concat())).expect("it starts");
    worker.line("worker is running", PATIENCE).await;
    let payload = json!({ "until": folder.path() }).to_string();
    let emitted = outlast(database.url(), &["emit", "held", &payload, "--json"])
        .await
        .fine()
        .json();
    let id = emitted[0]["id"].as_str().expect("an id").to_owned();
    worker.line(&format!("started {id}"), PATIENCE).await;
    (worker, id)
}

async fn state(database: &Database, id: &str) -> String {
    let shown = outlast(database.url(), &["events", "show", id, "--json"])
        .await
        .fine()
        .json();
    shown[0]["consumers"][0]["state"]
        .as_str()
        .expect("a state")
        .to_owned()
}

fn let_go(folder: &Folder) {
    std::fs::create_dir(folder.path()).expect("a new folder");
}

#[tokio::test]
async fn run_drains_on_sigterm_and_answers_0() {
    let (database, _client) = database().await;
    let folder = Folder::new();
    let (worker, id) = holding(&database, &folder, &[]).await;
    worker.terminate();
    worker.line("draining", PATIENCE).await;
    let_go(&folder);
    assert_eq!(worker.exit(PATIENCE).await.code(), Some(0), "{worker:?}");
    assert_eq!(state(&database, &id).await, "done");
}

#[tokio::test]
async fn a_second_signal_gives_back_what_runs_and_answers_8() {
    let (database, _client) = database().await;
    let folder = Folder::new();
    let (worker, id) = holding(&database, &folder, &[]).await;
    let began = Instant::now();
    worker.terminate();
    worker.line("again to stop at once", PATIENCE).await;
    worker.terminate();
    assert_eq!(worker.exit(PATIENCE).await.code(), Some(8), "{worker:?}");
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "it waited for the drain"
    );
    assert_ne!(state(&database, &id).await, "done");

    // The next worker takes it over.
    let_go(&folder);
    let next = Process::spawn(&mut held(&database, &["run"])).expect("it starts");
    next.line(&format!("finished {id}"), PATIENCE).await;
    next.terminate();
    assert_eq!(next.exit(PATIENCE).await.code(), Some(0), "{next:?}");
    assert_eq!(state(&database, &id).await, "done");
}

#[tokio::test]
async fn when_the_time_to_drain_is_over_it_answers_8() {
    let (database, _client) = database().await;
    let folder = Folder::new();
    let (worker, id) = holding(
        &database,
        &folder,
        &["--set", "drain=300ms", "--set", "grace=100ms"],
    )
    .await;
    worker.terminate();
    assert_eq!(worker.exit(PATIENCE).await.code(), Some(8), "{worker:?}");
    assert_ne!(state(&database, &id).await, "done");
}

#[tokio::test]
async fn check_compares_the_code_with_the_database() {
    let empty = pg::empty().await;
    held_to_its_end(&empty, &["check"])
        .await
        .with(4)
        .says("run `outlast migrate`");
    held_to_its_end(&empty, &["migrate", "status"])
        .await
        .with(4);

    let (database, client) = database().await;
    held_to_its_end(&database, &["migrate", "status"])
        .await
        .fine();
    let new = held_to_its_end(&database, &["check"]).await.fine();
    new.says("consumer holder: new: the first `run` registers it for held")
        .says("deployment: none");
    execute(&client, "select outlast.register('holder', '{held}')").await;
    execute(&client, "select outlast.register('other', '{held}')").await;
    let known = held_to_its_end(&database, &["check"]).await.fine();
    known
        .says("ok       consumer holder: takes held")
        .says("consumer other: registered in the database; this binary");
    execute(&client, "select outlast.register('holder', '{dropped}')").await;
    let more = held_to_its_end(&database, &["check", "--json"])
        .await
        .with(1)
        .json();
    let bad: Vec<_> = more
        .iter()
        .filter(|finding| finding["verdict"] == "problem")
        .collect();
    assert_eq!(bad.len(), 1, "{more:#?}");
    assert!(
        bad[0]["text"]
            .as_str()
            .is_some_and(|text| text.contains("registered for dropped")),
        "{bad:?}"
    );
    held_to_its_end(&database, &["check", "--set", "attempts=0"])
        .await
        .with(2)
        .says("attempts is 0");
}

#[tokio::test]
async fn the_layers_stand_on_what_the_code_says() {
    let (database, _client) = database().await;
    // 500 ms of flush fit a lease of 15 s, not the 2 s of the code.
    held_to_its_end(&database, &["check", "--set", "flush=500ms"])
        .await
        .with(2)
        .says("over a sixth of lease");
    held_to_its_end(
        &database,
        &["check", "--set", "flush=500ms", "--set", "lease=3s"],
    )
    .await
    .fine();
}

#[tokio::test]
async fn its_help_names_its_own_commands_and_no_others() {
    let help = run(
        {
            let mut c = clean(Command::new(program()));
            c.arg("--help");
            c
        },
        b"",
    )
    .await
    .fine();
    for name in ["run", "check", "config", "migrate"] {
        assert!(help.out.contains(&format!("\n  {name} ")), "{}", help.out);
    }
    assert!(
        !help.out.contains("\n  emit ") && help.out.contains("Usage: held"),
        "{}",
        help.out
    );
}
