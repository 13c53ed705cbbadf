//! `outlast commands`: what a person sees of commands and decides about them.

use outlast_testkit::pg::Database;
use serde_json::Value;
use tokio_postgres::Client;

use crate::{Ran, database, execute, number, outlast};

/// A person at a terminal, and what a worker does meanwhile.
struct Desk {
    database: Database,
    sql: Client,
}

impl Desk {
    async fn new() -> Self {
        let (database, sql) = database().await;
        Self { database, sql }
    }

    async fn outlast(&self, args: &[&str]) -> Ran {
        outlast(self.database.url(), args).await
    }

    async fn text(&self, sql: &str) -> String {
        let row = self.sql.query_one(sql, &[]).await;
        row.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
            .get(0)
    }

    /// Accepts `pay` under this key; `more`: further arguments.
    async fn accept(&self, key: &str, more: &str) -> String {
        let sql = format!(
            "select id::text from outlast.command('pay', '{{\"amount\": \"1.00\"}}', '{key}'{more})"
        );
        self.text(&sql).await
    }

    /// A worker takes the one that is due, and says that it leaves.
    async fn send(&self) -> (String, String) {
        let sql = "select token::text, id::text from outlast.claim('command', 'pay')";
        let row = self.sql.query_one(sql, &[]).await.expect("one is due");
        let (token, id): (String, String) = (row.get(0), row.get(1));
        execute(
            &self.sql,
            &format!("select outlast.sent('{token}', '{id}')"),
        )
        .await;
        (token, id)
    }

    /// It was sent, and nobody knows what became of it.
    async fn unknown(&self, key: &str, more: &str) -> String {
        self.accept(key, more).await;
        let (token, id) = self.send().await;
        let sql = format!("select outlast.fail('{token}', '{id}', 'unknown', E'no\\nanswer')");
        execute(&self.sql, &sql).await;
        id
    }

    /// It was answered so.
    async fn answered(&self, result: &str, more: &str) -> String {
        let (token, id) = self.send().await;
        let sql = format!("select outlast.record('{token}', '{id}', '{result}'{more})");
        execute(&self.sql, &sql).await;
        id
    }

    async fn show(&self, id: &str) -> Value {
        let shown = self.outlast(&["commands", "show", id, "--json"]).await;
        shown.fine().json()[0].clone()
    }

    /// The ids that a list has, in order.
    async fn listed(&self, args: &[&str]) -> Vec<String> {
        let args = [&["commands", "ls", "--json"], args].concat();
        let ran = self.outlast(&args).await.fine();
        let id = |line: &Value| line["id"].as_str().expect("an id").to_owned();
        ran.json().iter().map(id).collect()
    }

    async fn verified(&self) {
        self.outlast(&["verify"]).await.fine();
    }
}

const NOBODY: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

#[tokio::test]
async fn commands_are_listed_by_name_state_tenant_account_key_and_age() {
    let desk = Desk::new().await;
    desk.outlast(&["commands", "ls"])
        .await
        .fine()
        .says("there is no such command");
    let unknown = desk.unknown("u", ", account => 'acme'").await;
    desk.accept("s", "").await;
    let settled = desk.answered("settled", ", '\"ch_1\"', 'ch_1'").await;
    desk.accept("p", "").await;
    let pending = desk.answered("pending", ", null, 'tx_9'").await;
    let waiting = desk
        .accept("w", ", tenant => 'north', after_ms => 3600000")
        .await;
    desk.accept("r", "").await;
    let (_, running) = desk.send().await;
    let other = desk
        .text("select id::text from outlast.command('contract', '{}', 'c', at => now() + interval '2 days')")
        .await;
    // A job of the same name is no command.
    execute(&desk.sql, "select outlast.enqueue('pay', '{}')").await;

    let all = [&other, &running, &waiting, &pending, &settled, &unknown];
    assert_eq!(desk.listed(&[]).await, all.map(String::clone));
    for (state, ids) in [
        ("unknown", vec![&unknown]),
        ("settled", vec![&settled]),
        ("pending", vec![&pending]),
        ("running", vec![&running]),
        ("waiting", vec![&other, &waiting]),
        ("stopped", vec![&unknown]),
        ("contradicted", vec![]),
        ("rejected", vec![]),
        ("obsolete", vec![]),
        ("cancelled", vec![]),
        ("abandoned", vec![]),
    ] {
        let ids: Vec<String> = ids.into_iter().cloned().collect();
        assert_eq!(desk.listed(&["--state", state]).await, ids, "{state}");
    }
    assert_eq!(
        desk.listed(&["--name", "contract"]).await,
        std::slice::from_ref(&other)
    );
    assert_eq!(
        desk.listed(&["--tenant", "north"]).await,
        std::slice::from_ref(&waiting)
    );
    assert_eq!(
        desk.listed(&["--account", "acme"]).await,
        std::slice::from_ref(&unknown)
    );
    assert_eq!(
        desk.listed(&["--key", "p"]).await,
        std::slice::from_ref(&pending)
    );
    assert_eq!(
        desk.listed(&["--limit", "1"]).await,
        std::slice::from_ref(&other)
    );
    assert_eq!(desk.listed(&["--since", "1h"]).await.len(), 6);
    assert_eq!(desk.listed(&["--before", "1h"]).await.len(), 0);
    // Younger than what its id says it cannot be, but older.
    let old = format!(
        "update outlast._job set accepted_at = accepted_at - interval '2 hours' where id = '{unknown}'"
    );
    execute(&desk.sql, &old).await;
    let old = ["--state", "unknown", "--before", "1h"];
    assert_eq!(desk.listed(&old).await, std::slice::from_ref(&unknown));
    desk.outlast(&["commands", "ls", "--state", "unknown"])
        .await
        .fine()
        .says("a person")
        .says("acme");
    desk.outlast(&["commands", "ls", "--state", "lost"])
        .await
        .with(2)
        .says("contradicted");
}

