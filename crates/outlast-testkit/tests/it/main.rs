//! The test kit against real servers and real processes.

mod cluster;
mod orphans;
mod pg;
mod process;
mod provider;
mod proxy;

use std::time::Duration;

use tokio_postgres::{Client, NoTls};

/// Long enough for a loaded machine; nothing waits so long when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .expect("a connection");
    tokio::spawn(connection);
    client
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect("a number").get(0)
}
