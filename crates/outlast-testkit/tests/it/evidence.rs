//! The evidence table, in its small setting: each row with one seed, by the program that `./run prove` runs.
//!
//! And that the table can fail: planted faults are seen.

use std::collections::HashSet;
use std::process::Command;
use std::time::Duration;

use futures_util::future::join_all;
use outlast_engine::crash::Point;
use outlast_testkit::broker::nats_server;
use outlast_testkit::drill::{plant::Plant, rows, source::Kind};
use outlast_testkit::pg;
use outlast_testkit::process::Process;
use serde_json::Value;

/// A row takes ten seconds by itself, and this machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(170);

/// What the program said, and whether it was content.
struct Proved {
    content: bool,
    lines: Vec<String>,
}

async fn prove(args: &[&str]) -> Proved {
    let mut program = Command::new(env!("CARGO_BIN_EXE_prove"));
    let process = Process::spawn(program.args(args).args(["--jobs", "3"])).unwrap();
    let status = process.exit(PATIENCE).await;
    Proved {
        content: status.success(),
        lines: process.all_lines(PATIENCE).await,
    }
}

fn is_result(line: &str) -> bool {
    line.starts_with("{\"row\"")
}

async fn holds(row: &str) {
    holds_in(row, "").await;
}

/// Only the scenarios whose name contains this: a row with servers of its own for each is several tests.
async fn holds_in(row: &str, only: &str) {
    let mut args = vec![row, "--small"];
    if !only.is_empty() {
        args.extend(["--only", only]);
    }
    let proved = prove(&args).await;
    let text = proved.lines.join("\n");
    assert!(proved.content, "{text}");
    let result = proved.lines.iter().find(|line| is_result(line)).unwrap();
    let result: Value = serde_json::from_str(result).unwrap();
    assert_eq!(
        (&result["row"], &result["violations"]),
        (&row.into(), &0.into()),
        "{text}"
    );
    for count in ["runs", "faults", "seconds"] {
        assert!(result[count].as_f64().unwrap() > 0.0, "{count}: {text}");
    }
}

#[tokio::test]
async fn e1_of_a_transaction_that_rolled_back_nobody_ever_hears() {
    holds("E1").await;
}

#[tokio::test]
async fn e2_after_a_crash_anywhere_nothing_is_lost() {
    holds("E2").await;
}

#[tokio::test]
async fn e3_a_redelivery_has_the_same_identity_and_one_completion_is_recorded() {
    holds("E3").await;
}

#[tokio::test]
async fn e4_what_a_provider_did_is_recorded_or_put_before_a_person_and_never_done_twice() {
    holds("E4").await;
}

#[tokio::test]
async fn e6_what_is_told_withdrawn_or_changed_during_a_try_counts() {
    holds("E6").await;
}

#[tokio::test]
async fn e10_instruction_and_refs_outlive_the_row_that_they_are_about() {
    holds("E10").await;
}

#[tokio::test]
async fn e5_of_two_runners_every_write_of_the_old_one_is_refused() {
    holds("E5").await;
}

#[tokio::test]
async fn e7_of_a_partial_fan_out_the_missing_children_come_and_no_other() {
    holds("E7").await;
}

#[tokio::test]
async fn e8_poison_is_put_aside_and_an_outage_is_waited_out() {
    holds("E8").await;
}

#[tokio::test]
async fn e11_an_unknown_commit_is_told_as_such_and_a_retry_makes_one_intent() {
    holds("E11").await;
}

#[tokio::test]
async fn wake_another_process_takes_the_watch_of_one_that_was_killed_or_stands_still() {
    holds("wake").await;
}

#[tokio::test]
async fn load_neither_waking_by_emits_nor_a_migration_behind_a_reader_keeps_emits_waiting() {
    holds("load").await;
}

/// All at once: they wait more than they work.
async fn seen(faults: &[(&str, &str)]) {
    let seen = faults.iter().map(|(plant, seen)| async move {
        let proved = prove(&["--plant", plant, "--small"]).await;
        let text = proved.lines.join("\n");
        assert!(!proved.content && text.contains(seen), "{plant}: {text}");
        assert!(text.contains("again: ./run prove"), "{text}");
    });
    join_all(seen).await;
}

