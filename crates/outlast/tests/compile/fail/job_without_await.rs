//! Nothing is enqueued without `.await`.
#![allow(unused_imports)]
use outlast::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Greet {
    n: i64,
}
impl Job for Greet {
    const NAME: &'static str = "greet";
}
#[deny(unused_must_use)]
async fn h(o: &Outlast, tx: &mut dyn Tx) {
    o.enqueue(tx, &Greet { n: 1 });
}

fn main() {}
