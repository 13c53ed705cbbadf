//! Outlast's jobs as their users have them: enqueued in the transaction, run by a worker. See bench/README.md.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;
use contract::{Adapter, Description, Emit, Env, Handler, go, payload, stopped};
use outlast::{Attempt, Failure, Job, Outlast, Settings};
use outlast_postgres::connect::{self, Target};
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, Statement};

const OUTLAST: Outlast = Outlast::new();
const NOTE: &str = "a business row of modest length";
const BUSINESS: &str = "insert into business (note) values ($1)";
/// The job belongs to the row, and both are one statement.
const JOINED: &str = "with b as (insert into business (note) values ($1) returning id) \
    select count(e.id) from b, unnest($2::text[]) p, outlast.enqueue('load', p) e";
const MANY: &str = "select count(e.id) from unnest($1::text[]) p, outlast.enqueue('load', p) e";

#[derive(Serialize, Deserialize)]
struct Load {
    n: i64,
    pad: String,
}
impl Job for Load {
    const NAME: &'static str = "load";
}

impl Load {
    fn new(n: i64, size: usize) -> Self {
        let bare = format!("{{\"n\":{n},\"pad\":\"\"}}").len();
        let pad = "x".repeat(size.saturating_sub(bare));
        Self { n, pad }
    }
}

async fn connect(env: &Env) -> Result<Client> {
    Ok(connect::connect(&Target::parse(&env.url)?).await?.0)
}

async fn effect(handler: Handler, load: Attempt<Load>) -> Result<(), Failure> {
    handler.call(load.n).await;
    Ok(())
}

struct Jobs;

impl Adapter for Jobs {
    fn describe() -> Description {
        Description {
            name: "outlast jobs",
            version: env!("CARGO_PKG_VERSION"),
            language: "rust",
            default: "`Worker::job`, concurrency as asked, nothing else set",
            best: "the same; flush 2 ms, claims up to 16 MB, 8 connections",
            fenced: true,
            history: true,
            transactional: true,
            left: "select (select count(*) from outlast._job) - (select count(*) from outlast._job_end)".into(),
            done_at: Some(
                "select (convert_from(j.payload, 'UTF8')::json->>'n')::bigint, \
                 (extract(epoch from pg_xact_commit_timestamp(e.xmin)) * 1000000)::bigint \
                 from outlast._job_end e join outlast._job j using (id)"
                    .into(),
            ),
            stale: "the lease's token is proved in the completing transaction",
            skips: BTreeMap::new(),
        }
    }

    const OWN_DATABASE: bool = true;

    async fn install(env: &Env) -> Result<()> {
        outlast::migrate(&env.url).await?;
        Ok(())
    }

    async fn fill(env: &Env) -> Result<()> {
        const AT_ONCE: i64 = 1000;
        let client = connect(env).await?;
        let many = client.prepare(MANY).await?;
        for _ in 0..env.consumers {
            for first in (1..=env.units).step_by(AT_ONCE as usize) {
                let last = (first + AT_ONCE - 1).min(env.units);
                let jobs: Vec<String> = (first..=last).map(|n| payload(n, env.payload)).collect();
                client.execute(&many, &[&jobs]).await?;
            }
        }
        Ok(())
    }

    async fn writer(env: &Env, until: Instant) -> Result<u64> {
        let mut client = connect(env).await?;
        let business = client.prepare(BUSINESS).await?;
        let joined = client.prepare(JOINED).await?;
        let many = client.prepare(MANY).await?;
        let (mut transactions, mut n) = (0, 0);
        while Instant::now() < until {
            let units = n + 1..=n + env.batch as i64;
            n += env.batch as i64;
            let jobs = || -> Vec<String> { units.map(|n| payload(n, env.payload)).collect() };
            let mut tx = client.transaction().await?;
            if env.emit == Emit::Joined {
                tx.execute(&joined, &[&NOTE, &jobs()]).await?;
            } else {
                tx.execute(&business, &[&NOTE]).await?;
                if env.emit == Emit::Own && env.batch == 1 {
                    OUTLAST.enqueue(&mut tx, &Load::new(n, env.payload)).await?;
                } else if env.emit == Emit::Own {
                    tx.execute(&many, &[&jobs()]).await?;
                }
            }
            tx.commit().await?;
            transactions += 1;
        }
        Ok(transactions)
    }

    async fn work(env: &Env, handler: Handler) -> Result<()> {
        let plain = Settings {
            lease: env.lease,
            concurrency: env.concurrency,
            ..Settings::default()
        };
        let settings = if env.best {
            Settings {
                flush: Duration::from_millis(2),
                batch_bytes: 16 * 1024 * 1024,
                connections: 8,
                ..plain
            }
        } else {
            plain
        };
        let worker = Outlast::new()
            .worker(handler)
            .database(&env.url)
            .settings(settings)
            .job(effect);
        worker.check()?;
        go().await?;
        Ok(worker.run_until(stopped()).await?)
    }

    type Client = Trickle;

    async fn client(env: &Env) -> Result<Trickle> {
        let client = connect(env).await?;
        let business = client.prepare(BUSINESS).await?;
        Ok(Trickle { client, business })
    }

    async fn commit(env: &Env, trickle: &mut Trickle, n: i64) -> Result<()> {
        let mut tx = trickle.client.transaction().await?;
        tx.execute(&trickle.business, &[&NOTE]).await?;
        OUTLAST.enqueue(&mut tx, &Load::new(n, env.payload)).await?;
        Ok(tx.commit().await?)
    }
}

/// The connection of the trickle.
struct Trickle {
    client: Client,
    business: Statement,
}

#[tokio::main]
async fn main() -> Result<()> {
    contract::run::<Jobs>().await
}
