//! The payload is a job, not an entity.
#![allow(unused_imports)]
use outlast::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Sweep {
    n: i64,
}
impl Job for Sweep {
    const NAME: &'static str = "sweep";
}

async fn h(_: (), _s: Attempt<Sweep>) -> Result<(), Failure> {
    Ok(())
}

fn reg(o: &Outlast) {
    let _ = o.worker(()).reconcile(h);
}

fn main() {}
