//! awa as a contestant: see bench/README.md.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use awa::{
    AwaError, Client, InsertOpts, InsertParams, JobArgs, JobResult, QueueConfig, QueueStorage,
    QueueStorageConfig, adapter::postgres::INSERT_JOB_SQL, insert_many, insert_with, migrations,
    model::insert, prepare_job_insert,
};
use contract::{Adapter, Description, Emit, Env, Handler, go, payload, stopped};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection, PgPool, postgres::PgPoolOptions};
use tokio::sync::Semaphore;

const QUEUE: &str = "unit";
const NOTE: &str = "a business row of modest length";

#[derive(Clone, Serialize, Deserialize, JobArgs)]
struct Unit {
    n: i64,
    pad: String,
}

impl Unit {
    fn new(n: i64, env: &Env) -> Result<Self> {
        Ok(serde_json::from_str(&payload(n, env.payload))?)
    }
}

struct Awa;

impl Adapter for Awa {
    fn describe() -> Description {
        Description {
            name: "awa",
            version: "0.6.9",
            language: "rust",
            default: "the README's quick start: QueueConfig::default (poll of 200 ms beside LISTEN, deadline of 5 min), \
                      sqlx's pool of 10, queue storage, completions batched for 1 ms; max_workers from \
                      BENCH_CONCURRENCY (its default is 50). In both profiles BENCH_LEASE is heartbeat_staleness, with \
                      heartbeats, rescues and leader elections four times as often (docs/configuration: lower for \
                      faster crash detection)",
            best: "the project's own throughput benchmark (awa/tests/benchmark_test.rs, queue storage): no deadline, \
                   which is what the compact receipt path asks for (QueueStorageConfig::lease_claim_receipts), poll of \
                   50 ms, pool of 20, 1024 claims in flight as its offered-rate test has (max_workers: a claim holds its \
                   place until its completion is committed), of which BENCH_CONCURRENCY run handlers; and 8 enqueue shards for the contended queue, FIFO in each (README: \
                   partitioned FIFO); filled by COPY (QueueStorage::enqueue_params_copy). joined: awa's INSERT_JOB_SQL in the \
                   statement of the row, for single units",
            fenced: true,
            // Rotation truncates a segment soon after its last unit is done; only counts stay.
            history: false,
            transactional: true,
            // By numbers while each unit has one row in ready_entries, by identities when some were taken over or moved.
            left: "select case
                       when again = 0
                           and not exists (select from awa.deferred_jobs)
                           and not exists (select from awa.leases)
                           and not exists (select from awa.ready_tombstones)
                       then waiting
                           - (select coalesce(sum(completed_count), 0) from awa.receipt_completion_batches)
                           - (select count(*) from awa.done_entries where state = 'completed')
                       else (select count(*) from (
                           (select job_id from awa.ready_entries
                            union select job_id from awa.deferred_jobs
                            union select job_id from awa.leases)
                           except (select job_id from awa.done_entries where state = 'completed'
                                   union all select unnest(job_ids) from awa.receipt_completion_batches)
                       ) open)
                   end::bigint
                   from (select count(*) as waiting, count(*) filter (where attempt > 0) as again
                         from awa.ready_entries) ready"
                .into(),
            done_at: None,
            stale: "refused: completion asks for the claim's receipt and run_lease, and that nothing has closed them; but a worker that \
                    is frozen while it leads keeps the maintenance lock, and nothing is taken over until it wakes",
            skips: BTreeMap::new(),
        }
    }

    async fn install(env: &Env) -> Result<()> {
        let pool = PgPool::connect(&env.url).await?;
        migrations::run(&pool).await?;
        storage()?.install(&pool).await?;
        if env.best {
            sqlx::query("insert into awa.queue_meta (queue, enqueue_shards) values ($1, 8)")
                .bind(QUEUE)
                .execute(&pool)
                .await?;
        }
        Ok(())
    }

    async fn fill(env: &Env) -> Result<()> {
        let pool = PgPool::connect(&env.url).await?;
        let storage = storage()?;
        let numbers: Vec<_> = (1..=env.units).collect();
        for _ in 0..env.consumers {
            for chunk in numbers.chunks(5_000) {
                storage
                    .enqueue_params_copy(&pool, &params(chunk, env)?)
                    .await?;
            }
        }
        Ok(())
    }

