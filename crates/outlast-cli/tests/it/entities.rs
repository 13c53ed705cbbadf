//! `outlast entities`: what a person sees of entities and decides about them.

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

    async fn run(&self, sql: &str) {
        execute(&self.sql, sql).await;
    }

    /// Marks `crm` of this key; `more`: further arguments.
    async fn changed(&self, key: &str, more: &str) {
        self.run(&format!("select outlast.changed('crm', '{key}'{more})"))
            .await;
    }

    /// A worker takes the one that is due.
    async fn claim(&self) -> (String, String) {
        let sql = "select token::text, id::text from outlast.claim('entity', 'crm')";
        let row = self.sql.query_one(sql, &[]).await.expect("one is due");
        (row.get(0), row.get(1))
    }

    /// It is taken, and fails for good.
    async fn stopped(&self, key: &str, more: &str) -> String {
        self.changed(key, more).await;
        let (token, id) = self.claim().await;
        let fail =
            format!("select outlast.fail('{token}', '{id}', 'permanent', E'no such\\nchat')");
        self.run(&fail).await;
        id
    }

    /// It is taken, something is kept, and it converges.
    async fn converged(&self, key: &str, kept: &str) -> String {
        self.changed(key, "").await;
        let (token, id) = self.claim().await;
        self.run(&format!("select outlast.keep('{token}', '{id}', '{kept}')"))
            .await;
        self.run(&format!("select outlast.complete('{token}', '{id}')"))
            .await;
        id
    }

    async fn show(&self, which: &[&str]) -> Value {
        let args = [&["entities", "show", "--json"], which].concat();
        self.outlast(&args).await.fine().json()[0].clone()
    }

    /// The keys that a list has, in order.
    async fn listed(&self, args: &[&str]) -> Vec<String> {
        let args = [&["entities", "ls", "--json"], args].concat();
        let ran = self.outlast(&args).await.fine();
        let key = |line: &Value| line["key"].as_str().expect("a key").to_owned();
        ran.json().iter().map(key).collect()
    }

    async fn audited(&self, who: &str) -> Vec<String> {
        let audited = self.outlast(&["audit", "ls", "--json"]).await.fine().json();
        let mut lines: Vec<_> = audited
            .iter()
            .filter(|line| line["actor"] == who)
            .map(|line| line["action"].as_str().expect("an action").to_owned())
            .collect();
        lines.sort_unstable();
        lines
    }

    async fn verified(&self) {
        self.outlast(&["verify"]).await.fine();
    }
}

const NOBODY: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

#[tokio::test]
async fn entities_are_listed_by_name_state_tenant_key_and_age_also_those_that_nobody_has_taken_yet()
{
    let desk = Desk::new().await;
    desk.outlast(&["entities", "ls"])
        .await
        .fine()
        .says("there is no such entity");
    // Nobody has looked at any mark yet.
    desk.run("select outlast.changed('mail', 'm'), outlast.changed('mail', 'm')")
        .await;
    assert_eq!(desk.listed(&[]).await, ["m"]);
    assert_eq!(desk.listed(&["--state", "waiting"]).await, ["m"]);
    let unseen = desk.show(&["mail", "m"]).await;
    assert_eq!(
        (&unseen["id"], &unseen["unfolded"]),
        (&Value::Null, &2.into())
    );
    desk.outlast(&["entities", "show", "mail", "m"])
        .await
        .fine()
        .says("start a worker that reconciles");
    desk.outlast(&["entities", "retry", "mail", "m"])
        .await
        .with(1)
        .says("nobody has taken its marks yet");
    // Whoever claims another name takes the marks of all.
    desk.run("select * from outlast.claim('entity', 'other')")
        .await;

    desk.stopped("s", "").await;
    desk.converged("c", "\"g1\"").await;
    desk.changed("r", "").await;
    let (_running, _) = desk.claim().await;
    desk.changed("n", ", tenant => 'north'").await;
    desk.run("select * from outlast.claim('entity', 'other')")
        .await;

    assert_eq!(desk.listed(&[]).await, ["n", "r", "c", "s", "m"]);
    for (state, keys) in [
        ("waiting", vec!["n", "s", "m"]),
        ("stopped", vec!["s"]),
        ("running", vec!["r"]),
        ("converged", vec!["c"]),
        ("late-refs", vec![]),
    ] {
        assert_eq!(desk.listed(&["--state", state]).await, keys, "{state}");
    }
    // Marked again, and nobody has looked yet: not converged any more.
    desk.changed("c", "").await;
    assert_eq!(
        desk.listed(&["--state", "converged"]).await,
        Vec::<String>::new()
    );
    assert_eq!(
        desk.listed(&["--state", "waiting"]).await,
        ["n", "c", "s", "m"]
    );
    assert_eq!(desk.listed(&["--name", "mail"]).await, ["m"]);
    assert_eq!(desk.listed(&["--tenant", "north"]).await, ["n"]);
    assert_eq!(desk.listed(&["--key", "r"]).await, ["r"]);
    assert_eq!(desk.listed(&["--limit", "2"]).await, ["n", "r"]);
    assert_eq!(desk.listed(&["--since", "1h"]).await.len(), 5);
    assert_eq!(desk.listed(&["--before", "1h"]).await, Vec::<String>::new());
    desk.run("update outlast._job set accepted_at = accepted_at - interval '2 hours' where key in ('s', 'c')").await;
    // Of what is marked anew the age begins anew.
    assert_eq!(desk.listed(&["--before", "1h"]).await, ["s"]);
    let people = desk
        .outlast(&["entities", "ls", "--state", "stopped"])
        .await;
    people.fine().says("a person").says("no such\\nchat");
    desk.outlast(&["entities", "ls", "--state", "lost"])
        .await
        .with(2)
        .says("late-refs");
    desk.verified().await;
}

