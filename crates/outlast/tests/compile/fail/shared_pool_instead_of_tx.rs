//! A pool behind `&` is not a transaction either.
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

async fn h(o: &Outlast, db: &PgPool) -> Result<(), Error> {
    o.emit(db, &Ev { n: 1 }).await?;
    Ok(())
}

fn main() {}
