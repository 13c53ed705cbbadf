//! `outlast apply`, `outlast audit`: the settings of the cluster, shown before they are changed, and who did it.

use std::fs;

use serde_json::json;

use crate::{Folder, Ran, command, database, execute, number, outlast, run};

/// `outlast ARGS` beside an outlast.toml with this in it.
async fn beside(file: &str, url: &str, args: &[&str]) -> Ran {
    let folder = Folder::new();
    fs::create_dir(folder.path()).expect("a new folder");
    fs::write(folder.path().join("outlast.toml"), file).expect("a file in it");
    let mut command = command(args);
    command.current_dir(folder.path()).args(["--database", url]);
    run(command, b"").await
}

const FILE: &str = "lease = \"20s\"\n\n[cluster]\nwake = \"notify\"\nretention.log = \"48h\"\n";

#[tokio::test]
async fn the_difference_is_shown_and_nothing_changes_until_somebody_says_yes() {
    let (database, sql) = database().await;
    let (set, audit) = (
        "select count(*) from outlast._setting",
        "select count(*) from outlast._audit",
    );
    for args in [&["apply"][..], &["apply", "--check"]] {
        let ran = beside(FILE, database.url(), args).await;
        assert!(ran.code == if args.len() == 1 { 2 } else { 1 }, "{ran:#?}");
        let lines: Vec<Vec<&str>> = ran
            .out
            .lines()
            .take(3)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines,
            [
                vec!["SETTING", "NOW", "NEW"],
                vec!["retention.log", "3d", "(default)", "2d"],
                vec!["wake", "poll", "(default)", "notify"]
            ],
            "{ran:#?}"
        );
        assert_eq!((number(&sql, set).await, number(&sql, audit).await), (0, 0));
    }

    let ran = beside(FILE, database.url(), &["apply", "--yes", "--json"])
        .await
        .fine();
    let change = |name: &str, was: &str, becomes: &str| json!({ "name": name, "was": was, "was_default": true, "becomes": becomes, "becomes_default": false });
    let answer = &ran.json()[0];
    assert_eq!(
        answer["changes"],
        json!([
            change("retention.log", "3d", "2d"),
            change("wake", "poll", "notify")
        ])
    );
    assert_eq!(answer["applied"], true);
    assert_eq!((number(&sql, set).await, number(&sql, audit).await), (2, 2));
    beside(FILE, database.url(), &["apply", "--check"])
        .await
        .fine()
        .says("nothing to change");

    // What a file does not name has its default.
    let file = "[cluster.retention]\nlog = \"2d\"\n";
    beside(file, database.url(), &["apply", "--yes"])
        .await
        .fine()
        .says("1 setting changed");
    assert_eq!(number(&sql, set).await, 1);
    let audited = outlast(database.url(), &["audit", "ls", "--json"])
        .await
        .fine();
    let lines: Vec<_> = audited
        .json()
        .iter()
        .map(|line| {
            (
                line["action"].clone(),
                line["about"].clone(),
                line["detail"].clone(),
            )
        })
        .collect();
    let line = |name: &str, was: &str, becomes: &str| {
        (
            json!("setting.set"),
            json!(name),
            json!({ "was": was, "becomes": becomes }),
        )
    };
    assert_eq!(
        lines,
        [
            line("wake", "notify", "poll"),
            line("wake", "poll", "notify"),
            line("retention.log", "3d", "2d")
        ]
    );
}

#[tokio::test]
async fn everything_that_is_wrong_with_the_section_is_told_at_once_and_nothing_is_written() {
    let (database, sql) = database().await;
    let file = "[cluster]\nwake = \"loud\"\nretention.lag = \"3d\"\nretention.inbox = 30\ninbox = \"3d\"\n\"retention.log\" = \"soon\"\n";
    for args in [&["apply", "--yes"][..], &["config", "show"]] {
        let ran = beside(file, database.url(), args)
            .await
            .with(2)
            .says("OUT-0008");
        for problem in [
            "wake (outlast.toml:2): `loud` is not poll or notify",
            "retention.lag (outlast.toml:3): unknown setting of the cluster; did you mean retention.log?",
            "retention.inbox (outlast.toml:4): a text in quotes is expected",
            "inbox (outlast.toml:5): unknown setting of the cluster; did you mean retention.inbox?",
            "retention.log (outlast.toml:6): `soon` is not a duration such as",
        ] {
            assert!(ran.err.contains(problem), "{problem:?} is not in {ran:#?}");
        }
    }
    assert_eq!(
        number(&sql, "select count(*) from outlast._setting").await,
        0
    );
    // An empty file would undo everything; that must be said.
    beside("lease = \"20s\"\n", database.url(), &["apply", "--yes"])
        .await
        .with(2)
        .says("has no section [cluster]");
    let mut stdin = command(&["apply", "-", "--yes", "--database", database.url()]);
    stdin.current_dir(std::env::temp_dir());
    run(stdin, b"[cluster]\nwake = \"notify\"\n").await.fine();
    assert_eq!(
        number(&sql, "select count(*) from outlast._setting").await,
        1
    );
}

#[tokio::test]
async fn config_show_tells_the_settings_of_the_cluster_and_where_they_come_from() {
    let (database, sql) = database().await;
    execute(&sql, "select outlast._apply('{retention.log}', '{2d}')").await;
    let ran = beside(FILE, database.url(), &["config", "show", "--json"])
        .await
        .fine();
    let entry = |name: &str| {
        let all = ran.json();
        let one = all.iter().find(|entry| entry["name"] == name);
        let one = one.unwrap_or_else(|| panic!("{name} is not in {ran:#?}"));
        (
            one["value"].clone(),
            one["origin"].as_str().expect("a text").to_owned(),
        )
    };
    let (value, origin) = entry("cluster.retention.log");
    assert!(
        value == "2d" && origin.starts_with("applied 20"),
        "{origin}"
    );
    assert_eq!(
        entry("cluster.wake"),
        (
            json!("poll"),
            "default; outlast.toml:4 says notify: `outlast apply` makes it so".to_owned()
        )
    );
    assert_eq!(
        entry("cluster.retention.inbox"),
        (json!("30d"), "default".to_owned())
    );
}

#[tokio::test]
async fn pauses_are_the_operators_and_in_the_audit() {
    let (database, sql) = database().await;
    execute(&sql, "select outlast.register('mailer', '{ping}')").await;
    let url = database.url();
    outlast(
        url,
        &["pause", "mailer", "--reason", "the mail server moves"],
    )
    .await
    .fine();
    outlast(url, &["resume", "mailer"]).await.fine();
    let ran = outlast(url, &["audit", "ls", "--about", "mailer", "--json"])
        .await
        .fine();
    let lines = ran.json();
    assert_eq!(lines.len(), 2, "{ran:#?}");
    assert_eq!(lines[0]["action"], "consumer.resumed");
    assert_eq!(lines[1]["action"], "consumer.paused");
    assert_eq!(lines[1]["detail"]["reason"], "the mail server moves");
    assert!(
        lines[1]["actor"]
            .as_str()
            .is_some_and(|actor| !actor.is_empty())
    );
    outlast(url, &["audit", "ls", "--action", "setting.set"])
        .await
        .fine()
        .says("nothing of that kind");
}
