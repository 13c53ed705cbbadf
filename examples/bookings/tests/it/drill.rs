//! Small runs of the whole demo, with every kill.

use std::fs;
use std::process::Command;
use std::time::Duration;

use outlast_testkit::process::Process;
use outlast_testkit::wait_for;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};

/// Long enough for a loaded machine; nothing waits so long when all is well.
const PATIENCE: Duration = Duration::from_secs(120);

/// Payloads whose bytes do not survive being read and written again.
const PAYLOADS: &str = r#"[
  { "name": "push", "examples": [
    { "size" : 1e400, "id": 9007199254740993,
      "after":"\u00e9é\ud83d\ude00" },
    {"a":1,"a":2}, [ ], "text", 0.10, null
  ] },
  { "name": "issues", "examples": [ {"action":"opened","issue":{"body":"\/\r\n"}} ] }
]"#;

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.args(arguments);
    command
}

#[tokio::test]
async fn a_small_run_ends_with_a_right_account_as_its_last_line() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("one")).unwrap();
    fs::write(folder.path().join("one/index.json"), PAYLOADS).unwrap();
    let payloads = folder.path().to_string_lossy();
    let mut command = demo(&[
        "--requests",
        "120",
        "--clients",
        "4",
        "--seed",
        "3",
        "--json",
    ]);
    command.args(["--payloads", &*payloads]);
    let process = Process::spawn(&mut command).unwrap();
    let status = process.exit(PATIENCE).await;
    assert!(status.success(), "{process:?}");

    let lines = process.lines();
    let account: Value = lines
        .iter()
        .find(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .unwrap_or_else(|| panic!("no account: {process:?}"));
    let number = |name: &str| {
        account[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} in {account}"))
    };
    assert_eq!(
        number("committed") + number("rolled_back"),
        127,
        "{account}"
    );
    assert!(number("rolled_back") > 0, "some are refused: {account}");
    assert_eq!(account["handled"]["archive"], account["committed"]);
    let bookings = number("committed") - 7;
    assert_eq!(
        account["handled"]["ledger"],
        json!(bookings),
        "all payloads are committed: {account}"
    );
    assert_eq!(account["handled"]["mailer"], json!(bookings));
    for none in ["lost", "phantom", "completed_twice"] {
        assert_eq!(number(none), 0, "{account}");
    }
    assert_eq!(account["digests_equal"], json!(true));
    assert!(account["seconds"].is_number());
    let kills = |whom: &str| {
        lines
            .iter()
            .filter(|line| line.ends_with(&format!("SIGKILL to {whom}")))
            .count()
    };
    assert_eq!((kills("the worker"), kills("PostgreSQL")), (3, 1));
}

#[tokio::test]
async fn nothing_outlives_a_demo_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("one")).unwrap();
    fs::write(folder.path().join("one/index.json"), PAYLOADS).unwrap();
    let payloads = folder.path().to_string_lossy();
    let process = Process::spawn(&mut demo(&["--payloads", &payloads])).unwrap();
    process.line("SIGKILL to the worker", PATIENCE).await;
    process.kill();
    process.exit(PATIENCE).await;
    let lines = process.lines();
    let pids: Vec<_> = lines
        .iter()
        .filter_map(|line| {
            line.split_once(" is process ")?
                .1
                .split(',')
                .next()?
                .parse()
                .ok()
        })
        .filter_map(Pid::from_raw)
        .collect();
    assert_eq!(
        pids.len(),
        4,
        "PostgreSQL, provider, service, worker: {process:?}"
    );
    for pid in pids {
        let gone = async || test_kill_process(pid).is_err().then_some(());
        wait_for("an orphan to end", PATIENCE, gone).await;
    }
}
