//! pgtask as a contestant: see bench/README.md.

use std::{
    collections::BTreeMap,
    num::NonZeroU16,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use contract::{Adapter, Description, Emit, Env, Handler, go, payload, stopped};
use pgtask::{
    core::{EnqueueRequest, HandlerVersion, QueueConfig, QueueName, RetryPolicy, TaskName},
    postgres::Store,
    worker::{HandlerRegistry, Worker, WorkerConfig},
};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

const NOTE: &str = "a business row of modest length";

struct Pgtask;

impl Adapter for Pgtask {
    fn describe() -> Description {
        Description {
            name: "pgtask",
            version: "0.4.0",
            language: "rust",
            default: "the README's worker, WorkerConfig::new: claims of at most 10, completions batched for 1 ms, LISTEN, \
                      10 connections; concurrency from BENCH_CONCURRENCY instead of its 10. In both profiles BENCH_LEASE \
                      is lease_duration, which is recovered within a third of it",
            best: "what the project's own benchmark sets (crates/pgtask-bench): claim_batch_size as large as the \
                   concurrency, the scheduler off; 512 claims in flight (docs/architecture/scaling: raise the concurrency; \
                   a claim holds its place until its completion is committed), of which BENCH_CONCURRENCY run handlers; and the queue's starvation_timeout at zero (docs/operations: \
                   oldest first on every claim), without which each claim looks through the whole backlog for what is \
                   older than 5 min",
            fenced: true,
            history: true,
            transactional: true,
            left: "select count(*) from pgtask.tasks where state <> 'succeeded'".into(),
            done_at: Some(
                "select (payload->>'n')::bigint,
                        (extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000000)::bigint
                 from pgtask.tasks where state = 'succeeded'"
                    .into(),
            ),
            stale: "refused: completion asks for the state running, the attempt and the lease token of the claim",
            skips: BTreeMap::new(),
        }
    }

    async fn install(env: &Env) -> Result<()> {
        Ok(Store::connect(&env.url).await?.migrate().await?)
    }

    async fn fill(env: &Env) -> Result<()> {
        let store = Store::connect(&env.url).await?;
        let numbers: Vec<_> = (1..=env.units).collect();
        for _ in 0..env.consumers {
            for chunk in numbers.chunks(1_000) {
                store.enqueue_many(&requests(chunk, env)?).await?;
            }
        }
        Ok(())
    }

    async fn writer(env: &Env, until: Instant) -> Result<u64> {
        let mut connection = PgConnection::connect(&env.url).await?;
        let numbers: Vec<_> = (1..=env.batch as i64).collect();
        let mut transactions = 0;
        while Instant::now() < until {
            transaction(env, &mut connection, &numbers).await?;
            transactions += 1;
        }
        Ok(transactions)
    }

    async fn work(env: &Env, handler: Handler) -> Result<()> {
        let mut registry = HandlerRegistry::new();
        let slots = Arc::new(Semaphore::new(env.concurrency));
        registry.register(
            TaskName::new("unit")?,
            HandlerVersion::default(),
            RetryPolicy::Never,
            move |task| {
                let (handler, slots) = (handler.clone(), slots.clone());
                async move {
                    let _slot = slots.acquire().await;
                    handler.call(task.payload["n"].as_i64().unwrap_or(0)).await;
                    Ok(Value::Null)
                }
            },
        );
        let mut config = WorkerConfig::new(QueueName::default());
        config.lease_duration = env.lease;
        config.concurrency = NonZeroU16::try_from(u16::try_from(env.concurrency)?)?;
        if env.best {
            // More claims may be on their way than handlers run.
            config.concurrency = config.concurrency.max(NonZeroU16::try_from(512)?);
            config.claim_batch_size = config.concurrency;
            config.scheduler_enabled = false;
        }
        let store = Store::connect(&env.url).await?;
        if env.best {
            let mut queue = QueueConfig::new(QueueName::default());
            queue.starvation_timeout = Duration::ZERO;
            store.put_queue(&queue).await?;
        }
        let worker = Worker::new(store, registry, config)?;
        go().await?;
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(worker.run(shutdown.clone()));
        stopped().await;
        shutdown.cancel();
        Ok(running.await??)
    }

    type Client = PgConnection;

    async fn client(env: &Env) -> Result<PgConnection> {
        Ok(PgConnection::connect(&env.url).await?)
    }

    async fn commit(env: &Env, connection: &mut PgConnection, n: i64) -> Result<()> {
        transaction(env, connection, &[n]).await
    }
}

fn requests(numbers: &[i64], env: &Env) -> Result<Vec<EnqueueRequest>> {
    let name = TaskName::new("unit")?;
    numbers
        .iter()
        .map(|n| {
            let payload = serde_json::from_str(&payload(*n, env.payload))?;
            Ok(EnqueueRequest::new(name.clone(), payload))
        })
        .collect()
}

/// A row of business and these units, together.
async fn transaction(env: &Env, connection: &mut PgConnection, numbers: &[i64]) -> Result<()> {
    let mut tx = connection.begin().await?;
    if env.emit == Emit::Joined {
        // The documented SQL functions (docs/sql-protocol.md), in the statement of the row.
        let (statement, argument) = match numbers {
            [n] => (
                "with business as (insert into business (note) values ($1))
                 select task_id from pgtask.enqueue(p_task_name => 'unit', p_payload => $2)",
                serde_json::from_str(&payload(*n, env.payload))?,
            ),
            many => (
                "with business as (insert into business (note) values ($1))
                 select task_id from pgtask.enqueue_many($2)",
                json!(requests(many, env)?),
            ),
        };
        sqlx::query(statement)
            .bind(NOTE)
            .bind(argument)
            .fetch_all(&mut *tx)
            .await?;
    } else {
        sqlx::query("insert into business (note) values ($1)")
            .bind(NOTE)
            .execute(&mut *tx)
            .await?;
    }
    if env.emit == Emit::Own {
        match &*requests(numbers, env)? {
            [one] => drop(Store::enqueue_on(&mut tx, one).await?),
            many => drop(Store::enqueue_many_on(&mut tx, many).await?),
        }
    }
    Ok(tx.commit().await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    contract::run::<Pgtask>().await
}
