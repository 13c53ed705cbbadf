//! The engine's own statements: claim, renew, seal, fail, finish. Each is one call of one SQL function, committed when
//! it returns, with a deadline of its own. Nothing here is kept in a session unless [`Store::prepares`] is asked for, so it
//! works behind a pooler.

use std::{collections::HashMap, future::Future, time::Duration};

use deadpool_postgres::{Client, Pool};
use tokio_postgres::{
    Row,
    error::SqlState,
    types::{ToSql, Type},
};
use uuid::Uuid;

use crate::Error;

mod claimed;
mod command;
mod delivered;
mod entity;
mod job;
mod place;
mod record;

pub use claimed::{Claim, Claimed, CommandDue, CommandTry, Seen};
pub use command::Answered;
pub use delivered::{Judged, Reads, Verdict, read_again};
pub use entity::{EntityTry, Refs, Tombstone, entity_of, entity_queue};
pub use job::{DueJobs, Rooms, Taken, command_queue, of_queue};
pub use place::{Place, Where};

/// How long one statement may take before its connection is given up: a stalled one is never waited for.
const STATEMENT: Duration = Duration::from_secs(10);

/// What code says a consumer is.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Its name, the identity of its progress.
    pub name: String,
    /// The event types that it has a handler for, and patterns of them.
    pub types: Vec<String>,
    /// Only events of these tenants; none named: of all.
    pub tenants: Vec<String>,
    /// Only events from these sources; none named: from all.
    pub sources: Vec<String>,
    /// From the oldest event that is still in the log, instead of from now.
    pub earliest: bool,
    /// The order of each key is kept.
    pub ordered: bool,
    /// Over how many lanes its keys are spread, if it is ordered. What was recorded at the first registration counts.
    pub lanes: usize,
    /// Whom incidents name.
    pub owner: Option<String>,
    /// How many failures are charged before a person must look.
    pub attempts: u32,
    /// All of its effects are rows of this database: after a restore it goes on while others wait for a person.
    pub local: bool,
}

/// What the database answered to a registration.
#[derive(Clone, Debug)]
pub struct Registered {
    /// The consumer's number in the tables.
    pub id: i32,
    /// Set while an operator has paused it.
    pub paused: Option<String>,
}

impl Registered {
    /// Of a row of id, state and reason.
    fn from_row(row: &Row) -> Self {
        let paused = match row.get::<_, &str>(1) {
            "active" => None,
            state => Some(
                row.get::<_, Option<String>>(2)
                    .unwrap_or_else(|| state.to_owned()),
            ),
        };
        Self {
            id: row.get(0),
            paused,
        }
    }
}

/// How much a claim may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Events at most; of an ordered consumer, for each lane.
    pub rows: usize,
    /// Main lanes at most, each a batch. An unordered consumer has one.
    pub lanes: usize,
    /// Side lanes at most, each a batch: they hold the tenants with a backlog.
    pub sides: usize,
    /// Payload bytes at most; the first event is always taken.
    pub bytes: u64,
    /// Ids looked at, at most, before progress is recorded over what is not this consumer's.
    pub scanned: u32,
    /// How long the lease holds without a renewal.
    pub lease: Duration,
}

/// What waits for one consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// A lease that has lapsed.
    pub lapsed: bool,
    /// When something parked is due, from now, if something is.
    pub parked: Option<Duration>,
    /// A claim may find something, or has something to say.
    pub news: bool,
}

impl Due {
    /// Where nobody knows.
    pub const ALL: Self = Self {
        lapsed: true,
        parked: Some(Duration::ZERO),
        news: true,
    };
}

/// The connections of one process for claims and records.
#[derive(Clone, Debug)]
pub struct Store {
    pool: Pool,
    place: Place,
    prepares: bool,
}

impl Store {
    /// Uses this pool; `place` is what this process must find again after a failover.
    pub fn new(pool: Pool, place: Place) -> Self {
        Self {
            pool,
            place,
            prepares: false,
        }
    }

    /// Keeps its statements prepared: parsed and planned once a connection, which is a third of what a small claim costs. Only
    /// where no transaction pooler is between us and the server.
    #[must_use]
    pub fn prepares(mut self, prepares: bool) -> Self {
        self.prepares = prepares;
        self
    }

    /// What this process must find again after a failover.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Registers a consumer, or the types that it did not have. Committed when it returns.
    pub async fn register(&self, r: &Registration) -> Result<Registered, Error> {
        let start = if r.earliest { "earliest" } else { "now" };
        let attempts = i32::try_from(r.attempts).unwrap_or(i32::MAX);
        let filter = |names: &Vec<String>| (!names.is_empty()).then(|| names.clone());
        let (tenants, sources) = (filter(&r.tenants), filter(&r.sources));
        let row = self
            .one(
                "select id, state, reason from outlast._register($1, $2, $3, $6, $10, $4, $5, $7, $8, $9)",
                &[
                    (&r.name, Type::TEXT),
                    (&r.types, Type::TEXT_ARRAY),
                    (&start, Type::TEXT),
                    (&r.owner, Type::TEXT),
                    (&attempts, Type::INT4),
                    (&r.ordered, Type::BOOL),
                    (&r.local, Type::BOOL),
                    (&tenants, Type::TEXT_ARRAY),
                    (&sources, Type::TEXT_ARRAY),
                    (&int(r.lanes), Type::INT4),
                ],
            )
            .await?;
        Ok(Registered::from_row(&row))
    }

