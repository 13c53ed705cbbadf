//! A waiting backlog, drained: by each form of handler, under an open snapshot, by five consumers; against the same
//! statements written by hand and, where a handler has a transaction for each event, against the same transactions
//! without a seal.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::Result;
use outlast::{Attempt, Consumer, Event, Failure, Outlast, Start};
use outlast_postgres::{connect, tx::ClientTx};
use serde::{Deserialize, Serialize};

use super::Args;
use crate::{
    cost::{Cost, Meter},
    relay::{sink::Sink, way},
    report::{Report, Row, ratio, spread},
    server::{Database, Server},
};

#[derive(Serialize, Deserialize)]
struct Load {
    n: i64,
}
impl Event for Load {
    const NAME: &'static str = "load";
}

/// A hint when to look; the database says when it is done.
static HANDLED: AtomicU64 = AtomicU64::new(0);

async fn effect(_: (), _: Attempt<Load>) -> Result<(), Failure> {
    HANDLED.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// What a business transaction writes, with an event or without.
const BUSINESS: &str = "insert into business (note) values ($1)";
const NOTE: &str = "a business row of modest length";
/// How many of them run at once.
const AT_ONCE: usize = 8;

async fn one(_: (), tx: &mut ClientTx, _: Attempt<Load>) -> Result<(), Failure> {
    let insert = tx.prepare_cached(BUSINESS).await?;
    tx.execute(&insert, &[&NOTE]).await?;
    HANDLED.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

async fn many(_: (), _: &mut ClientTx, events: Vec<Attempt<Load>>) -> Result<(), Failure> {
    HANDLED.fetch_add(events.len() as u64, Ordering::Relaxed);
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    ByHand,
    /// The transactions of `Tx`, without events.
    Business,
    Batch,
    Effect,
    Tx,
    FanOut,
    /// To a broker that confirms at once.
    Relay,
    /// The same, with the order of each key.
    RelayOrdered,
}

pub async fn run(server: &Server, args: &Args, report: &mut Report) -> Result<()> {
    let plan = [
        ("on_batch", How::Batch, false),
        (
            "on_batch, REPEATABLE READ snapshot held open",
            How::Batch,
            true,
        ),
        ("on at concurrency 50", How::Effect, false),
        (
            "on at concurrency 50, snapshot held open",
            How::Effect,
            true,
        ),
        ("on_tx with a business row, concurrency 8", How::Tx, false),
        (
            "on_tx with a business row, concurrency 8, snapshot held open",
            How::Tx,
            true,
        ),
        (
            "fan-out to 5 consumers, on_batch (units: completions)",
            How::FanOut,
            false,
        ),
        ("relay to a sink that confirms at once", How::Relay, false),
        (
            "relay to a sink that confirms at once, ordered by 10,000 keys",
            How::RelayOrdered,
            false,
        ),
    ];
    let events = args.events;
    let all = args.wants("drain");
    let wanted = |how| {
        all || match how {
            How::Tx => args.wants("on-tx"),
            How::Relay | How::RelayOrdered => args.wants("relay"),
            _ => false,
        }
    };
    for (name, how, snapshot) in plan.into_iter().filter(|plan| wanted(plan.1)) {
        let (floor_how, of) = match how {
            How::Tx => (How::Business, "the same transactions without a seal"),
            _ => (How::ByHand, "by hand"),
        };
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            floor.push(drain(server, floor_how, snapshot && how == How::Tx, events).await?);
            ours.push(drain(server, how, snapshot, events).await?);
        }
        let units = if how == How::FanOut {
            events as f64 * 5.0
        } else {
            events as f64
        };
        let rate = |cost: &Cost| units / cost.seconds;
        let base = |cost: &Cost| events as f64 / cost.seconds;
        let per_unit = |get: fn(&Cost) -> f64| {
            Some(spread(ours.iter().map(|cost| get(cost) / units).collect()).0)
        };
        report.push(Row {
            workload: format!("drain of {events}: {name}"),
            result: format!("{:.0}/s", spread(ours.iter().map(rate).collect()).0),
            ratio: format!(
                "{} of {of} ({:.0}/s{})",
                ratio(
                    ours.iter()
                        .zip(&floor)
                        .map(|(a, b)| rate(a) / base(b))
                        .collect()
                ),
                spread(floor.iter().map(base).collect()).0,
                match how {
                    How::Tx => format!(
                        ", {:.0} + {:.0} µs",
                        cpu(&floor, events, |cost| cost.server_cpu),
                        cpu(&floor, events, |cost| cost.client_cpu)
                    ),
                    _ => String::new(),
                }
            ),
            wal_bytes_per_unit: per_unit(|cost| cost.wal_bytes),
            server_cpu_us_per_unit: per_unit(|cost| cost.server_cpu * 1e6),
            client_cpu_us_per_unit: per_unit(|cost| cost.client_cpu * 1e6),
        });
    }
    Ok(())
}

/// Median of the microseconds that one of so many took, of the server and of the client.
fn cpu(costs: &[Cost], units: i64, get: fn(&Cost) -> f64) -> f64 {
    let each = costs.iter().map(|cost| get(cost) * 1e6 / units as f64);
    spread(each.collect()).0
}

async fn drain(server: &Server, how: How, snapshot: bool, events: i64) -> Result<Cost> {
    let database = server.database("bench_drain").await?;
    let keys = if how == How::RelayOrdered { 10_000 } else { 0 };
    database.backlog(events, keys).await?;
    let holder = database.connect().await?;
    if snapshot {
        holder
            .batch_execute("begin isolation level repeatable read; select 1")
            .await?;
    }
    HANDLED.store(0, Ordering::Relaxed);
    let meter = Meter::start(server, &database).await?;
    match how {
        How::ByHand => by_hand(&database).await?,
        How::Business => business(&database, events).await?,
        How::Relay | How::RelayOrdered => {
            let route = way::Route::to("load", how == How::RelayOrdered);
            way::drain(&database, Sink, route, events as u64).await?;
        }
        _ => by_worker(&database, how, events).await?,
    }
    let cost = meter.stop(server, &database).await?;
    if !matches!(how, How::ByHand | How::Business) {
        database.must_be_sound().await?;
    }
    drop(holder);
    Ok(cost)
}

async fn by_worker(database: &Database, how: How, events: i64) -> Result<()> {
    let pool = connect::pool(&database.target, AT_ONCE)?;
    let consumers = if how == How::FanOut { 5 } else { 1 };
    let mut worker = Outlast::new().worker(()).database(&database.url);
    for n in 0..consumers {
        let consumer = Consumer::new(&format!("c{n}")).from(Start::Earliest);
        worker = worker.consumer(match how {
            How::Effect => consumer.concurrency(50).on(effect),
            How::Tx => consumer.concurrency(AT_ONCE).on_tx(&pool, one),
            _ => consumer.on_batch(&pool, many),
        });
    }
    let wanted = events as u64 * consumers;
    let handled = || HANDLED.load(Ordering::Relaxed);
    worker
        .run_until(way::all(database, handled, wanted))
        .await?;
    Ok(())
}

/// As many transactions as there are events, on as many connections as handlers run at once.
async fn business(database: &Database, events: i64) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    let left = Arc::new(AtomicU64::new(events as u64));
    for _ in 0..AT_ONCE {
        let (mut client, left) = (database.connect().await?, left.clone());
        tasks.spawn(async move {
            let insert = client.prepare(BUSINESS).await?;
            let more = |left: u64| left.checked_sub(1);
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
                .is_ok()
            {
                let tx = client.transaction().await?;
                tx.execute(&insert, &[&NOTE]).await?;
                tx.commit().await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// The least that keeps the same promises for one consumer without failures: read a page by id, one inbox row an event,
/// the cursor in the same commit. No windows, no lease, no finish.
async fn by_hand(database: &Database) -> Result<()> {
    let mut client = database.connect().await?;
    client.batch_execute("create table cursor_by_hand (id bigint not null); insert into cursor_by_hand values (0)").await?;
    let slot: i16 = client
        .query_one("select slot from outlast._event limit 1", &[])
        .await?
        .get(0);
    let read = client
        .prepare(&format!("select id, event_id, type, key, tenant, content_type, payload from outlast._event where slot = {slot} and id > $1 order by id limit 1000"))
        .await?;
    let seal = client
        .prepare("insert into outlast._processed_event (event_id, at, consumer, slot, outcome) select u, now(), 0, outlast._inbox_slot(u), 'd' from unnest($1::uuid[]) u")
        .await?;
    let mut at = 0_i64;
    loop {
        let tx = client.transaction().await?;
        let rows = tx.query(&read, &[&at]).await?;
        let Some(last) = rows.last() else { break };
        at = last.get(0);
        let ids: Vec<uuid::Uuid> = rows.iter().map(|row| row.get(1)).collect();
        tx.execute(&seal, &[&ids]).await?;
        tx.execute("update cursor_by_hand set id = $1", &[&at])
            .await?;
        tx.commit().await?;
    }
    Ok(())
}
