//! `on_tx` and entities with the pool of every driver: the handler's rows and the completion are one commit, or nothing.

use diesel_async::{
    AsyncPgConnection,
    pooled_connection::{AsyncDieselConnectionManager, deadpool::Pool as DieselPool},
};
use outlast::{
    Attempt, Consumer, Entity, Event, Failure, Outlast, OwnedTx, Pool, Sealed, Start, Tx,
    testing::TestWorker,
};
use outlast_testkit::pg;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Paid {
    n: i64,
    /// The handler fails a statement and returns Ok all the same.
    swallow: bool,
}
impl Event for Paid {
    const NAME: &'static str = "paid";
}

/// Writes a row twice at most once.
async fn post<T: Tx>(driver: &'static str, tx: &mut T, e: Attempt<Paid>) -> Result<(), Failure> {
    const INSERT: &str = "insert into ledger values ($1, $2::text::bigint)";
    let n = e.n.to_string();
    let row = [driver.into(), n.as_str().into()];
    tx.call(INSERT, &row).await?;
    if e.swallow {
        // What nobody should do. PostgreSQL answers the COMMIT after it with ROLLBACK, which most drivers hide.
        let _swallowed = tx.call(INSERT, &row).await;
    }
    Ok(())
}

async fn handles<P: Pool>(driver: &'static str, url: &str, pool: &P) {
    let consumer = Consumer::new(driver)
        .from(Start::Earliest)
        .on_tx(pool, post::<P::Tx>);
    let worker = Outlast::new()
        .worker(driver)
        .database(url)
        .consumer(consumer);
    let t = TestWorker::new(pool, worker).await.unwrap();
    let idle = t.run_until_idle().await;
    assert_eq!((idle.handled, idle.incidents.len()), (1, 0), "{driver}");
}