    /// A new batch of the log. Committed, and durable, before the first event is handed out.
    pub async fn claim(&self, consumer: i32, bounds: Bounds) -> Result<Claim, Error> {
        let (rows, bytes) = (int(bounds.rows), bounds.bytes as i64);
        let (scanned, lease) = (bounds.scanned as i32, millis(bounds.lease));
        let rows = self
            .remembered(
                "select * from outlast._claim($5, $6, $7, $8, $9, $10, $1, $2, $3, $4, side_lanes => $11)",
                &[
                    (&consumer, Type::INT4),
                    (&rows, Type::INT4),
                    (&bytes, Type::INT8),
                    (&scanned, Type::INT4),
                    (&lease, Type::INT4),
                    (&int(bounds.lanes), Type::INT4),
                    (&int(bounds.sides), Type::INT4),
                ],
            )
            .await?;
        Claim::from_rows(&rows)
    }

    /// Takes over batches of this consumer whose lease lapsed. Committed when it returns.
    pub async fn reclaim(
        &self,
        consumer: i32,
        batches: usize,
        lease: Duration,
    ) -> Result<Claim, Error> {
        let rows = self
            .remembered(
                "select * from outlast._reclaim($5, $6, $7, $1, $2, $3, $4)",
                &[
                    (&consumer, Type::INT4),
                    (&millis(lease), Type::INT4),
                    (&int(batches), Type::INT4),
                ],
            )
            .await?;
        Claim::from_rows(&rows)
    }

    /// Parked events that are due, each under a token of its own. Committed when it returns. `types` and `versions`
    /// side by side say what this process can take.
    pub async fn claim_parked(
        &self,
        consumer: i32,
        n: usize,
        lease: Duration,
        types: &[String],
        versions: &[i32],
    ) -> Result<Claim, Error> {
        let rows = self
            .remembered(
                "select * from outlast._claim_parked($5, $6, $7, $8, $9, $1, $2, $3, $4)",
                &[
                    (&consumer, Type::INT4),
                    (&int(n), Type::INT4),
                    (&millis(lease), Type::INT4),
                    (&types, Type::TEXT_ARRAY),
                    (&versions, Type::INT4_ARRAY),
                ],
            )
            .await?;
        Claim::from_rows(&rows)
    }

    /// What waits for each of these consumers; one that is not there any more is left out.
    pub async fn due(&self, consumers: &[i32]) -> Result<HashMap<i32, Due>, Error> {
        let rows = self
            .rows(
                "select consumer, lapsed, parked_ms, news from outlast._due($1)",
                &[(&consumers, Type::INT4_ARRAY)],
            )
            .await?;
        let due = |row: &Row| {
            let parked = row.get::<_, Option<i64>>(2);
            let due = Due {
                lapsed: row.get(1),
                parked: parked.map(|ms| Duration::from_millis(ms.unsigned_abs())),
                news: row.get(3),
            };
            (row.get(0), due)
        };
        Ok(rows.iter().map(due).collect())
    }

    /// When the next parked event of this consumer is due, from now; zero when it is due already.
    pub async fn parked_due(&self, consumer: i32) -> Result<Option<Duration>, Error> {
        let row = self
            .one(
                "select case when min(next_at) is not null   -- greatest() would make a zero of nothing
                        then greatest(0, extract(epoch from min(next_at) - outlast.clock()))::float8 end
                 from outlast._parked where consumer = $1 and state = 'retry'
                   and (token is null or not exists (select from outlast._lease l where l.token = _parked.token))",
                &[(&consumer, Type::INT4)],
            )
            .await?;
        Ok(row.get::<_, Option<f64>>(0).map(Duration::from_secs_f64))
    }

    /// This process stops starting events of a consumer, or has probed it once more. Committed when it returns.
    pub async fn outage(&self, consumer: i32, reason: &str) -> Result<(), Error> {
        self.one(
            "select outlast._outage($1, $2, $3)::text",
            &[
                (&consumer, Type::INT4),
                (&self.place.process(), Type::UUID),
                (&reason, Type::TEXT),
            ],
        )
        .await
        .map(drop)
    }

    /// It is over. Committed when it returns.
    pub async fn outage_over(&self, consumer: i32) -> Result<(), Error> {
        self.one(
            "select outlast._outage_over($1, $2)::text",
            &[(&consumer, Type::INT4), (&self.place.process(), Type::UUID)],
        )
        .await
        .map(drop)
    }

