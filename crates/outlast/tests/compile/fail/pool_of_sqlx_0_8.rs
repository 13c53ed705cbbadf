//! A pool of sqlx 0.8 is not a transaction either.
#![allow(unused_imports)]
use outlast::*;
use serde::{Deserialize, Serialize};
use sqlx_0_8::PgPool;

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
