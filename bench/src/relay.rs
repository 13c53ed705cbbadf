//! The relay: what it costs by itself, and what is left of a broker's own speed behind it.
//!
//! Beside real servers it takes turns with bare clients of the same broker: the same messages in batches of the same size, two
//! of them on their way at once, each confirmed. A server, a relay and PostgreSQL share the machine, so trust ratios.

mod duel;
mod keys;
mod latency;
mod load;
mod nats;
pub mod process;
mod pubsub;
pub mod sink;
pub mod way;

use std::path::PathBuf;

use anyhow::Result;
use outlast_testkit::broker::{emulator, nats_server};

use crate::{core, report::Report, server::Server};
use duel::{Duel, Place as _};

#[derive(clap::Args)]
pub struct Args {
    /// Rounds of each interleaved group.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Events of each turn, without and with an order of keys.
    #[arg(long, num_args = 2, default_values_t = [100_000, 20_000])]
    events: Vec<u64>,
    /// Only a smoke of everything: seconds instead of minutes, figures without worth.
    #[arg(long)]
    smoke: bool,
    /// Where the results go.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
    /// Only these: sink, nats, pubsub, latency, keys.
    only: Vec<String>,
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// So many unless it is a smoke.
    fn amount(&self, usual: u64, smoke: u64) -> u64 {
        if self.smoke { smoke } else { usual }
    }
}

pub async fn run(mut args: Args) -> Result<()> {
    if args.smoke {
        (args.rounds, args.events) = (1, vec![2_000, 500]);
    }
    let server = Server::start().await?;
    let mut report = Report::new("The relay", server.version());
    report.facts.push(server.today().await?);
    if args.wants("sink") {
        let sink = core::Args::relay(args.rounds, args.events[0] as i64);
        core::drain::run(&server, &sink, &mut report).await?;
    }
    if nats_server::is_installed() {
        with_nats(&server, &args, &mut report).await?;
    }
    if emulator::is_installed() {
        with_pubsub(&server, &args, &mut report).await?;
    }
    println!("{}", report.markdown());
    if !args.smoke {
        report.write(&args.out, "relay")?;
    }
    Ok(())
}

async fn with_nats(server: &Server, args: &Args, report: &mut Report) -> Result<()> {
    if !args.wants("nats") && !args.wants("latency") {
        return Ok(());
    }
    let nats = nats::Nats::start().await?;
    report.facts.push(nats.describe());
    if args.wants("nats") {
        duels(server, &nats, args, report).await?;
    }
    if args.wants("latency") {
        latency::run(server, &nats, args.amount(2_000, 100), report).await?;
    }
    Ok(())
}

async fn with_pubsub(server: &Server, args: &Args, report: &mut Report) -> Result<()> {
    if !args.wants("pubsub") && !args.wants("keys") {
        return Ok(());
    }
    let pubsub = pubsub::PubSub::start().await?;
    report.facts.push(pubsub.describe());
    if args.wants("pubsub") {
        duels(server, &pubsub, args, report).await?;
    }
    if args.wants("keys") {
        let events = args.amount(1_000_000, 2_000);
        keys::run(server, &pubsub, events, report).await?;
    }
    Ok(())
}

async fn duels<P: duel::Place>(
    server: &Server,
    place: &P,
    args: &Args,
    report: &mut Report,
) -> Result<()> {
    for (events, keys) in [(args.events[0], 0), (args.events[1], 10_000)] {
        let duel = Duel {
            events,
            keys,
            rounds: args.rounds,
        };
        duel.fight(server, place, report).await?;
    }
    Ok(())
}
