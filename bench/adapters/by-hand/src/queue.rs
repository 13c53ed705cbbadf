//! What most people write: a table with a status, and SKIP LOCKED.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use contract::{Env, Handler, go};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::{connect, until_stopped};

const CONNECTIONS: usize = 4;
const EMPTY: Duration = Duration::from_millis(2);
const AGAIN: Duration = Duration::from_millis(100);
const TAKE: &str = "select id, (payload->>'n')::bigint from job where status = 'waiting' order by id limit 100 for update skip locked";

pub async fn run(env: &Env, handler: Handler) -> Result<()> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(connect().await?);
    }
    go().await?;
    let stop = Arc::<AtomicBool>::default();
    let mut lanes = JoinSet::new();
    for client in clients {
        lanes.spawn(take(
            handler.clone(),
            env.concurrency.div_ceil(CONNECTIONS),
            client,
            stop.clone(),
        ));
    }
    until_stopped(lanes, &stop).await
}

async fn take(
    handler: Handler,
    each: usize,
    mut client: Client,
    stop: Arc<AtomicBool>,
) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        while client.is_closed() {
            tokio::time::sleep(AGAIN).await;
            if let Ok(new) = connect().await {
                client = new;
            }
        }
        match page(&handler, &mut client, each).await {
            Ok(0) => tokio::time::sleep(EMPTY).await,
            Err(error) if !client.is_closed() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

async fn page(handler: &Handler, client: &mut Client, each: usize) -> Result<usize> {
    let tx = client.transaction().await?;
    let rows = tx.query(TAKE, &[]).await?;
    if rows.is_empty() {
        return Ok(0);
    }
    let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    for some in rows.chunks(each) {
        let calls = some.iter().map(|row| {
            Box::pin(async {
                handler.call(row.get(1)).await;
                anyhow::Ok(())
            })
        });
        contract::all(calls.collect()).await?;
    }
    tx.execute(
        "update job set status = 'done', at = clock_timestamp() where id = any($1)",
        &[&ids],
    )
    .await?;
    tx.commit().await?;
    Ok(ids.len())
}
