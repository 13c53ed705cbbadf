//! One of two workers is killed at half; PostgreSQL itself goes away and comes back. What is lost, what is done twice?

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use outlast_postgres::cluster::Stop;

use crate::peers::{
    adapter::Who,
    child::{Child, Line},
    room::Room,
    samples::Numbers,
    stage::{Found, Stage},
    task::Task,
    workload::drain::{Drain, END, fill},
};

pub const KILL: &str = "kill";
pub const RESTART: &str = "restart";
/// Seconds; the least that most can be told.
pub const LEASE: f64 = 2.0;

pub async fn kill(stage: &Stage) {
    stage
        .interleave(KILL, &stage.best_and_ours(), 1, async |who, _| {
            let (room, mut run) = start(stage, who, 2).await?;
            run.until_half().await?;
            run.workers[0].kill().await?;
            let found = run.account(&room, who).await?;
            room.leave(&stage.server).await?;
            Ok(vec![found])
        })
        .await;
}

pub async fn restart(stage: &Stage) {
    stage
        .interleave(RESTART, &stage.best_and_ours(), 1, async |who, _| {
            let (mut room, mut run) = start(stage, who, 1).await?;
            run.until_half().await?;
            stage.server.cluster().restart(Stop::Immediate).await?;
            room.reconnect().await?;
            let found = run.account(&room, who).await?;
            room.leave(&stage.server).await?;
            Ok(vec![found])
        })
        .await;
}

struct Run {
    units: i64,
    workers: Vec<Child>,
    starts: BTreeMap<i64, u32>,
    task: Task,
    hit: Instant,
    patience: Duration,
}

async fn start(stage: &Stage, who: &Who, workers: usize) -> Result<(Room, Run)> {
    let room = Room::new(&stage.server, who, 1).await?;
    let units = stage
        .units(who, stage.pick(3.0, 1.5, 0.3))
        .await?
        .min(20_000);
    fill(
        &room,
        who,
        &Drain {
            units,
            ..Drain::default()
        },
    )
    .await?;
    let task = Task {
        units,
        handler: "stamp",
        lease: LEASE,
        ..Task::new("work")
    };
    let mut run = Run {
        units,
        workers: Vec::new(),
        starts: BTreeMap::new(),
        task,
        hit: Instant::now(),
        // Some look for a dead worker's units once a minute, whatever its lease.
        patience: Duration::from_secs(stage.pick(120, 30, 30)),
    };
    for _ in 0..workers {
        let mut worker = Child::start(who, &room, &run.task)?;
        worker.ready().await?;
        run.workers.push(worker);
    }
    for worker in &mut run.workers {
        worker.go().await?;
    }
    Ok((room, run))
}

impl Run {
    fn listen(&mut self) -> Result<()> {
        for worker in &mut self.workers {
            while let Some(line) = worker.now()? {
                if let Line::Start { n, .. } = line {
                    *self.starts.entry(n).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    async fn until_half(&mut self) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let begun = Instant::now();
        while (self.starts.len() as i64) < self.units / 2 {
            self.listen()?;
            if begun.elapsed() > PATIENCE {
                bail!(
                    "{} of {} units were started in a minute",
                    self.starts.len(),
                    self.units
                );
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.hit = Instant::now();
        Ok(())
    }

    /// Waits until nothing is left; a worker that ended by itself is started again once, and told of.
    async fn account(mut self, room: &Room, who: &Who) -> Result<Found> {
        let patience = self.patience;
        let mut words = Vec::new();
        let mut left = room.left().await?;
        while left > 0 && self.hit.elapsed() < patience {
            self.listen()?;
            if words.is_empty() && self.workers.iter().all(Child::is_silent) {
                words.push("its process ended, and was started again".to_owned());
                let mut worker = Child::start(who, room, &self.task)?;
                worker.ready().await?;
                worker.go().await?;
                self.workers.push(worker);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            left = room.left().await?;
        }
        let whole = self.hit.elapsed().as_secs_f64();
        if left > 0 {
            words.push(format!(
                "{left} units are not done {:.0} s later",
                patience.as_secs_f64()
            ));
        }
        for worker in &mut self.workers {
            worker.close();
        }
        for worker in &mut self.workers {
            // One was killed, another may have given up.
            if worker.end(END).await.is_err() {
                continue;
            }
        }
        self.listen()?;
        let again: u32 = self.starts.values().map(|times| times - 1).sum();
        let numbers = Numbers::from([
            ("units".to_owned(), self.units as f64),
            ("losses".to_owned(), left as f64),
            ("duplicates".to_owned(), f64::from(again)),
            (
                "never".to_owned(),
                (self.units - self.starts.len() as i64) as f64,
            ),
            ("seconds".to_owned(), whole),
        ]);
        Ok(Found {
            case: String::new(),
            numbers,
            words: words.join("; "),
        })
    }
}
