//! How many connections a process takes.

use std::time::Duration;

use outlast_core::Failure;
use outlast_engine::{Attempt, Consumer, Outlast, Settings, Start};
use outlast_postgres::tx::{OwnedTx, Pool};
use outlast_testkit::proxy::Proxy;
use tokio::sync::mpsc;

use crate::given::{Given, Ping, Told, given, next};

/// A look is given up after 5 s, a statement after 10 s; the rest is for a busy machine.
const GIVEN_UP: Duration = Duration::from_secs(40);

/// All connections to this database but the test's own.
const OPEN: &str = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_takes_at_most_four_connections_and_one_for_maintenance_whatever_the_concurrency()
{
    async fn effect(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
        tokio::task::yield_now().await;
        let _ = told.send(ping.n);
        Ok(())
    }
    let given = given().await;
    given.emit(0..400).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = given.start(
        told,
        Consumer::new("mailer")
            .concurrency(200)
            .from(Start::Earliest)
            .on(effect),
    );
    let mut most = 0;
    for n in 0..400 {
        next(&mut hears).await;
        if n % 50 == 0 {
            most = most.max(given.count(OPEN).await);
        }
    }
    given.processed(400).await;
    let named = format!("{OPEN} and application_name = 'outlast worker'");
    assert!(
        given.count(&named).await >= 1,
        "operators see whose they are"
    );
    most = most.max(given.count(OPEN).await);
    assert!((1..=5).contains(&most), "{most} connections");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_only_emits_opens_no_connection_of_ours() {
    let given = given().await;
    let mut tx = given.pool.begin().await.unwrap();
    let before = given.count(OPEN).await;
    Outlast::new().emit(&mut tx, &Ping { n: 1 }).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(before, 1, "the pool's own");
    assert_eq!(given.count(OPEN).await, 1);
    assert_eq!(given.count("select count(*) from outlast.event").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_asks_seldom() {
    async fn never(_: (), _: Attempt<Ping>) -> Result<(), Failure> {
        Ok(())
    }
    let given = given().await;
    let worker = given.start_with((), Consumer::new("mailer").on(never), Settings::default());
    worker.registered(&given).await;
    // Looks at its parked events: one at the start, then one in five seconds. Nothing is waited for but time itself.
    let looks = "select coalesce(sum(seq_scan + coalesce(idx_scan, 0)), 0)::bigint from pg_stat_user_tables where relname = '_parked'";
    given
        .until(
            "select count(*) from outlast.lease where room = 'poller'",
            1,
        )
        .await;
    let before = given.count(looks).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = given.count(looks).await;
    assert!(
        after - before < 30,
        "{} looks in three seconds",
        after - before
    );
    worker.stop().await.unwrap();
}

// Wolverine GH-3664, and the open hand of our own style page: a session that is idle in a transaction holds its locks,
// and keeps every table from being cleaned.
#[tokio::test(flavor = "multi_thread")]
async fn no_session_is_in_a_transaction_or_holds_a_lock_while_a_handler_of_outside_effects_works() {
    type State = (Told, std::sync::Arc<tokio::sync::Semaphore>);
    async fn effect((told, gate): State, ping: Attempt<Ping>) -> Result<(), Failure> {
        let _ = told.send(ping.n);
        let _ = gate.acquire().await;
        Ok(())
    }
    let given = given().await;
    given.emit(0..3).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let worker = given.start(
        (told, gate.clone()),
        Consumer::new("mailer").from(Start::Earliest).on(effect),
    );
    for _ in 0..3 {
        next(&mut hears).await;
    }
    let open = "select count(*) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and state like 'idle in transaction%'";
    let locks = "select count(*) from pg_locks l join pg_stat_activity a using (pid)
        where a.datname = current_database() and pid <> pg_backend_pid() and locktype = 'advisory' and a.state = 'idle'";
    assert_eq!((given.count(open).await, given.count(locks).await), (0, 0));
    gate.add_permits(3);
    given.processed(3).await;
    worker.stop().await.unwrap();
}

// IHP #2754, OCA/queue #245, Audius PR #12618: DDL at the start queued behind a dump, and everybody behind that.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_defines_nothing() {
    async fn effect(_: (), _: Attempt<Ping>) -> Result<(), Failure> {
        Ok(())
    }
    let given = given().await;
    let refuse = "create function refuse() returns event_trigger language plpgsql as $$
          begin raise exception 'no % here', tg_tag; end $$;
        create event trigger refuse on ddl_command_start execute function refuse()";
    given.sql.batch_execute(refuse).await.unwrap();
    given.emit(0..3).await;
    let worker = given.start((), Consumer::new("mailer").from(Start::Earliest).on(effect));
    given.processed(3).await;
    worker.stop().await.unwrap();
}

/// Goal: connections that stand still without being closed are given up, all of them, and work goes on over new ones.
/// Method: a proxy stops carrying what is open; new connections pass.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_stand_still_are_given_up_and_work_goes_on_over_new_ones() {
    async fn effect(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
        let _ = told.send(ping.n);
        Ok(())
    }
    let given = given().await;
    let proxy = Proxy::before(given.database.url()).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let consumer = Consumer::new("mailer").on(effect);
    let worker = given.start_at(proxy.url(), told, consumer, Given::settings());
    worker.registered(&given).await;
    given.emit(0..1).await;
    assert_eq!(next(&mut hears).await, 0);
    given.processed(1).await;
    proxy.freeze_open();
    given.emit(1..2).await;
    let handled = tokio::time::timeout(GIVEN_UP, hears.recv()).await;
    assert_eq!(handled.expect("is handled in time"), Some(1));
    given.processed(2).await;
    worker.stop().await.unwrap();
}