#[tokio::test]
async fn show_tells_what_is_kept_and_to_be_cleaned_up_and_what_to_do_next() {
    let desk = Desk::new().await;
    let id = desk.converged("a", "{\"group\": \"g1\"}").await;
    desk.run("select outlast.deleted('crm', 'a', '\"g7\"', actor => 'jo', exclusive => 'chat/7')")
        .await;
    let (token, _) = desk.claim().await;
    let fail = format!("select outlast.fail('{token}', '{id}', 'permanent', 'no answer')");
    desk.run(&fail).await;
    let shown = desk.show(&["crm", "a"]).await;
    assert_eq!(shown, desk.show(&[&id]).await, "by its id it is the same");
    assert_eq!(
        (&shown["state"], &shown["refs"]["refs"], &shown["gone"]),
        (
            &"waiting".into(),
            &"{\"group\": \"g1\"}".into(),
            &true.into()
        )
    );
    let deleted = &shown["deleted"][0];
    assert_eq!(
        (&deleted["refs"], &deleted["actor"]),
        (&"\"g7\"".into(), &"jo".into())
    );
    desk.outlast(&["entities", "show", &id])
        .await
        .fine()
        .says("to be cleaned up:")
        .says("\"g7\"")
        .says(&format!("outlast entities retry {id}"))
        .says(&format!("outlast entities abandon {id}"));
    // What waits behind its key says for whom.
    desk.changed("b", ", exclusive => 'chat/7'").await;
    desk.run("select * from outlast.claim('entity', 'crm')")
        .await;
    let behind = desk.show(&["crm", "b"]).await;
    assert_eq!(
        (&behind["blocked"], &behind["held_by"]),
        (&true.into(), &id.as_str().into())
    );
    let next = behind["next"].to_string();
    assert!(
        next.contains(&format!("outlast entities show {id}")),
        "{next}"
    );
    desk.outlast(&["entities", "retry", "crm", "b"])
        .await
        .with(1)
        .says("another one has its key of exclusion");

    desk.outlast(&["incidents", "ls"])
        .await
        .fine()
        .says("stopped entity")
        .says("outlast entities show ABOUT");
    for which in [
        &["crm", "nobody"][..],
        &[NOBODY],
        &["crm", "a", "--tenant", "north"],
    ] {
        let args = [&["entities", "show"], which].concat();
        let none = desk.outlast(&args).await.with(1);
        none.says("there is no such entity")
            .says("outlast entities ls");
    }
    desk.outlast(&["entities", "show", "crm"])
        .await
        .with(2)
        .says("give its name and its key");
    // An entity is no job, and the other way round.
    desk.outlast(&["jobs", "show", &id]).await.with(1);
    desk.verified().await;
}

