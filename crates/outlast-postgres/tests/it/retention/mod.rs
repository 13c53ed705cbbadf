//! The life of what is finished: what may be removed, when, and what is remembered of it.

mod fold;
mod inbox;
mod keys;
mod load;
mod log;
mod settings;

use tokio_postgres::Client;
use uuid::Uuid;

use crate::house::{House, forward};
use crate::sql::{self, Claim};

pub(crate) const HOUR: i32 = 3600;
pub(crate) const DAY: i32 = 24 * HOUR;

/// Tries to empty a leaf, as a pass of maintenance does.
pub(crate) async fn empty(client: &Client, ring: &str, slot: i16, how: &str) -> String {
    sql::run(client, "begin").await;
    let take = "select outlast._empty_take($1, $2, $3)";
    let mut answer: Option<String> = sql::one(client, take, &[&ring, &slot, &how]).await;
    if answer.is_none() {
        let now = "select outlast._empty_now($1, $2, $3)";
        answer = sql::one(client, now, &[&ring, &slot, &how]).await;
    }
    sql::run(client, "commit").await;
    answer.expect("it says what came of it")
}

/// One consumer, one client, a clock that can be moved.
pub(crate) struct Barn {
    pub(crate) house: House,
    pub(crate) client: Client,
    pub(crate) consumer: i32,
}

impl Barn {
    pub(crate) async fn new() -> Self {
        let house = House::new().await;
        house.movable_clock().await;
        let client = house.connect().await;
        let consumer = sql::register(&client, "c", &["a"], "now", None).await;
        // Not at a border: an hour later the same slot of the log is open.
        let sql =
            "select (mod(43200 + 7200 - mod(outlast._epoch(outlast.clock()), 43200), 43200))::int";
        let seconds: i32 = sql::one(&client, sql, &[]).await;
        forward(&client, seconds).await;
        Self {
            house,
            client,
            consumer,
        }
    }

    pub(crate) async fn days(&self, days: i32) {
        forward(&self.client, days * DAY).await;
    }

    pub(crate) async fn hours(&self, hours: i32) {
        forward(&self.client, hours * HOUR).await;
    }

    pub(crate) async fn emit(&self, n: usize) -> Vec<Uuid> {
        let mut ids = Vec::new();
        for _ in 0..n {
            ids.push(sql::emit(&self.client, "a", None).await);
        }
        ids
    }

    /// Claims and completes everything that is new for a consumer.
    pub(crate) async fn drain(&self, consumer: i32) -> Vec<Uuid> {
        let batch = Claim::of(consumer)
            .next(&self.client)
            .await
            .expect("claims");
        let ids: Vec<Uuid> = batch.iter().map(|event| event.id).collect();
        if let Some(event) = batch.first() {
            sql::seal(&self.client, event.token, &ids)
                .await
                .expect("seals");
            sql::finish(&self.client, &[event.token])
                .await
                .expect("finishes");
        }
        ids
    }

    /// Emits and completes.
    pub(crate) async fn work(&self, n: usize) -> Vec<Uuid> {
        let ids = self.emit(n).await;
        assert_eq!(self.drain(self.consumer).await, ids);
        ids
    }

    /// Folds all there is to fold; how many completions became bits.
    pub(crate) async fn fold(&self, consumer: i32) -> i32 {
        let mut completed = 0;
        while let Some(row) = self
            .client
            .query_opt("select completed from outlast._fold($1)", &[&consumer])
            .await
            .expect("folds")
        {
            completed += row.get::<_, i32>(0);
        }
        completed
    }

    /// Which leaves may be emptied now: `log 3 empty`.
    pub(crate) async fn due(&self, ring: &str) -> Vec<String> {
        let sql = "select slot || ' ' || how from outlast._judge() where ring = $1";
        let rows = self.client.query(sql, &[&ring]).await.expect("judges");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// The slot of the log that is written to.
    pub(crate) async fn log_slot(&self) -> i16 {
        sql::one(
            &self.client,
            "select outlast._log_slot(outlast.clock())",
            &[],
        )
        .await
    }

    pub(crate) async fn inbox_slot(&self, id: Uuid) -> i16 {
        sql::one(&self.client, "select outlast._inbox_slot($1)", &[&id]).await
    }

    /// Tries to empty a leaf.
    pub(crate) async fn empty(&self, ring: &str, slot: i16, how: &str) -> String {
        empty(&self.client, ring, slot, how).await
    }

    /// What holds a slot: its kinds.
    pub(crate) async fn holds(&self, ring: &str, slot: i16) -> Vec<String> {
        let sql = "select kind from outlast._holds($1, $2)";
        let rows = self
            .client
            .query(sql, &[&ring, &slot])
            .await
            .expect("explains");
        rows.iter().map(|row| row.get(0)).collect()
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        sql::one(&self.client, sql, &[]).await
    }

    pub(crate) async fn proof(&self, id: Uuid) -> String {
        let sql = "select outlast._proof($1, $2)";
        sql::one(&self.client, sql, &[&self.consumer, &id]).await
    }

    pub(crate) async fn must_be_sound(&self) {
        assert_eq!(sql::broken(&self.client).await, Vec::<String>::new());
    }
}
