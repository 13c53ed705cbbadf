//! A booking and its event in one transaction of diesel-async: both are there after a commit, neither after a rollback.
//!
//! `DATABASE_URL=postgres://localhost/shop cargo run -p outlast --features diesel-async --example emit_diesel_async`

use diesel::{ExpressionMethods, sql_types::Text};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use outlast::{Event, Outlast};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct BookingConfirmed {
    booking: i64,
}
impl Event for BookingConfirmed {
    const NAME: &'static str = "booking.confirmed";
}

const TABLE: &str = "create table if not exists booking (id bigint)";
const COUNTS: &str = "(select count(*) from booking) || ' booking, ' || (select count(*) from outlast.event) || ' event'";

diesel::table! {
    booking (id) {
        id -> BigInt,
    }
}

/// What ends the closure of a transaction early: diesel then rolls back.
type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let mut db = AsyncPgConnection::establish(&std::env::var("DATABASE_URL")?).await?;
    db.batch_execute(TABLE).await?;
    for (number, confirmed) in [(1, true), (2, false)] {
        let ended = db.transaction(async |tx| {
            let insert = diesel::insert_into(booking::table).values(booking::id.eq(number));
            insert.execute(tx).await?;
            Outlast::new()
                .emit(tx, &BookingConfirmed { booking: number })
                .await?;
            if confirmed {
                Ok::<_, Failed>(())
            } else {
                Err("not confirmed".into())
            }
        });
        let ended = ended.await;
        let counts = diesel::select(diesel::dsl::sql::<Text>(COUNTS));
        let counts: String = counts.get_result(&mut db).await?;
        println!(
            "{}: {counts}",
            if ended.is_ok() {
                "committed"
            } else {
                "rolled back"
            }
        );
    }
    Ok(())
}
