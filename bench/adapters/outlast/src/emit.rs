//! Emitting: in its own round trip as an application writes it, and in the statement of the business row.

use std::time::Instant;

use anyhow::Result;
use contract::{Emit, Env, payload};
use outlast::Outlast;
use tokio_postgres::{Client, Statement};

use crate::{Load, connect};

const OUTLAST: Outlast = Outlast::new();
const NOTE: &str = "a business row of modest length";
const BUSINESS: &str = "insert into business (note) values ($1)";
/// The event belongs to the row, and both are one statement.
const JOINED: &str = "with b as (insert into business (note) values ($1) returning id) \
    select e.id from b, outlast.emit('load', $2::text) e";
const JOINED_ALL: &str = "with b as (insert into business (note) values ($1) returning id) \
    select count(e.id) from b, outlast.emit_all('load', $2::text[]) e";

pub async fn fill(env: &Env) -> Result<()> {
    const AT_ONCE: i64 = 1000;
    let mut client = connect(env).await?;
    let most = (8 * 1024 * 1024 / env.payload.max(1)).clamp(1, AT_ONCE as usize) as i64;
    for first in (1..=env.units).step_by(most as usize) {
        let last = (first + most - 1).min(env.units);
        let events: Vec<Load> = (first..=last).map(|n| Load::new(n, env.payload)).collect();
        let mut tx = client.transaction().await?;
        OUTLAST.emit_all(&mut tx, &events).await?;
        tx.commit().await?;
    }
    Ok(())
}

pub async fn writer(env: &Env, until: Instant) -> Result<u64> {
    let mut client = connect(env).await?;
    let business = client.prepare(BUSINESS).await?;
    let joined = client.prepare(JOINED).await?;
    let joined_all = client.prepare(JOINED_ALL).await?;
    let (mut transactions, mut n) = (0, 0);
    while Instant::now() < until {
        let tx_units = n + 1..=n + env.batch as i64;
        n += env.batch as i64;
        let mut tx = client.transaction().await?;
        match (env.emit, env.batch) {
            (Emit::None, _) => {
                tx.execute(&business, &[&NOTE]).await?;
            }
            (Emit::Own, 1) => {
                tx.execute(&business, &[&NOTE]).await?;
                OUTLAST.emit(&mut tx, &Load::new(n, env.payload)).await?;
            }
            (Emit::Own, _) => {
                tx.execute(&business, &[&NOTE]).await?;
                let events: Vec<Load> = tx_units.map(|n| Load::new(n, env.payload)).collect();
                OUTLAST.emit_all(&mut tx, &events).await?;
            }
            (Emit::Joined, 1) => {
                let event = payload(n, env.payload);
                tx.execute(&joined, &[&NOTE, &event]).await?;
            }
            (Emit::Joined, _) => {
                let events: Vec<String> = tx_units.map(|n| payload(n, env.payload)).collect();
                tx.execute(&joined_all, &[&NOTE, &events]).await?;
            }
        }
        tx.commit().await?;
        transactions += 1;
    }
    Ok(transactions)
}

/// The connection of the trickle.
pub struct Trickle {
    client: Client,
    business: Statement,
}

impl Trickle {
    pub async fn new(env: &Env) -> Result<Self> {
        let client = connect(env).await?;
        let business = client.prepare(BUSINESS).await?;
        Ok(Self { client, business })
    }

    pub async fn commit(&mut self, env: &Env, n: i64) -> Result<()> {
        let mut tx = self.client.transaction().await?;
        tx.execute(&self.business, &[&NOTE]).await?;
        OUTLAST.emit(&mut tx, &Load::new(n, env.payload)).await?;
        Ok(tx.commit().await?)
    }
}
