//! What work in a room costs: everything that is metered from the outside.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    room::{Room, connect},
    samples::Numbers,
};
use crate::{
    cost::{server_cpu, tree_cpu},
    server::Server,
};

const WAL: &str = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')";
const TRANSACTIONS: &str =
    "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()";
/// What an update or a delete leaves, whether or not a vacuum has been there since.
const DEAD: &str = "select coalesce(sum(n_tup_upd + n_tup_del), 0) from pg_stat_user_tables";

pub struct Meter {
    postmaster: u32,
    pids: Vec<u32>,
    started: Instant,
    wal: i64,
    server: f64,
    client: f64,
    transactions: i64,
    dead: i64,
    asked: i64,
    peak: Arc<AtomicI64>,
    sampler: tokio::task::JoinHandle<()>,
}

/// What was read when the work was done, before its processes ended.
pub struct Read {
    meter: Meter,
    pub seconds: f64,
    wal: f64,
    server: f64,
    client: f64,
}

impl Meter {
    /// Call it right before the start.
    pub async fn start(server: &Server, room: &Room, pids: Vec<u32>) -> Result<Self> {
        let peak = Arc::new(AtomicI64::new(0));
        let watcher = connect(server, "postgres").await?;
        let (seen, name) = (peak.clone(), room.name.clone());
        let sampler = tokio::spawn(async move {
            // One of them is the runner's own.
            let open = "select count(*) - 1 from pg_stat_activity where datname = $1 and backend_type = 'client backend'";
            let Ok(open) = watcher.prepare(open).await else {
                return;
            };
            while let Ok(row) = watcher.query_one(&open, &[&name]).await {
                seen.fetch_max(row.get(0), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let transactions = room.number(TRANSACTIONS).await?;
        let dead = room.number(DEAD).await?;
        let wal = room.number(WAL).await?;
        Ok(Self {
            postmaster: server.pid(),
            transactions,
            dead,
            wal,
            asked: room.asked(),
            peak,
            sampler,
            client: pids.iter().map(|pid| tree_cpu(*pid)).sum(),
            pids,
            server: server_cpu(server.pid()),
            started: Instant::now(),
        })
    }

    /// The work was done at `at`; its processes are still there.
    pub async fn read(self, room: &Room, at: Instant) -> Result<Read> {
        let server = server_cpu(self.postmaster) - self.server;
        let client = self.pids.iter().map(|pid| tree_cpu(*pid)).sum::<f64>() - self.client;
        let wal = (room.number(WAL).await? - self.wal) as f64;
        let seconds = (at - self.started).as_secs_f64().max(1e-6);
        Ok(Read {
            seconds,
            wal,
            server,
            client,
            meter: self,
        })
    }
}

impl Read {
    /// What the database counts is complete when the processes have ended.
    pub async fn finish(self, room: &Room, units: f64) -> Result<Numbers> {
        let Meter {
            pids,
            transactions,
            dead,
            asked,
            peak,
            sampler,
            ..
        } = self.meter;
        sampler.abort();
        // Sessions hand in what they have counted when they end.
        room.until_alone().await?;
        let own = room.asked() - asked;
        let transactions = room.number(TRANSACTIONS).await? - transactions - own;
        let dead = room.number(DEAD).await? - dead;
        let mut numbers: Numbers = [
            ("units", units),
            ("seconds", self.seconds),
            ("rate", units / self.seconds),
            ("wal", self.wal / units),
            ("server", self.server / units * 1e6),
            ("transactions", transactions.max(0) as f64 / units),
            ("dead", dead as f64 / units),
            ("connections", peak.load(Ordering::Relaxed) as f64),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        // What ended by itself took it along.
        if !pids.is_empty() {
            numbers.insert("client".to_owned(), self.client / units * 1e6);
        }
        Ok(numbers)
    }
}
