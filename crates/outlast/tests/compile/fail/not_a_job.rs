//! The payload is an event, not a job.
#![allow(unused_imports)]
use outlast::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Ev {
    n: i64,
}
impl Event for Ev {
    const NAME: &'static str = "ev";
}

async fn h(_: (), _e: Attempt<Ev>) -> Result<(), Failure> {
    Ok(())
}

fn reg(o: &Outlast) {
    let _ = o.worker(()).job(h);
}

fn main() {}
