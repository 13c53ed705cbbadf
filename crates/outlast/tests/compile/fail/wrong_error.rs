//! The error is not a `Failure`.
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

async fn h(_: App, _tx: &mut PgTransaction<'_>, _e: Attempt<Ev>) -> Result<(), sqlx::Error> {
    Ok(())
}

fn reg(o: &Outlast, app: App) {
    let db = app.db.clone();
    let _ = o.worker(app).consumer(Consumer::new("x").on_tx(&db, h));
}

fn main() {}
