//! Nothing is emitted without `.await`.
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
#[deny(unused_must_use)]
async fn h(o: &Outlast, tx: &mut PgTransaction<'_>) {
    o.emit(tx, &Ev { n: 1 });
}

fn main() {}
