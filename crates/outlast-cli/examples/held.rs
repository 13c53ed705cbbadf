//! A user's own binary for our tests: `outlast_cli::cli` around a handler that runs until a file is there.

use std::{convert::Infallible, path::Path, process::ExitCode, time::Duration};

use outlast_core::{Event, Failure};
use outlast_engine::{Attempt, Consumer, Outlast, Settings, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Held {
    /// The handler returns when this file is there.
    until: String,
}

impl Event for Held {
    const NAME: &'static str = "held";
}

async fn hold(_: (), event: Attempt<Held>) -> Result<(), Failure> {
    println!("started {} attempt {}", event.id(), event.number());
    while !Path::new(&event.until).exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("finished {}", event.id());
    Ok(())
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
}

#[tokio::main]
async fn main() -> ExitCode {
    outlast_cli::cli(async || Ok::<_, Infallible>(()), worker).await
}
