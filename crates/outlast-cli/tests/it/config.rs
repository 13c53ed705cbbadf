//! `outlast config`: layers, origins, and what is wrong, all at once.

use std::{fs, process::Command};

use crate::{Folder, Ran, command, run};

/// In a folder with this `outlast.toml` and these variables.
async fn config(file: &str, variables: &[(&str, &str)], args: &[&str]) -> Ran {
    let folder = Folder::new();
    fs::create_dir(folder.path()).expect("a new folder");
    fs::write(folder.path().join("outlast.toml"), file).expect("a file in it");
    let mut command: Command = command(args);
    command
        .current_dir(folder.path())
        .envs(variables.iter().copied());
    run(command, b"").await
}

fn entry(ran: &Ran, name: &str) -> (serde_json::Value, String) {
    let all = ran.json();
    let one = all
        .iter()
        .find(|entry| entry["name"] == name)
        .unwrap_or_else(|| panic!("{name} is not in {ran:#?}"));
    (
        one["value"].clone(),
        one["origin"].as_str().expect("a text").to_owned(),
    )
}

#[tokio::test]
async fn flags_win_over_the_environment_and_that_over_the_file() {
    let file = "# ours\nlease = \"20s\"\ndrain = \"30s\"\nattempts = 5\ndatabase = \"postgres://file:secret1@h/d\"\n";
    let variables = [("OUTLAST_DRAIN", "40s"), ("OUTLAST_ATTEMPTS", "6")];
    let shown = config(
        file,
        &variables,
        &["config", "show", "--json", "--set", "attempts=7"],
    )
    .await
    .fine();
    assert_eq!(
        entry(&shown, "lease"),
        ("20s".into(), "outlast.toml:2".into())
    );
    assert_eq!(
        entry(&shown, "drain"),
        ("40s".into(), "OUTLAST_DRAIN".into())
    );
    assert_eq!(entry(&shown, "attempts"), (7.into(), "--set".into()));
    assert_eq!(entry(&shown, "concurrency"), (8.into(), "default".into()));
    assert_eq!(
        entry(&shown, "deployment"),
        (serde_json::Value::Null, "default".into())
    );
    assert_eq!(
        entry(&shown, "database"),
        ("file@h:5432/d".into(), "outlast.toml:5".into())
    );

    let variables = [
        ("DATABASE_URL", "postgres://b:secret2@h/b"),
        ("OUTLAST_DATABASE_URL", "postgres://a:secret3@h/a"),
    ];
    let shown = config(file, &variables, &["config", "show", "--json"])
        .await
        .fine();
    assert_eq!(
        entry(&shown, "database"),
        ("a@h:5432/a".into(), "OUTLAST_DATABASE_URL".into())
    );
    let flag = ["config", "show", "--database", "postgres://c:secret4@h/c"];
    let shown = config(file, &variables, &flag)
        .await
        .fine()
        .says("c@h:5432/c")
        .says("--database");
    assert!(!shown.out.contains("secret"), "{shown:#?}");
}

#[tokio::test]
async fn everything_that_is_wrong_is_told_at_once() {
    let file =
        "leese = \"20s\"\nattempts = \"many\"\ndrain = \"1s\"\nbatch-rows = 10\ndatabase = 7\n";
    let variables = [
        ("OUTLAST_LEASE", "15"),
        ("OUTLAST_HEARTBEET", "1s"),
        ("OUTLAST_PORT", "tcp://10.0.0.1:80"),
    ];
    let args = ["config", "show", "--set", "colour=red", "--set", "flush"];
    let ran = config(file, &variables, &args)
        .await
        .with(2)
        .says("OUT-0008");
    for problem in [
        "leese (outlast.toml:1): unknown setting; did you mean lease?",
        "attempts (outlast.toml:2): ",
        "batch-rows (outlast.toml:4): unknown setting; did you mean batch_rows?",
        "database (outlast.toml:5): a text in quotes",
        "lease (OUTLAST_LEASE): `15` is not a duration such as",
        "OUTLAST_HEARTBEET: did you mean OUTLAST_HEARTBEAT?",
        "colour (--set): unknown setting\n",
        "--set flush: write KEY=VALUE",
        "drain is 1s, shorter than grace",
    ] {
        assert!(ran.err.contains(problem), "{problem:?} is not in {ran:#?}");
    }
    assert!(
        !ran.err.contains("- OUTLAST_PORT"),
        "Kubernetes sets it for a service of that name: {ran:#?}"
    );
    // Every command reads the same file.
    config(file, &[], &["events", "ls"])
        .await
        .with(2)
        .says("leese");
}

#[tokio::test]
async fn a_file_that_cannot_be_read_shows_the_line_and_not_what_is_in_it() {
    let ran = config(
        "lease = \"1s\"\ndatabase = \"postgres://a:secret@h/d\n",
        &[],
        &["config", "show"],
    )
    .await
    .with(2);
    assert!(
        ran.err.contains("outlast.toml:2") && !ran.err.contains("secret"),
        "{ran:#?}"
    );
    config("", &[], &["config", "show", "--config", "nowhere.toml"])
        .await
        .with(2)
        .says("nowhere.toml: No such file");
}

#[tokio::test]
async fn the_default_file_changes_nothing_and_is_the_one_in_the_docs() {
    let file = run(command(&["config", "default"]), b"").await.fine().out;
    let shown = config(&file, &[], &["config", "show", "--json"])
        .await
        .fine();
    assert!(
        shown
            .json()
            .iter()
            // Those of the cluster are in no database here.
            .filter(
                |entry| entry["value"] != serde_json::Value::Null || entry["name"] == "deployment"
            )
            .all(|entry| entry["origin"] == "default"),
        "{shown:#?}"
    );
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md"))
        .expect("the page is there");
    assert!(
        page.contains(&file),
        "docs/cli.md shows another file than:\n{file}"
    );
}
