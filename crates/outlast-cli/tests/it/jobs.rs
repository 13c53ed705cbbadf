//! `outlast jobs`, and jobs in real processes that are killed and frozen.

use std::{path::PathBuf, process::Command};

use outlast_testkit::{pg::Database, process::Process, wait_for};
use serde_json::json;
use tokio_postgres::Client;

use crate::{Folder, PATIENCE, clean, database, execute, outlast};

/// The example `held`, which cargo builds with the tests.
fn worker(database: &Database) -> Process {
    let outlast = PathBuf::from(env!("CARGO_BIN_EXE_outlast"));
    let folder = outlast.parent().expect("a program is in a folder");
    let mut command = clean(Command::new(folder.join("examples/held")));
    command.args(["run", "--database", database.url()]);
    Process::spawn(&mut command).expect("it starts")
}

/// A job whose handler returns when the folder is there.
async fn enqueue(database: &Database, folder: &Folder) -> String {
    let payload = json!({ "until": folder.path() }).to_string();
    let args = ["jobs", "enqueue", "held_job", &payload, "--json"];
    let enqueued = outlast(database.url(), &args).await.fine().json();
    enqueued[0]["id"].as_str().expect("an id").to_owned()
}

async fn show(database: &Database, id: &str) -> serde_json::Value {
    let args = ["jobs", "show", id, "--json"];
    outlast(database.url(), &args).await.fine().json()[0].clone()
}

