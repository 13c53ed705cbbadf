//! Emitting through every driver, the ends of a transaction, and connecting: against real PostgreSQL.

mod connect;
mod emit;
mod end;

use outlast_postgres::{
    Error,
    connect::{self as c, Target},
    tx::{ClientTx, OwnedTx, Pool, Tx},
};
use outlast_testkit::pg::outlast as database;
use sqlx::{Connection, postgres::PgPoolOptions};
use std::time::Duration;
use tokio_postgres::Client;

/// Long enough for a loaded machine; nothing waits so long when all is well.
const PATIENCE: Duration = Duration::from_secs(30);

async fn client(url: &str) -> Client {
    c::connect(&Target::parse(url).expect("a URL"))
        .await
        .expect("a connection")
        .0
}

fn deadpool(url: &str, size: usize) -> deadpool_postgres::Pool {
    c::pool(&Target::parse(url).expect("a URL"), size).expect("a pool")
}

async fn sqlx_pool(url: &str, size: u32) -> sqlx::PgPool {
    let options = PgPoolOptions::new()
        .max_connections(size)
        .acquire_timeout(Duration::from_secs(5));
    options.connect(url).await.expect("a pool")
}

/// Runs `work` in a transaction of every driver, and ends it.
async fn in_every_driver(url: &str, commit: bool, work: impl AsyncFn(&'static str, &mut dyn Tx)) {
    let pool = sqlx_pool(url, 1).await;
    let mut tx = Pool::begin(&pool).await.expect("begins");
    work("sqlx transaction", &mut tx).await;
    end(tx, commit).await;

    let mut connection = pool.acquire().await.expect("a connection");
    let mut tx = connection.begin().await.expect("begins");
    let bare: &mut sqlx::PgConnection = &mut tx;
    work("sqlx connection", bare).await;
    if commit {
        tx.commit().await
    } else {
        tx.rollback().await
    }
    .expect("ends");

    let mut plain = client(url).await;
    let mut tx = plain.transaction().await.expect("begins");
    work("tokio-postgres", &mut tx).await;
    if commit {
        tx.commit().await
    } else {
        tx.rollback().await
    }
    .expect("ends");

    let pool = deadpool(url, 1);
    let mut pooled = pool.get().await.expect("a connection");
    let mut tx = pooled.transaction().await.expect("begins");
    work("deadpool", &mut tx).await;
    if commit {
        tx.commit().await
    } else {
        tx.rollback().await
    }
    .expect("ends");
    drop(pooled);

    let mut tx: ClientTx = Pool::begin(&pool).await.expect("begins");
    work("client transaction", &mut tx).await;
    end(tx, commit).await;
}

async fn end(tx: impl OwnedTx, commit: bool) {
    if commit {
        tx.commit().await
    } else {
        tx.rollback().await
    }
    .expect("ends");
}

/// One text from the database.
async fn one(client: &Client, sql: &str) -> Option<String> {
    let row = client
        .query_one(sql, &[])
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    row.get(0)
}

fn shown<T: std::fmt::Debug>(result: &Result<T, Error>) -> String {
    format!("{result:?}")
}
