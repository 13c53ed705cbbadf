//! Entities: whatever was marked is converged after it was committed, one entity by one runner at a time, and what is to be cleaned up
//! is not forgotten.

mod bad;
mod doors;
mod exclusive;
mod flow;
mod forget;
mod keep;
mod life;
mod marks;
mod races;
mod random;
mod restore;
mod soundness;
mod tombstones;

use serde_json::Value;
use tokio_postgres::{Client, Error};
use uuid::Uuid;

use crate::house::House;
use crate::job;
use crate::sql::{self, one, run};

/// An entity in somebody's hands.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    pub(crate) token: Uuid,
    pub(crate) id: Uuid,
    pub(crate) key: String,
    pub(crate) tenant: String,
    pub(crate) attempt: i32,
    pub(crate) payload: String,
    pub(crate) fence: i64,
    /// What was kept, as text.
    pub(crate) refs: Option<String>,
    /// What is to be cleaned up: ids and refs.
    pub(crate) tombstones: Vec<(i64, String)>,
}

impl Try {
    /// The refs that are to be cleaned up.
    pub(crate) fn deleted(&self) -> Vec<&str> {
        self.tombstones
            .iter()
            .map(|(_, refs)| refs.as_str())
            .collect()
    }
}

fn text_of_hex(value: &Value) -> Option<String> {
    let hex = value["hex"].as_str()?;
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    let bytes = (0..hex.len()).step_by(2).map(byte).collect();
    Some(String::from_utf8(bytes).expect("text"))
}

/// Claims so many of a name.
pub(crate) async fn claim(client: &Client, name: &str, room: i32) -> Result<Vec<Try>, Error> {
    let sql = "select token, id, key, tenant, attempt, convert_from(payload, 'UTF8'), entity
        from outlast._claim_jobs(array['entity:' || $1], array[1], array[$2::int], 4194304, 60000)";
    let rows = client.query(sql, &[&name, &room]).await?;
    let of = |row: &tokio_postgres::Row| {
        let entity: Value = row.get(6);
        let tombstones = entity["tombstones"].as_array().expect("a list");
        Try {
            token: row.get(0),
            id: row.get(1),
            key: row.get(2),
            tenant: row.get(3),
            attempt: row.get(4),
            payload: row.get(5),
            fence: entity["fence"].as_i64().expect("a number"),
            refs: text_of_hex(&entity["refs"]),
            tombstones: tombstones
                .iter()
                .map(|one| {
                    (
                        one["id"].as_i64().expect("an id"),
                        text_of_hex(one).expect("refs"),
                    )
                })
                .collect(),
        }
    };
    Ok(rows.iter().map(of).collect())
}

pub(crate) async fn complete(client: &Client, one: &Try) -> Result<(), Error> {
    job::complete(client, one.token, &[one.id]).await
}

/// `kept`, or `late`.
pub(crate) async fn keep(client: &Client, one: &Try, refs: Option<&str>) -> Result<String, Error> {
    let sql = "select outlast.keep($1, $2, $3)";
    let row = client.query_one(sql, &[&one.token, &one.id, &refs]).await?;
    Ok(row.get(0))
}

pub(crate) async fn changed(client: &Client, key: &str) -> Result<(), Error> {
    let sql = "select outlast.changed('crm', $1)";
    client.execute(sql, &[&key]).await.map(|_| ())
}

pub(crate) async fn deleted(client: &Client, key: &str, refs: &str) -> Result<(), Error> {
    let sql = "select outlast.deleted('crm', $1, $2)";
    client.execute(sql, &[&key, &refs]).await.map(|_| ())
}

/// A database of entities called `crm`, and one client of it.
pub(crate) struct Office {
    pub(crate) house: House,
    pub(crate) client: Client,
}

impl Office {
    pub(crate) async fn new() -> Self {
        let house = House::new().await;
        house.movable_clock().await;
        let client = house.connect().await;
        Self { house, client }
    }

    pub(crate) async fn changed(&self, key: &str) {
        changed(&self.client, key).await.expect("marks");
    }

    pub(crate) async fn deleted(&self, key: &str, refs: &str) {
        deleted(&self.client, key, refs).await.expect("marks");
    }

    pub(crate) async fn claim(&self, room: i32) -> Vec<Try> {
        claim(&self.client, "crm", room).await.expect("claims")
    }

    /// The only one that may run.
    pub(crate) async fn take(&self) -> Try {
        let mut all = self.claim(10).await;
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    pub(crate) async fn complete(&self, one: &Try) {
        complete(&self.client, one).await.expect("completes");
    }

    pub(crate) async fn fail(&self, one: &Try, class: &str) -> String {
        sql::fail(&self.client, one.token, one.id, class)
            .await
            .expect("fails")
    }

    /// How it stands, `!` if a person must look, or `unknown`.
    pub(crate) async fn state(&self, key: &str) -> String {
        let sql = "select coalesce((select s.state || case when s.incident_at is not null then '!' else '' end
            from outlast.entity_status('crm', $1) s), 'unknown')";
        one(&self.client, sql, &[&key]).await
    }

    /// Whoever has something in hand is lost, and it goes back.
    pub(crate) async fn lose(&self) {
        let sql = "update outlast._lease set expires_at = outlast.clock() - interval '1 second' where room = 'job';
            select outlast._reclaim_jobs(1000)";
        run(&self.client, sql).await;
    }

    /// What waits for its time may run.
    pub(crate) async fn due(&self) {
        let sql = "update outlast._job_later set due_at = outlast.clock() - interval '1 second'; select outlast._promote(1000000)";
        run(&self.client, sql).await;
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        one(&self.client, sql, &[]).await
    }

    pub(crate) async fn must_be_sound(&self) {
        assert_eq!(sql::broken(&self.client).await, Vec::<String>::new());
    }
}