#[tokio::test]
async fn e13_a_dump_is_refused_until_a_person_has_looked_and_then_nothing_is_lost_or_doubled() {
    holds_in("E13", "dump").await;
}

#[tokio::test]
async fn e13_after_a_restored_backup_local_work_goes_on_and_the_rest_waits() {
    holds_in("E13", "restored").await;
}

#[tokio::test]
async fn e13_a_copy_beside_the_original_is_held_when_a_process_meets_it_and_the_original_goes_on() {
    holds_in("E13", "copy-beside").await;
}

#[tokio::test]
async fn e13_a_promoted_standby_goes_on_by_itself_if_it_has_everything_and_else_waits_for_a_person()
{
    holds_in("E13", "promoted").await;
}

#[tokio::test]
async fn faults_of_restore_are_seen() {
    seen(&[
        ("no-base", "not at rest"),
        ("no-hold", "mail went on without a person"),
    ])
    .await;
}

#[tokio::test]
async fn a_missing_fence_and_a_key_that_is_only_looked_for_are_seen() {
    let after = "committed after its work was taken over";
    seen(&[
        ("no-fence", after),
        ("reclaim-by-update", after),
        ("token-read", after),
    ])
    .await;
}

#[tokio::test]
async fn an_end_of_other_batches_and_children_written_apart_are_seen() {
    seen(&[
        ("dedup-looks", "a second one for intent"),
        ("ends-below", "lost, ledger never completed it"),
        ("child-apart", "children of 3"),
    ])
    .await;
}

#[tokio::test]
async fn faults_of_commands_are_seen() {
    seen(&[
        ("new-key", "was sent as"),
        ("resend-unknown", "2 effects at the provider"),
        ("refusal-believed", "rejected): 1 effects at the provider"),
        ("running-at-claim", "nothing of it was ever on the wire"),
    ])
    .await;
    seen(&[
        ("no-sent-fence", "2 effects at the provider"),
        ("limit-unlocked", "and 2 are allowed"),
    ])
    .await;
}

#[tokio::test]
async fn faults_of_entities_are_seen() {
    seen(&[
        ("older-completes", "generation: of thing 1"),
        ("buries-all", "refs: thing 1 was deleted with"),
    ])
    .await;
}

/// The rows with a broker are long: CI runs them by `./run prove --broker`, and here is that they can fail.
#[tokio::test]
async fn faults_of_relays_and_of_consumers_on_brokers_are_seen() {
    if !nats_server::is_installed() {
        return;
    }
    seen(&[
        ("as-sent", "lost, the broker never had it"),
        ("new-id", "the broker has a message of event"),
        ("whole-batch", "16 incidents for 3 messages"),
        ("ack-first", "lost, reader never completed it"),
        ("no-payload", "is parked: "),
        ("looks-first", "were handled again, and nobody had died"),
    ])
    .await;
}

#[tokio::test]
async fn every_fault_that_can_be_planted_takes_root_in_the_product_as_it_is() {
    for plant in Plant::ALL {
        let database = pg::outlast().await;
        let client = database.connect().await;
        let planted = client.batch_execute(&plant.sql()).await;
        assert!(planted.is_ok(), "{}: {planted:?}", plant.as_str());
    }
}

#[tokio::test]
async fn what_does_not_exist_is_not_proved() {
    for args in [["E99", "--small"], ["E2", "--only=nothing"]] {
        assert!(!prove(&args).await.content, "{args:?}");
    }
}

#[test]
fn every_crash_point_has_a_drill_and_every_drill_a_name_of_its_own() {
    let table = rows::all(None);
    let e2 = table.iter().find(|row| row.name == "E2").unwrap();
    for point in Point::ALL {
        let drilled = e2
            .scenarios
            .iter()
            .any(|scenario| scenario.name == point.as_str());
        assert!(drilled, "{point:?}");
    }
    for table in [None, Some(Kind::Nats), Some(Kind::PubSub)].map(rows::all) {
        let mut names = HashSet::new();
        let scenarios = table.iter();
        let scenarios = scenarios.flat_map(|row| row.scenarios.iter().map(|s| (row.name, s)));
        for (row, scenario) in scenarios {
            let name = &scenario.name;
            assert!(names.insert((row, name)), "{row} {name}");
        }
    }
}
