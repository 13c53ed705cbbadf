//! `[cluster.endpoint.NAME]`, `outlast apply`, `outlast run --only push`: endpoints without a line of code.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Bytes, http::HeaderMap, routing::post};
use outlast_http::signature::{Keys, Verifier};
use outlast_testkit::{process::Process, wait_for};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{Folder, PATIENCE, Ran, command, database, execute, number, outlast, run};

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// `outlast apply --yes ARGS` with this section.
async fn apply(section: &str, url: &str, args: &[&str]) -> Ran {
    let folder = Folder::new();
    fs::create_dir(folder.path()).expect("a new folder");
    fs::write(folder.path().join("outlast.toml"), section).expect("a file in it");
    let mut command = command(&["apply"]);
    command.env("OUTLAST_EGRESS_ALLOW", "127.0.0.0/8");
    command
        .current_dir(folder.path())
        .args(args)
        .args(["--database", url]);
    run(command, b"").await
}

const SHOP: &str = r#"
[cluster.endpoint.shop]
url = "https://shop.example/events"
types = ["booking.*", "payment.settled"]
key = "shop"
headers = { authorization = "secret:shop-token" }
rate = 50
timeout = "10s"
ordered = true
"#;

#[tokio::test]
async fn an_endpoint_is_shown_line_by_line_applied_audited_and_removed() {
    let (database, sql) = database().await;
    let count = "select count(*) from outlast._endpoint";
    let shown = apply(SHOP, database.url(), &["--check"]).await.with(1);
    for line in [
        "endpoint.shop.url https://shop.example/events",
        "endpoint.shop.types booking.*, payment.settled",
        "endpoint.shop.headers authorization: secret:shop-token",
        "endpoint.shop.concurrency 8",
        "endpoint.shop.deadline 1m",
    ] {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            shown.out.lines().any(|out| words(out) == line),
            "{line}: {shown:#?}"
        );
    }
    assert_eq!(number(&sql, count).await, 0);
    apply(SHOP, database.url(), &["--yes"]).await.fine();
    apply(SHOP, database.url(), &["--check"])
        .await
        .fine()
        .says("nothing to change");
    let wider = SHOP.replace("rate = 50", "rate = 60");
    let changed = apply(&wider, database.url(), &["--yes", "--json"])
        .await
        .fine();
    assert_eq!(
        changed.json()[0]["changes"],
        json!([{ "name": "endpoint.shop.rate", "was": "50", "was_default": false, "becomes": "60", "becomes_default": false }])
    );
    let audited = outlast(database.url(), &["audit", "ls", "--json"])
        .await
        .fine();
    let last = &audited.json()[0];
    assert_eq!(
        (&last["action"], &last["about"]),
        (&json!("endpoint.set"), &json!("shop"))
    );
    assert_eq!(
        (
            &last["detail"]["was"]["rate"],
            &last["detail"]["becomes"]["rate"]
        ),
        (&json!(50), &json!(60))
    );
    apply("[cluster]\n", database.url(), &["--yes"])
        .await
        .fine()
        .says("outlast consumers retire push/shop");
    assert_eq!(number(&sql, count).await, 0);
}

#[tokio::test]
async fn what_cannot_be_an_endpoint_is_refused_with_everything_that_is_wrong() {
    let (database, sql) = database().await;
    let file = r#"
[cluster.endpoint.inside]
url = "https://169.254.169.254/latest"
types = ["*"]
key = "k"

[cluster.endpoint.plain]
url = "https://u:hunter2@shop.example/"
types = ["*"]
key = "k"
"#;
    let ran = apply(file, database.url(), &["--yes"]).await.with(2);
    let ran = ran
        .says("endpoint.inside: url: 169.254.169.254 leads to an address that is link-local")
        .says("OUTLAST_EGRESS_ALLOW");
    let ran = ran.says("endpoint.plain: url: a user or password in a URL is refused");
    assert!(!ran.err.contains("hunter2"), "{ran:#?}");
    for (section, why) in [
        (
            "url = \"https://a.example\"\ntypes = [\"*\"]\nkey = \"k\"\nulr = 1",
            "unknown field `ulr`",
        ),
        (
            "url = \"https://a.example\"\ntypes = [\"*\"]",
            "missing field `key`",
        ),
        (
            "url = \"https://a.example\"\ntypes = [\"B c\"]\nkey = \"k\"",
            "cannot be a name",
        ),
        (
            "url = \"https://a.example\"\ntypes = []\nkey = \"k\"\ntimeout = \"2m\"",
            "timeout is 2m",
        ),
        (
            "url = \"https://a.example\"\ntypes = [\"*\"]\nkey = \"k\"\ntimeout = 5",
            "endpoint.a (outlast.toml:1)",
        ),
    ] {
        let file = format!("[cluster.endpoint.a]\n{section}\n");
        apply(&file, database.url(), &["--yes"])
            .await
            .with(2)
            .says(why);
    }
    assert_eq!(
        number(&sql, "select count(*) from outlast._endpoint").await,
        0
    );
}

