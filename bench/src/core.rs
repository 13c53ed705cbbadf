//! The core path on PostgreSQL alone.

pub mod drain;
mod emit;
mod idle;
pub mod latency;

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
    /// Only these workloads: emit, drain (or of it only on-tx or relay), latency, idle.
    only: Vec<String>,
}

impl Args {
    /// Only the relay to a broker that confirms at once.
    pub fn relay(rounds: usize, events: i64) -> Self {
        Self {
            rounds,
            events,
            seconds: 0.0,
            smoke: false,
            out: PathBuf::new(),
            only: vec!["relay".into()],
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

pub async fn run(mut args: Args) -> Result<()> {
    if args.smoke {
        (args.rounds, args.events, args.seconds) = (1, 2_000, 0.3);
    }
    let server = Server::start().await?;
    let mut report = Report::new("The core path", server.version());
    report.facts.push(server.today().await?);
    if args.wants("emit") {
        emit::run(&server, &args, &mut report).await?;
    }
    if args.wants("drain") || args.wants("on-tx") || args.wants("relay") {
        drain::run(&server, &args, &mut report).await?;
    }
    if args.wants("latency") {
        latency::run(&server, &args, &mut report).await?;
    }
    if args.wants("idle") {
        idle::run(&server, &args, &mut report).await?;
    }
    println!("{}", report.markdown());
    if !args.smoke {
        report.write(&args.out, "core")?;
    }
    Ok(())
}
