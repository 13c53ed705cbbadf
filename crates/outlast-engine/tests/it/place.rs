//! Where am I: a worker stops on a database that is not the one it should be.

use outlast_core::Failure;
use outlast_engine::{Attempt, Consumer, Outlast, Settings};
use outlast_postgres::{
    connect::{self, Target},
    tx::ClientTx,
};
use tokio::sync::mpsc;

use crate::{
    command::{Acme, charge, keyed},
    given::{Given, Ping, SOON, Told, given, named, next},
};

async fn effect(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = told.send(ping.n);
    Ok(())
}

async fn refused(given: &Given, settings: Settings) -> String {
    let (told, _hears) = mpsc::unbounded_channel();
    let mut worker = given.start_with(told, Consumer::new("mailer").on(effect), settings);
    let ended = tokio::time::timeout(SOON, &mut worker.worker)
        .await
        .expect("it gives up")
        .unwrap();
    ended.expect_err("it may not work here").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_deployment_stops_a_worker() {
    let given = given().await;
    given
        .sql
        .execute("update outlast._house set deployment = 'production'", &[])
        .await
        .unwrap();
    let why = refused(&given, Given::settings()).await;
    assert!(
        why.contains("`production`") && why.contains("none"),
        "{why}"
    );
    let settings = Settings {
        deployment: Some("staging".into()),
        ..Given::settings()
    };
    let why = refused(&given, settings).await;
    assert!(why.contains("`staging`"), "{why}");
    assert_eq!(
        given.count("select count(*) from outlast.consumer").await,
        0
    );
}

/// Goal: a copy of a database sends nothing. Method: the same worker without a name, with it, and one that has only jobs.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_commands_does_not_start_before_it_knows_what_its_database_is_called() {
    let given = named().await;
    given.give(0..1).await;
    let acme = Acme::default();
    let worker = |deployment: Option<&str>| {
        let settings = Settings {
            deployment: deployment.map(str::to_owned),
            ..Given::settings()
        };
        let worker = Outlast::new().worker(acme.clone()).settings(settings);
        worker
            .database(given.database.url())
            .command(charge, keyed())
    };
    let refused = worker(None).run_until(std::future::pending()).await;
    let refused = refused.expect_err("it may not start");
    assert_eq!(refused.code(), Some("OUT-0024"));
    assert!(
        refused.to_string().contains("the command charge"),
        "{refused}"
    );
    // Without a database, too: nobody was asked.
    let nowhere = worker(None).database("postgres://127.0.0.1:1/none");
    let refused = nowhere.run_until(std::future::pending()).await;
    assert_eq!(
        refused.expect_err("it may not start").code(),
        Some("OUT-0024")
    );
    let foreign = worker(Some("staging")).run_until(std::future::pending());
    let refused = foreign.await.expect_err("it is another database");
    assert_eq!(refused.code(), Some("OUT-0006"), "{refused}");
    assert!(acme.asked.lock().await.is_empty(), "nothing was sent");
    let running = Given::run(worker(Some("tests")));
    given.commands(1, "settled").await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_transaction_ids_stop_a_worker() {
    let given = given().await;
    // What a dump and restore does: the row is written again, by another transaction.
    given
        .sql
        .execute("update outlast._marker set own_xid = own_xid", &[])
        .await
        .unwrap();
    let why = refused(&given, Given::settings()).await;
    assert!(why.contains("transaction ids restarted"), "{why}");
}

/// What a lossy failover does: the last acknowledged marks are gone, and all connections are new.
async fn rewind(given: &Given) {
    forget(given).await;
    cut(given).await;
}

async fn forget(given: &Given) {
    let sql = "delete from outlast._process";
    given.sql.batch_execute(sql).await.unwrap();
}

async fn cut(given: &Given) {
    let sql = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    given.sql.query(sql, &[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_rewind_local_consumers_go_on_and_outside_effects_wait_for_a_person() {
    async fn row(told: Told, _: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
        let _ = told.send(1000 + ping.n);
        Ok(())
    }
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let pool = connect::pool(&Target::parse(given.database.url()).unwrap(), 2).unwrap();
    let outside = given.start(told.clone(), Consumer::new("mailer").on(effect));
    outside.registered(&given).await;
    let inside = given.start(told, Consumer::new("ledger").on_tx(&pool, row));
    inside.registered_as(&given, "ledger").await;
    given.emit(0..1).await;
    let mut first = [next(&mut hears).await, next(&mut hears).await];
    first.sort_unstable();
    assert_eq!(first, [0, 1000]);
    given.processed(2).await;

    rewind(&given).await;
    given.held().await;
    given.emit(1..2).await;
    assert_eq!(next(&mut hears).await, 1001, "inside goes on");
    given.processed(3).await;
    // A process that comes anew has nothing to miss, and waits all the same.
    outside.stop().await.unwrap();
    let (told, mut anew) = mpsc::unbounded_channel();
    let outside = given.start(told, Consumer::new("mailer").on(effect));
    given.emit(2..3).await;
    assert_eq!(next(&mut hears).await, 1002);
    given.processed(4).await;
    assert!(anew.try_recv().is_err(), "nothing leaves the database");

    given.confirm().await;
    let mut waited = [next(&mut anew).await, next(&mut anew).await];
    waited.sort_unstable();
    assert_eq!(waited, [1, 2]);
    outside.stop().await.unwrap();
    inside.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_has_confirmed_is_not_held_again_by_who_comes_later() {
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = given.start(told, Consumer::new("mailer").on(effect));
    worker.registered(&given).await;
    given.emit(0..1).await;
    next(&mut hears).await;
    given.processed(1).await;
    // The person is quicker than this process.
    forget(&given).await;
    given.confirm().await;
    cut(&given).await;
    given.emit(1..2).await;
    assert_eq!(next(&mut hears).await, 1);
    given.processed(2).await;
    assert_eq!(
        given
            .count("select count(*) from outlast._house where held is not null")
            .await,
        0
    );
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_that_kept_everything_is_no_reason_to_stop() {
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = given.start(told, Consumer::new("mailer").on(effect));
    worker.registered(&given).await;
    for n in 0..3 {
        given.emit(n..n + 1).await;
        assert_eq!(next(&mut hears).await, n);
        given.processed(n + 1).await;
        cut(&given).await;
    }
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handlers_pool_that_leads_to_another_database_is_refused_at_the_start() {
    async fn row(_: (), _: &mut ClientTx, _: Attempt<Ping>) -> Result<(), Failure> {
        Ok(())
    }
    let (given, other) = (given().await, given().await);
    let pool = connect::pool(&Target::parse(other.database.url()).unwrap(), 2).unwrap();
    let mut worker = given.start((), Consumer::new("ledger").on_tx(&pool, row));
    let ended = tokio::time::timeout(SOON, &mut worker.worker)
        .await
        .expect("it gives up")
        .unwrap();
    let why = ended
        .expect_err("effects and seal would be two commits")
        .to_string();
    assert!(why.contains("another database"), "{why}");
}
