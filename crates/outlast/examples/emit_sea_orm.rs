//! A booking and its event in one transaction of sea-orm 2: both are there after a commit, neither after a rollback.
//!
//! `DATABASE_URL=postgres://localhost/shop cargo run -p outlast --features sea-orm --example emit_sea_orm`

use outlast::{Event, Outlast};
use sea_orm::{ConnectionTrait, Database, DbBackend, Statement, TransactionTrait};
use serde::{Deserialize, Serialize};

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
    let db = Database::connect(std::env::var("DATABASE_URL")?).await?;
    db.execute_unprepared(TABLE).await?;
    for (booking, confirmed) in [(1i64, true), (2, false)] {
        let mut tx = db.begin().await?;
        let insert = "insert into booking values ($1)";
        let insert = Statement::from_sql_and_values(DbBackend::Postgres, insert, [booking.into()]);
        tx.execute_raw(insert).await?;
        Outlast::new()
            .emit(&mut tx, &BookingConfirmed { booking })
            .await?;
        if confirmed {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        let counts = Statement::from_string(DbBackend::Postgres, COUNTS);
        let counts = db.query_one_raw(counts).await?.ok_or("no row")?;
        let counts: String = counts.try_get_by_index(0)?;
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
