//! `--check NAME`: every verb of an adapter on a small database, and a line for each thing that it must do.

mod verbs;

use std::fmt::Display;

use anyhow::{Result, bail};

use super::adapter::{self, Who};
use crate::server::Server;

/// What was looked at, and what of it does not hold.
pub struct Findings {
    profile: String,
    broken: usize,
}

impl Findings {
    pub fn holds(&mut self, what: &str, holds: bool, found: impl Display) {
        if !holds {
            self.broken += 1;
        }
        let (mark, found) = match holds {
            true => ("holds ", String::new()),
            false => ("BROKEN", format!(": {found}")),
        };
        println!("{mark} {:<8} {what}{found}", self.profile);
    }

    /// A step that answers whether it holds, or ends in an error.
    pub fn step(&mut self, what: &str, done: Result<()>) {
        match done {
            Ok(()) => self.holds(what, true, ""),
            Err(error) => self.holds(what, false, format!("{error:#}")),
        }
    }

    pub fn left_out(&self, what: &str, why: &str) {
        println!("skips  {:<8} {what}: {why}", self.profile);
    }
}

pub async fn run(name: &str) -> Result<()> {
    let known = adapter::all()?;
    let Some(adapter) = known.iter().find(|adapter| adapter.name == name) else {
        let names: Vec<&str> = known.iter().map(|adapter| adapter.name.as_str()).collect();
        bail!("adapters.toml has no {name}; it has {}", names.join(", "));
    };
    adapter.build()?;
    let whos = Who::all(adapter.clone())?;
    let server = Server::start_for_peers().await?;
    let mut broken = 0;
    for who in &whos {
        let mut findings = Findings {
            profile: who.profile.clone(),
            broken: 0,
        };
        verbs::run(&server, who, &mut findings).await;
        broken += findings.broken;
    }
    match broken {
        0 => println!("{name} does what an adapter must do"),
        n => bail!("{name}: {n} things do not hold"),
    }
    Ok(())
}