#[tokio::test]
async fn show_tells_what_happened_and_what_to_do_next() {
    let desk = Desk::new().await;
    let id = desk
        .unknown("booking/7", ", account => 'acme', exclusive => 'booking/7'")
        .await;
    let next = desk
        .accept("booking/7/more", ", exclusive => 'booking/7'")
        .await;
    execute(&desk.sql, "select * from outlast.claim('command', 'pay')").await;
    let shown = desk.show(&id).await;
    assert_eq!(shown["state"], "unknown");
    assert_eq!(shown["sent"], true);
    let what: Vec<&str> = shown["evidence"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|line| line["what"].as_str())
        .collect();
    assert_eq!(what, ["sent", "failed"]);
    let key = shown["provider_key"].as_str().expect("a key").to_owned();
    desk.outlast(&["commands", "show", &id])
        .await
        .fine()
        .says("what happened:")
        .says("no\\nanswer")
        .says(&format!("ask the provider for {key}"))
        .says(&format!(
            "outlast commands resolve {id} --settled --reference R"
        ))
        .says(&format!("outlast commands resolve {id} --not-applied"));
    // What waits behind it says for whom.
    let behind = desk.show(&next).await;
    assert_eq!(
        (&behind["blocked"], &behind["held_by"]),
        (&true.into(), &id.as_str().into())
    );
    assert!(
        behind["next"]
            .to_string()
            .contains(&format!("outlast commands show {id}"))
    );
    desk.outlast(&["commands", "retry", &next])
        .await
        .with(1)
        .says("another command has its key of exclusion");
    desk.outlast(&["incidents", "ls"])
        .await
        .fine()
        .says("unknown command")
        .says("outlast commands show ABOUT");
    desk.outlast(&["commands", "show", NOBODY])
        .await
        .with(1)
        .says("there is no such command")
        .says("outlast commands ls");
    // A job is no command, and the other way round.
    desk.outlast(&["jobs", "show", &id]).await.with(1);
    desk.verified().await;
}

