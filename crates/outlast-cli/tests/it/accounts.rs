//! `outlast accounts`, and what `outlast apply` lets the accounts of providers do.

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

const FILE: &str = "[cluster]\n[cluster.account.acme]\nrate = 2\nburst = 5\n\n[cluster.account.\"bolt/7\"]\nconcurrency = 3\ncircuit = 2\ncircuit_pause = \"10s\"\n";

#[tokio::test]
async fn limits_of_accounts_are_applied_with_everything_else_and_claims_keep_to_them() {
    let (database, sql) = database().await;
    let url = database.url();
    for n in 0..20 {
        let (acme, bolt) = (
            format!("select outlast.command('pay', '{{}}', 'a{n}', account => 'acme')"),
            format!("select outlast.command('call', '{{}}', 'b{n}', account => 'bolt/7')"),
        );
        execute(&sql, &acme).await;
        execute(&sql, &bolt).await;
    }
    let ran = beside(FILE, url, &["apply", "--check"]).await.with(1);
    for line in ["account.acme.rate", "account.bolt/7.circuit_pause"] {
        assert!(ran.out.contains(line), "{line} is not in {ran:#?}");
    }
    assert_eq!(
        number(&sql, "select count(*) from outlast._account_limit").await,
        0
    );
    beside(FILE, url, &["apply", "--yes"])
        .await
        .fine()
        .says("5 settings changed");
    beside(FILE, url, &["apply", "--check"])
        .await
        .fine()
        .says("nothing to change");
    let claimed = async |name: &str| {
        number(
            &sql,
            &format!("select count(*) from outlast.claim('command', '{name}', 20)"),
        )
        .await
    };
    assert_eq!((claimed("pay").await, claimed("call").await), (5, 3));

    let ran = outlast(url, &["accounts", "ls", "--json"]).await.fine();
    let bolt = &ran.json()[1];
    assert_eq!(
        (
            &bolt["name"],
            &bolt["concurrency"],
            &bolt["running"],
            &bolt["circuit"]
        ),
        (&json!("bolt/7"), &json!(3), &json!(3), &json!(2))
    );
    let shown = beside(FILE, url, &["config", "show", "--json"])
        .await
        .fine()
        .json();
    let acme = shown
        .iter()
        .find(|entry| entry["name"] == "cluster.account.acme");
    let acme = acme.expect("the account");
    assert_eq!(acme["value"], "burst 5, rate 2");
    assert!(
        acme["origin"]
            .as_str()
            .is_some_and(|origin| origin.starts_with("applied 20"))
    );

    // SQL says the same of the same rows; what the file does not say goes back to its default.
    execute(
        &sql,
        "select outlast.limit_account('acme', rate => 9, burst => 5)",
    )
    .await;
    beside(FILE, url, &["config", "show"])
        .await
        .fine()
        .says("the file says burst 5, rate 2: `outlast apply` makes it so");
    let ran = beside("[cluster]\n", url, &["apply", "--yes", "--json"])
        .await
        .fine();
    let gone = json!({ "name": "account.acme.rate", "was": "9", "was_default": false, "becomes": "", "becomes_default": false });
    let changes = ran.json()[0]["changes"].clone();
    assert!(
        changes.as_array().is_some_and(|all| all.contains(&gone)),
        "{changes}"
    );
    assert_eq!(
        number(&sql, "select count(*) from outlast._account_limit").await,
        0
    );
    let audit = "select count(*) from outlast._audit where action = 'account.limited'";
    assert_eq!(number(&sql, audit).await, 5);
    outlast(url, &["verify"]).await.fine();
}

#[tokio::test]
async fn everything_that_is_wrong_with_accounts_is_told_at_once_and_nothing_is_written() {
    let (database, sql) = database().await;
    let file = "[cluster]\nwake = \"loud\"\n[cluster.account.acme]\nrate = 0\nburst = 0\nconcurrency = 0\n[cluster.account.bolt]\nrats = 5\n[cluster.account.none]\n";
    let ran = beside(file, database.url(), &["apply", "--yes"])
        .await
        .with(2);
    for problem in [
        "wake (outlast.toml:2)",
        "account.acme",
        "rate is 0, not more than 0",
        "burst is 0, not between 1 and 100000",
        "concurrency is 0, not between 1 and 10000",
        "account.bolt",
        "unknown field `rats`",
        "account.none",
        "it says nothing",
    ] {
        assert!(ran.err.contains(problem), "{problem:?} is not in {ran:#?}");
    }
    let scalar = "[cluster]\naccount = \"acme\"\n";
    beside(scalar, database.url(), &["apply", "--yes"])
        .await
        .with(2)
        .says("tables [cluster.account.NAME] are expected");
    assert_eq!(
        number(&sql, "select count(*) from outlast._account_limit").await,
        0
    );
}

#[tokio::test]
async fn an_account_is_paused_by_a_person_and_goes_on_when_one_says_so() {
    let (database, sql) = database().await;
    let url = database.url();
    outlast(url, &["accounts", "ls"])
        .await
        .fine()
        .says("no account is limited");
    execute(
        &sql,
        "select outlast.command('pay', '{}', 'a', account => 'acme')",
    )
    .await;
    let claimed = async || {
        number(
            &sql,
            "select count(*) from outlast.claim('command', 'pay', 20)",
        )
        .await
    };
    let pause = [
        "accounts",
        "pause",
        "acme",
        "--reason",
        "their incident",
        "--actor",
        "jane",
    ];
    outlast(url, &pause)
        .await
        .fine()
        .says("account acme is paused");
    assert_eq!(claimed().await, 0);
    outlast(url, &["accounts", "ls"])
        .await
        .fine()
        .says("a person")
        .says("their incident");
    outlast(url, &["commands", "ls"]).await.fine().says("acme");
    // A file says what it may do; that it is paused stays.
    let file = "[cluster.account.acme]\nconcurrency = 2\n";
    beside(file, url, &["apply", "--yes"]).await.fine();
    assert_eq!(claimed().await, 0);
    let resume = ["accounts", "resume", "acme"];
    outlast(url, &resume)
        .await
        .fine()
        .says("account acme is open");
    outlast(url, &resume).await.fine().says("was open already");
    assert_eq!(claimed().await, 1);
    outlast(url, &["accounts", "pause", "", "--reason", "x"])
        .await
        .with(2);
    let engine = database.login("in role outlast_engine").await;
    outlast(&engine, &pause)
        .await
        .with(7)
        .says("grant outlast_owner to LOGIN");
    let audit =
        "select count(*) from outlast._audit where action in ('account.paused', 'account.resumed')";
    assert_eq!(number(&sql, audit).await, 2);
}
