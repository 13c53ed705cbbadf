//! Behind PgBouncer in transaction mode, with fewer connections to the server than there are clients.

use outlast_core::Failure;
use outlast_engine::{Attempt, Consumer, Outlast, Settings, Start};
use outlast_postgres::{
    Error,
    connect::{self, Target},
    tx::{ClientTx, OwnedTx, Pool, Tx},
};
use outlast_testkit::pooler::{Pooler, is_installed};
use tokio::sync::mpsc;

use crate::given::{Given, Ping, Told, given, next};

async fn effect(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = told.send(ping.n);
    Ok(())
}

async fn row(_: Told, tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
    let (id, n) = (ping.id().to_string(), ping.n.to_string());
    let sql = "insert into effect values ($1::text::uuid, $2::text::bigint)";
    tx.call(sql, &[id.as_str().into(), n.as_str().into()])
        .await?;
    Ok(())
}

async fn before(given: &Given) -> Option<(Pooler, String)> {
    if !is_installed() {
        return None;
    }
    let pooler = Pooler::before(given.database.direct_url()).await.unwrap();
    let url = pooler.url(given.database.name());
    Some((pooler, url))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_and_those_who_emit_need_nothing_that_a_transaction_pooler_takes_away() {
    let given = given().await;
    let Some((_pooler, url)) = before(&given).await else {
        return;
    };
    let pool = connect::pool(&Target::parse(&url).unwrap(), 8).unwrap();
    for n in 0..200 {
        let mut tx = pool.begin().await.unwrap();
        Outlast::new().emit(&mut tx, &Ping { n }).await.unwrap();
        tx.commit().await.unwrap();
    }
    let (told, mut hears) = mpsc::unbounded_channel();
    let consumer = |name| Consumer::new(name).from(Start::Earliest).concurrency(8);
    let mailer = consumer("mailer").on(effect);
    let ledger = consumer("ledger").on_tx(&pool, row);
    let (first, second) = (
        given.start_at(&url, told.clone(), mailer, Given::settings()),
        given.start_at(&url, told, ledger, Given::settings()),
    );
    for _ in 0..200 {
        next(&mut hears).await;
    }
    given.processed(400).await;
    assert_eq!(
        given.count("select count(distinct n) from effect").await,
        200
    );
    for worker in [first, second] {
        worker.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_is_found_by_what_it_does_and_a_server_is_none() {
    let given = given().await;
    let direct = Target::parse(given.database.direct_url()).unwrap();
    assert!(!connect::is_pooled(&direct).await.unwrap());
    let Some((_pooler, url)) = before(&given).await else {
        return;
    };
    let behind = Target::parse(&url).unwrap();
    assert!(connect::is_pooled(&behind).await.unwrap());
}

/// Behind a pooler our connections outlive the server, so nothing new comes that could be asked where it leads.
#[tokio::test(flavor = "multi_thread")]
async fn a_rewound_history_behind_a_pooler_is_noticed_within_a_heartbeat() {
    let given = given().await;
    let Some((_pooler, url)) = before(&given).await else {
        return;
    };
    let (told, mut hears) = mpsc::unbounded_channel();
    let mailer = Consumer::new("mailer").on(effect);
    let worker = given.start_at(&url, told, mailer, Given::settings());
    worker.registered(&given).await;
    given.emit(0..1).await;
    next(&mut hears).await;
    given.processed(1).await;
    given
        .sql
        .execute("delete from outlast._process", &[])
        .await
        .unwrap();
    // No new connection asks: what leaves the database waits all the same, and the worker lives on.
    given.held().await;
    given.emit(1..2).await;
    given.confirm().await;
    assert_eq!(next(&mut hears).await, 1);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_isolation_level_that_cannot_be_set_behind_a_pooler_is_refused_at_the_start() {
    let given = given().await;
    let Some((_pooler, url)) = before(&given).await else {
        return;
    };
    let name = given.database.name();
    let habit =
        format!("alter database {name} set default_transaction_isolation = 'repeatable read'");
    given.sql.batch_execute(&habit).await.unwrap();
    let (told, _hears) = mpsc::unbounded_channel();
    let mailer = Consumer::new("mailer").on(effect);
    let worker = given.start_at(&url, told, mailer, Settings::default());
    let why = worker.stop().await.expect_err("claims would fail");
    assert!(
        matches!(&why, Error::Config(text) if text.contains("repeatable read")),
        "{why}"
    );
}
