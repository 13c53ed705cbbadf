//! `prove [ROW..]`: the evidence rows, with real processes, a real PostgreSQL and faults on purpose.
//!
//! The same program plays the clients and workers of its drills. Progress goes to stderr; the result is one JSON line a
//! row on stdout. Exit status 1: a promise was broken.

use std::{env, process::ExitCode};

use anyhow::Result;
use clap::Parser;
use outlast_testkit::drill::{
    client::{self, ClientArgs},
    mirror::{self, MirrorArgs},
    plant::Plant,
    rows,
    run::{self, Options},
    sender::{self, SenderArgs},
    source::Kind,
    worker::{self, WorkerArgs},
};

/// Runs the evidence rows of Outlast: faults against real processes, judged from outside.
#[derive(Parser, Debug)]
#[command(name = "prove", version)]
struct Args {
    /// The rows to run, such as E2; all that exist if none is named.
    rows: Vec<String>,
    /// The rows with a broker: nats, or pubsub (Google's emulator).
    #[arg(long)]
    broker: Option<Kind>,
    /// How many seeds each scenario gets.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The first seed. The same seed makes the same plan.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the scenarios whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Nothing but the JSON lines.
    #[arg(long)]
    json: bool,
    /// The core of each row with smaller amounts, as in the tests.
    #[arg(long)]
    small: bool,
    /// How many runs go on side by side.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// Plants a fault in the product's SQL and runs what must see it.
    #[arg(long)]
    plant: Option<Plant>,
    /// Keeps the folders of all runs, not only of failed ones.
    #[arg(long)]
    keep: bool,
    /// Says which rows and scenarios there are.
    #[arg(long)]
    list: bool,
}

#[derive(Parser, Debug)]
#[command(args_override_self = true)]
struct Client {
    #[command(flatten)]
    args: ClientArgs,
}

#[derive(Parser, Debug)]
#[command(args_override_self = true)]
struct Worker {
    #[command(flatten)]
    args: WorkerArgs,
}

#[derive(Parser, Debug)]
#[command(args_override_self = true)]
struct Sender {
    #[command(flatten)]
    args: SenderArgs,
}

#[derive(Parser, Debug)]
#[command(args_override_self = true)]
struct Mirror {
    #[command(flatten)]
    args: MirrorArgs,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let role = env::args().nth(1).unwrap_or_default();
    let rest = env::args().skip(1);
    match role.as_str() {
        "drill-client" => client::run(Client::parse_from(rest).args).await?,
        "drill-mirror" => mirror::run(Mirror::parse_from(rest).args).await?,
        "drill-sender" => sender::run(Sender::parse_from(rest).args).await?,
        "drill-worker" => worker::run(Worker::parse_from(rest).args).await?,
        _ => return prove(Args::parse()).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn prove(args: Args) -> Result<ExitCode> {
    if args.list {
        for row in rows::all(args.broker) {
            println!("{}: {}", row.name, row.what);
            for scenario in row.scenarios {
                println!("  {}", scenario.name);
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    // A drill that panics is reported with its text.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut rows, mut only) = (args.rows, args.only);
    let broker = args.broker.or_else(|| args.plant?.broker());
    if let Some(plant) = args.plant.filter(|_| rows.is_empty()) {
        let (row, scenario) = plant.seen_by();
        rows.push(row.to_owned());
        only.get_or_insert_with(|| scenario.to_owned());
    }
    let lines = run::run(Options {
        rows,
        broker,
        only,
        seeds: args.seeds,
        seed: args.seed,
        small: args.small,
        jobs: args.jobs.max(1),
        plant: args.plant,
        keep: args.keep,
        program: env::current_exe()?,
        quiet: args.json,
    })
    .await?;
    for line in &lines {
        println!("{}", serde_json::to_string(line)?);
    }
    let broken = lines.iter().any(|line| line.violations > 0);
    Ok(if broken {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
