//! The environment of an adapter.

use std::{path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Context as _, Result};

/// How a unit gets into the business transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emit {
    None,
    Own,
    Joined,
}

#[derive(Clone, Debug)]
pub struct Env {
    pub url: String,
    /// `default`, `best`, or one of the contestant's further ones.
    pub profile: String,
    /// `best` instead of `default`.
    pub best: bool,
    pub units: i64,
    pub payload: usize,
    pub concurrency: usize,
    pub handler: String,
    pub gate: PathBuf,
    pub lease: Duration,
    pub consumers: usize,
    pub writers: usize,
    pub batch: usize,
    pub emit: Emit,
    pub seconds: Duration,
    pub rate: f64,
}

impl Env {
    pub fn read() -> Result<Self> {
        let emit: String = or("BENCH_EMIT", "own".into())?;
        let profile: String = or("BENCH_PROFILE", "default".into())?;
        Ok(Self {
            url: std::env::var("BENCH_URL").context("BENCH_URL is not set")?,
            best: profile == "best",
            profile,
            units: or("BENCH_UNITS", 0)?,
            payload: or("BENCH_PAYLOAD", 200)?,
            concurrency: or("BENCH_CONCURRENCY", 50)?,
            handler: or("BENCH_HANDLER", "noop".into())?,
            gate: or("BENCH_GATE", PathBuf::new())?,
            lease: Duration::from_secs_f64(or("BENCH_LEASE", 30.0)?),
            consumers: or("BENCH_CONSUMERS", 1)?,
            writers: or("BENCH_WRITERS", 1)?,
            batch: or("BENCH_BATCH", 1)?,
            emit: match emit.as_str() {
                "none" => Emit::None,
                "own" => Emit::Own,
                "joined" => Emit::Joined,
                other => anyhow::bail!("BENCH_EMIT={other} is none of none, own, joined"),
            },
            seconds: Duration::from_secs_f64(or("BENCH_SECONDS", 1.0)?),
            rate: or("BENCH_RATE", 200.0)?,
        })
    }
}

fn or<T: FromStr>(name: &str, default: T) -> Result<T> {
    match std::env::var(name) {
        Err(_) => Ok(default),
        Ok(text) => text
            .parse()
            .map_err(|_| anyhow::anyhow!("{name}={text} cannot be read")),
    }
}
