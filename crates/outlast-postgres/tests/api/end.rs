//! How transactions end: given up, failed, refused, unanswered.

use super::{
    PATIENCE, client, database,
    drivers::{deadpool, diesel_pool, sqlx_pool},
    every_pool, in_every_driver, one, shown,
};
use futures_util::FutureExt;
use outlast_core::{Class, Classify, Failure};
use outlast_postgres::{
    Error,
    event::{Body, Envelope, Landed, emit, landed},
    schema::Schema,
    tx::{OwnedTx, Pool, Tx},
};
use outlast_testkit::{
    proxy::{Fault, Proxy, When},
    wait_for,
};
use std::time::Duration;
use tokio_postgres::Client;

const TABLE: &str = "create table booking (id int primary key, other int references booking (id) deferrable initially deferred)";

async fn insert(tx: &mut dyn Tx, id: &'static str) -> Result<(), Error> {
    tx.call(
        "insert into booking (id) values ($1::text::int)",
        &[id.into()],
    )
    .await
    .map(drop)
}

async fn rows(watcher: &Client) -> Option<String> {
    one(watcher, "select count(*)::text from booking").await
}

/// Connections of this database, other than ours, that have a transaction open.
pub(super) const OPEN: &str = "select count(*)::text from pg_stat_activity where datname = current_database() and xact_start is not null \
    and pid <> pg_backend_pid() and backend_type = 'client backend'";

pub(super) async fn nothing_stays_open(watcher: &Client) {
    let none = async || (one(watcher, OPEN).await.as_deref() == Some("0")).then_some(());
    wait_for("no transaction stays open", PATIENCE, none).await;
}

/// Goal: a `begin` that is given up while BEGIN is on the wire leaves no open transaction in the pool.
/// Method: the answer to BEGIN is held, the future dropped, then the answer let go. Without the guard sqlx puts the
/// connection back with the transaction open (its issues 4385, 4393).
async fn begin_is_given_up(pool: &impl Pool, proxy: &Proxy, watcher: &Client) {
    let armed = proxy.arm(When::Contains("outlast.begun".into()), Fault::HoldReply);
    let mut begun = pool.begin();
    tokio::select! {
        _ = &mut begun => panic!("begun without an answer"),
        () = armed.fired() => {}
    }
    drop(begun);
    armed.release();
    nothing_stays_open(watcher).await;
    let mut next = pool
        .begin()
        .await
        .expect("the pool still gives a connection");
    next.call("select 'x'", &[]).await.unwrap();
    next.commit().await.unwrap();
    nothing_stays_open(watcher).await;
}

#[tokio::test]
async fn a_begin_that_is_given_up_leaves_no_transaction_behind() {
    let db = database().await;
    let watcher = client(db.url()).await;
    let proxy = Proxy::before(db.url()).await;
    every_pool!(proxy.url(), 1, |_, pool| begin_is_given_up(
        pool, &proxy, &watcher
    )
    .await);
}

async fn dropped(pool: &impl Pool, watcher: &Client) {
    let mut tx = pool.begin().await.unwrap();
    insert(&mut tx, "1").await.unwrap();
    drop(tx);
    let mut next = pool.begin().await.unwrap();
    insert(&mut next, "1")
        .await
        .expect("what was dropped is undone");
    next.rollback().await.unwrap();
    nothing_stays_open(watcher).await;
    assert_eq!(rows(watcher).await.as_deref(), Some("0"));
}

#[tokio::test]
async fn a_transaction_that_is_dropped_is_undone_and_its_connection_is_clean_or_closed() {
    let db = database().await;
    let watcher = client(db.url()).await;
    watcher.batch_execute(TABLE).await.unwrap();
    every_pool!(db.url(), 1, |_, pool| dropped(pool, &watcher).await);
}

/// A pool that has nothing to give says so, and giving up the wait costs nobody a connection.
#[tokio::test]
async fn a_pool_without_a_free_connection_says_so() {
    let db = database().await;
    let options = sqlx::postgres::PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_millis(50));
    let pool = options.connect(db.url()).await.unwrap();
    let taken = Pool::begin(&pool).await.unwrap();
    assert!(matches!(
        Pool::begin(&pool).await,
        Err(Error::PoolExhausted)
    ));
    drop(taken);

    let pool = deadpool(db.url(), 1);
    let taken = Pool::begin(&pool).await.unwrap();
    for _ in 0..3 {
        assert!(Pool::begin(&pool).now_or_never().is_none());
    }
    taken.rollback().await.unwrap();
    Pool::begin(&pool).await.unwrap().commit().await.unwrap();
    assert_eq!(
        pool.status().size,
        1,
        "nobody who gave up took a connection with him"
    );
}

async fn swallowed(pool: &impl Pool) {
    let mut tx = pool.begin().await.unwrap();
    insert(&mut tx, "1").await.unwrap();
    let _swallowed = insert(&mut tx, "1").await.unwrap_err();
    let committed = tx.commit().await;
    assert!(
        matches!(committed, Err(Error::RolledBack)),
        "{}",
        shown(&committed)
    );
}

