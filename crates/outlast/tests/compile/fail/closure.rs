//! A plain closure cannot borrow the transaction in its future: write an `async fn`.
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

fn reg(o: &Outlast, app: App) {
    let db = app.db.clone();
    let consumer = Consumer::new("x").on_tx(&db, |_: App, tx: &mut PgTransaction<'static>, _: Attempt<Ev>| async move {
        sqlx::query("select 1").execute(&mut **tx).await?;
        Ok(())
    });
    let _ = o.worker(app).consumer(consumer);
}

fn main() {}