/// A receiver that verifies; answers its URL and what it has received.
async fn receiver() -> (String, Arc<Mutex<Vec<String>>>) {
    let got = Arc::new(Mutex::new(Vec::new()));
    let (kept, keys) = (got.clone(), KEY.parse::<Keys>().expect("a key"));
    let receive = move |headers: HeaderMap, body: Bytes| {
        let verified = Verifier::new(keys.clone()).verify(&headers, &body);
        verified.expect("it is signed");
        assert_eq!(headers["authorization"], "Bearer s3cret");
        kept.lock()
            .expect("nobody panicked")
            .push(String::from_utf8_lossy(&body).into_owned());
        async { axum::http::StatusCode::NO_CONTENT }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!(
        "http://{}/events",
        listener.local_addr().expect("an address")
    );
    let app = Router::new().route("/events", post(receive));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, got)
}

async fn until(what: &str, got: &Mutex<Vec<String>>, n: usize) {
    wait_for(what, PATIENCE, async || {
        (got.lock().expect("nobody panicked").len() == n).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_worked_for_changed_while_it_runs_and_one_without_its_secret_harms_nobody() {
    let (database, sql) = database().await;
    let ((first, at_first), (second, at_second)) = (receiver().await, receiver().await);
    let section = |url: &str| {
        format!(
            "{}\n[cluster.endpoint.lacking]\nurl = \"https://lacking.example/\"\ntypes = [\"*\"]\nkey = \"lacking\"\n",
            SHOP.replace("https://shop.example/events", url)
        )
    };
    apply(&section(&first), database.url(), &["--yes"])
        .await
        .fine();
    let mut command = command(&["run", "--only", "push", "--database", database.url()]);
    command
        .env("OUTLAST_EGRESS_ALLOW", "127.0.0.1")
        .env("OUTLAST_SECRET_SHOP", KEY);
    command.env("OUTLAST_SECRET_SHOP_TOKEN", "Bearer s3cret");
    let pushing = Process::spawn(&mut command).expect("outlast starts");
    pushing
        .line("OUTLAST_SECRET_LACKING is not set", PATIENCE)
        .await;
    pushing.line("worker is running", PATIENCE).await;
    execute(&sql, "select outlast.emit('booking.confirmed', '{\"n\":1}'::text); select outlast.emit('other', '{}'::text)").await;
    until("the first receiver", &at_first, 1).await;

    apply(&section(&second), database.url(), &["--yes"])
        .await
        .fine();
    pushing
        .line("the endpoints of the cluster have changed", PATIENCE)
        .await;
    execute(
        &sql,
        "select outlast.emit('payment.settled', '{\"n\":2}'::text)",
    )
    .await;
    until("the second receiver", &at_second, 1).await;
    assert_eq!(at_first.lock().expect("nobody panicked").len(), 1);
    let done = "select count(*) from outlast.processed where consumer = 'push/shop'";
    wait_for("both are complete", PATIENCE, async || {
        (number(&sql, done).await == 2).then_some(())
    })
    .await;
    // What its consumer began with stays.
    let unordered = section(&second).replace("ordered = true", "ordered = false");
    apply(&unordered, database.url(), &["--yes"])
        .await
        .with(2)
        .says("cannot be changed");
    pushing.terminate();
    assert_eq!(pushing.exit(PATIENCE).await.code(), Some(0), "{pushing:?}");
    let lines = pushing.lines().join("\n");
    assert!(
        !lines.contains("s3cret") && !lines.contains("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        "{lines}"
    );

    // A consumer that is no more harms nobody either.
    let retire = [
        "consumers",
        "retire",
        "push/shop",
        "--reason",
        "a test",
        "--yes",
    ];
    outlast(database.url(), &retire).await.with(0);
    let pushing = Process::spawn(&mut command).expect("outlast starts");
    pushing
        .line("not registered, so nothing of it runs here", PATIENCE)
        .await;
    pushing.line("worker is running", PATIENCE).await;
    pushing.terminate();
    assert_eq!(pushing.exit(PATIENCE).await.code(), Some(0), "{pushing:?}");
}
