//! Encrypted payloads: handlers see plain data, nobody else does, and a destroyed key erases without an incident.

#[path = "erasure/commands.rs"]
mod commands;
#[path = "../examples/encrypted.rs"]
#[allow(dead_code, reason = "the example's own main is not run here")]
mod encrypted;
#[path = "erasure/entities.rs"]
mod entities;

use std::{process::Command, sync::Arc, time::Duration};

use encrypted::{PatientAdmitted, PerTenant};
use outlast::{
    Attempt, Consumer, Error, Failure, Outlast, Settings, Start, Worker, testing::TestWorker,
};
use outlast_postgres::cluster::Installation;
use outlast_testkit::pg::{self, Database};
use tokio::sync::mpsc;

/// What must be found nowhere.
const SECRET: &str = "a broken arm";

type Told = mpsc::UnboundedSender<(String, String)>;

async fn tell(told: Told, event: Attempt<PatientAdmitted>) -> Result<(), Failure> {
    let plain = String::from_utf8_lossy(event.payload_bytes()).into_owned();
    assert_eq!(plain, serde_json::to_string(&*event).expect("it is JSON"));
    if event.name == "fails" {
        return Err(Failure::permanent("as the test wants it"));
    }
    let _ = told.send((event.tenant().to_owned(), event.reason.clone()));
    Ok(())
}

async fn record(
    told: Told,
    _: &mut outlast::ClientTx,
    event: Attempt<PatientAdmitted>,
) -> Result<(), Failure> {
    tell(told, event).await
}

async fn archive(
    told: Told,
    _: &mut outlast::ClientTx,
    events: Vec<Attempt<PatientAdmitted>>,
) -> Result<(), Failure> {
    for event in events {
        tell(told.clone(), event).await?;
    }
    Ok(())
}

struct Given {
    database: Database,
    pool: deadpool_postgres::Pool,
    keys: Arc<PerTenant>,
    outlast: Outlast,
}

async fn given() -> Given {
    let database = pg::outlast().await;
    let config = database.url().parse().expect("a connection string");
    let manager = deadpool_postgres::Manager::new(config, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager)
        .max_size(4)
        .build();
    let keys = Arc::new(PerTenant::default());
    Given {
        outlast: Outlast::new().codec(keys.clone()),
        pool: pool.expect("a pool"),
        database,
        keys,
    }
}

impl Given {
    async fn emit(&self, tenant: &str, name: &str, dedup: Option<&str>) -> Result<bool, Error> {
        let mut client = self.pool.get().await.expect("a connection");
        let mut tx = client.transaction().await.expect("begins");
        let event = PatientAdmitted {
            name: name.into(),
            reason: SECRET.into(),
        };
        let outlast = self.outlast.tenant(tenant);
        let emit = outlast.emit(&mut tx, &event);
        let accepted = match dedup {
            Some(key) => emit.dedup(key).await?,
            None => emit.await?,
        };
        tx.commit().await.expect("commits");
        Ok(accepted.new)
    }

    /// With a consumer of each kind: outside effect, one transaction an event, one for many.
    async fn worker(&self) -> (TestWorker<Told>, mpsc::UnboundedReceiver<(String, String)>) {
        let (told, heard) = mpsc::unbounded_channel();
        let worker: Worker<Told> = self
            .outlast
            .worker(told)
            .database(self.database.url())
            .settings(Settings::default())
            .consumer(Consumer::new("ward").from(Start::Earliest).on(tell))
            .consumer(
                Consumer::new("book")
                    .from(Start::Earliest)
                    .on_tx(&self.pool, record),
            )
            .consumer(
                Consumer::new("archive")
                    .from(Start::Earliest)
                    .on_batch(&self.pool, archive),
            );
        (
            TestWorker::new(&self.pool, worker).await.expect("a worker"),
            heard,
        )
    }

    async fn outcomes(&self) -> Vec<(String, String, String)> {
        let sql = "select consumer, outcome, coalesce(reason, '') from outlast.processed order by 1, 2, 3";
        let rows = self.database.connect().await.query(sql, &[]).await;
        let rows = rows.expect("the inbox");
        rows.iter()
            .map(|row| (row.get(0), row.get(1), row.get(2)))
            .collect()
    }

    /// Everything of the database: as a backup has it, and as its views show it.
    async fn everything(&self) -> String {
        let installation = Installation::find().expect("PostgreSQL is there: the tests run on it");
        let mut dump = Command::new(installation.program("pg_dump"));
        let dump = dump
            .arg(self.database.url())
            .output()
            .expect("pg_dump runs");
        let why = String::from_utf8_lossy(&dump.stderr);
        assert!(dump.status.success(), "{why}");
        let mut text = String::from_utf8_lossy(&dump.stdout).into_owned();
        let sql = self.database.connect().await;
        for view in ["event", "parked", "incident", "processed", "entity"] {
            let rows =
                format!("select coalesce(string_agg(v::text, ' '), '') from outlast.{view} v");
            text += sql.query_one(&rows, &[]).await.expect("a view").get(0);
        }
        text
    }
}

