//! Commands whose payload is encrypted: their function and the consumers of their end see plain data, nobody else does.

use outlast::{
    Attempt, Command, Consumer, Error, Failure, IfUnknown, Resolved, Sent, Start,
    testing::TestWorker,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::{Given, SECRET, Told, given, holds};

#[derive(Serialize, Deserialize)]
struct Refer {
    patient: String,
    reason: String,
}

impl Command for Refer {
    const NAME: &'static str = "refer";
    /// Answers are not encrypted: the hospital's own number.
    type Answer = u32;

    fn key(&self) -> String {
        format!("patient/{}", self.patient)
    }
}

async fn refer(told: Told, c: Attempt<Refer>) -> Result<Sent<u32>, Failure> {
    let _ = told.send((format!("sent {}", c.tenant()), c.reason.clone()));
    Ok(Sent::Settled(7))
}

async fn referred(told: Told, end: Attempt<Resolved<Refer>>) -> Result<(), Failure> {
    let how = format!("{} {}", end.how.as_str(), end.tenant());
    let _ = told.send((how, end.command.reason.clone()));
    Ok(())
}

impl Given {
    async fn refer(&self, tenant: &str, reason: &str) -> Result<bool, Error> {
        let mut client = self.pool.get().await.expect("a connection");
        let mut tx = client.transaction().await.expect("begins");
        let refer = Refer {
            patient: "7".into(),
            reason: reason.into(),
        };
        let outlast = self.outlast.tenant(tenant);
        let accepted = outlast.command(&mut tx, &refer).await?;
        tx.commit().await.expect("commits");
        Ok(accepted.new)
    }

    async fn hospital(&self) -> (TestWorker<Told>, mpsc::UnboundedReceiver<(String, String)>) {
        let (told, heard) = mpsc::unbounded_channel();
        let worker = self.outlast.worker(told).database(self.database.url());
        let worker = worker
            .command(refer, IfUnknown::ask_a_person())
            .consumer(Consumer::new("ward").from(Start::Earliest).on(referred));
        (
            TestWorker::new(&self.pool, worker).await.expect("a worker"),
            heard,
        )
    }
}

fn all(heard: &mut mpsc::UnboundedReceiver<(String, String)>) -> Vec<(String, String)> {
    std::iter::from_fn(|| heard.try_recv().ok()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_goes_plain_to_its_provider_and_its_end_plain_to_consumers_and_the_database_has_neither()
 {
    let given = given().await;
    assert!(given.refer("mary", SECRET).await.expect("given"));
    // Its bytes differ each time, its content does not.
    assert!(!given.refer("mary", SECRET).await.expect("the same"));
    let other = given.refer("mary", "another one").await;
    assert!(matches!(other, Err(Error::Conflict { .. })), "{other:?}");

    let (worker, mut heard) = given.hospital().await;
    assert_eq!(worker.run_until_idle().await.incidents, []);
    let expected = [("sent mary", SECRET), ("settled mary", SECRET)];
    let expected = expected.map(|(what, reason)| (what.to_owned(), reason.to_owned()));
    assert_eq!(all(&mut heard), expected);
    let database = given.everything().await;
    assert!(!holds(&database, SECRET), "it is in the database");
    assert!(holds(&database, "refer.resolved"), "nothing was looked at");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_key_was_destroyed_before_it_was_sent_is_obsolete_and_nobody_is_bothered() {
    let given = given().await;
    for tenant in ["mary", "john"] {
        assert!(given.refer(tenant, SECRET).await.expect("given"));
    }
    given.keys.erase("mary");
    let (worker, mut heard) = given.hospital().await;
    assert_eq!(worker.run_until_idle().await.incidents, []);
    let heard: Vec<_> = all(&mut heard).into_iter().map(|(what, _)| what).collect();
    assert_eq!(heard, ["sent john", "settled john"]);
    let client = given.database.connect().await;
    let state = "select tenant || ' ' || state || ' ' || coalesce(reason, '') from outlast.command order by tenant";
    let rows = client.query(state, &[]).await.expect("the commands");
    let states: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(states, ["john settled ", "mary obsolete erased"]);
    // Of its end nobody can read what it was about: it is skipped, as any event of hers.
    let ward =
        |outcome: &str, reason: &str| ("ward".to_owned(), outcome.to_owned(), reason.to_owned());
    assert_eq!(
        given.outcomes().await,
        [ward("done", ""), ward("skipped", "erased")]
    );
}
