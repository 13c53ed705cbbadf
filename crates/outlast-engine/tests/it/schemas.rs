//! Two applications in one database, each in a schema of its own.

use std::time::Duration;

use outlast_core::Failure;
use outlast_engine::{Attempt, Consumer, Outlast, Settings, Start, testing::TestWorker};
use outlast_postgres::{
    Error,
    connect::{self, Target},
    event::Landed,
    tx::{ClientTx, OwnedTx, Pool},
};
use outlast_testkit::pg;
use tokio::{sync::mpsc, sync::oneshot};

use crate::given::{Given, Ping, SOON, Told, given, next};

async fn effect(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = told.send(ping.n);
    Ok(())
}

/// Emits another event from the handler, in the transaction that completes this one.
async fn chain(_: Told, tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
    if ping.n < 1000 {
        ping.outlast().emit(tx, &Ping { n: ping.n + 1000 }).await?;
    }
    Ok(())
}

/// Committed when it returns.
async fn emit(given: &Given, outlast: &Outlast, n: i64) {
    let mut tx = given.pool.begin().await.unwrap();
    outlast.emit(&mut tx, &Ping { n }).await.unwrap();
    tx.commit().await.unwrap();
}

struct App {
    stop: oneshot::Sender<()>,
    worker: tokio::task::JoinHandle<Result<(), Error>>,
    hears: mpsc::UnboundedReceiver<i64>,
}

/// An application with the consumers `mailer` (outside effects) and `ledger` (in the transaction), working.
fn start(given: &Given, outlast: &Outlast) -> App {
    let (told, hears) = mpsc::unbounded_channel();
    let worker = outlast
        .worker(told)
        .database(given.database.url())
        .settings(Given::settings())
        .consumer(Consumer::new("mailer").from(Start::Earliest).on(effect))
        .consumer(
            Consumer::new("ledger")
                .from(Start::Earliest)
                .on_tx(&given.pool, chain),
        );
    let (stop, stopped) = oneshot::channel();
    let worker = tokio::spawn(worker.run_until(async { _ = stopped.await }));
    App {
        stop,
        worker,
        hears,
    }
}

async fn stop(app: App) {
    let _ = app.stop.send(());
    tokio::time::timeout(SOON, app.worker)
        .await
        .expect("it drains")
        .unwrap()
        .unwrap();
}

async fn two() -> (Given, Outlast, Outlast) {
    let given = given().await;
    let billing = Outlast::new().schema("billing");
    billing.migrate(given.database.url()).await.unwrap();
    (given, Outlast::new(), billing)
}