#[tokio::test]
async fn a_person_resolves_with_a_reason_a_reference_and_a_line_of_the_audit() {
    let desk = Desk::new().await;
    let of = |word: &str| match word {
        "--settled" => vec!["--settled", "--reference", "ch_9", "--answer", "{\"id\":9}"],
        "--rejected" => vec!["--rejected"],
        "--not-applied" => vec!["--not-applied"],
        _ => vec!["--abandoned"],
    };
    for (n, (word, becomes)) in [
        ("--settled", "settled"),
        ("--rejected", "rejected"),
        ("--abandoned", "abandoned"),
        ("--not-applied", "waiting"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = desk.unknown(&n.to_string(), "").await;
        let args = [
            &["commands", "resolve", &id][..],
            &of(word),
            &["--reason", "their statement", "--actor", "ann", "--json"],
        ]
        .concat();
        let resolved = desk.outlast(&args).await.fine().json();
        assert_eq!(
            (&resolved[0]["was"], &resolved[0]["state"]),
            (&"unknown".into(), &becomes.into()),
            "{word}"
        );
        let again = desk.outlast(&args).await.with(1);
        again.says(&format!("it does not wait for a person: it is {becomes}"));
    }
    let settled = desk.listed(&["--state", "settled"]).await;
    let settled = desk.show(&settled[0]).await;
    assert_eq!(
        (&settled["reference"], &settled["answer"]),
        (&"ch_9".into(), &"{\"id\":9}".into())
    );
    let audited = desk.outlast(&["audit", "ls", "--action", "command.resolved", "--json"]);
    let audited = audited.await.fine().json();
    assert_eq!(audited.len(), 4);
    assert!(
        audited.iter().all(|line| line["actor"] == "ann"),
        "{audited:?}"
    );
    assert_eq!(
        desk.text("select count(*)::text from outlast.claim('command', 'pay', 10)")
            .await,
        "1",
        "what had no effect is sent again"
    );
    desk.verified().await;
}

#[tokio::test]
async fn a_resolution_without_right_reason_or_reference_is_refused_and_changes_nothing() {
    let desk = Desk::new().await;
    let id = desk.unknown("k", "").await;
    for (args, says) in [
        (&["--settled", "--reason", "x"][..], "--reference"),
        (
            &["--settled", "--reference", "", "--reason", "x"],
            "--reference",
        ),
        (&["--settled", "--reference", "r"], "--reason"),
        (&["--abandoned", "--reason", ""], "--reason"),
        (&["--reason", "x"], "--not-applied"),
        (
            &["--abandoned", "--rejected", "--reason", "x"],
            "cannot be used with",
        ),
        (
            &["--rejected", "--answer", "1", "--reason", "x"],
            "cannot be used with",
        ),
    ] {
        let args = [&["commands", "resolve", &id], args].concat();
        desk.outlast(&args).await.with(2).says(says);
    }
    let no_json = [
        "commands",
        "resolve",
        &id,
        "--settled",
        "--reference",
        "r",
        "--answer",
        "{",
        "--reason",
        "x",
    ];
    desk.outlast(&no_json).await.with(2);
    let why = ["--abandoned", "--reason", "x"];
    let nobody = [&["commands", "resolve", NOBODY][..], &why].concat();
    desk.outlast(&nobody)
        .await
        .with(1)
        .says("there is no such command");
    let engine = desk.database.login("in role outlast_engine").await;
    let mine = [&["commands", "resolve", &id][..], &why].concat();
    outlast(&engine, &mine)
        .await
        .with(7)
        .says("OUT-0020")
        .says("grant outlast_owner to LOGIN");
    assert_eq!(desk.show(&id).await["state"], "unknown");
    // One that machines still find out about waits for nobody.
    let pending = {
        desk.accept("p", "").await;
        desk.answered("pending", "").await
    };
    let args = [&["commands", "resolve", &pending][..], &why].concat();
    desk.outlast(&args)
        .await
        .with(1)
        .says("it does not wait for a person: it is pending")
        .says("outlast commands settle");
    assert_eq!(
        number(
            &desk.sql,
            "select count(*) from outlast._audit where action = 'command.resolved'"
        )
        .await,
        0
    );
    desk.verified().await;
}

#[tokio::test]
async fn another_systems_word_settles_by_key_and_a_contradiction_is_put_before_a_person() {
    let desk = Desk::new().await;
    desk.accept("k", "").await;
    let id = desk.answered("pending", ", null, 'tx_9'").await;
    let settle = [
        "commands",
        "settle",
        "pay",
        "k",
        "--settled",
        "--reference",
        "tx_9",
        "--answer",
        "\"tx_9\"",
    ];
    desk.outlast(&settle).await.fine().says("pay k is settled");
    desk.outlast(&settle)
        .await
        .fine()
        .says("had ended so before");
    let refused = [
        "commands",
        "settle",
        "pay",
        "k",
        "--rejected",
        "--reason",
        "their report",
    ];
    desk.outlast(&refused)
        .await
        .with(1)
        .says("it has ended otherwise")
        .says("--noted");
    let shown = desk.show(&id).await;
    assert_eq!(shown["state"], "settled");
    assert_eq!(shown["contradictions"][0]["state"], "rejected");
    assert!(shown["next"].to_string().contains("--noted"), "{shown}");
    assert_eq!(
        desk.listed(&["--state", "contradicted"]).await,
        std::slice::from_ref(&id)
    );
    let noted = [
        "commands",
        "resolve",
        &id,
        "--noted",
        "--reason",
        "their report was wrong",
    ];
    desk.outlast(&noted).await.fine().says("stays settled");
    desk.outlast(&noted)
        .await
        .with(1)
        .says("nobody has told another end of it");
    desk.outlast(&["incidents", "ls"])
        .await
        .fine()
        .says("nothing needs a person");

    // Told before the command was there.
    let early = [
        "commands",
        "settle",
        "pay",
        "later",
        "--settled",
        "--reference",
        "tx_10",
    ];
    desk.outlast(&early)
        .await
        .fine()
        .says("what was told is kept");
    let id = desk.accept("later", "").await;
    assert_eq!(desk.show(&id).await["state"], "settled");
    // It never comes.
    let never = early.map(|word| if word == "later" { "never" } else { word });
    desk.outlast(&never).await.fine();
    let week = "update outlast._settlement set at = at - interval '8 days'";
    execute(&desk.sql, week).await;
    let incidents = desk.outlast(&["incidents", "ls"]).await.fine();
    let incidents = incidents.says("settlement without a command");
    incidents.says("outlast commands discard CONSUMER KEY");
    let mut discard = vec!["commands", "discard", "pay", "never"];
    desk.outlast(&discard).await.with(2).says("--reason");
    discard.extend(["--reason", "another shop"]);
    desk.outlast(&discard).await.fine().says("1 settlement");
    desk.outlast(&discard).await.with(1);
    desk.outlast(&["commands", "settle", "pay", "x", "--rejected"])
        .await
        .with(2)
        .says("--reason");
    // Whoever may emit may tell.
    let emitter = desk.database.login("in role outlast_emitter").await;
    desk.accept("m", "").await;
    let told = [
        "commands",
        "settle",
        "pay",
        "m",
        "--obsolete",
        "--reason",
        "closed",
    ];
    outlast(&emitter, &told).await.fine().says("is obsolete");
    desk.verified().await;
}

#[tokio::test]
async fn what_has_had_no_effect_is_withdrawn_or_tried_again_and_what_may_have_had_one_is_not() {
    let desk = Desk::new().await;
    let id = desk.accept("w", "").await;
    let cancel =
        |id: &str| ["commands", "cancel", id, "--reason", "ordered twice"].map(str::to_owned);
    let run = async |args: [String; 5]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        desk.outlast(&args).await
    };
    run(cancel(&id)).await.fine().says("is withdrawn");
    run(cancel(&id))
        .await
        .with(1)
        .says("it has ended: it is cancelled");
    run(cancel(NOBODY))
        .await
        .with(1)
        .says("there is no such command");

    let unknown = desk.unknown("u", "").await;
    run(cancel(&unknown)).await.fine().says("may have left");
    assert!(
        desk.show(&unknown).await["next"]
            .to_string()
            .contains("asked to withdraw")
    );
    desk.outlast(&["commands", "retry", &unknown])
        .await
        .with(1)
        .says("not sent again blindly")
        .says(&format!("outlast commands show {unknown}"));
    // It turns out to have had none: then it goes.
    let none = [
        "commands",
        "resolve",
        &unknown,
        "--not-applied",
        "--reason",
        "their log",
    ];
    desk.outlast(&none)
        .await
        .fine()
        .says("withdrawn as somebody had asked");

    desk.accept("f", "").await;
    let (token, failed) = desk.send().await;
    let fail = format!("select outlast.fail('{token}', '{failed}', 'permanent', 'wrong password')");
    execute(&desk.sql, &fail).await;
    let shown = desk.show(&failed).await;
    assert_eq!(shown["state"], "waiting");
    assert!(
        shown["next"]
            .to_string()
            .contains(&format!("outlast commands retry {failed}"))
    );
    desk.outlast(&["commands", "retry", &failed, "--actor", "jane"])
        .await
        .fine()
        .says("may be sent now");
    assert_eq!(desk.answered("settled", "").await, failed);
    desk.outlast(&["commands", "retry", &failed])
        .await
        .with(1)
        .says("it is settled");
    desk.verified().await;
}

#[tokio::test]
async fn commands_of_a_paused_name_wait_and_jobs_of_the_same_name_do_not() {
    let desk = Desk::new().await;
    let id = desk.accept("k", "").await;
    execute(&desk.sql, "select outlast.enqueue('pay', '{}')").await;
    let pause = [
        "commands",
        "pause",
        "pay",
        "--reason",
        "their incident",
        "--actor",
        "jane",
    ];
    desk.outlast(&pause)
        .await
        .fine()
        .says("commands pay are paused");
    desk.outlast(&pause)
        .await
        .fine()
        .says("were paused already");
    let claimed = async |kind: &str| {
        let sql = format!("select count(*) from outlast.claim('{kind}', 'pay', 10)");
        number(&desk.sql, &sql).await
    };
    assert_eq!((claimed("command").await, claimed("job").await), (0, 1));
    let shown = desk.show(&id).await;
    assert_eq!(shown["paused"], "their incident");
    assert!(
        shown["next"]
            .to_string()
            .contains("outlast commands resume pay")
    );
    desk.outlast(&["commands", "resume", "pay"])
        .await
        .fine()
        .says("commands pay are active");
    assert_eq!(claimed("command").await, 1);
    desk.verified().await;
}
