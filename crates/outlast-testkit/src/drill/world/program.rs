//! The processes of a run, told what to do.

use std::{ffi::OsStr, fmt::Display, net::SocketAddr, process::Command, sync::Arc};

use anyhow::Result;
use outlast_engine::crash::{CRASH, PAUSE, Point};

use super::{LEASE, PATIENCE, World};
use crate::{
    drill::{desk::DEPLOYMENT, plant::Plant, worker::Spec},
    process::Process,
};

/// A process that was not started yet.
#[must_use = "nothing runs before start"]
#[derive(Debug)]
pub struct Program<'w> {
    world: &'w World,
    name: String,
    command: Command,
    /// What it says when it is up.
    up: Option<&'static str>,
}

impl<'w> Program<'w> {
    pub(super) fn emitter(world: &'w World, number: u64) -> Self {
        let this = Self::new(world, format!("client-{number}"), "drill-client", None);
        let transactions = if world.small { 8 } else { 15 };
        this.set("number", number)
            .set("seed", world.rng(number).u64(..))
            .set("transactions", transactions)
    }

    pub(super) fn worker(world: &'w World, name: &str) -> Self {
        let up = Some("worker is running");
        let this = Self::new(world, format!("worker-{name}"), "drill-worker", up);
        let this = this.set("lease-ms", LEASE.as_millis());
        match world.plant {
            Some(Plant::ChildApart) => this.flag("apart"),
            Some(plant) if plant.broker().is_some() => this.set("plant", plant.as_str()),
            _ => this,
        }
    }

    pub(super) fn sender(world: &'w World, name: &str, provider: SocketAddr) -> Self {
        let up = Some("worker is running");
        Self::new(world, format!("sender-{name}"), "drill-sender", up)
            .set("lease-ms", LEASE.as_millis())
            .set("deployment", DEPLOYMENT)
            .set("provider", provider)
    }

    pub(super) fn mirror(world: &'w World, name: &str) -> Self {
        let up = Some("worker is running");
        Self::new(world, format!("mirror-{name}"), "drill-mirror", up)
            .set("lease-ms", LEASE.as_millis())
    }

    fn new(world: &'w World, name: String, kind: &str, up: Option<&'static str>) -> Self {
        let mut command = Command::new(&world.program);
        command.arg(kind);
        for variable in [CRASH, PAUSE, "RUST_BACKTRACE"] {
            command.env_remove(variable);
        }
        let this = Self {
            world,
            name,
            command,
            up,
        };
        this.set("folder", world.folder.display())
            .set("url", world.url())
    }

    /// One argument; a later one of the same name wins.
    pub(crate) fn set(mut self, name: &str, value: impl Display) -> Self {
        self.command.arg(format!("--{name}={value}"));
        self
    }

    /// One argument without a value.
    pub(crate) fn flag(mut self, name: &str) -> Self {
        self.command.arg(format!("--{name}"));
        self
    }

    /// Its consumers.
    pub(crate) fn consumers(self, specs: &[Spec]) -> Self {
        specs
            .iter()
            .fold(self, |this, spec| this.set("consumer", spec))
    }

    /// One variable of its environment.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// It dies there, when it comes by for the nth time.
    pub(crate) fn dies(mut self, point: Point, nth: u32) -> Self {
        self.command.env(CRASH, format!("{}:{nth}", point.as_str()));
        self
    }

    /// It stops there, when it comes by for the nth time.
    pub(crate) fn stops(mut self, point: Point, nth: u32) -> Self {
        self.command.env(PAUSE, format!("{}:{nth}", point.as_str()));
        self
    }

    /// Starts it.
    pub(crate) fn start(mut self) -> Result<Arc<Process>> {
        let process = Arc::new(Process::spawn(&mut self.command)?);
        self.world
            .note(format_args!("{} is process {}", self.name, process.pid()));
        let mut found = self.world.found();
        found.processes.push((self.name, process.clone()));
        Ok(process)
    }

    /// Starts one that may end badly: that is what the drill is about.
    pub(crate) fn start_doomed(mut self) -> Result<Arc<Process>> {
        let process = Arc::new(Process::spawn(&mut self.command)?);
        self.world
            .note(format_args!("{} is process {}", self.name, process.pid()));
        let mut found = self.world.found();
        found.others.push((self.name, process.clone()));
        Ok(process)
    }

    /// Starts it, and waits until it is up.
    pub(crate) async fn running(self) -> Result<Arc<Process>> {
        let up = self.up;
        let process = self.start()?;
        if let Some(line) = up {
            process.line(line, PATIENCE).await;
        }
        Ok(process)
    }
}
