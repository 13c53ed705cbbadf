//! Child processes.

use std::process::Command;
use std::time::Duration;

use outlast_testkit::process::Process;
use outlast_testkit::wait_for;

use crate::{PATIENCE, ps};

fn sh(script: &str) -> Process {
    Process::spawn(Command::new("sh").args(["-c", script])).unwrap()
}

#[tokio::test]
async fn lines_of_both_streams_are_seen_in_order() {
    let process = sh("echo one; echo two >&2; echo one again; printf unfinished");
    assert_eq!(process.line("one", PATIENCE).await, "one");
    assert_eq!(process.line("one", PATIENCE).await, "one again");
    assert!(process.exit(PATIENCE).await.success());
    let all = async || (process.lines().len() == 4).then_some(());
    wait_for("four lines", PATIENCE, all).await;
}

/// Its readers may be behind when it has ended; and a child that it leaves does not hold its streams open for ever.
#[tokio::test]
async fn all_lines_are_there_once_both_streams_have_ended() {
    let script =
        "sleep 600 & i=0; while [ $i -lt 2000 ]; do echo $i; echo $i >&2; i=$((i+1)); done";
    let process = sh(script);
    assert_eq!(process.all_lines(PATIENCE).await.len(), 4000);
    assert!(process.exit(PATIENCE).await.success());
}

#[tokio::test]
async fn a_frozen_process_stands_still_and_goes_on() {
    let process = sh(r#"trap 'echo heard' USR1; echo ready; while :; do sleep 0.01; done"#);
    process.line("ready", PATIENCE).await;
    process.freeze();
    let state = || ps(process.pid(), "state").chars().next();
    wait_for("the process to stop", PATIENCE, async || {
        (state() == Some('T')).then_some(())
    })
    .await;
    process.signal(outlast_testkit::process::Signal::USR1);
    process.thaw();
    process.line("heard", PATIENCE).await;
    process.terminate();
    assert!(!process.exit(PATIENCE).await.success());
}

#[tokio::test]
async fn a_line_that_never_comes_fails_with_the_output() {
    let process = sh("echo something else");
    let waiting = tokio::spawn(async move { process.line("the line", PATIENCE).await });
    let panicked = waiting.await.unwrap_err().into_panic();
    let text = panicked.downcast_ref::<String>().unwrap();
    assert!(
        text.contains("the line") && text.contains("something else"),
        "{text}"
    );
}

#[tokio::test]
async fn what_is_waited_for_in_vain_is_named() {
    let waiting = tokio::spawn(wait_for(
        "the end of the world",
        Duration::from_millis(20),
        async || None::<()>,
    ));
    let panicked = waiting.await.unwrap_err().into_panic();
    assert!(
        panicked
            .downcast_ref::<String>()
            .unwrap()
            .contains("the end of the world")
    );
}
