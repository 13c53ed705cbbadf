//! Outlast as its users have it: the crate, its worker, its SQL functions. See bench/README.md.

mod emit;
mod work;

use std::{collections::BTreeMap, time::Instant};

use anyhow::Result;
use contract::{Adapter, Description, Env, Handler};
use outlast::Event;
use outlast_postgres::connect::{self, Target};
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

#[derive(Serialize, Deserialize)]
struct Load {
    n: i64,
    pad: String,
}
impl Event for Load {
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

struct Outlast;

impl Adapter for Outlast {
    fn describe() -> Description {
        Description {
            name: "outlast",
            version: env!("CARGO_PKG_VERSION"),
            language: "rust",
            default: "`Consumer::on`, concurrency as asked, nothing else set",
            best: "the same; flush 2 ms, claims up to 16 MB, 8 connections",
            fenced: true,
            history: true,
            transactional: true,
            left: "select (select count(*) from outlast._event) * (select count(*) from outlast._consumer) \
                   - (select count(*) from outlast._processed_event)"
                .into(),
            done_at: Some(
                "select (convert_from(e.payload, 'UTF8')::json->>'n')::bigint, \
                 (extract(epoch from pg_xact_commit_timestamp(p.xmin)) * 1000000)::bigint \
                 from outlast._processed_event p join outlast._event e on e.event_id = p.event_id"
                    .into(),
            ),
            stale: "the lease's token is proved in the completing transaction",
            skips: BTreeMap::new(),
        }
    }

    const OWN_DATABASE: bool = true;

    fn further() -> BTreeMap<&'static str, &'static str> {
        BTreeMap::from([
            (
                "batch",
                "`Consumer::on_batch`: up to 1,000 events in one transaction of a pool",
            ),
            (
                "tx",
                "`Consumer::on_tx`: a transaction with one row of its own for each event, pool of 8 connections",
            ),
        ])
    }

    async fn install(env: &Env) -> Result<()> {
        outlast::migrate(&env.url).await?;
        let client = connect(env).await?;
        // For the handlers of `tx`.
        client
            .batch_execute("create table effect (id bigint generated always as identity primary key, note text not null)")
            .await?;
        for n in 0..env.consumers {
            let name = work::name(n);
            client
                .execute(
                    "select outlast.register($1, array['load'], 'earliest')",
                    &[&name],
                )
                .await?;
        }
        Ok(())
    }

    async fn fill(env: &Env) -> Result<()> {
        emit::fill(env).await
    }

    async fn writer(env: &Env, until: Instant) -> Result<u64> {
        emit::writer(env, until).await
    }

    async fn work(env: &Env, handler: Handler) -> Result<()> {
        work::run(env, handler).await
    }

    type Client = emit::Trickle;

    async fn client(env: &Env) -> Result<emit::Trickle> {
        emit::Trickle::new(env).await
    }

    async fn commit(env: &Env, client: &mut emit::Trickle, n: i64) -> Result<()> {
        client.commit(env, n).await
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    contract::run::<Outlast>().await
}
