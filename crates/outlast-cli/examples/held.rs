//! A user's own binary for our tests: `outlast_cli::cli` around a handler that runs until a file is there.

use std::{convert::Infallible, path::Path, process::ExitCode, time::Duration};

use outlast_core::{Event, Failure, Job};
use outlast_engine::{Attempt, Consumer, Outlast, Settings, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Held {
    /// The handler returns when this file is there.
    until: String,
}

/// The same as a job.
#[derive(Serialize, Deserialize)]
struct HeldJob {
    until: String,
}

impl Job for HeldJob {
    const NAME: &'static str = "held_job";
}

impl Event for Held {
    const NAME: &'static str = "held";
}

async fn hold(_: (), event: Attempt<Held>) -> Result<(), Failure> {
    wait(&event, &event.until).await;
    Ok(())
}

async fn hold_job(_: (), job: Attempt<HeldJob>) -> Result<(), Failure> {
    wait(&job, &job.until).await;
    Ok(())
}

async fn wait<T>(attempt: &Attempt<T>, until: &str) {
    println!("started {} attempt {}", attempt.id(), attempt.number());
    while !Path::new(until).exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("finished {}", attempt.id());
}

fn worker(state: ()) -> Worker<()> {
    // A short lease, so that a test need not wait long for the next try.
    let settings = Settings {
        lease: Duration::from_secs(2),
        ..Settings::default()
    };
    Outlast::new()
        .worker(state)
        .settings(settings)
        .consumer(Consumer::new("holder").owner("tests").on(hold))
        .job(hold_job)
}

#[tokio::main]
async fn main() -> ExitCode {
    outlast_cli::cli(async || Ok::<_, Infallible>(()), worker).await
}