    async fn writer(env: &Env, until: Instant) -> Result<u64> {
        let mut connection = PgConnection::connect(&env.url).await?;
        let numbers: Vec<_> = (1..=env.batch as i64).collect();
        let mut transactions = 0;
        while Instant::now() < until {
            match transaction(env, &mut connection, &numbers).await {
                Ok(()) => transactions += 1,
                // Two first writers of a shard both create its sequence, and one of them fails: its user would try again.
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(transactions)
    }

    async fn work(env: &Env, handler: Handler) -> Result<()> {
        let mut queue = QueueConfig {
            max_workers: u32::try_from(env.concurrency)?,
            ..Default::default()
        };
        let mut pool = PgPoolOptions::new();
        if env.best {
            queue.max_workers = queue.max_workers.max(1024);
            queue.deadline_duration = Duration::ZERO;
            queue.poll_interval = Duration::from_millis(50);
            pool = pool.max_connections(20);
        }
        let quarter = env.lease / 4;
        // More claims may be on their way than handlers run.
        let slots = Arc::new(Semaphore::new(env.concurrency));
        let client = Client::builder(pool.connect(&env.url).await?)
            .queue(QUEUE, queue)
            .register::<Unit, _, _>(move |unit: Unit, _context| {
                let (handler, slots) = (handler.clone(), slots.clone());
                async move {
                    let _slot = slots.acquire().await;
                    handler.call(unit.n).await;
                    Ok(JobResult::Completed)
                }
            })
            .heartbeat_interval(quarter)
            .heartbeat_rescue_interval(quarter)
            .heartbeat_staleness(env.lease)
            .leader_election_interval(quarter.min(Duration::from_secs(10)))
            .build()?;
        go().await?;
        client.start().await?;
        stopped().await;
        client.shutdown(Duration::from_secs(30)).await;
        Ok(())
    }

    type Client = PgConnection;

    async fn client(env: &Env) -> Result<PgConnection> {
        Ok(PgConnection::connect(&env.url).await?)
    }

    async fn commit(env: &Env, connection: &mut PgConnection, n: i64) -> Result<()> {
        transaction(env, connection, &[n]).await
    }
}

fn storage() -> Result<QueueStorage> {
    Ok(QueueStorage::new(QueueStorageConfig::default())?)
}

fn options() -> InsertOpts {
    InsertOpts {
        queue: QUEUE.into(),
        ..Default::default()
    }
}

fn params(numbers: &[i64], env: &Env) -> Result<Vec<InsertParams>> {
    numbers
        .iter()
        .map(|n| Ok(insert::params_with(&Unit::new(*n, env)?, options())?))
        .collect()
}

fn is_taken(error: &anyhow::Error) -> bool {
    let sqlx = error.downcast_ref::<sqlx::Error>();
    let sqlx = sqlx.and_then(sqlx::Error::as_database_error);
    match error.downcast_ref::<AwaError>() {
        Some(AwaError::UniqueConflict { .. }) => true,
        Some(AwaError::Database(error)) => error
            .as_database_error()
            .is_some_and(|error| error.is_unique_violation()),
        _ => sqlx.is_some_and(|error| error.is_unique_violation()),
    }
}

/// A row of business and these units, together.
async fn transaction(env: &Env, connection: &mut PgConnection, numbers: &[i64]) -> Result<()> {
    let mut tx = connection.begin().await?;
    if let (Emit::Joined, [n]) = (env.emit, numbers) {
        // The documented statement for other drivers (awa::adapter::postgres), in the statement of the row.
        let job = prepare_job_insert(&Unit::new(*n, env)?, options())?;
        let row = "with business as (insert into business (note) values ($13))";
        sqlx::query(&format!("{row} {INSERT_JOB_SQL}"))
            .bind(job.kind())
            .bind(job.queue())
            .bind(job.args())
            .bind(job.state_db_str())
            .bind(job.priority())
            .bind(job.max_attempts())
            .bind(job.run_at())
            .bind(job.metadata())
            .bind(job.tags())
            .bind(job.unique_key())
            .bind(job.unique_states_bit_string())
            .bind(job.ordering_key())
            .bind(NOTE)
            .fetch_one(&mut *tx)
            .await?;
        return Ok(tx.commit().await?);
    }
    sqlx::query("insert into business (note) values ($1)")
        .bind(NOTE)
        .execute(&mut *tx)
        .await?;
    if env.emit != Emit::None {
        match numbers {
            [n] => drop(insert_with(&mut *tx, &Unit::new(*n, env)?, options()).await?),
            many => drop(insert_many(&mut *tx, &params(many, env)?).await?),
        }
    }
    Ok(tx.commit().await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    contract::run::<Awa>().await
}
