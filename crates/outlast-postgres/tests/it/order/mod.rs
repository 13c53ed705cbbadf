//! The order of a key while one of its events is parked: who waits behind whom, who is let go, and by which lock.

mod flow;
mod keyed;
mod limits;
mod model;
mod operators;
mod races;
mod table;

use tokio_postgres::Client;
use uuid::Uuid;

use crate::house::House;
use crate::sql::{self, Claim, Event};

/// One ordered consumer, one client.
pub(crate) struct Yard {
    pub(crate) house: House,
    pub(crate) client: Client,
    pub(crate) consumer: i32,
}

impl Yard {
    pub(crate) async fn new(lanes: i32) -> Self {
        let house = House::new().await;
        let client = house.connect().await;
        let consumer = sql::register(&client, "c", &["a"], "now", Some(lanes)).await;
        Self {
            house,
            client,
            consumer,
        }
    }

    /// One event for each of these keys, in this order; `-` is none.
    pub(crate) async fn emit(&self, keys: &str) -> Vec<Uuid> {
        let mut ids = Vec::new();
        for key in keys.split(' ') {
            ids.push(sql::emit(&self.client, "a", (key != "-").then_some(key)).await);
        }
        ids
    }

    pub(crate) async fn claim(&self) -> Vec<Event> {
        Claim::of(self.consumer)
            .next(&self.client)
            .await
            .expect("claims")
    }

    /// What is parked and due: all that is not held back by its key is made due.
    pub(crate) async fn due(&self) -> Vec<Event> {
        let sql = "update outlast._parked set next_at = outlast.clock() where state = 'retry'";
        sql::run(&self.client, sql).await;
        sql::claim_parked(&self.client, self.consumer, 100)
            .await
            .expect("claims what is parked")
    }

    pub(crate) async fn complete(&self, event: &Event) {
        sql::complete(&self.client, event.token, event.id)
            .await
            .expect("completes");
    }

    pub(crate) async fn fail(&self, event: &Event, class: &str) -> String {
        sql::fail(&self.client, event.token, event.id, class)
            .await
            .expect("fails")
    }

    pub(crate) async fn finish(&self, event: &Event) -> i32 {
        let left = sql::finish(&self.client, &[event.token]).await;
        left.expect("finishes").into_iter().sum()
    }

    /// Completes a try of a parked event and ends it.
    pub(crate) async fn done(&self, event: &Event) {
        self.complete(event).await;
        assert_eq!(self.finish(event).await, 0);
    }

    /// Whoever holds a lease is gone.
    pub(crate) async fn lapse(&self) {
        let sql = "update outlast._lease set expires_at = outlast.clock() - interval '1 second'";
        sql::run(&self.client, sql).await;
    }

    /// What is parked, in the order of the log: key, state, class, failures.
    pub(crate) async fn parked(&self) -> Vec<String> {
        let sql = "select coalesce(key, '-') || ' ' || state || ' ' || class || ' ' || failures from outlast.parked order by log_id";
        let rows = self.client.query(sql, &[]).await.expect("looks");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// The parked keys: key, how many are behind.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let sql = "select key || ' ' || behind from outlast.parked_key order by key";
        let rows = self.client.query(sql, &[]).await.expect("looks");
        rows.iter().map(|row| row.get(0)).collect()
    }

    pub(crate) async fn must_be_sound(&self) {
        assert_eq!(sql::broken(&self.client).await, Vec::<String>::new());
    }
}

pub(crate) fn ids(events: &[Event]) -> Vec<Uuid> {
    events.iter().map(|event| event.id).collect()
}
