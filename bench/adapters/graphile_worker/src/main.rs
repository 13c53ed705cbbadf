//! graphile_worker, the Rust one, as a contestant: see bench/README.md.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use anyhow::Result;
use contract::{Adapter, Description, Emit, Env, Handler, go, payload, stopped};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, WorkerContext, WorkerOptions,
    WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection, PgPool, postgres::PgPoolOptions};

const SCHEMA: &str = "graphile_worker";
const NOTE: &str = "a business row of modest length";

#[derive(Clone, Serialize, Deserialize)]
struct Unit {
    n: i64,
    pad: String,
}

impl Unit {
    fn new(n: i64, env: &Env) -> Result<Self> {
        Ok(serde_json::from_str(&payload(n, env.payload))?)
    }
}

impl TaskHandler for Unit {
    const IDENTIFIER: &'static str = "unit";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        match context.get_ext::<Shared>() {
            Some(handler) => {
                handler.0.call(self.n).await;
                Ok(())
            }
            None => Err("there is no handler"),
        }
    }
}

/// What the worker hands to its handlers must say something of itself.
#[derive(Clone)]
struct Shared(Handler);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

struct GraphileWorker;

impl Adapter for GraphileWorker {
    fn describe() -> Description {
        Description {
            name: "graphile_worker",
            version: "0.14.1",
            language: "rust",
            default: "the README's quick start: each slot takes one job a signal (so a backlog that nobody announces drains \
                      concurrency jobs a poll), completion one by one, LISTEN and a poll of \
                      1 s, 20 connections; concurrency from BENCH_CONCURRENCY. Recovery of dead workers, off unless \
                      asked for, is on in both profiles with BENCH_LEASE as its threshold (guides/recovery), without \
                      the delay of 30 s",
            best: "the crate's own benchmark (benches/perf_test.rs): local queue of 5000, completions batched for 5 ms, \
                   poll of 5 ms, 100 connections; concurrency from BENCH_CONCURRENCY instead of its 500 \
                   (configuration/worker-options: throughput-oriented worker; guides/local-queue)",
            fenced: false,
            history: false,
            transactional: true,
            left: "select count(*) from graphile_worker._private_jobs".into(),
            done_at: None,
            stale: "accepted: completion deletes the job by its id alone, whoever holds its lock by now",
            skips: BTreeMap::new(),
        }
    }

    async fn install(env: &Env) -> Result<()> {
        let pool = PgPool::connect(&env.url).await?;
        Ok(WorkerUtils::new(pool, SCHEMA).migrate().await?)
    }

    async fn fill(env: &Env) -> Result<()> {
        let utils = WorkerUtils::new(PgPool::connect(&env.url).await?, SCHEMA);
        let spec = JobSpec::default();
        let numbers: Vec<_> = (1..=env.units).collect();
        for _ in 0..env.consumers {
            for chunk in numbers.chunks(10_000) {
                utils.add_jobs(&units(chunk, env, &spec)?).await?;
            }
        }
        Ok(())
    }

    async fn writer(env: &Env, until: Instant) -> Result<u64> {
        let mut connection = PgConnection::connect(&env.url).await?;
        let utils = utils(env)?;
        let numbers: Vec<_> = (1..=env.batch as i64).collect();
        let mut transactions = 0;
        while Instant::now() < until {
            transaction(env, &utils, &mut connection, &numbers).await?;
            transactions += 1;
        }
        Ok(transactions)
    }

    async fn work(env: &Env, handler: Handler) -> Result<()> {
        let options = WorkerOptions::default()
            .schema(SCHEMA)
            .concurrency(env.concurrency)
            .define_job::<Unit>()
            .add_extension(Shared(handler))
            .heartbeat_interval(env.lease / 4)
            .sweep_interval(env.lease / 4)
            .sweep_threshold(env.lease)
            .recovery_delay(Duration::ZERO);
        let options = if env.best {
            let pool = PgPoolOptions::new().max_connections(100);
            options
                .pg_pool(pool.connect(&env.url).await?)
                .poll_interval(Duration::from_millis(5))
                .complete_job_batch_delay(Duration::from_millis(5))
                .local_queue(LocalQueueConfig::default().with_size(5000))
        } else {
            options.database_url(&env.url)
        };
        let worker = Arc::new(options.init().await?);
        go().await?;
        let running = tokio::spawn({
            let worker = worker.clone();
            async move { worker.run().await }
        });
        stopped().await;
        worker.request_shutdown();
        Ok(running.await??)
    }

    type Client = (WorkerUtils, PgConnection);

    async fn client(env: &Env) -> Result<Self::Client> {
        Ok((utils(env)?, PgConnection::connect(&env.url).await?))
    }

    async fn commit(env: &Env, (utils, connection): &mut Self::Client, n: i64) -> Result<()> {
        transaction(env, utils, connection, &[n]).await
    }
}

/// What adds jobs through a caller's connection; its own pool stays empty.
fn utils(env: &Env) -> Result<WorkerUtils> {
    Ok(WorkerUtils::new(PgPool::connect_lazy(&env.url)?, SCHEMA))
}

fn units<'a>(numbers: &[i64], env: &Env, spec: &'a JobSpec) -> Result<Vec<(Unit, &'a JobSpec)>> {
    numbers
        .iter()
        .map(|n| Ok((Unit::new(*n, env)?, spec)))
        .collect()
}

/// A row of business and these units, together.
async fn transaction(
    env: &Env,
    utils: &WorkerUtils,
    connection: &mut PgConnection,
    numbers: &[i64],
) -> Result<()> {
    static SPEC: LazyLock<JobSpec> = LazyLock::new(JobSpec::default);
    let mut tx = connection.begin().await?;
    if env.emit == Emit::Joined {
        // The documented SQL functions, in the statement of the row.
        let (statement, argument) = match numbers {
            [n] => (
                "with business as (insert into business (note) values ($1))
                 select id from graphile_worker.add_job('unit', $2::json)",
                payload(*n, env.payload),
            ),
            many => {
                let each = many.iter().map(|n| {
                    format!(
                        "{{\"identifier\":\"unit\",\"payload\":{}}}",
                        payload(*n, env.payload)
                    )
                });
                (
                    "with business as (insert into business (note) values ($1))
                     select id from graphile_worker.add_jobs(array(
                         select json_populate_recordset(null::graphile_worker.job_spec, $2::json)))",
                    format!("[{}]", each.collect::<Vec<_>>().join(",")),
                )
            }
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
        let mut utils = utils.clone().with_executor(&mut tx);
        match numbers {
            [n] => drop(
                utils
                    .add_job(Unit::new(*n, env)?, JobSpec::default())
                    .await?,
            ),
            many => drop(utils.add_jobs(&units(many, env, &SPEC)?).await?),
        }
    }
    Ok(tx.commit().await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    contract::run::<GraphileWorker>().await
}
