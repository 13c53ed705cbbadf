//! DBOS as a contestant: a unit is a workflow of one step on one queue, enqueued inside the business transaction by its
//! SQL function.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use contract::{Adapter, Description, Emit, Env, Handler, go, payload, stopped};
use dbos::{Client, ClientConfig, Config, DBOS, QueueConflict, QueueOptions, step};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::Semaphore;

const APPLICATION: &str = "bench";
const QUEUE: &str = "bench";
const WORKFLOW: &str = "unit";
const FILL: i64 = 5_000;
/// Waits of 1 s, 0.9 s, 0.81 s and so on down to 10 ms.
const SHRUNK: Duration = Duration::from_secs(11);

const LEFT: &str = "select count(*) from dbos.workflow_status where status <> 'SUCCESS'";
const NO_LEASE: &str = "no lease: a dead executor's workflows stay PENDING until a process with its executor id launches, or \
     the service DBOS Conductor says so";

const ENQUEUE: &str = "select dbos.enqueue_workflow('unit', 'bench', positional_args => array[unit::json]) \
     from unnest($1::text[]) unit";
const JOINED: &str = "with fact as (insert into business (note) values ($1) returning id) \
     select dbos.enqueue_workflow('unit', 'bench', positional_args => array[unit::json]) \
     from fact, unnest($2::text[]) unit";

struct Dbos;

#[derive(Serialize, Deserialize)]
struct Unit {
    n: i64,
    pad: String,
}

/// What the SQL function stores: the portable form of a workflow's arguments.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    positional_args: [Unit; 1],
}

#[tokio::main]
async fn main() -> Result<()> {
    contract::run::<Dbos>().await
}

impl Adapter for Dbos {
    fn describe() -> Description {
        Description {
            name: "dbos",
            version: "0.5.0",
            language: "rust",
            default: "QueueOptions::default() as in the queue tutorial (no limits, polled every second), Config::new (10 \
                      connections); a unit is enqueued by dbos.enqueue_workflow, since the crate's own start and \
                      Client::enqueue take no transaction; the handler waits for one of the benchmark's permits",
            best: "as default, with QueueOptions::polling_interval 10 ms and max_connections 20 (the example at Config); \
                   no worker_concurrency: with one each pass ends in a wait that starts at 1 s and shrinks \
                   by a tenth; a worker that finds nothing waiting says ready when its waits have shrunk to 10 ms",
            fenced: false,
            history: true,
            transactional: true,
            left: LEFT.into(),
            done_at: Some(
                "select (inputs::jsonb -> 'positionalArgs' -> 0 ->> 'n')::bigint, \
                 (extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000000)::bigint \
                 from dbos.workflow_status where status = 'SUCCESS'"
                    .into(),
            ),
            stale: "accepted: the outcome is written where status = 'PENDING', whoever runs it now \
                    (record_workflow_outcome); only a step that the other run has recorded already stops the old one",
            skips: BTreeMap::from([("kill", NO_LEASE), ("stop", NO_LEASE)]),
        }
    }

    async fn install(env: &Env) -> Result<()> {
        let dbos = DBOS::new(config(env));
        dbos.launch().await?;
        dbos.shutdown().await;
        Ok(())
    }

    async fn fill(env: &Env) -> Result<()> {
        let mut connection = PgConnection::connect(&env.url).await?;
        for _ in 0..env.consumers {
            let mut next = 1;
            while next <= env.units {
                let end = (next + FILL).min(env.units + 1);
                sqlx::query(ENQUEUE)
                    .bind(units(env, next..end))
                    .execute(&mut connection)
                    .await?;
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
            let end = n + env.batch as i64;
            business(env, &mut connection, n..end).await?;
            transactions += 1;
            n = end;
        }
        connection.close().await?;
        Ok(transactions)
    }

    async fn work(env: &Env, handler: Handler) -> Result<()> {
        // The queue is a row that outlives the process: what this profile sets is written before anybody reads it.
        let client = Client::connect(ClientConfig {
            app_name: Some(APPLICATION.into()),
            ..ClientConfig::new(&env.url)
        })
        .await?;
        client
            .register_queue(QUEUE, queue(env), QueueConflict::AlwaysUpdate)
            .await?;
        client.close().await;

        let dbos = DBOS::new(config(env));
        // Neither profile's queue bounds what runs at once as the benchmark asks.
        let permits = Arc::new(Semaphore::new(env.concurrency));
        dbos.register_workflow(WORKFLOW, move |arguments: Arguments| {
            let (handler, permits) = (handler.clone(), permits.clone());
            async move {
                let [unit] = arguments.positional_args;
                step("handle", || {
                    let (handler, permits) = (handler.clone(), permits.clone());
                    async move {
                        let _permit = permits.acquire().await;
                        handler.call(unit.n).await;
                        Ok::<_, dbos::Error>(())
                    }
                })
                .await
            }
        })?;
        if env.best && nothing_waits(env).await? {
            // As in a process that has run for a while: the first waits between polls are long whatever is set.
            dbos.launch().await?;
            tokio::time::sleep(SHRUNK).await;
            go().await?;
        } else {
            go().await?;
            dbos.launch().await?;
        }
        stopped().await;
        // What still runs is left PENDING: there is no shutdown that waits for it.
        dbos.shutdown().await;
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

async fn nothing_waits(env: &Env) -> Result<bool> {
    let mut connection = PgConnection::connect(&env.url).await?;
    let waiting: i64 = sqlx::query_scalar(LEFT).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(waiting == 0)
}

fn config(env: &Env) -> Config {
    let mut config = Config::new(APPLICATION, &env.url);
    config.app_version = Some(env!("CARGO_PKG_VERSION").into());
    // Processes that share an id would recover each other's running work at launch.
    config.executor_id = Some(format!("bench-{}", std::process::id()));
    if env.best {
        config.max_connections = 20;
    }
    config
}

fn queue(env: &Env) -> QueueOptions {
    if !env.best {
        return QueueOptions::default();
    }
    QueueOptions {
        polling_interval: Duration::from_millis(10),
        ..QueueOptions::default()
    }
}

/// A business transaction with these units in it.
async fn business(
    env: &Env,
    connection: &mut PgConnection,
    range: std::ops::Range<i64>,
) -> Result<()> {
    let mut transaction = connection.begin().await?;
    if env.emit == Emit::Joined {
        sqlx::query(JOINED)
            .bind("x")
            .bind(units(env, range))
            .execute(&mut *transaction)
            .await?;
    } else {
        sqlx::query("insert into business (note) values ($1)")
            .bind("x")
            .execute(&mut *transaction)
            .await?;
        if env.emit == Emit::Own {
            sqlx::query(ENQUEUE)
                .bind(units(env, range))
                .execute(&mut *transaction)
                .await?;
        }
    }
    transaction.commit().await?;
    Ok(())
}

fn units(env: &Env, range: std::ops::Range<i64>) -> Vec<String> {
    range.map(|n| payload(n, env.payload)).collect()
}
