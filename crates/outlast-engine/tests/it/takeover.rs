//! A process that is gone: its work goes on elsewhere after its lease, and it cannot come back.

use std::time::Duration;

use outlast_core::Failure;
use outlast_engine::{Attempt, Consumer, Settings, Start};
use outlast_postgres::tx::ClientTx;
use outlast_testkit::proxy::Proxy;
use tokio::sync::mpsc;

use crate::given::{Given, Ping, Told, given, next};

async fn row(_: (), tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
    tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
        .await?;
    Ok(())
}

/// A legacy runner that claims and is never heard of again.
async fn claim_and_die(
    sql: &tokio_postgres::Client,
    lease_ms: i32,
) -> (uuid::Uuid, Vec<uuid::Uuid>) {
    let rows = sql
        .query(
            "select token, id from outlast.claim('event', 'ledger', 10, $1, 'somebody')",
            &[&lease_ms],
        )
        .await
        .unwrap();
    (rows[0].get(0), rows.iter().map(|row| row.get(1)).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_process_held_is_completed_by_another_and_what_it_sealed_is_not_run_again() {
    let given = given().await;
    given
        .sql
        .execute(
            "select outlast.register('ledger', array['ping'], 'earliest')",
            &[],
        )
        .await
        .unwrap();
    given.emit(0..10).await;
    let (token, ids) = claim_and_die(&given.sql, 500).await;
    for id in &ids[..3] {
        given
            .sql
            .execute("select outlast.complete($1, $2)", &[&token, id])
            .await
            .unwrap();
    }
    let worker = given.start(
        (),
        Consumer::new("ledger")
            .from(Start::Earliest)
            .on_tx(&given.pool, row),
    );
    given.processed(10).await;
    assert_eq!(given.count("select count(*) from effect").await, 7);
    let late = given
        .sql
        .execute("select outlast.complete($1, $2)", &[&token, &ids[5]])
        .await
        .unwrap_err();
    assert_eq!(late.code().map(|state| state.code()), Some("OL001"));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_longer_than_its_lease_keeps_it_by_renewal() {
    async fn long(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
        let _ = told.send(ping.n);
        // Three leases; nothing is waited for here but time itself.
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(())
    }
    let given = given().await;
    given.emit(0..1).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let consumer = || Consumer::new("mailer").from(Start::Earliest).on(long);
    let one = given.start(told.clone(), consumer());
    next(&mut hears).await;
    let two = given.start(told, consumer());
    given.processed(1).await;
    assert!(hears.try_recv().is_err(), "it ran once");
    one.stop().await.unwrap();
    two.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_kept_although_each_new_connection_takes_longer_than_its_third() {
    async fn long(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
        let _ = told.send(ping.n);
        // Two leases; nothing is waited for here but time itself.
        tokio::time::sleep(Duration::from_secs(4)).await;
        Ok(())
    }
    let given = given().await;
    given.emit(0..1).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let consumer = || Consumer::new("mailer").from(Start::Earliest).on(long);
    let settings = || Settings {
        lease: Duration::from_secs(2),
        ..Given::settings()
    };
    // PostgreSQL's own setting for slow starts of sessions.
    let (url, slow) = (given.database.url(), "options=-c%20post_auth_delay%3D1");
    let url = format!("{url}{}{slow}", if url.contains('?') { '&' } else { '?' });
    let one = given.start_at(&url, told.clone(), consumer(), settings());
    next(&mut hears).await;
    let two = given.start_at(&url, told, consumer(), settings());
    given.processed(1).await;
    assert!(hears.try_recv().is_err(), "it ran once");
    one.stop().await.unwrap();
    two.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_started_is_not_charged_when_the_lease_lapses() {
    async fn until_lost(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
        let _ = told.send(ping.n);
        if ping.number() == 1 {
            ping.lost().await;
            let _ = told.send(-1);
        }
        Ok(())
    }
    let given = given().await;
    let watch = "create table charged (id uuid);
        create function note() returns trigger language plpgsql security definer set search_path = public as $$ begin
          if new.failures > 0 then insert into charged values (new.event_id); end if; return new; end $$;
        create trigger note after insert or update on outlast._parked for each row execute function note()";
    given.sql.batch_execute(watch).await.unwrap();
    given.emit(0..4).await;
    let proxy = Proxy::before(given.database.url()).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let consumer = Consumer::new("mailer").from(Start::Earliest).concurrency(1);
    let consumer = consumer.on(until_lost);
    let worker = given.start_at(proxy.url(), told, consumer, Given::settings());
    assert_eq!(next(&mut hears).await, 0);
    // The database is away for longer than the lease, and nobody takes over.
    proxy.freeze();
    assert_eq!(next(&mut hears).await, -1);
    proxy.thaw();
    given.processed(4).await;
    assert_eq!(given.count("select count(*) from charged").await, 0);
    worker.stop().await.unwrap();
}
