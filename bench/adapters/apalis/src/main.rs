//! apalis-postgres as a contestant: tasks pushed inside the business transaction, one worker that fetches them in batches.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use apalis::prelude::*;
use apalis_postgres::{Config, PgTask, PostgresStorage, queries::push_tasks};
use contract::{Adapter, Description, Emit, Env, Handler, go, payload, stopped};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection, PgPool, postgres::PgPoolOptions};

const QUEUE: &str = "bench";
/// A push this size takes some 100 ms.
const FILL: i64 = 5_000;
const BATCH: usize = 500;
const WORKERS: usize = 4;

struct Apalis;

#[derive(Serialize, Deserialize)]
struct Unit {
    n: i64,
    pad: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    contract::run::<Apalis>().await
}

impl Adapter for Apalis {
    fn describe() -> Description {
        Description {
            name: "apalis-postgres",
            version: "1.0.0",
            language: "rust",
            default: "one worker; Config::default() (batch_size 10, lock_tasks, persist_results) with with_pubsub() and a \
                      5 s interval, as in the README's \"Pubsub listener example\" (without a listener an idle worker \
                      looks again at its heartbeat only); 10 connections",
            best: "lock_tasks(false) and with_pubsub() as in examples/basic.rs; batch_size 500 instead of its 100 \
                   (Config::batch_size: \"Larger batches can improve throughput\"; of one run each of 100 to 5,000 on no-ops, \
                   500 and 1,000 with 4 workers were ahead; 1 with handlers that wait for the gate, since a worker with tasks in its buffer sends no heartbeat); \
                   4 workers that share the concurrency (Monitor::register_n); \
                   poll_with_interval(100 ms) beside the listener",
            fenced: true,
            history: true,
            transactional: true,
            left: "select count(*) from apalis.jobs where status <> 'Done'".into(),
            done_at: Some(
                "select (convert_from(job, 'UTF8')::jsonb ->> 'n')::bigint, \
                 (extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000000)::bigint \
                 from apalis.jobs where status = 'Done'"
                    .into(),
            ),
            stale: "refused: a completion updates only where lock_by is still the worker's name \
                    (queries/task/handle_result.sql); there is no token, so a task that came back to the same worker is \
                    completed by either run of it",
            skips: BTreeMap::from([(
                "joined",
                "push_tasks is a statement of its own, and its client does not pipeline",
            )]),
        }
    }

    async fn install(env: &Env) -> Result<()> {
        let pool = PgPool::connect(&env.url).await?;
        PostgresStorage::setup(&pool).await?;
        pool.close().await;
        Ok(())
    }

    async fn fill(env: &Env) -> Result<()> {
        let mut connection = PgConnection::connect(&env.url).await?;
        for _ in 0..env.consumers {
            let mut next = 1;
            while next <= env.units {
                let end = (next + FILL).min(env.units + 1);
                push_tasks(&mut connection, QUEUE, tasks(env, next..end)).await?;
                next = end;
            }
        }
        connection.close().await?;
        Ok(())
    }

    async fn writer(env: &Env, until: Instant) -> Result<u64> {
        let mut connection = PgConnection::connect(&env.url).await?;
        let (mut transactions, mut n) = (0, 1);
        while Instant::now() < until {
            let end = match env.emit {
                Emit::None => n,
                Emit::Own => n + env.batch as i64,
                Emit::Joined => bail!("push_tasks is a statement of its own"),
            };
            business(env, &mut connection, n..end).await?;
            transactions += 1;
            n = end;
        }
        connection.close().await?;
        Ok(transactions)
    }

    async fn work(env: &Env, handler: Handler) -> Result<()> {
        let profile = Profile::of(env);
        let pool = PgPoolOptions::new()
            .max_connections(10)
            .min_connections(profile.workers as u32)
            .connect(&env.url)
            .await?;
        let (backends, concurrency) = (pool.clone(), env.concurrency);
        let monitor = Monitor::new().register_n(profile.workers, move |index, _| {
            let backend = PostgresStorage::<Unit>::new(&backends)
                .with_config(profile.config.clone())
                .with_pubsub()
                .poll_with_interval(profile.poll);
            // The name is what a completion is checked by: no two processes may share it.
            WorkerBuilder::new(format!("bench-{}-{index}", std::process::id()))
                .backend(backend)
                .concurrency(share(concurrency, profile.workers, index))
                .data(handler.clone())
                .build(handle)
        });
        go().await?;
        let stop = async {
            stopped().await;
            Ok(())
        };
        monitor.run_with_signal(stop).await?;
        pool.close().await;
        Ok(())
    }

    type Client = PgConnection;

    async fn client(env: &Env) -> Result<PgConnection> {
        Ok(PgConnection::connect(&env.url).await?)
    }

    async fn commit(env: &Env, client: &mut PgConnection, n: i64) -> Result<()> {
        business(env, client, n..n + 1).await
    }
}

async fn handle(unit: Unit, handler: Data<Handler>) -> Result<(), BoxDynError> {
    handler.call(unit.n).await;
    Ok(())
}

struct Profile {
    config: Config,
    /// In this process, each with a backend and a listener of its own.
    workers: usize,
    /// How often a worker looks without being told.
    poll: Duration,
}

impl Profile {
    fn of(env: &Env) -> Self {
        // A worker is dead after so many whole seconds, and beats four times meanwhile.
        let lease = Duration::from_secs(env.lease.as_secs_f64().ceil().max(1.0) as u64);
        let config = Config::default()
            .queue(QUEUE)
            .heartbeat_interval(lease / 4)
            .missed_heartbeats(4);
        if !env.best {
            return Self {
                config,
                workers: 1,
                poll: Duration::from_secs(5),
            };
        }
        let workers = WORKERS.min(env.concurrency);
        // A worker does not beat while a fetched task waits for a free handler: where handlers outlast a lease, nothing
        // may wait, or their worker counts as dead.
        let batch = match env.handler.as_str() {
            "gate" => 1,
            _ => BATCH,
        };
        Self {
            config: config.batch_size(batch).lock_tasks(false),
            workers,
            poll: Duration::from_millis(100),
        }
    }
}

/// What of `all` is for the worker `index` of so many.
fn share(all: usize, workers: usize, index: usize) -> usize {
    all / workers + usize::from(index < all % workers)
}

/// A business transaction with these units in it.
async fn business(
    env: &Env,
    connection: &mut PgConnection,
    units: std::ops::Range<i64>,
) -> Result<()> {
    let mut transaction = connection.begin().await?;
    sqlx::query("insert into business (note) values ($1)")
        .bind("x")
        .execute(&mut *transaction)
        .await?;
    if !units.is_empty() {
        push_tasks(&mut *transaction, QUEUE, tasks(env, units)).await?;
    }
    transaction.commit().await?;
    Ok(())
}

fn tasks(env: &Env, units: std::ops::Range<i64>) -> Vec<PgTask> {
    units
        .map(|n| TaskBuilder::new(payload(n, env.payload).into_bytes()).build())
        .collect()
}
