//! A booking and its event in one transaction of sqlx 0.8: both are there after a commit, neither after a rollback.
//!
//! `DATABASE_URL=postgres://localhost/shop cargo run -p outlast --features sqlx-0_8 --example emit_sqlx_0_8`

use outlast::{Event, Outlast};
use serde::{Deserialize, Serialize};
use sqlx_0_8::{PgPool, query, query_scalar}; // in your own program it is called sqlx

#[derive(Serialize, Deserialize)]
struct BookingConfirmed {
    booking: i64,
}
impl Event for BookingConfirmed {
    const NAME: &'static str = "booking.confirmed";
}

const TABLE: &str = "create table if not exists booking (id bigint)";
const COUNTS: &str = "select (select count(*) from booking) || ' booking, ' || (select count(*) from outlast.event) || ' event'";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    query(TABLE).execute(&db).await?;
    for (booking, confirmed) in [(1, true), (2, false)] {
        let mut tx = db.begin().await?;
        let insert = query("insert into booking values ($1)").bind(booking);
        insert.execute(&mut *tx).await?;
        Outlast::new()
            .emit(&mut tx, &BookingConfirmed { booking })
            .await?;
        if confirmed {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        let counts: String = query_scalar(COUNTS).fetch_one(&db).await?;
        println!(
            "{}: {counts}",
            if confirmed {
                "committed"
            } else {
                "rolled back"
            }
        );
    }
    Ok(())
}
