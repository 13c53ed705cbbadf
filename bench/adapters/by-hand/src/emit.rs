//! The least that an intent in the business transaction can cost: one prepared insert.

use std::time::Instant;

use anyhow::Result;
use contract::{Emit, Env, payload};
use tokio_postgres::{Client, Statement};

use crate::{connect, is_queue};

const NOTE: &str = "a business row of modest length";
const BUSINESS: &str = "insert into business (note) values ($1)";

struct Texts {
    units: &'static str,
    joined: &'static str,
}

const LOG: Texts = Texts {
    units: "insert into event (payload) select convert_to(p, 'UTF8') from unnest($1::text[]) p",
    joined: "with b as (insert into business (note) values ($2) returning id) \
             insert into event (payload) select convert_to(p, 'UTF8') from b, unnest($1::text[]) p",
};
const QUEUE: Texts = Texts {
    units: "insert into job (payload) select p::jsonb from unnest($1::text[]) p",
    joined: "with b as (insert into business (note) values ($2) returning id) \
             insert into job (payload) select p::jsonb from b, unnest($1::text[]) p",
};

fn texts(env: &Env) -> &'static Texts {
    if is_queue(env) { &QUEUE } else { &LOG }
}

pub async fn fill(env: &Env) -> Result<()> {
    let client = connect().await?;
    let units = client.prepare(texts(env).units).await?;
    // A table with a status knows no consumers: each gets a row of its own.
    let times = if is_queue(env) { env.consumers } else { 1 };
    let most = (8 * 1024 * 1024 / env.payload.max(1)).clamp(1, 10_000) as i64;
    for first in (1..=env.units).step_by(most as usize) {
        let last = (first + most - 1).min(env.units);
        let payloads: Vec<String> = (first..=last).map(|n| payload(n, env.payload)).collect();
        for _ in 0..times {
            client.execute(&units, &[&payloads]).await?;
        }
    }
    Ok(())
}

pub async fn writer(env: &Env, until: Instant) -> Result<u64> {
    let mut client = connect().await?;
    let business = client.prepare(BUSINESS).await?;
    let units = client.prepare(texts(env).units).await?;
    let joined = client.prepare(texts(env).joined).await?;
    let (mut transactions, mut n) = (0, 0);
    while Instant::now() < until {
        let payloads: Vec<String> = match env.emit {
            Emit::None => Vec::new(),
            _ => (n + 1..=n + env.batch as i64)
                .map(|n| payload(n, env.payload))
                .collect(),
        };
        n += env.batch as i64;
        let tx = client.transaction().await?;
        match env.emit {
            Emit::None => {
                tx.execute(&business, &[&NOTE]).await?;
            }
            Emit::Own => {
                tx.execute(&business, &[&NOTE]).await?;
                tx.execute(&units, &[&payloads]).await?;
            }
            Emit::Joined => {
                tx.execute(&joined, &[&payloads, &NOTE]).await?;
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
    units: Statement,
}

impl Trickle {
    pub async fn new(env: &Env) -> Result<Self> {
        let client = connect().await?;
        let business = client.prepare(BUSINESS).await?;
        let units = client.prepare(texts(env).units).await?;
        Ok(Self {
            client,
            business,
            units,
        })
    }

    pub async fn commit(&mut self, env: &Env, n: i64) -> Result<()> {
        let tx = self.client.transaction().await?;
        tx.execute(&self.business, &[&NOTE]).await?;
        tx.execute(&self.units, &[&vec![payload(n, env.payload)]])
            .await?;
        Ok(tx.commit().await?)
    }
}
