//! What a consumer could not complete yet: who is charged, when it is tried again, and when a person must look.

mod charge;
mod suspects;
mod versions;

use tokio_postgres::Client;
use uuid::Uuid;

use crate::house::House;
use crate::sql::{self, Claim, Event};

/// A parked event as an operator sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    pub(crate) state: String,
    pub(crate) class: String,
    pub(crate) failures: i32,
    pub(crate) crashes: i32,
}

pub(crate) fn parked(state: &str, class: &str, failures: i32, crashes: i32) -> Parked {
    Parked {
        state: state.to_owned(),
        class: class.to_owned(),
        failures,
        crashes,
    }
}

/// One consumer, one client.
pub(crate) struct Yard {
    /// Keeps the database.
    #[expect(dead_code, reason = "it is removed when it is dropped")]
    house: House,
    pub(crate) client: Client,
    pub(crate) consumer: i32,
}

impl Yard {
    pub(crate) async fn new() -> Self {
        let house = House::new().await;
        let client = house.connect().await;
        let consumer = sql::register(&client, "c", &["a"], "now", None).await;
        Self {
            house,
            client,
            consumer,
        }
    }

    pub(crate) async fn budget(&self, attempts: i32) {
        self.client
            .execute("update outlast._consumer set attempts = $1", &[&attempts])
            .await
            .expect("sets the budget");
    }

    pub(crate) async fn emit(&self, n: usize) -> Vec<Uuid> {
        let mut ids = Vec::new();
        for _ in 0..n {
            ids.push(sql::emit(&self.client, "a", None).await);
        }
        ids
    }

    /// What is new in the log.
    pub(crate) async fn claim(&self) -> Vec<Event> {
        Claim::of(self.consumer)
            .next(&self.client)
            .await
            .expect("claims")
    }

    pub(crate) async fn reclaim(&self) -> Vec<Event> {
        self.lapse().await;
        sql::reclaim(&self.client, self.consumer, 10)
            .await
            .expect("reclaims")
    }

    /// What is parked, once it is due.
    pub(crate) async fn claim_parked(&self, n: i32) -> Vec<Event> {
        sql::run(
            &self.client,
            "update outlast._parked set next_at = outlast.clock() where state = 'retry'",
        )
        .await;
        sql::claim_parked(&self.client, self.consumer, n)
            .await
            .expect("claims what is parked")
    }

    /// Whoever holds a lease is gone.
    pub(crate) async fn lapse(&self) {
        sql::run(
            &self.client,
            "update outlast._lease set expires_at = outlast.clock() - interval '1 second'",
        )
        .await;
    }

    pub(crate) async fn start(&self, token: Uuid, ids: &[Uuid]) {
        self.client
            .execute("select outlast._start($1, $2)", &[&token, &ids])
            .await
            .expect("marks");
    }

    pub(crate) async fn look(&self, id: Uuid) -> Option<Parked> {
        let sql = "select state, class, failures, crashes from outlast.parked where id = $1";
        let row = self.client.query_opt(sql, &[&id]).await.expect("looks")?;
        Some(Parked {
            state: row.get(0),
            class: row.get(1),
            failures: row.get(2),
            crashes: row.get(3),
        })
    }

    pub(crate) async fn incidents(&self) -> Vec<Uuid> {
        let rows = self
            .client
            .query("select about from outlast.incident", &[])
            .await
            .expect("looks");
        rows.iter().map(|row| row.get(0)).collect()
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        sql::one(&self.client, sql, &[]).await
    }

    pub(crate) async fn must_be_sound(&self) {
        assert_eq!(sql::broken(&self.client).await, Vec::<String>::new());
    }
}

pub(crate) fn ids(events: &[Event]) -> Vec<Uuid> {
    events.iter().map(|event| event.id).collect()
}
