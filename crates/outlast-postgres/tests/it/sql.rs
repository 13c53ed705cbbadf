//! The verbs of the schema as the engine says them, and what a test asks the server besides.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

use crate::house::DEADLINE;
use outlast_testkit::wait_for;

/// One event of a claim.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) token: Uuid,
    pub(crate) id: Uuid,
    pub(crate) log_id: i64,
    pub(crate) key: Option<String>,
    pub(crate) attempt: i32,
    pub(crate) reclaims: i32,
    pub(crate) payload: Vec<u8>,
}

/// What a claim asks for; the defaults are the engine's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) consumer: i32,
    pub(crate) n: i32,
    pub(crate) max_bytes: i64,
    pub(crate) max_scan: i32,
    pub(crate) lease_ms: i32,
    pub(crate) lanes: i32,
    pub(crate) sides: i32,
}

/// What a claim answered.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    pub(crate) events: Vec<Event>,
    /// It only moved over events of others, and there may be more.
    pub(crate) moved: bool,
}

impl Claim {
    pub(crate) fn of(consumer: i32) -> Self {
        Self {
            consumer,
            n: 100,
            max_bytes: 4 << 20,
            max_scan: 10_000,
            lease_ms: 60_000,
            lanes: 16,
            sides: 16,
        }
    }

    pub(crate) fn n(self, n: i32) -> Self {
        Self { n, ..self }
    }

