//! A pool of diesel-async is not a transaction.
#![allow(unused_imports)]
use outlast::*;
use serde::{Deserialize, Serialize};
use diesel_async::{AsyncPgConnection, pooled_connection::deadpool::Pool as DieselPool};

#[derive(Serialize, Deserialize)]
struct Ev {
    n: i64,
}
impl Event for Ev {
    const NAME: &'static str = "ev";
}

async fn h(o: &Outlast, db: &mut DieselPool<AsyncPgConnection>) -> Result<(), Error> {
    o.emit(db, &Ev { n: 1 }).await?;
    Ok(())
}

fn main() {}
