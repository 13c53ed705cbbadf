//! `?` on an error that does not say what kind of failure it is.
#![allow(unused_imports)]
use outlast::*;
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};

#[derive(Clone)]
struct App {
    db: PgPool,
}

#[derive(Serialize, Deserialize)]
struct Ev {
    n: i64,
}
impl Event for Ev {
    const NAME: &'static str = "ev";
}

#[derive(Debug)]
struct Odd;

fn work() -> Result<(), Odd> {
    Err(Odd)
}

async fn h(_: App, _e: Attempt<Ev>) -> Result<(), Failure> {
    work()?;
    Ok(())
}

fn main() {}
