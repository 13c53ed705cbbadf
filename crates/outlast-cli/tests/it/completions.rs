//! `outlast completions`, and the help.

use std::{io::Write, process::Stdio};

use crate::{command, run};

#[tokio::test]
async fn every_shell_gets_a_script_and_bash_can_read_its_own() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(command(&["completions", shell]), b"").await.fine();
        for word in [
            "migrate",
            "consumers",
            "commands",
            "entities",
            "accounts",
            "deployment",
        ] {
            assert!(
                script.out.contains(word),
                "{word} is not in the script of {shell}"
            );
        }
        if shell == "bash" {
            let mut bash = std::process::Command::new("bash")
                .arg("-n")
                .stdin(Stdio::piped())
                .spawn()
                .expect("bash runs");
            bash.stdin
                .take()
                .expect("stdin is piped")
                .write_all(script.out.as_bytes())
                .expect("bash reads");
            assert!(bash.wait().expect("bash ends").success());
        }
    }
}

#[tokio::test]
async fn the_help_teaches() {
    let help = run(command(&["--help"]), b"").await.fine();
    let help = help
        .says("Exit codes:")
        .says("outlast dev")
        .says("outlast::cli");
    assert!(
        help.out.lines().all(|line| line.chars().count() <= 120),
        "{}",
        help.out
    );
    for words in [
        &["migrate"][..],
        &["dev"],
        &["emit"],
        &["events", "ls"],
        &["events", "show"],
        &["incidents", "ls"],
        &["commands", "ls"],
        &["commands", "resolve"],
        &["entities", "ls"],
        &["entities", "show"],
    ] {
        let help = run(command(&[words, &["--help"]].concat()), b"")
            .await
            .fine();
        assert!(
            help.out.contains("xample"),
            "{words:?} shows no example:\n{}",
            help.out
        );
    }
    run(command(&["migrat"]), b"").await.with(2).says("migrate");
    run(command(&[]), b"").await.with(2);
}