/// As text, and as a dump writes bytes.
fn holds(text: &str, secret: &str) -> bool {
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    text.contains(secret) || text.contains(&hex)
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_of_every_kind_get_plain_data_and_the_database_never_has_it() {
    let given = given().await;
    given.emit("mary", "Ada", None).await.expect("emitted");
    given.emit("mary", "fails", None).await.expect("emitted");
    let (worker, mut heard) = given.worker().await;
    let idle = worker.run_until_idle().await;
    assert_eq!((idle.handled, idle.incidents.len()), (3, 3), "{idle:?}");
    for _ in 0..3 {
        let told = heard.try_recv().expect("each consumer was given it");
        assert_eq!(told, ("mary".into(), SECRET.into()));
    }
    let emitted: Vec<PatientAdmitted> = worker.emitted().await;
    assert_eq!(emitted[0].reason, SECRET);
    let backup = given.everything().await;
    assert!(
        backup.matches("tenant/mary").count() > 4,
        "the log and what is parked are in it"
    );
    assert!(!holds(&backup, SECRET) && !holds(&backup, "Ada"));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_codec_says_so_and_loses_nothing() {
    let given = given().await;
    given.emit("mary", "Ada", None).await.expect("emitted");
    let (told, _heard) = mpsc::unbounded_channel();
    let worker = Outlast::new()
        .worker(told)
        .database(given.database.url())
        .consumer(Consumer::new("ward").from(Start::Earliest).on(tell));
    let worker = TestWorker::new(&given.pool, worker)
        .await
        .expect("a worker");
    let idle = worker.run_until_idle().await;
    assert_eq!((idle.handled, idle.incidents.len()), (0, 1), "{idle:?}");
    let reason = &idle.incidents[0].reason;
    assert!(
        reason.contains("tenant/mary") && reason.contains("has no codec"),
        "{reason}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_key_erases_and_the_worker_goes_on_without_an_incident() {
    let given = given().await;
    for tenant in ["mary", "john", "mary", "john"] {
        given.emit(tenant, "Ada", None).await.expect("emitted");
    }
    given.keys.erase("mary");
    let (worker, mut heard) = given.worker().await;
    let idle = worker.run_until_idle().await;
    assert_eq!(idle.incidents, []);
    let mut tenants = Vec::new();
    while let Ok((tenant, _)) = heard.try_recv() {
        tenants.push(tenant);
    }
    assert_eq!(tenants, ["john"; 6]);
    let outcome = |consumer: &str, outcome: &str, reason: &str| {
        (consumer.to_owned(), outcome.to_owned(), reason.to_owned())
    };
    let expected: Vec<_> = ["archive", "book", "ward"]
        .into_iter()
        .flat_map(|consumer| {
            let (done, erased) = (
                outcome(consumer, "done", ""),
                outcome(consumer, "skipped", "erased"),
            );
            [done.clone(), done, erased.clone(), erased]
        })
        .collect();
    assert_eq!(given.outcomes().await, expected);
    // Nothing is emitted about him any more, and the caller hears why.
    let refused = given
        .emit("mary", "Ada", None)
        .await
        .expect_err("his key is gone");
    assert_eq!(
        (refused.code(), refused.is_transient()),
        (Some("OUT-0010"), false)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_cannot_be_had_now_are_waited_for() {
    let given = given().await;
    given.emit("mary", "Ada", None).await.expect("emitted");
    let key = given.keys.lose("mary").expect("he has one");
    let refused = given.emit("mary", "Eve", None).await.expect_err("no key");
    assert!(refused.is_transient(), "{refused}");
    let (worker, mut heard) = given.worker().await;
    let idle = worker.run_until_idle().await;
    assert_eq!((idle.handled, idle.incidents), (0, vec![]));
    given.keys.find("mary", key);
    worker.advance(Duration::from_secs(60)).await;
    let idle = worker.run_until_idle().await;
    assert_eq!((idle.handled, idle.incidents), (3, vec![]));
    assert_eq!(heard.try_recv().expect("given").1, SECRET);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_content_under_one_dedup_key_is_one_event_although_its_bytes_differ() {
    let given = given().await;
    assert!(
        given
            .emit("mary", "Ada", Some("once"))
            .await
            .expect("emitted")
    );
    assert!(
        !given
            .emit("mary", "Ada", Some("once"))
            .await
            .expect("there already")
    );
    let refused = given
        .emit("mary", "Eve", Some("once"))
        .await
        .expect_err("other content");
    assert!(matches!(refused, Error::Conflict { .. }), "{refused}");
    // What stays after an erasure is no hash that a guess could be checked against.
    let sql = "select digest, rule from outlast._dedup where key = 'once'";
    let row = given
        .database
        .connect()
        .await
        .query_one(sql, &[])
        .await
        .expect("kept");
    let plain = serde_json::to_vec(&PatientAdmitted {
        name: "Ada".into(),
        reason: SECRET.into(),
    });
    let mut content = b"patient.admitted\0application/json\0".to_vec();
    content.extend(plain.expect("it is JSON"));
    let guess: Vec<u8> = <sha2::Sha256 as sha2::Digest>::digest(&content).to_vec();
    assert_ne!(row.get::<_, Vec<u8>>(0), guess);
    assert_eq!(row.get::<_, i16>(1), 2, "an own rule");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ciphertext_put_under_another_tenant_is_not_read() {
    let given = given().await;
    given.emit("mary", "Ada", None).await.expect("emitted");
    let sql = given.database.connect().await;
    sql.execute("update outlast._event set tenant = 'john'", &[])
        .await
        .expect("tampered");
    let (worker, _heard) = given.worker().await;
    let idle = worker.run_until_idle().await;
    assert_eq!((idle.handled, idle.incidents.len()), (0, 3));
    assert!(
        idle.incidents[0]
            .reason
            .contains("not made with tenant/mary"),
        "{idle:?}"
    );
}
