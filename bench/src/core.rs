//! The core path on PostgreSQL alone.

mod drain;
mod emit;
mod idle;
mod latency;

use std::path::PathBuf;

use anyhow::Result;

use crate::{report::Report, server::Server};

#[derive(clap::Args)]
pub struct Args {
    /// Rounds of each interleaved pair.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Waiting events of a drain.
    #[arg(long, default_value_t = 100_000)]
    events: i64,
    /// Seconds of each emit slice and of the latency run.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only a smoke of everything: seconds instead of minutes, figures without worth.
    #[arg(long)]
    smoke: bool,
    /// Where the results go.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
    /// Only these workloads: emit, drain, latency, idle.
    only: Vec<String>,
}

pub async fn run(mut args: Args) -> Result<()> {
    if args.smoke {
        (args.rounds, args.events, args.seconds) = (1, 2_000, 0.3);
    }
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let server = Server::start().await?;
    let mut report = Report::new("The core path", server.version());
    if wanted("emit") {
        emit::run(&server, &args, &mut report).await?;
    }
    if wanted("drain") {
        drain::run(&server, &args, &mut report).await?;
    }
    if wanted("latency") {
        latency::run(&server, &args, &mut report).await?;
    }
    if wanted("idle") {
        idle::run(&server, &args, &mut report).await?;
    }
    println!("{}", report.markdown());
    if !args.smoke {
        report.write(&args.out, "core")?;
    }
    Ok(())
}
