//! `outlast dev`: its life, and that nothing outlives it.

use std::{path::Path, process::Command};

use outlast_testkit::{
    process::{Process, Signal},
    wait_for,
};

use crate::{Folder, PATIENCE, command, outlast, run};

fn start(folder: &Folder, args: &[&str]) -> Process {
    let mut command = command(&["dev", "--dir"]);
    command.arg(folder.path()).args(args);
    Process::spawn(&mut command).expect("outlast starts")
}

/// What it prints when it is ready.
async fn ready(dev: &Process) -> String {
    let line = dev.line("export DATABASE_URL=", PATIENCE).await;
    line.split_once('=')
        .expect("a URL after the sign")
        .1
        .to_owned()
}

/// The postmaster's process id, as the server itself wrote it.
fn postmaster(folder: &Folder) -> u32 {
    let lock = std::fs::read_to_string(folder.path().join("data/postmaster.pid"))
        .expect("the server runs");
    lock.lines()
        .next()
        .and_then(|pid| pid.trim().parse().ok())
        .expect("a process id")
}

async fn until_gone(pid: u32) {
    let gone = async || {
        let alive = Command::new("ps")
            .args(["-p", &pid.to_string(), "-o", "stat="])
            .output()
            .expect("ps runs");
        let state = String::from_utf8_lossy(&alive.stdout);
        (state.trim().is_empty() || state.starts_with('Z')).then_some(())
    };
    wait_for("the server to end", PATIENCE, gone).await;
}

#[tokio::test]
async fn it_keeps_its_data_refuses_a_second_start_and_stops_cleanly() {
    let folder = Folder::new();
    let dev = start(&folder, &[]);
    let url = ready(&dev).await;
    assert!(
        url.starts_with("postgres://postgres:") && url.contains("@127.0.0.1:"),
        "{url}"
    );
    let emitted = outlast(&url, &["emit", "greeting", "{\"to\":\"you\"}", "--json"])
        .await
        .fine()
        .json();
    outlast(&url, &["migrate", "status"]).await.fine();

    let second = {
        let mut command = command(&["dev", "--dir"]);
        command.arg(folder.path());
        run(command, b"").await.with(6)
    };
    second
        .says("is in use by process")
        .says("stop that one first");
    let postmaster = postmaster(&folder);
    dev.signal(Signal::INT);
    assert_eq!(dev.exit(PATIENCE).await.code(), Some(0), "{dev:?}");
    dev.line("stopped", PATIENCE).await;
    until_gone(postmaster).await;
    let log =
        std::fs::read_to_string(folder.path().join("server.log")).expect("the server has a log");
    assert!(log.contains("database system is shut down"), "{log}");

    let again = start(&folder, &[]);
    assert_eq!(ready(&again).await, url, "password and port are kept");
    let ids = outlast(&url, &["events", "ls", "--json"])
        .await
        .fine()
        .json();
    assert_eq!(ids[0]["id"], emitted[0]["id"]);
    again.terminate();
    assert_eq!(again.exit(PATIENCE).await.code(), Some(0), "{again:?}");

    let fresh = start(&folder, &["--fresh"]);
    let url = ready(&fresh).await;
    outlast(&url, &["events", "ls"])
        .await
        .fine()
        .says("no such event is in the log");
    fresh.terminate();
    assert_eq!(fresh.exit(PATIENCE).await.code(), Some(0), "{fresh:?}");
}

#[tokio::test]
async fn nothing_outlives_a_sigkill_and_the_next_start_recovers() {
    let folder = Folder::new();
    let dev = start(&folder, &[]);
    let url = ready(&dev).await;
    outlast(&url, &["emit", "greeting", "{}"]).await.fine();
    let postmaster = postmaster(&folder);
    dev.kill();
    dev.exit(PATIENCE).await;
    until_gone(postmaster).await;
    let again = start(&folder, &[]);
    let url = ready(&again).await;
    assert_eq!(
        outlast(&url, &["events", "ls", "--json"])
            .await
            .fine()
            .json()
            .len(),
        1
    );
    again.terminate();
    again.exit(PATIENCE).await;
}

#[tokio::test]
async fn a_server_that_dies_is_told() {
    let folder = Folder::new();
    let dev = start(&folder, &[]);
    ready(&dev).await;
    let postmaster = postmaster(&folder).to_string();
    let killed = Command::new("kill")
        .args(["-QUIT", &postmaster])
        .status()
        .expect("kill runs");
    assert!(killed.success());
    assert_eq!(dev.exit(PATIENCE).await.code(), Some(7), "{dev:?}");
    dev.line("server.log", PATIENCE).await;
}

#[tokio::test]
async fn a_folder_that_is_not_ours_is_left_alone() {
    let folder = Folder::new();
    let precious = folder.path().join("thesis.tex");
    std::fs::create_dir(folder.path())
        .and_then(|()| std::fs::write(&precious, "years"))
        .expect("a folder of mine");
    let mut command = command(&["dev", "--fresh", "--dir"]);
    command.arg(folder.path());
    run(command, b"")
        .await
        .with(2)
        .says("choose another folder");
    assert!(Path::new(&precious).exists());
}
