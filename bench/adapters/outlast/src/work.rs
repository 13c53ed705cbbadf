//! The worker, by each form of handler.

use std::time::Duration;

use anyhow::Result;
use contract::{Env, Handler, go, stopped};
use outlast::{Attempt, ClientTx, Consumer, Failure, Outlast, Settings, Start};
use outlast_postgres::connect::{self, Target};

use crate::Load;

#[derive(Clone)]
struct State {
    handler: Handler,
    /// Nothing but counting: a batch needs no call for each.
    nothing: bool,
}

pub fn name(nth: usize) -> String {
    format!("c{nth}")
}

async fn effect(state: State, load: Attempt<Load>) -> Result<(), Failure> {
    state.handler.call(load.n).await;
    Ok(())
}

/// With a row of its own, which is what such a handler is for.
async fn one(state: State, tx: &mut ClientTx, load: Attempt<Load>) -> Result<(), Failure> {
    let own = tx
        .prepare_cached("insert into effect (note) values ($1)")
        .await?;
    tx.execute(&own, &[&"a row of modest length"]).await?;
    state.handler.call(load.n).await;
    Ok(())
}

async fn many(state: State, _: &mut ClientTx, loads: Vec<Attempt<Load>>) -> Result<(), Failure> {
    if state.nothing {
        state.handler.count(loads.len() as i64);
        return Ok(());
    }
    for load in &loads {
        state.handler.call(load.n).await;
    }
    Ok(())
}

pub async fn run(env: &Env, handler: Handler) -> Result<()> {
    let pool = connect::pool(&Target::parse(&env.url)?, 8)?;
    let lease = env.lease;
    let settings = if env.best {
        Settings {
            lease,
            flush: Duration::from_millis(2),
            batch_bytes: 16 * 1024 * 1024,
            connections: 8,
            ..Settings::default()
        }
    } else {
        Settings {
            lease,
            ..Settings::default()
        }
    };
    let state = State {
        handler,
        nothing: env.handler == "noop",
    };
    let mut worker = Outlast::new()
        .worker(state)
        .database(&env.url)
        .settings(settings);
    for n in 0..env.consumers {
        let consumer = Consumer::new(&name(n)).from(Start::Earliest);
        worker = worker.consumer(match env.profile.as_str() {
            "batch" => consumer.on_batch(&pool, many),
            "tx" => consumer.concurrency(8).on_tx(&pool, one),
            _ => consumer.concurrency(env.concurrency).on(effect),
        });
    }
    worker.check()?;
    go().await?;
    Ok(worker.run_until(stopped()).await?)
}
