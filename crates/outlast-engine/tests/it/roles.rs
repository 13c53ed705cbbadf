//! A worker as a login that may do no more than it needs.

use outlast_core::Failure;
use outlast_engine::{Attempt, Consumer, Outlast, Settings, Start};
use outlast_postgres::{
    Error,
    connect::{self, Target},
    event::Landed,
    tx::{ClientTx, OwnedTx, Pool},
};
use tokio::sync::mpsc;

use crate::given::{Given, Ping, SOON, Told, given, next};

fn pool(url: &str) -> deadpool_postgres::Pool {
    connect::pool(&Target::parse(url).unwrap(), 4).unwrap()
}

async fn row(told: Told, tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
    // The third try of 1 succeeds, 2 never does.
    match (ping.n, ping.number()) {
        (1, 1..=2) => return Err(Failure::retry("not yet")),
        (2, _) => return Err(Failure::permanent("never")),
        _ => {}
    }
    tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
        .await?;
    if ping.n == 3 {
        ping.outlast().emit(tx, &Ping { n: 100 }).await?;
    }
    let _ = told.send(ping.n);
    Ok(())
}

async fn rows(_: Told, tx: &mut ClientTx, pings: Vec<Attempt<Ping>>) -> Result<(), Failure> {
    for ping in pings {
        tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
            .await?;
    }
    Ok(())
}

async fn effect(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = told.send(1000 + ping.n);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_of_the_engine_is_enough_for_a_whole_worker_and_its_handlers() {
    let given = given().await;
    let url = given.database.login("in role outlast_engine").await;
    let execute = async |sql: &str| given.sql.batch_execute(sql).await.unwrap();
    execute("grant insert on effect to public").await;
    // A runner that died: its lease lapses, and the worker takes its batch over.
    execute("select outlast.register('tx', array['ping'], 'earliest')").await;
    given.emit(0..6).await;
    let lost = "select count(*) from outlast.claim('event', 'tx', 2, 100, 'a runner that died')";
    assert_eq!(given.count(lost).await, 2);

    let pool = pool(&url);
    let (told, mut hears) = mpsc::unbounded_channel();
    let consumer = |name| Consumer::new(name).from(Start::Earliest);
    let tx = given.start_at(
        &url,
        told.clone(),
        consumer("tx").on_tx(&pool, row),
        Given::settings(),
    );
    let batch = given.start_at(
        &url,
        told.clone(),
        consumer("batch").on_batch(&pool, rows),
        Given::settings(),
    );
    let effects = given.start_at(
        &url,
        told,
        consumer("effects").on(effect),
        Given::settings(),
    );
    // Six events and the one that a handler emits, three consumers; 2 is a person's.
    given
        .until("select count(*) from outlast.processed", 20)
        .await;
    given
        .until(
            "select count(*) from outlast.incident where consumer = 'tx'",
            1,
        )
        .await;
    given
        .until(
            "select count(*) from outlast.parked where state = 'retry'",
            0,
        )
        .await;
    let reclaimed = "select count(*) from outlast.parked where class = 'crashed'";
    assert_eq!(
        given.count(reclaimed).await,
        0,
        "nothing was charged to what the dead runner had not started"
    );
    // Told by the wake-up of the one that is elected.
    assert_eq!(
        given
            .count("select count(*) from outlast.lease where room = 'poller'")
            .await,
        1
    );
    while hears.try_recv().is_ok() {}
    given.emit(50..51).await;
    let mut heard = [next(&mut hears).await, next(&mut hears).await];
    heard.sort_unstable();
    assert_eq!(heard, [50, 1050]);
    for worker in [tx, batch, effects] {
        worker.stop().await.unwrap();
    }
    given.verified().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emitter_emits_and_learns_whether_it_landed() {
    let given = given().await;
    let pool = pool(&given.database.login("in role outlast_emitter").await);
    let outlast = Outlast::new();
    let mut tx = pool.begin().await.unwrap();
    let accepted = outlast.emit(&mut tx, &Ping { n: 1 }).await.unwrap();
    outlast
        .emit_all(&mut tx, &[Ping { n: 2 }, Ping { n: 3 }])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        outlast.landed(&pool, &accepted).await.unwrap(),
        Landed::Landed
    );
    let mut tx = pool.begin().await.unwrap();
    let undone = outlast.emit(&mut tx, &Ping { n: 4 }).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(
        outlast.landed(&pool, &undone).await.unwrap(),
        Landed::NotLanded
    );
    assert_eq!(given.count("select count(*) from outlast.event").await, 3);
}

async fn refused(given: &Given, url: &str, consumer: Consumer<Told>) -> Error {
    let (told, _hears) = mpsc::unbounded_channel();
    let mut worker = given.start_at(url, told, consumer, Settings::default());
    let ended = tokio::time::timeout(SOON, &mut worker.worker).await;
    ended
        .expect("it gives up")
        .unwrap()
        .expect_err("it lacks a role")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_without_the_role_is_told_at_the_start_which_grant_it_needs() {
    let given = given().await;
    let engine = given.database.login("in role outlast_engine").await;
    let emitter = given.database.login("in role outlast_emitter").await;
    let nobody = given.database.login("").await;
    for url in [&emitter, &nobody] {
        let error = refused(&given, url, Consumer::new("effects").on(effect)).await;
        assert!(
            matches!(&error, Error::NotAllowed { grant, .. } if grant.starts_with("grant outlast_engine to")),
            "{error}"
        );
        assert!(error.to_string().ends_with("(OUT-0020)"), "{error}");
    }
    // The worker may, the pool of its handler may not.
    let consumer = Consumer::new("tx").on_tx(&pool(&emitter), row);
    let error = refused(&given, &engine, consumer).await;
    assert!(
        matches!(&error, Error::NotAllowed { grant, .. } if grant == "grant outlast_engine to LOGIN"),
        "{error}"
    );
    // A wrong login in an application leaves a typed error too.
    let pool = pool(&nobody);
    let mut tx = pool.begin().await.unwrap();
    let error = Outlast::new()
        .emit(&mut tx, &Ping { n: 1 })
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NotAllowed { .. }), "{error}");
}
