//! The three forms of handlers, each event once.

use outlast_core::{Failure, Outcome};
use outlast_engine::{Attempt, Consumer, Sealed, Start};
use outlast_postgres::tx::{ClientTx, Pool};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::given::{Ping, Told, given, next};

async fn effect(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = told.send(ping.n);
    Ok(())
}

async fn row(_: (), tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
    tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
        .await?;
    Ok(())
}

async fn rows(_: (), tx: &mut ClientTx, pings: Vec<Attempt<Ping>>) -> Result<(), Failure> {
    let (ids, numbers): (Vec<Uuid>, Vec<i64>) =
        pings.iter().map(|ping| (ping.id(), ping.n)).unzip();
    tx.execute(
        "insert into effect select * from unnest($1::uuid[], $2::bigint[])",
        &[&ids, &numbers],
    )
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_consumer_sees_what_is_emitted_after_it_and_nothing_before() {
    let given = given().await;
    given.emit(0..3).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = given.start(told, Consumer::new("mailer").on(effect));
    worker.registered(&given).await;
    given.emit(3..6).await;
    let mut heard = [
        next(&mut hears).await,
        next(&mut hears).await,
        next(&mut hears).await,
    ];
    heard.sort_unstable();
    assert_eq!(heard, [3, 4, 5]);
    given.processed(3).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_handled_by_each_consumer_and_earliest_begins_at_the_oldest() {
    let given = given().await;
    given.emit(0..50).await;
    let one = given.start(
        (),
        Consumer::new("one")
            .from(Start::Earliest)
            .on_tx(&given.pool, row),
    );
    let two = given.start(
        (),
        Consumer::new("two")
            .from(Start::Earliest)
            .on_batch(&given.pool, rows),
    );
    given.processed(100).await;
    assert_eq!(given.count("select count(*) from (select n from effect group by n, event having count(*) = 2) x").await, 50);
    one.stop().await.unwrap();
    two.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_transactional_handler_and_the_completion_are_one_commit() {
    let given = given().await;
    given.emit(0..20).await;
    let worker = given.start(
        (),
        Consumer::new("ledger")
            .from(Start::Earliest)
            .on_tx(&given.pool, row),
    );
    given.processed(20).await;
    worker.stop().await.unwrap();
    // The same transaction wrote both: that is what xmin says.
    let apart = "select count(*) from effect e join outlast._processed_event p on p.event_id = e.event and p.xmin <> e.xmin";
    assert_eq!(given.count(apart).await, 0);
    assert_eq!(
        given
            .count("select count(distinct event) from effect")
            .await,
        20
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_call_out_first_and_seal_its_own_transaction() {
    async fn call_then_write(
        pool: deadpool_postgres::Pool,
        ping: Attempt<Ping>,
    ) -> Result<Sealed, Failure> {
        let tx = pool.begin().await?;
        tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
            .await?;
        ping.seal(tx).await
    }
    let given = given().await;
    given.emit(0..10).await;
    let worker = given.start(
        given.pool.clone(),
        Consumer::new("geo")
            .from(Start::Earliest)
            .on(call_then_write),
    );
    given.processed(10).await;
    assert_eq!(given.count("select count(*) from effect").await, 10);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skipped_event_is_completed_with_its_reason_and_keeps_the_handlers_writes() {
    async fn skip(_: (), tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<Outcome, Failure> {
        tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
            .await?;
        Ok(Outcome::skipped("not ours"))
    }
    let given = given().await;
    given.emit(0..1).await;
    let worker = given.start(
        (),
        Consumer::new("ledger")
            .from(Start::Earliest)
            .on_tx(&given.pool, skip),
    );
    given.processed(1).await;
    let row = given
        .sql
        .query_one("select outcome, reason from outlast.processed", &[])
        .await
        .unwrap();
    assert_eq!(
        (row.get::<_, &str>(0), row.get::<_, &str>(1)),
        ("skipped", "not ours")
    );
    assert_eq!(given.count("select count(*) from effect").await, 1);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_of_one_consumer_share_its_work() {
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let one = given.start(told.clone(), Consumer::new("mailer").on(effect));
    let two = given.start(told, Consumer::new("mailer").on(effect));
    one.registered(&given).await;
    given.emit(0..200).await;
    let mut heard = Vec::new();
    for _ in 0..200 {
        heard.push(next(&mut hears).await);
    }
    heard.sort_unstable();
    assert_eq!(heard, (0..200).collect::<Vec<_>>());
    given.processed(200).await;
    one.stop().await.unwrap();
    two.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_whose_habit_is_another_isolation_level_works_like_any_other() {
    for level in ["repeatable read", "serializable"] {
        let given = given().await;
        let name = given.database.name();
        given
            .sql
            .batch_execute(&format!(
                "alter database \"{name}\" set default_transaction_isolation = '{level}'"
            ))
            .await
            .unwrap();
        given.emit(0..10).await;
        let (told, mut hears) = mpsc::unbounded_channel();
        let effects = given.start(
            told,
            Consumer::new("mailer").from(Start::Earliest).on(effect),
        );
        let rows = given.start(
            (),
            Consumer::new("ledger")
                .from(Start::Earliest)
                .on_tx(&given.pool, row),
        );
        for _ in 0..10 {
            next(&mut hears).await;
        }
        given.processed(20).await;
        effects.stop().await.unwrap();
        rows.stop().await.unwrap();
    }
}
