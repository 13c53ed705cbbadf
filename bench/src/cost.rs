//! What a piece of work cost: time, WAL, CPU of the server and of this process.

use std::{fs, time::Instant};

use anyhow::Result;

use crate::server::{Database, Server};

#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub seconds: f64,
    pub wal_bytes: f64,
    pub server_cpu: f64,
    pub client_cpu: f64,
}

pub struct Meter {
    start: Instant,
    wal: i64,
    server: f64,
    client: f64,
}

impl Meter {
    pub async fn start(server: &Server, database: &Database) -> Result<Self> {
        Ok(Self {
            wal: wal(database).await?,
            server: server_cpu(server.pid()),
            client: own_cpu(),
            start: Instant::now(),
        })
    }

    pub async fn stop(self, server: &Server, database: &Database) -> Result<Cost> {
        let seconds = self.start.elapsed().as_secs_f64();
        Ok(Cost {
            seconds,
            client_cpu: own_cpu() - self.client,
            server_cpu: server_cpu(server.pid()) - self.server,
            wal_bytes: (wal(database).await? - self.wal) as f64,
        })
    }
}

async fn wal(database: &Database) -> Result<i64> {
    database
        .number("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        .await
}

/// Clock ticks of a process from /proc: its own, and those of its reaped children if `all`.
fn ticks(pid: &str, all: bool) -> Option<(u32, f64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |n: usize| {
        rest.get(n)
            .and_then(|word| word.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    let own = number(11) + number(12);
    Some((
        number(1) as u32,
        if all {
            own + number(13) + number(14)
        } else {
            own
        },
    ))
}

const TICKS_PER_SECOND: f64 = 100.0;

fn own_cpu() -> f64 {
    ticks("self", false).map_or(0.0, |(_, ticks)| ticks / TICKS_PER_SECOND)
}

/// The postmaster, its reaped children, and its living ones.
pub fn server_cpu(postmaster: u32) -> f64 {
    let mut sum = ticks(&postmaster.to_string(), true).map_or(0.0, |(_, ticks)| ticks);
    for (_, parent, own) in processes(false) {
        if parent == postmaster {
            sum += own;
        }
    }
    sum / TICKS_PER_SECOND
}

/// A process and whatever it has started.
pub fn tree_cpu(root: u32) -> f64 {
    let all = processes(true);
    let mut tree = vec![root];
    let mut at = 0;
    let mut sum = 0.0;
    while let Some(&pid) = tree.get(at) {
        at += 1;
        for (id, parent, ticks) in &all {
            if *id == pid {
                sum += ticks;
            }
            if *parent == pid {
                tree.push(*id);
            }
        }
    }
    sum / TICKS_PER_SECOND
}

/// Every process with its parent and its ticks.
fn processes(reaped: bool) -> Vec<(u32, u32, f64)> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some((parent, ticks)) = name.to_str().and_then(|name| ticks(name, reaped)) {
            all.push((pid, parent, ticks));
        }
    }
    all
}