/// sqlx's own types cannot do this; there the seal before COMMIT fails: see the next test.
#[tokio::test]
async fn a_swallowed_error_makes_the_commit_of_our_own_transaction_types_fail() {
    let db = database().await;
    let watcher = client(db.url()).await;
    watcher.batch_execute(TABLE).await.unwrap();
    swallowed(&deadpool(db.url(), 1)).await;
    swallowed(&diesel_pool(db.url(), 1)).await;
    assert_eq!(rows(&watcher).await.as_deref(), Some("0"));
}

/// Without this, the seal could be written where nothing else can be.
#[tokio::test]
async fn in_a_failed_transaction_every_call_fails() {
    let db = database().await;
    let watcher = client(db.url()).await;
    watcher.batch_execute(TABLE).await.unwrap();
    in_every_driver(db.url(), false, async |driver, tx| {
        insert(tx, "1").await.unwrap();
        let double = insert(tx, "1").await.unwrap_err();
        assert_eq!(double.state(), Some("23505"), "{driver}");
        let after = tx.call("select 'fine'", &[]).await.unwrap_err();
        assert_eq!(after.state(), Some("25P02"), "{driver}");
    })
    .await;
}

async fn refused_at_commit(pool: &impl Pool) {
    let mut tx = pool.begin().await.unwrap();
    tx.call("insert into booking values (1, 99)", &[])
        .await
        .unwrap();
    match tx.commit().await {
        Err(Error::Database(error)) => assert_eq!(error.state(), Some("23503")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_commit_that_the_server_refuses_is_definite() {
    let db = database().await;
    let watcher = client(db.url()).await;
    watcher.batch_execute(TABLE).await.unwrap();
    every_pool!(db.url(), 1, |_, pool| refused_at_commit(pool).await);
    assert_eq!(rows(&watcher).await.as_deref(), Some("0"));
}

async fn unanswered(pool: &impl Pool, proxy: &Proxy, watcher: &Client) {
    for (fault, expected) in [(Fault::DropRequest, "0"), (Fault::DropReply, "1")] {
        watcher.batch_execute("truncate booking").await.unwrap();
        let mut tx = pool.begin().await.unwrap();
        insert(&mut tx, "1").await.unwrap();
        let armed = proxy.arm(When::Commit, fault);
        let committed = tx.commit().await;
        assert!(
            matches!(committed, Err(Error::CommitUnknown(_))),
            "{}",
            shown(&committed)
        );
        armed.fired().await;
        assert_eq!(committed.unwrap_err().class(), Class::Unknown);
        let settled = async || (rows(watcher).await.as_deref() == Some(expected)).then_some(());
        wait_for("the truth behind the unanswered commit", PATIENCE, settled).await;
    }
}

#[tokio::test]
async fn a_commit_without_an_answer_is_unknown_whether_it_happened_or_not() {
    let db = database().await;
    let watcher = client(db.url()).await;
    watcher.batch_execute(TABLE).await.unwrap();
    let proxy = Proxy::before(db.url()).await;
    every_pool!(proxy.url(), 1, |_, pool| unanswered(pool, &proxy, &watcher)
        .await);
}

async fn dropped_in_commit(pool: &impl Pool, proxy: &Proxy, watcher: &Client) {
    watcher.batch_execute("truncate booking").await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    insert(&mut tx, "1").await.unwrap();
    let armed = proxy.arm(When::Commit, Fault::HoldRequest);
    let mut commit = tx.commit();
    assert!(
        (&mut commit).now_or_never().is_none(),
        "it waits for the held request"
    );
    armed.fired().await;
    drop(commit);
    armed.release();
    let settled = async || (rows(watcher).await.as_deref() == Some("1")).then_some(());
    wait_for(
        "the commit that nobody waits for any more",
        PATIENCE,
        settled,
    )
    .await;
    // The connection comes back clean.
    pool.begin().await.unwrap().commit().await.unwrap();
}

#[tokio::test]
async fn a_commit_that_was_begun_is_carried_to_its_end_even_if_its_future_is_dropped() {
    let db = database().await;
    let watcher = client(db.url()).await;
    watcher.batch_execute(TABLE).await.unwrap();
    let proxy = Proxy::before(db.url()).await;
    every_pool!(proxy.url(), 1, |_, pool| dropped_in_commit(
        pool, &proxy, &watcher
    )
    .await);
}

async fn whether_it_landed(pool: &impl Pool, through: &impl Pool, proxy: &Proxy) {
    for (fault, expected) in [
        (Fault::DropRequest, Landed::NotLanded),
        (Fault::DropReply, Landed::Landed),
    ] {
        let mut tx = through.begin().await.unwrap();
        let accepted = emit(&mut tx, &Envelope::new("paid", 1, Body::Json("1")))
            .await
            .unwrap();
        let _armed = proxy.arm(When::Commit, fault);
        assert!(matches!(tx.commit().await, Err(Error::CommitUnknown(_))));
        assert_eq!(
            landed(pool, Schema::DEFAULT, &accepted).await.unwrap(),
            expected,
            "{fault:?}"
        );
    }
    // COMMIT is still on the wire: a plain look-up would say "absent" now.
    let mut tx = through.begin().await.unwrap();
    let accepted = emit(&mut tx, &Envelope::new("paid", 1, Body::Json("1")))
        .await
        .unwrap();
    let armed = proxy.arm(When::Commit, Fault::HoldRequest);
    let mut commit = tx.commit();
    tokio::select! {
        _ = &mut commit => panic!("answered while it was held"),
        () = armed.fired() => {}
    }
    let mut looking = Box::pin(landed(pool, Schema::DEFAULT, &accepted));
    let early = tokio::time::timeout(Duration::from_millis(200), &mut looking).await;
    assert!(early.is_err(), "{early:?} while the transaction is open");
    armed.release();
    commit.await.unwrap();
    assert_eq!(looking.await.unwrap(), Landed::Landed);

    let mut tx = through.begin().await.unwrap();
    let accepted = emit(&mut tx, &Envelope::new("paid", 1, Body::Json("1")))
        .await
        .unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(
        landed(pool, Schema::DEFAULT, &accepted).await.unwrap(),
        Landed::NotLanded
    );
}

#[tokio::test]
async fn an_unanswered_intent_is_looked_for_after_its_transaction_has_ended() {
    let db = database().await;
    let proxy = Proxy::before(db.url()).await;
    let pool = deadpool(db.url(), 1);
    every_pool!(proxy.url(), 1, |_, through| whether_it_landed(
        &pool, through, &proxy
    )
    .await);
}

/// Goal: what a handler passes on with `?` has the right class, and its text quotes no row of the user.
#[tokio::test]
async fn the_drivers_errors_become_failures_of_the_right_class() {
    use diesel_async::{AsyncConnection, SimpleAsyncConnection};
    use sea_orm::ConnectionTrait;
    let db = database().await;
    let watcher = client(db.url()).await;
    watcher.batch_execute("create table secret (email text primary key); insert into secret values ('jane@example.org')").await.unwrap();
    const DOUBLE: &str = "insert into secret values ('jane@example.org')";
    const CONFLICT: &str =
        "do $$ begin raise exception 'could not serialize' using errcode = '40001'; end $$";
    macro_rules! check_driver {
        ($driver:literal, |$sql:ident| $run:expr) => {
            let $sql = DOUBLE;
            let double = Failure::from($run.unwrap_err());
            let $sql = CONFLICT;
            let conflict = Failure::from($run.unwrap_err());
            check(&double, &conflict, $driver);
        };
    }
    let pool = sqlx_pool(db.url(), 1).await;
    check_driver!("sqlx 0.9", |sql| sqlx::query(sql).execute(&pool).await);
    let pool = super::drivers::sqlx_0_8_pool(db.url(), 1).await;
    check_driver!("sqlx 0.8", |sql| sqlx_0_8::query(sql).execute(&pool).await);
    let pool = super::drivers::sea_orm_pool(db.url(), 1).await;
    check_driver!("sea-orm", |sql| pool.execute_unprepared(sql).await);
    check_driver!("tokio-postgres", |sql| watcher.batch_execute(sql).await);
    let mut diesel = diesel_async::AsyncPgConnection::establish(db.url())
        .await
        .unwrap();
    check_driver!("diesel-async", |sql| diesel.batch_execute(sql).await);

    every_pool!(db.url(), 1, |driver, pool| {
        let mut failures = Vec::new();
        for sql in [DOUBLE, CONFLICT] {
            let mut tx = Pool::begin(pool).await.unwrap();
            failures.push(Failure::from(tx.call(sql, &[]).await.unwrap_err()));
            tx.rollback().await.unwrap();
        }
        check(&failures[0], &failures[1], driver);
    });
}

fn check(double: &Failure, conflict: &Failure, driver: &str) {
    assert_eq!(
        (double.class, double.is_charged()),
        (Class::Unclassified, true),
        "{driver}: {double}"
    );
    assert!(
        double.reason.contains("duplicate key") && !double.reason.contains("jane"),
        "{driver}: {double}"
    );
    assert_eq!(
        (conflict.class, conflict.is_charged()),
        (Class::Retry, false),
        "{driver}: {conflict}"
    );
}

#[tokio::test]
async fn a_connection_that_is_cut_is_a_retry() {
    let db = database().await;
    let proxy = Proxy::before(db.url()).await;
    every_pool!(proxy.url(), 1, |driver, pool| {
        let mut tx = Pool::begin(pool).await.unwrap();
        proxy.cut();
        let failure = Failure::from(tx.call("select 'x'", &[]).await.unwrap_err());
        assert_eq!(failure.class, Class::Retry, "{driver}: {failure}");
    });
}
