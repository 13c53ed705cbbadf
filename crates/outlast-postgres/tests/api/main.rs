//! Emitting and marking through every driver, the ends of a transaction, and connecting: against real PostgreSQL.

mod cancel;
mod connect;
mod drivers;
mod emit;
mod end;
mod entity;

use drivers::{every_pool, in_every_driver};
use outlast_postgres::{
    Error,
    connect::{self as c, Target},
};
use outlast_testkit::pg::outlast as database;
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