    pub(crate) fn lease_ms(self, lease_ms: i32) -> Self {
        Self { lease_ms, ..self }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<Claimed, Error> {
        let rows = client
            .query(
                "select token, event_id, log_id, key, attempt, reclaims, payload from outlast._claim($1, $2, $3, $4, $5, $6, side_lanes => $7)",
                &[&self.consumer, &self.n, &self.max_bytes, &self.max_scan, &self.lease_ms, &self.lanes, &self.sides],
            )
            .await?;
        Ok(Claimed {
            moved: rows
                .iter()
                .any(|row| row.get::<_, Option<Uuid>>(0).is_none()),
            events: events(&rows),
        })
    }

    /// Claims until nothing is there, moving over what is not this consumer's.
    pub(crate) async fn next(self, client: &Client) -> Result<Vec<Event>, Error> {
        loop {
            let claimed = self.run(client).await?;
            if !claimed.moved {
                return Ok(claimed.events);
            }
        }
    }
}

fn events(rows: &[Row]) -> Vec<Event> {
    let of = |row: &Row| {
        Some(Event {
            token: row.get::<_, Option<Uuid>>(0)?,
            id: row.get(1),
            log_id: row.get(2),
            key: row.get(3),
            attempt: row.get(4),
            reclaims: row.get(5),
            payload: row.get(6),
        })
    };
    rows.iter().filter_map(of).collect()
}

/// Registers a consumer; `lanes` makes it an ordered one.
pub(crate) async fn register(
    client: &Client,
    name: &str,
    types: &[&str],
    start: &str,
    lanes: Option<i32>,
) -> i32 {
    one(
        client,
        "select id from outlast._register($1, $2, $3, $4, $5)",
        &[
            &name,
            &types,
            &start,
            &lanes.is_some(),
            &lanes.unwrap_or(16),
        ],
    )
    .await
}

/// Emits one event in a transaction of its own, or in the one that is open.
pub(crate) async fn emit(client: &Client, kind: &str, key: Option<&str>) -> Uuid {
    one(
        client,
        "select id from outlast.emit(type => $1, payload => '{}', key => $2)",
        &[&kind, &key],
    )
    .await
}

pub(crate) async fn seal(client: &Client, token: Uuid, ids: &[Uuid]) -> Result<(), Error> {
    client
        .execute("select outlast._seal($1, $2)", &[&token, &ids])
        .await
        .map(|_| ())
}

pub(crate) async fn complete(client: &Client, token: Uuid, id: Uuid) -> Result<(), Error> {
    client
        .execute("select outlast.complete($1, $2)", &[&token, &id])
        .await
        .map(|_| ())
}

pub(crate) async fn fail(
    client: &Client,
    token: Uuid,
    id: Uuid,
    class: &str,
) -> Result<String, Error> {
    Ok(client
        .query_one(
            "select outlast.fail($1, $2, $3, 'why')",
            &[&token, &id, &class],
        )
        .await?
        .get(0))
}

/// Ends these leases; how many events were left over in each that was still there.
pub(crate) async fn finish(client: &Client, tokens: &[Uuid]) -> Result<Vec<i32>, Error> {
    let rows = client
        .query("select leftovers from outlast._finish($1)", &[&tokens])
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

pub(crate) async fn reclaim(
    client: &Client,
    consumer: i32,
    batches: i32,
) -> Result<Vec<Event>, Error> {
    let rows = client
        .query(
            "select token, event_id, log_id, key, attempt, reclaims, payload from outlast._reclaim($1, 60000, $2)",
            &[&consumer, &batches],
        )
        .await?;
    Ok(events(&rows))
}

pub(crate) async fn claim_parked(
    client: &Client,
    consumer: i32,
    n: i32,
) -> Result<Vec<Event>, Error> {
    let rows = client
        .query(
            "select token, event_id, log_id, key, attempt, reclaims, payload
             from outlast._claim_parked($1, $2, 60000, null, null)",
            &[&consumer, &n],
        )
        .await?;
    Ok(events(&rows))
}

pub(crate) async fn hand_back(client: &Client, token: Uuid, running: &[Uuid]) -> Result<(), Error> {
    client
        .execute("select outlast._hand_back($1, $2)", &[&token, &running])
        .await
        .map(|_| ())
}

/// The first column of the only row.
pub(crate) async fn one<T>(client: &Client, sql: &str, args: &[&(dyn ToSql + Sync)]) -> T
where
    T: for<'a> tokio_postgres::types::FromSql<'a>,
{
    match client.query_one(sql, args).await {
        Ok(row) => row.get(0),
        Err(error) => panic!("{sql}: {error:?}"),
    }
}

pub(crate) async fn run(client: &Client, sql: &str) {
    if let Err(error) = client.batch_execute(sql).await {
        panic!("{sql}: {error:?}");
    }
}

/// The SQLSTATE of a refusal; panics on success.
pub(crate) fn state<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    let error = result.expect_err("must be refused");
    error
        .code()
        .unwrap_or_else(|| panic!("not an answer of the server: {error:?}"))
        .code()
        .to_owned()
}

/// The SQLSTATE and, where it is not ours, the first words: for an account.
pub(crate) fn short(error: &Error) -> String {
    match error.as_db_error() {
        Some(db) if db.code().code().starts_with("OL") => db.code().code().to_owned(),
        Some(db) => format!("{} {:.40}", db.code().code(), db.message()),
        None => format!("{error:.60}"),
    }
}

pub(crate) async fn pid(client: &Client) -> i32 {
    one(client, "select pg_backend_pid()", &[]).await
}

/// Returns when this backend waits for a lock.
pub(crate) async fn until_blocked(observer: &Client, pid: i32) {
    wait_for(&format!("backend {pid} to wait for a lock"), DEADLINE, async || {
        let waits: bool = one(
            observer,
            "select exists (select from pg_stat_activity where pid = $1 and wait_event_type = 'Lock')",
            &[&pid],
        )
        .await;
        waits.then_some(())
    })
    .await;
}

/// The invariants that are broken, as the schema's own `_verify` sees them.
pub(crate) async fn broken(client: &Client) -> Vec<String> {
    let rows = client.query("select invariant || ': ' || violations || ' ' || coalesce(example, '') from outlast._verify() where violations > 0", &[]);
    rows.await
        .expect("verifies")
        .iter()
        .map(|row| row.get(0))
        .collect()
}
