#![deny(unused_must_use)]
use outlast::{Job, Outlast};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Greet;
impl Job for Greet {
    const NAME: &'static str = "greet";
}

async fn greet(db: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    let mut tx = db.begin().await?;
    Outlast::new().enqueue(&mut tx, &Greet);
    tx.commit().await?;
    Ok(())
}

fn main() {}
