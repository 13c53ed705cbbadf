//! Jobs: accepted once for a key, claimed under a lease, ended exactly once; and who decides when two want to.

mod bad;
mod cancel;
mod claim;
mod enqueue;
mod fair;
mod fence;
mod forget;
mod keys;
mod lapse;
mod operators;
mod races;
mod random;
mod reported;
mod restore;
mod soundness;

use std::sync::atomic::{AtomicI64, Ordering};

use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

use crate::house::House;
use crate::sql::{self, one, run};

/// One job of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    pub(crate) token: Uuid,
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) tenant: String,
    pub(crate) attempt: i32,
    pub(crate) lapses: i32,
    pub(crate) seq: i64,
    pub(crate) bytes: i32,
}

/// What a claim asks for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    names: Vec<String>,
    rooms: Vec<i32>,
    version: i32,
    max_bytes: i64,
    lease_ms: i32,
    process: Option<Uuid>,
    after: String,
    floors: String,
}

pub(crate) fn ask(name: &str, room: i32) -> Ask {
    Ask {
        names: vec![name.to_owned()],
        rooms: vec![room],
        version: 1,
        max_bytes: 4 << 20,
        lease_ms: 60_000,
        process: None,
        after: "{}".to_owned(),
        floors: "{}".to_owned(),
    }
}

impl Ask {
    pub(crate) fn and(mut self, name: &str, room: i32) -> Self {
        self.names.push(name.to_owned());
        self.rooms.push(room);
        self
    }

    pub(crate) fn version(self, version: i32) -> Self {
        Self { version, ..self }
    }

    pub(crate) fn max_bytes(self, max_bytes: i64) -> Self {
        Self { max_bytes, ..self }
    }

    pub(crate) fn lease_ms(self, lease_ms: i32) -> Self {
        Self { lease_ms, ..self }
    }

    pub(crate) fn process(self, process: Uuid) -> Self {
        Self {
            process: Some(process),
            ..self
        }
    }

    pub(crate) fn after(self, after: &str) -> Self {
        Self {
            after: after.to_owned(),
            ..self
        }
    }

    pub(crate) fn floors(self, floors: &str) -> Self {
        Self {
            floors: floors.to_owned(),
            ..self
        }
    }

    pub(crate) async fn claim(&self, client: &Client) -> Result<Vec<Job>, Error> {
        // Each mark of a process has a number of its own.
        static SEQ: AtomicI64 = AtomicI64::new(1);
        let seq = SEQ.fetch_add(1, Ordering::Relaxed);
        let versions = vec![self.version; self.names.len()];
        let rows = client
            .query(
                "select token, id, name, tenant, attempt, lapses, seq, octet_length(payload)
                 from outlast._claim_jobs($1, $2, $3, $4, $5, process => $6, seq => $7, nonce => gen_random_uuid(), acked => 0,
                   after => $8::text::jsonb, floors => $9::text::jsonb)",
                &[&self.names, &versions, &self.rooms, &self.max_bytes, &self.lease_ms, &self.process, &seq, &self.after, &self.floors],
            )
            .await?;
        Ok(rows.iter().map(job).collect())
    }
}

fn job(row: &Row) -> Job {
    Job {
        token: row.get(0),
        id: row.get(1),
        name: row.get(2),
        tenant: row.get(3),
        attempt: row.get(4),
        lapses: row.get(5),
        seq: row.get(6),
        bytes: row.get(7),
    }
}

/// A database, and one client of it.
pub(crate) struct Shop {
    pub(crate) house: House,
    pub(crate) client: Client,
}

impl Shop {
    pub(crate) async fn new() -> Self {
        let house = House::new().await;
        let client = house.connect().await;
        Self { house, client }
    }

    /// With a clock that moves when it is told to.
    pub(crate) async fn with_movable_clock() -> Self {
        let shop = Self::new().await;
        shop.house.movable_clock().await;
        shop
    }

    /// So many jobs of this name.
    pub(crate) async fn enqueue(&self, name: &str, n: usize) -> Vec<Uuid> {
        let mut ids = Vec::new();
        for _ in 0..n {
            ids.push(enqueue(&self.client, &format!("'{name}', '{{}}'")).await);
        }
        ids
    }

    pub(crate) async fn claim(&self, name: &str, room: i32) -> Vec<Job> {
        ask(name, room).claim(&self.client).await.expect("claims")
    }

    /// Whoever holds a lease is gone.
    pub(crate) async fn lapse(&self) {
        let sql = "update outlast._lease set expires_at = outlast.clock() - interval '1 second' where room = 'job'";
        run(&self.client, sql).await;
    }

    /// Takes what has lapsed; how many jobs.
    pub(crate) async fn reclaim(&self) -> i32 {
        one(&self.client, "select outlast._reclaim_jobs(1000)", &[]).await
    }

    /// Its worker is lost, and what it had goes back.
    pub(crate) async fn lose(&self) -> i32 {
        self.lapse().await;
        self.reclaim().await
    }

    /// What waits for its time is due, and may run.
    pub(crate) async fn due(&self) {
        let sql = "update outlast._job_later set due_at = outlast.clock() - interval '1 second'; select outlast._promote(1000000)";
        run(&self.client, sql).await;
    }

    pub(crate) async fn state(&self, id: Uuid) -> String {
        state(&self.client, id).await
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        one(&self.client, sql, &[]).await
    }

    pub(crate) async fn must_be_sound(&self) {
        assert_eq!(sql::broken(&self.client).await, Vec::<String>::new());
    }
}

pub(crate) async fn enqueue(client: &Client, arguments: &str) -> Uuid {
    let sql = format!("select id from outlast.enqueue({arguments})");
    one(client, &sql, &[]).await
}

/// How a job stands: its state, and `!` if a person must look.
pub(crate) async fn state(client: &Client, id: Uuid) -> String {
    let sql = "select coalesce((select s.state || case when s.incident_at is not null then '!' else '' end
                 from outlast._job_status($1) s), 'absent')";
    one(client, sql, &[&id]).await
}

pub(crate) async fn complete(client: &Client, token: Uuid, ids: &[Uuid]) -> Result<(), Error> {
    let sql = "select outlast._complete_jobs($1, $2)";
    client.execute(sql, &[&token, &ids]).await.map(|_| ())
}

pub(crate) async fn start(client: &Client, token: Uuid, ids: &[Uuid]) -> Result<(), Error> {
    let sql = "select outlast._start_jobs($1, $2)";
    client.execute(sql, &[&token, &ids]).await.map(|_| ())
}

/// Ends a claim; how many were given back.
pub(crate) async fn finish(client: &Client, token: Uuid) -> Result<i32, Error> {
    let row = client
        .query_one("select outlast._finish_jobs($1)", &[&token])
        .await?;
    Ok(row.get(0))
}

pub(crate) async fn cancel(client: &Client, id: Uuid) -> Result<String, Error> {
    let row = client
        .query_one("select outlast.cancel($1, 'not wanted')", &[&id])
        .await?;
    Ok(row.get(0))
}

pub(crate) fn ids(jobs: &[Job]) -> Vec<Uuid> {
    jobs.iter().map(|job| job.id).collect()
}