async fn until(client: &Client, sql: &str) {
    wait_for(sql, PATIENCE, async || {
        let row = client.query_one(sql, &[]).await.expect("it answers");
        row.get::<_, bool>(0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_job_is_enqueued_listed_shown_withdrawn_and_the_same_key_is_the_same_job() {
    let (database, _client) = database().await;
    let url = database.url();
    outlast(url, &["jobs", "ls"])
        .await
        .fine()
        .says("there is no such job");
    let one = [
        "jobs",
        "enqueue",
        "greet",
        "{\"n\":1}",
        "--key",
        "k",
        "--after",
        "2d",
        "--json",
    ];
    let first = outlast(url, &one).await.fine().json();
    assert_eq!(first[0]["new"], true);
    let again = outlast(url, &one).await.fine().json();
    assert_eq!(
        (&again[0]["id"], &again[0]["new"]),
        (&first[0]["id"], &false.into())
    );
    let other = ["jobs", "enqueue", "greet", "{\"n\":2}", "--key", "k"];
    outlast(url, &other)
        .await
        .with(1)
        .says("accepted before with other content");
    let id = first[0]["id"].as_str().expect("an id");
    let more = [
        "jobs",
        "enqueue",
        "count",
        "{}",
        "--tenant",
        "acme",
        "--priority",
        "-5",
    ];
    outlast(url, &more).await.fine().says("enqueued");

    let listed = outlast(
        url,
        &["jobs", "ls", "--name", "greet", "--since", "1h", "--json"],
    );
    let listed = listed.await.fine().json();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (&listed[0]["id"], &listed[0]["state"]),
        (&id.into(), &"waiting".into())
    );
    let due = listed[0]["due_in_seconds"].as_i64().expect("it is delayed");
    assert!((172_700..=172_800).contains(&due), "{due}");
    for (state, n) in [("waiting", 2), ("done", 0), ("stopped", 0), ("running", 0)] {
        let of = outlast(url, &["jobs", "ls", "--state", state, "--json"]).await;
        assert_eq!(of.fine().json().len(), n, "{state}");
    }
    let theirs = outlast(url, &["jobs", "ls", "--tenant", "acme", "--json"]).await;
    assert_eq!(theirs.fine().json()[0]["priority"], -5);
    let past = outlast(url, &["jobs", "ls", "--since", "2100-01-01", "--json"]).await;
    assert_eq!(past.fine().json().len(), 0);

    outlast(url, &["jobs", "show", id])
        .await
        .fine()
        .says("greet")
        .says("{\"n\":1}");
    let cancel = ["jobs", "cancel", id, "--reason", "no more"];
    outlast(url, &cancel).await.fine().says("is withdrawn");
    outlast(url, &cancel).await.with(1).says("it is cancelled");
    outlast(url, &["jobs", "retry", id])
        .await
        .with(1)
        .says("it does not wait");
    let nobody = "01890a5d-ac96-774b-bcce-b302099a8057";
    outlast(url, &["jobs", "show", nobody])
        .await
        .with(1)
        .says("there is no such job");
    outlast(url, &["verify"]).await.fine();
}

#[tokio::test]
async fn a_stopped_job_is_an_incident_that_a_person_retries_or_gives_up() {
    let (database, client) = database().await;
    let url = database.url();
    for n in 0..2 {
        let sql = format!("select outlast.enqueue('greet', '{{\"n\":{n}}}')");
        execute(&client, &sql).await;
    }
    let claim = "select token::text, id::text from outlast.claim('job', 'greet', 10)";
    let rows = client.query(claim, &[]).await.expect("claims");
    let mut ids = Vec::new();
    for row in &rows {
        let (token, id): (&str, &str) = (row.get(0), row.get(1));
        let fail =
            format!("select outlast.fail('{token}', '{id}', 'permanent', E'no such\\nbooking')");
        execute(&client, &fail).await;
        ids.push(id.to_owned());
    }
    let incidents = outlast(url, &["incidents", "ls", "--consumer", "greet", "--json"]).await;
    let incidents = incidents.fine().json();
    assert_eq!(incidents.len(), 2);
    assert_eq!(incidents[0]["kind"], "stopped job");
    outlast(url, &["incidents", "ls"])
        .await
        .fine()
        .says("outlast jobs retry ABOUT");
    let stopped = outlast(url, &["jobs", "ls", "--state", "stopped"]).await;
    stopped.fine().says("a person");

    let retry = ["jobs", "retry", &ids[0], "--actor", "jane"];
    outlast(url, &retry).await.fine().says("may run now");
    let abandon = [
        "jobs", "abandon", &ids[1], "--reason", "by hand", "--actor", "jane",
    ];
    outlast(url, &abandon).await.fine().says("is given up");
    outlast(url, &["jobs", "retry", &ids[1]])
        .await
        .with(1)
        .says("it is abandoned");
    outlast(url, &["incidents", "ls"])
        .await
        .fine()
        .says("nothing needs a person");

    let pause = [
        "jobs", "pause", "greet", "--reason", "down", "--actor", "jane",
    ];
    outlast(url, &pause).await.fine().says("are paused");
    outlast(url, &pause)
        .await
        .fine()
        .says("were paused already");
    assert!(client.query(claim, &[]).await.expect("claims").is_empty());
    outlast(url, &["jobs", "resume", "greet"])
        .await
        .fine()
        .says("are active");
    assert_eq!(client.query(claim, &[]).await.expect("claims").len(), 1);
    let audit =
        "select string_agg(action, ' ' order by id) from outlast._audit where actor = 'jane'";
    let line = client.query_one(audit, &[]).await.expect("one line");
    assert_eq!(
        line.get::<_, &str>(0),
        "job.retried job.abandoned job.paused"
    );
    outlast(url, &["verify"]).await.fine();
}

#[tokio::test]
async fn a_death_before_anything_is_known_charges_nobody_and_after_that_what_ran_is_charged_until_a_person_must_look()
 {
    let (database, client) = database().await;
    let (hangs, later) = (Folder::new(), Folder::new());
    let id = enqueue(&database, &hangs).await;
    // Once without a charge, then three times with one: each time in a new process, after the lease of the one that died.
    for attempt in [1, 1, 2, 3] {
        let worker = worker(&database);
        worker
            .line(&format!("started {id} attempt {attempt}"), PATIENCE)
            .await;
        worker.kill();
        worker.exit(PATIENCE).await;
    }
    let healthy = worker(&database);
    let sql = "select exists (select from outlast.incident where kind = 'stopped job' and class = 'crashed')";
    until(&client, sql).await;
    // One that came meanwhile is nobody's victim.
    std::fs::create_dir(later.path()).expect("a new folder");
    let innocent = enqueue(&database, &later).await;
    healthy
        .line(&format!("finished {innocent}"), PATIENCE)
        .await;
    let shown = show(&database, &id).await;
    assert_eq!(
        (&shown["state"], &shown["attempt"]),
        (&"waiting".into(), &3.into())
    );
    outlast(database.url(), &["verify"]).await.fine();
}

#[tokio::test]
async fn a_worker_that_is_frozen_past_its_lease_loses_its_job_and_completes_nothing_when_it_wakes()
{
    let (database, client) = database().await;
    let folder = Folder::new();
    let id = enqueue(&database, &folder).await;
    let frozen = worker(&database);
    frozen
        .line(&format!("started {id} attempt 1"), PATIENCE)
        .await;
    frozen.freeze();
    let other = worker(&database);
    other
        .line(&format!("started {id} attempt 1"), PATIENCE)
        .await;
    // The frozen one wakes, its handler returns, and nothing of that is recorded.
    frozen.thaw();
    frozen.line("lease lost", PATIENCE).await;
    std::fs::create_dir(folder.path()).expect("a new folder");
    other.line(&format!("finished {id}"), PATIENCE).await;
    let done = format!("select state = 'done' from outlast.job where id = '{id}'");
    until(&client, &done).await;
    let ends = "select count(*) = 1 from outlast._job_end";
    until(&client, ends).await;
    let run = outlast(database.url(), &["verify"]).await;
    run.fine();
}

#[tokio::test]
async fn check_shows_jobs_as_they_are_run_and_what_nobody_here_has_code_for() {
    let (database, client) = database().await;
    execute(&client, "select outlast.enqueue('unheard_of', '{}')").await;
    let outlast_binary = PathBuf::from(env!("CARGO_BIN_EXE_outlast"));
    let folder = outlast_binary.parent().expect("a program is in a folder");
    let mut command = clean(Command::new(folder.join("examples/held")));
    command.args(["check", "--database", database.url()]);
    command.args([
        "--set",
        "job.held_job.concurrency=3",
        "--set",
        "job.held_job.deadline=2m",
    ]);
    crate::run(command, b"")
        .await
        .fine()
        .says("job held_job: takes versions up to 1, 3 at once, 2m a try, 8 tries")
        .says("job unheard_of: waits in the database");
}
