//! `fake-provider --ledger FILE`: the mail provider of [`outlast_testkit::provider`], in a process of its own.

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use outlast_testkit::provider::{Behaviour, Refuse, open, serve};
use tokio::net::TcpListener;

/// Takes mails, enters each in its ledger (fsynced) before it answers, and misbehaves when told to.
#[derive(Parser)]
struct Arguments {
    /// Where it keeps its books: one JSON object a line.
    #[arg(long)]
    ledger: PathBuf,
    /// The port on 127.0.0.1; any free one if not given.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Wait so long before each answer.
    #[arg(long, default_value_t = 0)]
    slow_ms: u64,
    /// Answer 429 with this Retry-After, in seconds.
    #[arg(long)]
    throttle: Option<u64>,
    /// Answer 500.
    #[arg(long, conflicts_with = "throttle")]
    broken: bool,
    /// Send, and close the connection without an answer.
    #[arg(long)]
    drop_reply: bool,
    /// Send again although the idempotency key is known.
    #[arg(long)]
    ignore_keys: bool,
    /// Misbehave only for so many requests.
    #[arg(long)]
    times: Option<u64>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let throttled = arguments.throttle.map(Refuse::Throttle);
    let behaviour = Behaviour {
        slow_ms: arguments.slow_ms,
        refuse: throttled.or(arguments.broken.then_some(Refuse::Broken)),
        drop_reply: arguments.drop_reply,
        ignore_keys: arguments.ignore_keys,
        times: arguments.times,
    };
    // Its books first: whoever reads that it listens may look into them.
    let app = open(arguments.ledger.clone(), behaviour)
        .with_context(|| format!("open the ledger {}", arguments.ledger.display()))?;
    let listener = TcpListener::bind(("127.0.0.1", arguments.port))
        .await
        .context("listen")?;
    println!("listening on {}", listener.local_addr()?);
    serve(listener, app).await.context("serve")
}
