//! Every internal statement reads what it needs, whatever the statistics say: rows read, not time.
//!
//! Each is called often enough in one session that its plans have become generic.

use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::house::House;
use crate::sql;

mod entities;
mod floor;
mod forget;
mod jobs;
mod meter;
mod statements;

use meter::{leave_alone, measure};

/// When the statistics were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statistics {
    /// Never: the tables are fresh.
    None,
    /// While the tables were empty.
    Stale,
    /// Now.
    Fresh,
}

/// A log with much retained in it, an inbox, and parked events that nobody works on.
struct Attic {
    house: House,
    client: Client,
    consumer: i32,
}

const RETAINED: i32 = 200_000;

impl Attic {
    /// Without anything in it.
    async fn empty(house: House) -> Self {
        house.movable_clock().await;
        let client = house.connect().await;
        let consumer = sql::register(&client, "c", &["a"], "now", None).await;
        Self {
            house,
            client,
            consumer,
        }
    }

    async fn new(statistics: Statistics) -> Self {
        let house = House::new().await;
        house.movable_clock().await;
        let client = house.connect().await;
        leave_alone(&client, "").await;
        if statistics == Statistics::Stale {
            sql::run(&client, "analyze").await;
        }
        let consumer = sql::register(&client, "c", &["a"], "now", None).await;
        let other = sql::register(&client, "other", &["b"], "now", None).await;
        let fill = format!(
            "select count(*) from generate_series(1, {RETAINED} / 1000) n,
               outlast.emit_all('old', array(select '{{}}' from generate_series(1, 1000)), array(select 'k' || i from generate_series(1, 1000) i), version => 1 + n % 2)"
        );
        sql::run(&client, &fill).await;
        let seals = "insert into outlast._processed_event (event_id, at, consumer, slot, outcome)
             select event_id, emitted_at, case when id % 2 = 0 then $1::int else $2::int end, outlast._inbox_slot(event_id), 'd' from outlast._event";
        client
            .execute(seals, &[&consumer, &other])
            .await
            .expect("fills the inbox");
        // Everything that was emitted so far lies behind both.
        for id in [consumer, other] {
            while sql::Claim::of(id).run(&client).await.expect("moves").moved {}
        }
        let attic = Self {
            house,
            client,
            consumer,
        };
        attic.park("quarantined", "permanent", 3000).await;
        attic.park("waiting-version", "waiting-version", 3000).await;
        if statistics == Statistics::Fresh {
            sql::run(&attic.client, "analyze").await;
        }
        attic
    }

    async fn park(&self, state: &str, class: &str, n: i64) {
        let sql = "insert into outlast._parked (consumer, event_id, log_id, state, class, parked_at, changed_at, schema_version, emitted_at, type, tenant, content_type, payload)
            select $1, gen_random_uuid(), 0, $2, $3, outlast.clock() - interval '1 day', outlast.clock(), 9, outlast.clock(), 'a', '', 'application/json', '{}'
            from generate_series(1, $4::bigint)";
        self.client
            .execute(sql, &[&self.consumer, &state, &class, &n])
            .await
            .expect("parks");
    }

    async fn emit(&self, kind: &str, n: i32) {
        let sql = "select count(*) from outlast.emit_all($1, array(select '{}' from generate_series(1, $2::int)))";
        self.client.execute(sql, &[&kind, &n]).await.expect("emits");
    }

    /// Runs a statement in a transaction of its own; its rows, and how many rows it has read for them.
    async fn measure(
        &self,
        sql: &str,
        args: &[&(dyn ToSql + Sync)],
    ) -> (Vec<tokio_postgres::Row>, i64) {
        measure(&self.client, sql, args).await
    }
}

/// A batch as `_claim` answered it.
fn batch(rows: &[tokio_postgres::Row]) -> (Uuid, Vec<Uuid>) {
    let ids = rows.iter().map(|row| row.get("event_id")).collect();
    (rows.first().expect("a batch").get("token"), ids)
}