async fn done(given: &Given, schema: &str, n: i64) {
    given
        .until(&format!("select count(*) from {schema}.processed"), n)
        .await;
    given
        .until(
            &format!("select count(*) from {schema}.lease where room <> 'poller'"),
            0,
        )
        .await;
    let broken = format!("select count(*) from {schema}._verify() where violations > 0");
    assert_eq!(given.count(&broken).await, 0, "{schema}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_applications_in_one_database_share_nothing() {
    let (given, ours, theirs) = two().await;
    let (mut a, mut b) = (start(&given, &ours), start(&given, &theirs));
    for n in 0..20 {
        emit(&given, &ours, n).await;
        emit(&given, &theirs, n + 100).await;
    }
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    // Each with what its ledger has emitted, in its own schema.
    for _ in 0..40 {
        of_a.push(next(&mut a.hears).await);
        of_b.push(next(&mut b.hears).await);
    }
    of_a.sort_unstable();
    of_b.sort_unstable();
    assert_eq!(of_a, (0..20).chain(1000..1020).collect::<Vec<_>>());
    assert_eq!(of_b, (100..120).chain(1100..1120).collect::<Vec<_>>());
    done(&given, "outlast", 80).await;
    done(&given, "billing", 80).await;

    // A pause, a stop for a person, and the end of one worker are nothing to the other.
    let execute = async |sql: &str| given.sql.batch_execute(sql).await.unwrap();
    execute("select outlast.pause('mailer', 'a reason')").await;
    emit(&given, &ours, 500).await;
    emit(&given, &theirs, 600).await;
    heard(&mut b, [600, 1600]).await;
    stop(b).await;
    execute("select outlast.resume('mailer')").await;
    heard(&mut a, [500, 1500]).await;
    execute("update billing._house set stopped = 'for a test'").await;
    emit(&given, &ours, 501).await;
    heard(&mut a, [501, 1501]).await;
    stop(a).await;
}

/// What an application's `mailer` hears next, in any order.
async fn heard<const N: usize>(app: &mut App, expected: [i64; N]) {
    let mut heard = [0; N];
    for n in &mut heard {
        *n = next(&mut app.hears).await;
    }
    heard.sort_unstable();
    assert_eq!(heard, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_up_of_one_schema_is_not_heard_in_the_other() {
    let (given, _, _) = two().await;
    let target = Target::parse(given.database.url()).unwrap();
    let (ours, mut heard) = connect::listen(&target).await.unwrap();
    ours.batch_execute("listen outlast_wake; listen billing_wake")
        .await
        .unwrap();
    given
        .sql
        .batch_execute("select outlast._register('m', array['ping'])")
        .await
        .unwrap();
    given
        .sql
        .batch_execute("select billing._register('m', array['ping'])")
        .await
        .unwrap();
    let mut channel = async |sql: &str| {
        given.sql.batch_execute(sql).await.unwrap();
        let told = tokio::time::timeout(SOON, heard.recv())
            .await
            .expect("it is told");
        told.expect("the connection is there").channel().to_owned()
    };
    assert_eq!(channel("select billing.resume('m')").await, "billing_wake");
    assert_eq!(channel("select outlast.resume('m')").await, "outlast_wake");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handlers_pool_without_this_schema_is_refused_at_the_start() {
    // The worker's database has both; the pool's has only the default one.
    let (given, _, theirs) = two().await;
    let other = pg::outlast().await;
    let pool = connect::pool(&Target::parse(other.url()).unwrap(), 2).unwrap();
    let (told, _hears) = mpsc::unbounded_channel();
    let worker = theirs
        .worker(told)
        .database(given.database.url())
        .consumer(Consumer::new("ledger").on_tx(&pool, chain));
    let ended = tokio::time::timeout(SOON, worker.run_until(std::future::pending()));
    let why = ended.await.expect("it gives up").expect_err("refused");
    assert!(
        matches!(&why, Error::Config(why) if why.contains("ledger") && why.contains("billing")),
        "{why}"
    );
}

#[tokio::test]
async fn the_settings_may_name_the_schema_and_win_over_the_code() {
    let worker = |schema: Option<&str>| {
        let settings = Settings {
            schema: schema.map(str::to_owned),
            ..Settings::default()
        };
        let handle = Outlast::new().schema("billing");
        handle
            .worker(())
            .database("postgres://u@h/d")
            .settings(settings)
    };
    assert_eq!(worker(None).described().schema, "billing");
    assert_eq!(worker(Some("shop")).described().schema, "shop");
    let why = worker(Some("Shop")).check().unwrap_err().to_string();
    assert!(why.contains("schema `Shop`"), "{why}");
    let bad = Outlast::new().schema("a b");
    let why = bad
        .worker(())
        .database("postgres://u@h/d")
        .check()
        .unwrap_err()
        .to_string();
    assert!(why.contains("schema `a b`"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_with_a_wrong_name_writes_nothing_and_leaves_the_transaction_usable() {
    let (given, ours, theirs) = two().await;
    let mut tx = given.pool.begin().await.unwrap();
    let refused = Outlast::new()
        .schema("No Name")
        .emit(&mut tx, &Ping { n: 1 })
        .await;
    assert!(
        matches!(&refused, Err(Error::Config(why)) if why.contains("No Name")),
        "{refused:?}"
    );
    let accepted = theirs.emit(&mut tx, &Ping { n: 2 }).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(given.count("select count(*) from billing.event").await, 1);
    assert_eq!(given.count("select count(*) from outlast.event").await, 0);
    assert_eq!(
        theirs.landed(&given.pool, &accepted).await.unwrap(),
        Landed::Landed
    );
    assert_eq!(
        ours.landed(&given.pool, &accepted).await.unwrap(),
        Landed::NotLanded
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_is_not_there_is_said_to_be_not_migrated() {
    let given = given().await;
    let nowhere = Outlast::new().schema("nowhere");
    let mut tx = given.pool.begin().await.unwrap();
    let refused = nowhere.emit(&mut tx, &Ping { n: 1 }).await;
    assert!(
        matches!(refused, Err(Error::NotMigrated { found: 0, .. })),
        "{refused:?}"
    );
    tx.rollback().await.unwrap();
    let worker = nowhere.worker(()).database(given.database.url());
    let refused = worker.run_until(std::future::pending()).await;
    assert!(
        matches!(refused, Err(Error::NotMigrated { found: 0, .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn the_test_worker_takes_the_schema_of_its_worker() {
    async fn later(_: (), ping: Attempt<Ping>) -> Result<(), Failure> {
        match ping.number() {
            1 => Err(Failure::retry("not yet").after(Duration::from_secs(3600))),
            _ => Ok(()),
        }
    }
    let given = given().await;
    let outlast = Outlast::new().schema("billing");
    let worker = outlast
        .worker(())
        .database(given.database.url())
        .consumer(Consumer::new("mailer").from(Start::Earliest).on(later));
    let test = TestWorker::new(&given.pool, worker).await.unwrap();
    emit(&given, &outlast, 1).await;
    assert_eq!(test.emitted::<Ping>().await.len(), 1);
    assert_eq!(test.run_until_idle().await.handled, 0);
    test.advance(Duration::from_secs(3601)).await;
    assert_eq!(test.run_until_idle().await.handled, 1);
    assert_eq!(
        given.count("select count(*) from billing.processed").await,
        1
    );
    assert_eq!(
        given.count("select count(*) from outlast._consumer").await,
        0
    );
}
