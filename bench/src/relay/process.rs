//! A relay to Pub/Sub in a process of its own, so that its memory is its own: prints how far it is and what it holds, and ends
//! with its stdin.

use std::{
    fs,
    io::{Read as _, stdin},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use tokio::sync::oneshot;

use super::{
    pubsub,
    way::{self, Seen, Watched},
};

#[derive(clap::Args)]
pub struct Args {
    #[arg(long)]
    database: String,
    #[arg(long)]
    endpoint: String,
    #[arg(long)]
    project: String,
}

pub async fn run(args: Args) -> Result<()> {
    let seen = Arc::new(Seen::default());
    let broker = pubsub::ours(&args.endpoint, &args.project)?;
    let worker = way::worker(&args.database, Watched::new(broker, seen.clone()));
    let telling = tokio::spawn(async move {
        let mut every = tokio::time::interval(Duration::from_millis(250));
        loop {
            every.tick().await;
            match resident_kb() {
                Ok(kb) => println!("{} {kb}", seen.confirmed()),
                Err(error) => return error,
            }
        }
    });
    let (end, ended) = oneshot::channel();
    thread::spawn(move || {
        // Whatever comes: its end is what is waited for.
        let _ = stdin().read_to_end(&mut Vec::new());
        let _ = end.send(());
    });
    let ended = worker.run_until(async {
        let _ = ended.await;
    });
    tokio::select! {
        ended = ended => Ok(ended?),
        error = telling => Err(error?),
    }
}

fn resident_kb() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().nth(1));
    kb.context("no VmRSS")?.parse().context("VmRSS")
}
