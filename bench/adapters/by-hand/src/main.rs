//! The hand-written floor: the statements of the same shape with nothing around them. A log, a cursor for each consumer, one
//! row for each completion, all of a page in one transaction. No windows (it would lose what commits out of order), no lease
//! (a frozen process holds its page for ever), no retries, no finish. Two further shapes: a transaction an event, and the
//! table that most people write, with a status and SKIP LOCKED. See bench/README.md.

mod emit;
mod queue;
mod work;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use anyhow::Result;
use contract::{Adapter, Description, Env, Handler, stopped};
use tokio::task::JoinSet;
use tokio_postgres::{Client, Config, NoTls};

/// By the variables of libpq.
async fn connect() -> Result<Client> {
    let mut config = Config::new();
    for (name, value) in [
        ("host", "PGHOST"),
        ("port", "PGPORT"),
        ("user", "PGUSER"),
        ("dbname", "PGDATABASE"),
    ] {
        let value = std::env::var(value)?;
        match name {
            "host" => config.host(value),
            "port" => config.port(value.parse()?),
            "user" => config.user(value),
            _ => config.dbname(value),
        };
    }
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Until stdin ends; then each loop finishes the page that it has.
async fn until_stopped(mut loops: JoinSet<Result<()>>, stop: &AtomicBool) -> Result<()> {
    tokio::select! {
        () = stopped() => stop.store(true, Ordering::Relaxed),
        Some(ended) = loops.join_next() => ended??,
    }
    while let Some(ended) = loops.join_next().await {
        ended??;
    }
    Ok(())
}

/// `queue` has a table of its own.
fn is_queue(env: &Env) -> bool {
    env.profile == "queue"
}

const PAGE: &str = "a page of 1,000 of the log, its handlers side by side, one row for each completion, the cursor: one transaction";

struct ByHand;

impl Adapter for ByHand {
    fn describe() -> Description {
        Description {
            name: "by-hand",
            version: env!("CARGO_PKG_VERSION"),
            language: "rust",
            default: PAGE,
            best: PAGE,
            fenced: false,
            history: true,
            transactional: true,
            left: "select (select count(*) from event) * (select count(*) from place) - (select count(*) from completion) \
                   + (select count(*) from job where status <> 'done')"
                .into(),
            done_at: Some(
                "select (convert_from(e.payload, 'UTF8')::json->>'n')::bigint, \
                 (extract(epoch from pg_xact_commit_timestamp(c.xmin)) * 1000000)::bigint \
                 from completion c join event e on e.id = c.event \
                 union all select (payload->>'n')::bigint, \
                 (extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000000)::bigint from job where status = 'done'"
                    .into(),
            ),
            stale: "no lease: the page's transaction stays open, and nobody else gets it",
            skips: BTreeMap::new(),
        }
    }

    fn further() -> BTreeMap<&'static str, &'static str> {
        BTreeMap::from([
            (
                "tx",
                "the same log and page; a transaction with a row of its own and one completion for each event, 8 connections",
            ),
            (
                "queue",
                "a table with a status: pages of 100 by SKIP LOCKED, updated when done, one transaction; 4 connections",
            ),
        ])
    }

    async fn install(env: &Env) -> Result<()> {
        let client = connect().await?;
        client.batch_execute(include_str!("install.sql")).await?;
        client
            .execute(
                "insert into place select n, 0 from generate_series(1, $1::int) n",
                &[&(env.consumers as i32)],
            )
            .await?;
        Ok(())
    }

    async fn fill(env: &Env) -> Result<()> {
        emit::fill(env).await
    }

    async fn writer(env: &Env, until: Instant) -> Result<u64> {
        emit::writer(env, until).await
    }

    async fn work(env: &Env, handler: Handler) -> Result<()> {
        if is_queue(env) {
            return queue::run(env, handler).await;
        }
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

// One thread: what it has to do for an event is less than handing it to another.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    contract::run::<ByHand>().await
}
