//! Entities with a codec: marks, tombstones, what is kept and what comes too late, and that no failure tells what they say.

use std::sync::Arc;

use outlast::{Attempt, Entity, Failure, Outlast, Worker, testing::TestWorker};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::{Given, SECRET, encrypted::PerTenant, given, holds};

/// A file about a patient, at an archive.
#[derive(Debug, Serialize, Deserialize)]
struct File {
    patient: i64,
    reason: String,
}

/// What the archive calls it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Shelf {
    label: String,
}

impl Entity for File {
    const NAME: &'static str = "patient_file";
    type Refs = Shelf;

    fn key(&self) -> String {
        self.patient.to_string()
    }
}

/// The same in a program that thinks of other refs.
#[derive(Debug, Serialize, Deserialize)]
struct Numbered {
    patient: i64,
}

impl Entity for Numbered {
    const NAME: &'static str = "patient_file";
    type Refs = i64;

    fn key(&self) -> String {
        self.patient.to_string()
    }
}

fn shelf(what: &str) -> Shelf {
    Shelf {
        label: format!("{what}: {SECRET}"),
    }
}

fn file(patient: i64) -> File {
    File {
        patient,
        reason: SECRET.into(),
    }
}

impl Given {
    /// Marks it, with the refs of a deletion or without.
    async fn mark(&self, file: &File, deleted: Option<&Shelf>) {
        let mut client = self.pool.get().await.expect("a connection");
        let mut tx = client.transaction().await.expect("begins");
        let outlast = self.outlast.tenant("mary");
        match deleted {
            Some(shelf) => outlast.deleted(&mut tx, file, shelf).await,
            None => outlast.changed(&mut tx, file).await,
        }
        .expect("marked");
        tx.commit().await.expect("commits");
    }

    async fn hides(&self) {
        let backup = self.everything().await;
        assert!(backup.contains("tenant/mary"), "there is something of his");
        assert!(!holds(&backup, SECRET));
    }

    async fn number(&self, sql: &str) -> i64 {
        let row = self.database.connect().await.query_one(sql, &[]).await;
        row.expect("a number").get(0)
    }
}

/// Of which patients the keys are away while something is kept.
const AWAY: i64 = 8;

type State = (mpsc::UnboundedSender<Attempt<File>>, Arc<PerTenant>);

/// Keeps where it is; what is to be cleaned up stays.
async fn archive((told, keys): State, file: Attempt<File>) -> Result<(), Failure> {
    if file.is_deletion() {
        let _ = told.send(file);
        return Err(Failure::permanent("the archive is closed"));
    }
    if file.patient == AWAY {
        let key = keys.lose("mary").expect("he has one");
        let kept = file.keep(shelf("lost")).await;
        keys.find("mary", key);
        return kept;
    }
    let kept = file.keep(shelf("made")).await;
    let _ = told.send(file);
    kept
}

async fn worker(given: &Given) -> (TestWorker<State>, mpsc::UnboundedReceiver<Attempt<File>>) {
    let (told, heard) = mpsc::unbounded_channel();
    let worker: Worker<State> = given
        .outlast
        .worker((told, given.keys.clone()))
        .database(given.database.url())
        .reconcile(archive);
    let worker = TestWorker::new(&given.pool, worker).await;
    (worker.expect("a worker"), heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_gets_plain_values_and_refs_and_the_database_never_has_them() {
    let given = given().await;
    let gone = shelf("gone");
    given.mark(&file(7), Some(&gone)).await;
    // The same refs once more are no second duty, although their bytes differ.
    given.mark(&file(7), Some(&gone)).await;
    given.hides().await;
    let (worker, mut heard) = worker(&given).await;
    let idle = worker.run_until_idle().await;
    assert_eq!(idle.incidents.len(), 1, "{idle:?}");
    let deletion = heard.try_recv().expect("a run for the deletion");
    assert_eq!(
        (deletion.refs(), deletion.is_deletion()),
        (Some(&gone), true)
    );
    assert_eq!(deletion.reason, SECRET);
    let itself = heard.try_recv().expect("a run for the entity");
    assert!(!itself.is_deletion());
    assert!(heard.try_recv().is_err(), "one duty");
    given.hides().await;

    // What a late runner has made is evidence, and the error that it gets says nothing either.
    let late = itself.keep(shelf("late")).await.expect_err("it has ended");
    assert!(!late.reason.contains(SECRET), "{late:?}");
    assert_eq!(
        given
            .number("select count(*) from outlast._late_refs")
            .await,
        1
    );
    given.hides().await;

    // What was kept is read by the next run.
    let sql = given.database.connect().await;
    let retry = "select outlast.retry_entity('patient_file', '7', 'mary')";
    sql.execute(retry, &[]).await.expect("retried");
    worker.run_until_idle().await;
    let again = std::iter::from_fn(|| heard.try_recv().ok()).last();
    let again = again.expect("it ran again");
    assert_eq!(again.refs(), Some(&shelf("made")));

    // His key is gone: a person must look, because the archive still has the file.
    given.keys.erase("mary");
    sql.execute(retry, &[]).await.expect("retried");
    let idle = worker.run_until_idle().await;
    let reasons: Vec<_> = idle
        .incidents
        .iter()
        .map(|one| one.reason.as_str())
        .collect();
    assert!(
        reasons.iter().any(|reason| reason.contains("erased")),
        "{reasons:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_that_cannot_be_encoded_now_are_not_kept_and_stand_in_no_failure() {
    let given = given().await;
    given.mark(&file(AWAY), None).await;
    let (worker, _heard) = worker(&given).await;
    worker.run_until_idle().await;
    let waits = "select count(*) from outlast.entity where state = 'waiting' and not has_refs and reason like '%were not kept%'";
    assert_eq!(given.number(waits).await, 1);
    given.hides().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_of_another_shape_stop_the_entity_without_being_quoted() {
    async fn never(_: (), file: Attempt<Numbered>) -> Result<(), Failure> {
        Err(Failure::permanent(format_args!(
            "{:?} was read",
            file.refs()
        )))
    }
    let given = given().await;
    given.mark(&file(7), Some(&shelf("gone"))).await;
    let worker: Worker<()> = Outlast::new()
        .codec(given.keys.clone())
        .worker(())
        .database(given.database.url())
        .reconcile(never);
    let worker = TestWorker::new(&given.pool, worker)
        .await
        .expect("a worker");
    let idle = worker.run_until_idle().await;
    assert_eq!(idle.incidents.len(), 1, "{idle:?}");
    let reason = &idle.incidents[0].reason;
    assert!(
        reason.contains("unreadable: refs of patient_file"),
        "{reason}"
    );
    given.hides().await;
}
