//! A pool is not a transaction: it would be a second write.
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

async fn h(o: &Outlast, db: &mut PgPool) -> Result<(), Error> {
    o.emit(db, &Ev { n: 1 }).await?;
    Ok(())
}

fn main() {}
