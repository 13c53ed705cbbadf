//! A booking and its event in one transaction of tokio-postgres (deadpool-postgres is the same): both are there after a
//! commit, neither after a rollback.
//!
//! `DATABASE_URL=postgres://localhost/shop cargo run -p outlast --example emit_tokio_postgres`

use outlast::{Event, Outlast};
use serde::{Deserialize, Serialize};
use tokio_postgres::NoTls;

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
    let (mut db, connection) =
        tokio_postgres::connect(&std::env::var("DATABASE_URL")?, NoTls).await?;
    tokio::spawn(connection);
    db.batch_execute(TABLE).await?;
    for (booking, confirmed) in [(1i64, true), (2, false)] {
        let mut tx = db.transaction().await?;
        tx.execute("insert into booking values ($1)", &[&booking])
            .await?;
        Outlast::new()
            .emit(&mut tx, &BookingConfirmed { booking })
            .await?;
        if confirmed {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        let counts: String = db.query_one(COUNTS, &[]).await?.get(0);
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
