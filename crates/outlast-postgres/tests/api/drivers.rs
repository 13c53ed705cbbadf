//! Every driver with an adapter, so that what is promised is tried with each of them.

use super::client;
use diesel_async::{
    AsyncConnection, AsyncPgConnection, TransactionManager,
    pooled_connection::{AsyncDieselConnectionManager, deadpool::Pool as DieselPool},
};
use outlast_postgres::{
    connect::{self, Target},
    tx::{OwnedTx, Pool, Tx},
};
use sea_orm::{ConnectOptions, Database, DatabaseConnection, TransactionTrait};
use std::time::Duration;

/// How long a pool waits for a connection: never so long when all is well.
const WAIT: Duration = Duration::from_secs(5);

pub(super) fn deadpool(url: &str, size: usize) -> deadpool_postgres::Pool {
    connect::pool(&Target::parse(url).expect("a URL"), size).expect("a pool")
}

pub(super) async fn sqlx_pool(url: &str, size: u32) -> sqlx::PgPool {
    let options = sqlx::postgres::PgPoolOptions::new().max_connections(size);
    let options = options.acquire_timeout(WAIT);
    options.connect(url).await.expect("a pool")
}

pub(super) async fn sqlx_0_8_pool(url: &str, size: u32) -> sqlx_0_8::PgPool {
    let options = sqlx_0_8::postgres::PgPoolOptions::new().max_connections(size);
    let options = options.acquire_timeout(WAIT);
    options.connect(url).await.expect("a pool")
}

pub(super) async fn sea_orm_pool(url: &str, size: u32) -> DatabaseConnection {
    let mut options = ConnectOptions::new(url);
    options.max_connections(size).acquire_timeout(WAIT);
    Database::connect(options).await.expect("a pool")
}

pub(super) fn diesel_pool(url: &str, size: usize) -> DieselPool<AsyncPgConnection> {
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(url);
    DieselPool::builder(manager)
        .max_size(size)
        .build()
        .expect("a pool")
}

/// Runs the expression with a pool of every driver: `every_pool!(url, 1, |driver, pool| check(driver, pool).await)`.
macro_rules! every_pool {
    ($url:expr, $size:expr, |$driver:pat_param, $pool:ident| $work:expr) => {{
        let ($driver, $pool) = ("deadpool-postgres", &$crate::drivers::deadpool($url, $size));
        $work;
        let ($driver, $pool) = ("sqlx 0.9", &$crate::drivers::sqlx_pool($url, $size).await);
        $work;
        let ($driver, $pool) = (
            "sqlx 0.8",
            &$crate::drivers::sqlx_0_8_pool($url, $size).await,
        );
        $work;
        let ($driver, $pool) = ("sea-orm", &$crate::drivers::sea_orm_pool($url, $size).await);
        $work;
        let ($driver, $pool) = ("diesel-async", &$crate::drivers::diesel_pool($url, $size));
        $work;
    }};
}
pub(super) use every_pool;

/// Runs `work` in a transaction of every type that can be one, ends it, and says how many they were.
pub(super) async fn in_every_driver(
    url: &str,
    commit: bool,
    work: impl AsyncFn(&'static str, &mut dyn Tx),
) -> usize {
    let mut count = 0;
    // What Outlast begins itself …
    every_pool!(url, 1, |driver, pool| {
        let mut tx = Pool::begin(pool).await.expect("begins");
        work(driver, &mut tx).await;
        end(tx, commit).await;
        count += 1;
    });
    // … and what users begin.
    macro_rules! with {
        ($name:literal, $tx:ident, $as_tx:expr) => {
            work($name, $as_tx).await;
            if commit {
                $tx.commit().await
            } else {
                $tx.rollback().await
            }
            .expect("ends");
            count += 1;
        };
    }
    let pool = sqlx_pool(url, 1).await;
    let mut tx = pool.begin().await.expect("begins");
    with!(
        "sqlx 0.9 connection",
        tx,
        &mut *tx as &mut sqlx::PgConnection
    );

    let pool = sqlx_0_8_pool(url, 1).await;
    let mut tx = pool.begin().await.expect("begins");
    with!(
        "sqlx 0.8 connection",
        tx,
        &mut *tx as &mut sqlx_0_8::PgConnection
    );

    let pool = sea_orm_pool(url, 1).await;
    let tx = TransactionTrait::begin(&pool).await.expect("begins");
    with!("sea-orm reference", tx, &mut &tx);

    let mut plain = client(url).await;
    let mut tx = plain.transaction().await.expect("begins");
    with!("tokio-postgres", tx, &mut tx);

    let mut pooled = deadpool(url, 1).get().await.expect("a connection");
    let mut tx = pooled.transaction().await.expect("begins");
    with!("deadpool transaction", tx, &mut tx);

    let mut connection = AsyncPgConnection::establish(url).await.expect("connects");
    // What `connection.transaction(..)` does, whose closure would have to be `Sync`.
    type Manager = diesel_async::AnsiTransactionManager;
    Manager::begin_transaction(&mut connection)
        .await
        .expect("begins");
    work("diesel-async connection", &mut connection).await;
    if commit {
        Manager::commit_transaction(&mut connection).await
    } else {
        Manager::rollback_transaction(&mut connection).await
    }
    .expect("ends");
    count + 1
}

async fn end(tx: impl OwnedTx, commit: bool) {
    if commit {
        tx.commit().await
    } else {
        tx.rollback().await
    }
    .expect("ends");
}