#[tokio::test]
async fn with_every_pool_rows_and_completion_are_one_commit_and_a_failed_transaction_is_never_believed()
 {
    let database = pg::outlast().await;
    let url = database.url();
    let sql = database.connect().await;
    let table = "create table ledger (driver text, n bigint, primary key (driver, n))";
    sql.batch_execute(table).await.unwrap();

    let diesel = AsyncDieselConnectionManager::<AsyncPgConnection>::new(url);
    let diesel = DieselPool::builder(diesel).build().unwrap();
    let sqlx = sqlx::PgPool::connect(url).await.unwrap();
    let mut tx = Pool::begin(&sqlx).await.unwrap();
    for (n, swallow) in [(1, false), (2, true)] {
        let event = Paid { n, swallow };
        Outlast::new().emit(&mut tx, &event).await.unwrap();
    }
    OwnedTx::commit(tx).await.unwrap();

    handles("sqlx-0_9", url, &sqlx).await;
    let pool = sqlx_0_8::PgPool::connect(url).await.unwrap();
    handles("sqlx-0_8", url, &pool).await;
    let pool = sea_orm::Database::connect(url).await.unwrap();
    handles("sea-orm", url, &pool).await;
    handles("diesel-async", url, &diesel).await;
    let config: tokio_postgres::Config = url.parse().unwrap();
    let manager = deadpool_postgres::Manager::new(config, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
    handles("tokio-postgres", url, &pool).await;

    // Each wrote and sealed the first; of the second nothing is there but a failure that waits for its next try.
    let told = "select string_agg(concat_ws(' ', l.driver, l.n, p.outcome), ', ' order by l.driver)
        from ledger l join outlast.processed p on p.consumer = l.driver";
    let told: String = sql.query_one(told, &[]).await.unwrap().get(0);
    let drivers = [
        "diesel-async",
        "sea-orm",
        "sqlx-0_8",
        "sqlx-0_9",
        "tokio-postgres",
    ];
    assert_eq!(
        told,
        drivers.map(|driver| format!("{driver} 1 done")).join(", ")
    );
    let waiting = "select count(*), count(distinct consumer), min(reason) from outlast.parked where state = 'retry'";
    let waiting = sql.query_one(waiting, &[]).await.unwrap();
    assert_eq!((waiting.get(0), waiting.get(1)), (5_i64, 5_i64));
    let reason: &str = waiting.get(2);
    assert!(reason.contains("swallowed"), "{reason}");
}

#[derive(Serialize, Deserialize)]
struct Member {
    driver: String,
}
impl Entity for Member {
    const NAME: &'static str = "member";
    type Refs = String;
    fn key(&self) -> String {
        self.driver.clone()
    }
}

/// A row for each run, in the commit of its completion.
async fn mirror<P: Pool>(pool: P, member: Attempt<Member>) -> Result<Sealed, Failure> {
    let mut tx = pool.begin().await?;
    let gone = member.refs().map_or("", String::as_str);
    let row = [member.driver.as_str().into(), gone.into()];
    tx.call("insert into shown values ($1, $2)", &row).await?;
    member.seal(tx).await
}

/// Marks in transactions of this driver, one of which is rolled back, and completes with it.
async fn marks_and_seals<P: Pool>(driver: &str, url: &str, pool: &P) {
    let outlast = Outlast::new();
    let member = Member {
        driver: driver.into(),
    };
    for commit in [false, true] {
        let mut tx = pool.begin().await.unwrap();
        outlast.changed(&mut tx, &member).await.unwrap();
        let sid = format!("sid of {driver}, {commit}");
        outlast.deleted(&mut tx, &member, &sid).await.unwrap();
        match commit {
            true => tx.commit().await.unwrap(),
            false => tx.rollback().await.unwrap(),
        }
    }
    let worker = outlast
        .worker(pool.clone())
        .database(url)
        .reconcile(mirror::<P>);
    let t = TestWorker::new(pool, worker).await.unwrap();
    assert_eq!(t.run_until_idle().await.incidents, [], "{driver}");
}

#[tokio::test]
async fn with_every_pool_marks_commit_with_the_transaction_and_a_reconciler_seals_its_rows() {
    let database = pg::outlast().await;
    let url = database.url();
    let sql = database.connect().await;
    let table = "create table shown (driver text, gone text, primary key (driver, gone))";
    sql.batch_execute(table).await.unwrap();

    let pool = sqlx::PgPool::connect(url).await.unwrap();
    marks_and_seals("sqlx-0_9", url, &pool).await;
    let pool = sqlx_0_8::PgPool::connect(url).await.unwrap();
    marks_and_seals("sqlx-0_8", url, &pool).await;
    let pool = sea_orm::Database::connect(url).await.unwrap();
    marks_and_seals("sea-orm", url, &pool).await;
    let diesel = AsyncDieselConnectionManager::<AsyncPgConnection>::new(url);
    let pool = DieselPool::builder(diesel).build().unwrap();
    marks_and_seals("diesel-async", url, &pool).await;
    let config: tokio_postgres::Config = url.parse().unwrap();
    let manager = deadpool_postgres::Manager::new(config, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
    marks_and_seals("tokio-postgres", url, &pool).await;

    // Each once with the refs of its deletion, and once for itself.
    let told =
        "select string_agg(concat_ws('|', driver, gone), ', ' order by driver, gone) from shown";
    let told: String = sql.query_one(told, &[]).await.unwrap().get(0);
    let drivers = [
        "diesel-async",
        "sea-orm",
        "sqlx-0_8",
        "sqlx-0_9",
        "tokio-postgres",
    ];
    let both = drivers.map(|driver| format!("{driver}|, {driver}|sid of {driver}, true"));
    assert_eq!(told, both.join(", "));
    let open = "select count(*) from outlast.entity where state <> 'converged'";
    let open: i64 = sql.query_one(open, &[]).await.unwrap().get(0);
    assert_eq!(open, 0);
}
