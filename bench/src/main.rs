//! `./run bench NAME`: what it costs, measured. Interleaved rounds on one private server, medians of paired ratios; the
//! database says when work is done. Losses are printed like wins.

mod core;
mod cost;
mod growth;
mod peers;
mod relay;
mod report;
mod server;

use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The core path on PostgreSQL alone: emit, drain, fan-out, latency, idle cost.
    Core(core::Args),
    /// How cost grows: with the backlog, consumers, keys, tenants, what is kept, open writers, an open snapshot.
    Growth(growth::Args),
    /// The product beside others, each through its public interface.
    Peers(peers::Args),
    /// The relay: by itself, and beside bare clients of the same brokers.
    Relay(relay::Args),
    #[command(hide = true)]
    RelayProcess(relay::process::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Args::parse().what {
        What::Core(args) => core::run(args).await,
        What::Growth(args) => growth::run(args).await,
        What::Peers(args) => peers::run(args).await,
        What::Relay(args) => relay::run(args).await,
        What::RelayProcess(args) => relay::process::run(args).await,
    }
}
