//! An `async` closure with written types that captures nothing is as good as an `async fn`.
use outlast::*;
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};

#[derive(Serialize, Deserialize)]
struct Ev {
    n: i64,
}
impl Event for Ev {
    const NAME: &'static str = "ev";
}

fn _reg(o: &Outlast, db: PgPool) -> Worker<()> {
    o.worker(()).consumer(Consumer::new("x").on_tx(&db, async |_: (), tx: &mut PgTransaction<'static>, e: Attempt<Ev>| {
        sqlx::query("select $1").bind(e.n).execute(&mut **tx).await?;
        Ok(())
    }))
}

fn main() {}