#[tokio::test]
async fn a_person_retries_gives_up_forgets_and_notes_with_a_line_of_the_audit() {
    let desk = Desk::new().await;
    let (first, second) = (desk.stopped("a", "").await, desk.stopped("b", "").await);
    let by = ["--actor", "ann"];
    let why = ["--reason", "the chat is gone", "--actor", "ann"];
    let retry = [&["entities", "retry", "crm", "a"][..], &by].concat();
    desk.outlast(&retry).await.fine().says("may run now");
    let (token, id) = desk.claim().await;
    assert_eq!(id, first);
    desk.outlast(&retry).await.with(1).says("it is running");
    let abandon = [&["entities", "abandon", &second][..], &why].concat();
    let given_up = [&abandon[..], &["--json"]].concat();
    let given_up = desk.outlast(&given_up).await.fine().json();
    assert_eq!(given_up[0]["outcome"], "abandoned");
    desk.outlast(&abandon).await.with(1).says("it is converged");
    let retry = ["entities", "retry", "crm", "b"];
    desk.outlast(&retry).await.with(1).says("it is converged");

    let forget = [&["entities", "forget", "crm", "a"][..], &why].concat();
    desk.run(&format!("select outlast.keep('{token}', '{id}', '\"g1\"')"))
        .await;
    desk.outlast(&forget).await.with(1).says("it is running");
    desk.run(&format!("select outlast.complete('{token}', '{id}')"))
        .await;
    desk.outlast(&forget).await.fine().says("is forgotten");
    desk.outlast(&forget).await.with(1).says("nothing is kept");
    assert_eq!(desk.show(&["crm", "a"]).await["refs"], Value::Null);

    // Its lease is over, and it tells what it has made.
    desk.run(&format!("select outlast.keep('{token}', '{id}', '\"g2\"')"))
        .await;
    assert_eq!(desk.listed(&["--state", "late-refs"]).await, ["a"]);
    desk.outlast(&["entities", "show", &first])
        .await
        .fine()
        .says("late refs:")
        .says("\"g2\"")
        .says(&format!("outlast entities note {first}"));
    let note = [&["entities", "note", "crm", "a"][..], &why].concat();
    desk.outlast(&note).await.fine().says("are noted");
    desk.outlast(&note).await.with(1).says("no late refs");
    assert_eq!(
        desk.audited("ann").await,
        [
            "entity.abandoned",
            "entity.forgotten",
            "entity.noted",
            "entity.retried"
        ]
    );
    desk.outlast(&["incidents", "ls"])
        .await
        .fine()
        .says("nothing needs a person");
    for silent in ["abandon", "forget", "note"] {
        let args = ["entities", silent, "crm", "a"];
        desk.outlast(&args).await.with(2).says("--reason");
        let args = [&args[..], &["--reason", ""]].concat();
        desk.outlast(&args).await.with(2).says("--reason");
    }
    desk.verified().await;
}

#[tokio::test]
async fn entities_of_a_paused_name_wait_with_their_marks_and_commands_called_alike_do_not() {
    let desk = Desk::new().await;
    desk.changed("a", "").await;
    let pause = [
        "entities",
        "pause",
        "crm",
        "--reason",
        "their API is down",
        "--actor",
        "ann",
    ];
    desk.outlast(&pause)
        .await
        .fine()
        .says("entities crm are paused");
    desk.outlast(&pause)
        .await
        .fine()
        .says("were paused already");
    desk.run("select outlast.command('crm', '{}', 'k')").await;
    let claim = |kind: &str| format!("select count(*) from outlast.claim('{kind}', 'crm')");
    assert_eq!(number(&desk.sql, &claim("entity")).await, 0);
    assert_eq!(number(&desk.sql, &claim("command")).await, 1);
    let shown = desk.show(&["crm", "a"]).await;
    assert_eq!(shown["paused"], "their API is down");
    desk.outlast(&["entities", "show", "crm", "a"])
        .await
        .fine()
        .says("outlast entities resume crm");
    let resume = ["entities", "resume", "crm", "--actor", "ann"];
    desk.outlast(&resume).await.fine().says("are active");
    assert_eq!(number(&desk.sql, &claim("entity")).await, 1);
    assert_eq!(desk.audited("ann").await, ["job.paused", "job.resumed"]);
    desk.verified().await;
}
