//! A bare client is not a transaction: each statement commits alone.
#![allow(unused_imports)]
use outlast::*;
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};

#[derive(Clone)]
struct App {
    db: PgPool,
}

#[derive(Serialize, Deserialize)]
struct Ev {
    n: i64,
}
impl Event for Ev {
    const NAME: &'static str = "ev";
}

async fn h(o: &Outlast, client: &mut tokio_postgres::Client) -> Result<(), Error> {
    o.emit(client, &Ev { n: 1 }).await?;
    Ok(())
}

fn main() {}