    /// The number of a consumer in the tables.
    ///
    /// # Errors
    /// [`Error::UnknownConsumer`] when there is none of this name.
    pub async fn consumer(&self, name: &str) -> Result<i32, Error> {
        let sql = "select id from outlast._consumer where name = $1";
        let rows = self.rows(sql, &[(&name, Type::TEXT)]).await?;
        rows.first()
            .map(|row| row.get(0))
            .ok_or_else(|| Error::UnknownConsumer(name.to_owned()))
    }

    /// Reads which consumers are paused, by id, with the reason.
    pub async fn paused(&self) -> Result<Vec<(i32, String)>, Error> {
        let rows = self
            .rows(
                "select id, coalesce(reason, state) from outlast._consumer where state <> 'active'",
                &[],
            )
            .await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// The election of the one process that does maintenance: the token while it is this one. Committed when it returns.
    pub async fn elect_maintenance(
        &self,
        token: Option<Uuid>,
        lease: Duration,
    ) -> Result<Option<Uuid>, Error> {
        let (process, token) = (self.place.process(), token.unwrap_or_default());
        let row = self
            .one(
                "select outlast._elect($1, $2, $3, 'maintenance')",
                &[
                    (&process, Type::UUID),
                    (&token, Type::UUID),
                    (&millis(lease), Type::INT4),
                ],
            )
            .await?;
        Ok(row.get(0))
    }

    /// The first column, as text, of the first row of a statement without arguments.
    pub async fn text(&self, sql: &str) -> Result<Option<String>, Error> {
        Ok(self.one(sql, &[]).await?.try_get(0)?)
    }

    pub(crate) async fn one(
        &self,
        sql: &str,
        args: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Row, Error> {
        let rows = self.rows(sql, args).await?;
        rows.into_iter()
            .next()
            .ok_or_else(|| Error::Unexpected(format!("no row from: {sql}")))
    }

    /// A statement whose commit this process must find again: `$1` to `$4` are its mark. Acknowledged when it returned.
    pub(crate) async fn remembered(
        &self,
        sql: &str,
        args: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        let mark = self.place.next();
        let (process, acked) = (self.place.process(), self.place.acked());
        let mut all: Vec<(&(dyn ToSql + Sync), Type)> = vec![
            (&process, Type::UUID),
            (&mark.seq, Type::INT8),
            (&mark.nonce, Type::UUID),
            (&acked.seq, Type::INT8),
        ];
        all.extend(args.iter().map(|(value, kind)| (*value, kind.clone())));
        let rows = self.rows(sql, &all).await?;
        // Without a row nothing was let out and nothing was written for it.
        if !rows.is_empty()
            && rows
                .iter()
                .any(|row| row.columns().len() == 1 || row.get::<_, Option<Uuid>>(0).is_some())
        {
            self.place.acknowledge(mark);
        }
        Ok(rows)
    }

    async fn query(
        &self,
        client: &Client,
        sql: &str,
        args: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        if self.prepares {
            let types: Vec<Type> = args.iter().map(|(_, kind)| kind.clone()).collect();
            let values: Vec<&(dyn ToSql + Sync)> = args.iter().map(|(value, _)| *value).collect();
            let statement = client.prepare_typed_cached(sql, &types).await?;
            match client.query(&statement, &values).await {
                Err(error) if is_stale(&error) => client.statement_cache.clear(),
                answer => return answer,
            }
        }
        client.query_typed(sql, args).await
    }

    pub(crate) async fn rows(
        &self,
        sql: &str,
        args: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        let sql = &*self.place.in_schema().text(sql);
        let client = match within("get a connection", self.pool.get()).await? {
            Ok(client) => client,
            // A new connection that leads to the wrong place is refused by the pool's check, which remembers why.
            Err(error) => {
                return Err(self
                    .place
                    .stopped()
                    .map_or_else(|| error.into(), Error::Stopped));
            }
        };
        match within(sql, self.query(&client, sql, args)).await {
            Ok(answer) => {
                answer.map_err(|error| Error::from(error).in_schema(self.place.in_schema()))
            }
            Err(stalled) => {
                // It may be answered later, to nobody: the connection is not used again, nor are those that lie beside it,
                // which go the same way and would be found out one by one.
                drop(Client::take(client));
                self.pool.retain(|_, _| false);
                Err(stalled)
            }
        }
    }
}

/// Whether a prepared statement is out of date: a migration has changed what it answers.
fn is_stale(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED)
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> Result<T, Error> {
    tokio::time::timeout(STATEMENT, work)
        .await
        .map_err(|_| Error::Stalled {
            what: what.to_owned(),
            after: STATEMENT,
        })
}

pub(crate) fn millis(d: Duration) -> i32 {
    i32::try_from(d.as_millis()).unwrap_or(i32::MAX)
}

pub(crate) fn int(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
