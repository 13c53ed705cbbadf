//! What an adapter reads and prints: see bench/README.md. An adapter is a type with [`Adapter`], and a main that calls [`run`].

mod env;
mod handler;

pub use env::{Emit, Env};
pub use handler::Handler;

use std::{
    collections::BTreeMap,
    io::Write as _,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

/// What `describe` prints.
#[derive(Serialize)]
pub struct Description {
    pub name: &'static str,
    pub version: &'static str,
    pub language: &'static str,
    pub default: &'static str,
    pub best: &'static str,
    pub fenced: bool,
    pub history: bool,
    pub transactional: bool,
    pub left: String,
    pub done_at: Option<String>,
    pub stale: &'static str,
    pub skips: BTreeMap<&'static str, &'static str>,
}

/// A contestant. Each call is a process of its own.
#[expect(async_fn_in_trait, reason = "called by `run` alone, on one runtime")]
pub trait Adapter {
    fn describe() -> Description;
    /// Whether its schema knows its database, and refuses to work in a copy.
    const OWN_DATABASE: bool = false;
    /// Profiles besides `default` and `best`, each with what is set.
    fn further() -> BTreeMap<&'static str, &'static str> {
        BTreeMap::new()
    }
    /// The schema, in an empty database.
    async fn install(env: &Env) -> Result<()>;
    /// `env.units` waiting units.
    async fn fill(env: &Env) -> Result<()>;
    /// One connection's loop until `until`; answers its transactions.
    async fn writer(env: &Env, until: Instant) -> Result<u64>;
    /// Handles units by `handler` until `stopped()`. Call [`go`] when everything is ready.
    async fn work(env: &Env, handler: Handler) -> Result<()>;
    /// A connection that commits a business row and unit `n` by one call of `commit`.
    type Client;
    async fn client(env: &Env) -> Result<Self::Client>;
    async fn commit(env: &Env, client: &mut Self::Client, n: i64) -> Result<()>;
}

/// Does what `BENCH_VERB` says.
pub async fn run<A: Adapter>() -> Result<()> {
    let verb = std::env::var("BENCH_VERB").context("BENCH_VERB is not set: see bench/README.md")?;
    if verb == "describe" {
        let mut description = serde_json::to_value(A::describe())?;
        description["further"] = json!(A::further());
        description["own_database"] = json!(A::OWN_DATABASE);
        say(&description);
        return Ok(());
    }
    let env = Env::read()?;
    match verb.as_str() {
        "install" => A::install(&env).await,
        "fill" => A::fill(&env).await,
        "enqueue" => enqueue::<A>(&env).await,
        "trickle" => trickle::<A>(&env).await,
        "work" => {
            let handler = Handler::new(&env);
            A::work(&env, handler.clone()).await?;
            say(&json!({"event": "end", "handled": handler.handled()}));
            Ok(())
        }
        other => anyhow::bail!("there is no verb {other}"),
    }
}

async fn enqueue<A: Adapter>(env: &Env) -> Result<()> {
    let start = Instant::now();
    let until = start + env.seconds;
    // In one task: writers wait for the server, not for this process.
    let writers = (0..env.writers).map(|_| A::writer(env, until));
    let transactions: u64 = all(writers.collect()).await?.into_iter().sum();
    let seconds = start.elapsed().as_secs_f64();
    say(&json!({"event": "end", "transactions": transactions, "seconds": seconds}));
    Ok(())
}

async fn trickle<A: Adapter>(env: &Env) -> Result<()> {
    let mut client = A::client(env).await?;
    go().await?;
    let mut every = tokio::time::interval(std::time::Duration::from_secs_f64(1.0 / env.rate));
    let mut committed = Vec::new();
    for n in 1..=env.units {
        every.tick().await;
        A::commit(env, &mut client, n).await?;
        committed.push((n, now()));
    }
    for (n, at) in committed {
        say(&json!({"event": "committed", "n": n, "at": at}));
    }
    Ok(())
}

/// Runs them side by side in this task, and answers all or the first that failed.
pub async fn all<T>(futures: Vec<impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    let mut waiting: Vec<_> = futures.into_iter().map(|f| (Box::pin(f), None)).collect();
    std::future::poll_fn(|context| {
        for (future, answer) in &mut waiting {
            if answer.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *answer = Some(ready);
            }
        }
        match waiting.iter().all(|(_, answer)| answer.is_some()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    waiting
        .into_iter()
        .filter_map(|(_, answer)| answer)
        .collect()
}

/// Says `ready`, and waits for the line that starts the clock.
pub async fn go() -> Result<()> {
    say(&json!({"event": "ready"}));
    // Unbuffered to the byte: what comes after the line is for `stopped`.
    let mut line = String::new();
    BufReader::with_capacity(1, tokio::io::stdin())
        .read_line(&mut line)
        .await?;
    Ok(())
}

/// Returns when stdin ends: the worker shall stop in good order.
pub async fn stopped() {
    let mut rest = Vec::new();
    let _ = tokio::io::stdin().read_to_end(&mut rest).await;
}

/// Prints a line, at once.
pub fn say(line: &serde_json::Value) {
    let mut out = std::io::stdout().lock();
    // A runner that is gone needs no lines.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Microseconds since 1970.
pub fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as i64)
}

/// A unit's payload: JSON of about `size` bytes.
pub fn payload(n: i64, size: usize) -> String {
    let bare = format!("{{\"n\":{n},\"pad\":\"\"}}").len();
    format!(
        "{{\"n\":{n},\"pad\":\"{}\"}}",
        "x".repeat(size.saturating_sub(bare))
    )
}
