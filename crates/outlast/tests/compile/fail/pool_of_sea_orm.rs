//! A connection of sea-orm is a pool: each statement may go through another.
#![allow(unused_imports)]
use outlast::*;
use serde::{Deserialize, Serialize};
use sea_orm::DatabaseConnection;

#[derive(Serialize, Deserialize)]
struct Ev {
    n: i64,
}
impl Event for Ev {
    const NAME: &'static str = "ev";
}

async fn h(o: &Outlast, db: &mut DatabaseConnection) -> Result<(), Error> {
    o.emit(db, &Ev { n: 1 }).await?;
    Ok(())
}

fn main() {}
