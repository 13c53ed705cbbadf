//! The log: a page after the cursor, its handlers, its completions and the cursor, in one transaction.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use contract::{Env, Handler, go};
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_postgres::Client;

use crate::{connect, until_stopped};

const PAGE: &str = "select id, payload from event where id > $1 order by id limit 1000";
const COMPLETE: &str = "insert into completion (consumer, event, at) select $1, u, clock_timestamp() from unnest($2::bigint[]) u";
const COMPLETE_ONE: &str = "insert into completion (consumer, event, at) values ($1, $2, clock_timestamp()) on conflict do nothing";
const EMPTY: Duration = Duration::from_millis(2);
const AGAIN: Duration = Duration::from_millis(100);
const CONNECTIONS_OF_TX: usize = 8;

pub async fn run(env: &Env, handler: Handler) -> Result<()> {
    let mut connections = Vec::new();
    for _ in 0..env.consumers {
        connections.push(Connections::open(env).await?);
    }
    go().await?;
    let stop = Arc::<AtomicBool>::default();
    let mut consumers = JoinSet::new();
    for (n, connections) in connections.into_iter().enumerate() {
        consumers.spawn(read(
            env.clone(),
            handler.clone(),
            n as i32 + 1,
            connections,
            stop.clone(),
        ));
    }
    until_stopped(consumers, &stop).await
}

struct Connections {
    client: Client,
    /// Of `tx`.
    own: Vec<Client>,
}

impl Connections {
    async fn open(env: &Env) -> Result<Self> {
        let mut own = Vec::new();
        if env.profile == "tx" {
            for _ in 0..CONNECTIONS_OF_TX {
                own.push(connect().await?);
            }
        }
        let client = connect().await?;
        Ok(Self { client, own })
    }
}

/// A lost connection is waited out: the page of the lost transaction is read again.
async fn read(
    env: Env,
    handler: Handler,
    consumer: i32,
    mut at: Connections,
    stop: Arc<AtomicBool>,
) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        while at.client.is_closed() {
            tokio::time::sleep(AGAIN).await;
            if let Ok(new) = Connections::open(&env).await {
                at = new;
            }
        }
        match page(&env, &handler, consumer, &mut at).await {
            Ok(0) => tokio::time::sleep(EMPTY).await,
            Err(error) if !at.client.is_closed() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

async fn page(env: &Env, handler: &Handler, consumer: i32, at: &mut Connections) -> Result<usize> {
    let own = &mut at.own;
    let tx = at.client.transaction().await?;
    let row = tx
        .query_one(
            "select id from place where consumer = $1 for update",
            &[&consumer],
        )
        .await?;
    let rows = tx.query(PAGE, &[&row.get::<_, i64>(0)]).await?;
    let Some(last) = rows.last() else {
        return Ok(0);
    };
    let last: i64 = last.get(0);
    let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let numbers: Vec<i64> = rows
        .iter()
        .map(|row| number(row.get(1)))
        .collect::<Result<_>>()?;
    if own.is_empty() {
        handle(env, handler, numbers).await?;
        tx.execute(COMPLETE, &[&consumer, &ids]).await?;
    } else {
        one_by_one(handler, consumer, own, &ids, &numbers).await?;
    }
    tx.execute(
        "update place set id = $2 where consumer = $1",
        &[&consumer, &last],
    )
    .await?;
    tx.commit().await?;
    Ok(ids.len())
}

/// All of a page, at most `concurrency` at once.
async fn handle(env: &Env, handler: &Handler, numbers: Vec<i64>) -> Result<()> {
    if env.handler == "noop" {
        for n in numbers {
            handler.call(n).await;
        }
        return Ok(());
    }
    let places = Arc::new(Semaphore::new(env.concurrency));
    let mut running = JoinSet::new();
    for n in numbers {
        let place = places.clone().acquire_owned().await?;
        let handler = handler.clone();
        running.spawn(async move {
            handler.call(n).await;
            drop(place);
        });
    }
    while let Some(ended) = running.join_next().await {
        ended?;
    }
    Ok(())
}

/// A transaction for each, side by side over the connections.
async fn one_by_one(
    handler: &Handler,
    consumer: i32,
    own: &mut [Client],
    ids: &[i64],
    numbers: &[i64],
) -> Result<()> {
    let width = own.len();
    let lanes = own.iter_mut().enumerate().map(|(lane, client)| {
        let mine = ids.iter().zip(numbers).skip(lane).step_by(width);
        Box::pin(async move {
            let own = client
                .prepare("insert into effect (note) values ($1)")
                .await?;
            let complete = client.prepare(COMPLETE_ONE).await?;
            for (id, n) in mine {
                let tx = client.transaction().await?;
                handler.call(*n).await;
                tx.execute(&own, &[&"a row of modest length"]).await?;
                tx.execute(&complete, &[&consumer, id]).await?;
                tx.commit().await?;
            }
            anyhow::Ok(())
        })
    });
    contract::all(lanes.collect()).await?;
    Ok(())
}

/// The number in `{"n":17,…`.
fn number(payload: &[u8]) -> Result<i64> {
    let digits = payload.get(5..).unwrap_or_default();
    let end = digits.iter().position(|byte| !byte.is_ascii_digit());
    let digits = &digits[..end.unwrap_or(digits.len())];
    Ok(std::str::from_utf8(digits)?.parse()?)
}
