//! The work that is measured: the same beside each point of an axis.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use outlast::{Attempt, Consumer, Event, Failure, Outlast, Start};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};

use super::{Size, scene::Stage};
use crate::{
    cost::{Cost, Meter},
    server::Server,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Events that wait are handled by a worker, concurrency 50, handlers that do nothing. A unit: one completion.
    Drain,
    /// One event is committed, handled by all, the next one is committed. A unit: one completion.
    Trickle,
    /// One event a transaction. A unit: that.
    Emit,
}

/// How much of it.
struct Amount {
    drain: i64,
    warm: i64,
    cycles: i64,
    emits: i64,
}

impl Size {
    fn amount(self) -> Amount {
        match self {
            Size::Smoke => Amount {
                drain: 1_000,
                warm: 100,
                cycles: 10,
                emits: 20,
            },
            Size::Usual | Size::Full => Amount {
                drain: 50_000,
                warm: 10_000,
                cycles: 300,
                emits: 3_000,
            },
        }
    }
}

/// What was done at what cost.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sample {
    pub units: i64,
    pub seconds: f64,
    pub wal_bytes: f64,
    pub server_cpu: f64,
    pub client_cpu: f64,
}

impl Sample {
    fn add(&mut self, units: i64, cost: &Cost) {
        self.units += units;
        self.seconds += cost.seconds;
        self.wal_bytes += cost.wal_bytes;
        self.server_cpu += cost.server_cpu;
        self.client_cpu += cost.client_cpu;
    }
}

pub async fn measure(server: &Server, stage: &mut Stage, work: Work, size: Size) -> Result<Sample> {
    let amount = size.amount();
    match work {
        Work::Emit => emit(server, stage, amount.emits).await,
        Work::Trickle => trickle(server, stage, amount.warm / 200, amount.cycles).await,
        Work::Drain if stage.scene.waiting > amount.drain + amount.warm => {
            part(server, stage, amount.warm, amount.drain).await
        }
        Work::Drain => whole(server, stage, amount.drain).await,
    }
}

/// What is filled in is drained to its end, often enough for as many completions as a part would be.
async fn whole(server: &Server, stage: &mut Stage, drain: i64) -> Result<Sample> {
    let consumers = stage.scene.consumers;
    // The same for all points: each fill begins a window, and that is a part of the cost.
    let fill = match stage.scene.waiting {
        0 => drain.min(10_000),
        waiting => waiting,
    };
    let worker = Running::start(stage).await?;
    worker.pause(stage).await?;
    // What a former round has left, and one for the worker to become warm.
    let mut wanted = waiting(stage).await? + fill * consumers;
    stage.fill(fill).await?;
    worker.resume(stage).await?;
    worker.reach(wanted).await?;
    worker.settle(stage).await?;
    let mut sample = Sample::default();
    while sample.units < drain {
        worker.pause(stage).await?;
        stage.fill(fill).await?;
        stage.database.sql.batch_execute("checkpoint").await?;
        wanted += fill * consumers;
        let meter = Meter::start(server, &stage.database).await?;
        worker.resume(stage).await?;
        worker.reach(wanted).await?;
        worker.settle(stage).await?;
        sample.add(
            fill * consumers,
            &meter.stop(server, &stage.database).await?,
        );
    }
    worker.stop(stage).await?;
    Ok(sample)
}

/// A part of what waits is drained, and as much as was drained waits again the next time.
async fn part(server: &Server, stage: &mut Stage, warm: i64, drain: i64) -> Result<Sample> {
    let worker = Running::start(stage).await?;
    worker.pause(stage).await?;
    let missing = stage.scene.waiting - waiting(stage).await?;
    if missing > 0 {
        stage.fill(missing).await?;
    }
    stage.database.sql.batch_execute("checkpoint").await?;
    worker.resume(stage).await?;
    worker.reach(warm).await?;
    let (meter, from) = (Meter::start(server, &stage.database).await?, worker.seen());
    worker.reach(from + drain).await?;
    let (cost, units) = (
        meter.stop(server, &stage.database).await?,
        worker.seen() - from,
    );
    let mut sample = Sample::default();
    sample.add(units, &cost);
    worker.pause(stage).await?;
    worker.settle(stage).await?;
    worker.stop(stage).await?;
    Ok(sample)
}

async fn trickle(server: &Server, stage: &mut Stage, warm: i64, cycles: i64) -> Result<Sample> {
    let worker = Running::start(stage).await?;
    worker.resume(stage).await?;
    worker.cycles(stage, warm).await?;
    worker.settle(stage).await?;
    stage.database.sql.batch_execute("checkpoint").await?;
    let meter = Meter::start(server, &stage.database).await?;
    worker.cycles(stage, cycles).await?;
    worker.settle(stage).await?;
    let mut sample = Sample::default();
    sample.add(
        cycles * stage.scene.consumers,
        &meter.stop(server, &stage.database).await?,
    );
    worker.stop(stage).await?;
    Ok(sample)
}

async fn emit(server: &Server, stage: &mut Stage, emits: i64) -> Result<Sample> {
    let client = stage.database.connect().await?;
    let emit = client
        .prepare("select outlast.emit('load', $1::text, key => $2)")
        .await?;
    let payload = format!("{{\"n\":1,\"note\":\"{}\"}}", "x".repeat(180));
    // Keys of the log, in no order.
    let keys = stage.scene.keys.max(100_000);
    let key = |n: i64| format!("key/{}", n * 7_919 % keys);
    for n in 0..emits / 10 {
        client.query(&emit, &[&payload, &key(n)]).await?;
    }
    stage.database.sql.batch_execute("checkpoint").await?;
    let meter = Meter::start(server, &stage.database).await?;
    for n in 0..emits {
        client.query(&emit, &[&payload, &key(n)]).await?;
    }
    let mut sample = Sample::default();
    sample.add(emits, &meter.stop(server, &stage.database).await?);
    Ok(sample)
}

/// Makes the consumers known, behind all that is there.
pub async fn register(stage: &Stage) -> Result<()> {
    for n in 0..stage.scene.consumers {
        stage
            .database
            .sql
            .execute(
                "select outlast.register($1, array['load'], 'now', $2)",
                &[&format!("c{n}"), &stage.scene.ordered],
            )
            .await?;
    }
    Ok(())
}

/// So many batches of one event come and go.
pub async fn churn(stage: &mut Stage, batches: i64) -> Result<()> {
    let worker = Running::start(stage).await?;
    worker.cycles(stage, batches).await?;
    worker.settle(stage).await?;
    worker.stop(stage).await
}

/// Events that wait for the first consumer.
async fn waiting(stage: &Stage) -> Result<i64> {
    let emitted = stage
        .database
        .number("select count(*) from outlast._event")
        .await?;
    Ok(emitted * stage.scene.consumers - stage.completed)
}

#[derive(Serialize, Deserialize)]
struct Load {
    n: i64,
}
impl Event for Load {
    const NAME: &'static str = "load";
}

/// What handlers have seen: a hint when to look. The database says when it is done.
#[derive(Default)]
struct Seen {
    events: AtomicU64,
    more: Notify,
}

async fn handle(seen: Arc<Seen>, _: Attempt<Load>) -> Result<(), Failure> {
    seen.events.fetch_add(1, Ordering::Release);
    seen.more.notify_waiters();
    Ok(())
}

/// A worker in this process.
struct Running {
    seen: Arc<Seen>,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<Result<(), outlast::Error>>,
}

impl Running {
    async fn start(stage: &Stage) -> Result<Self> {
        let seen = Arc::new(Seen::default());
        let mut worker = Outlast::new()
            .worker(seen.clone())
            .database(&stage.database.url);
        for n in 0..stage.scene.consumers {
            let consumer = Consumer::new(&format!("c{n}"))
                .from(Start::Now)
                .concurrency(50);
            let consumer = if stage.scene.ordered {
                consumer.ordered()
            } else {
                consumer
            };
            worker = worker.consumer(consumer.on(handle));
        }
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(worker.run_until(async {
            let _ = stopped.await;
        }));
        let this = Self { seen, stop, ended };
        this.until(
            stage,
            "a worker that writes",
            "select count(*) from outlast._lease where room = 'poller'",
            |n| n == 1,
        )
        .await?;
        Ok(this)
    }

    fn seen(&self) -> i64 {
        self.seen.events.load(Ordering::Acquire) as i64
    }

    /// Waits until so many events were handled.
    async fn reach(&self, wanted: i64) -> Result<()> {
        let reached = async {
            loop {
                let more = self.seen.more.notified();
                if self.seen() >= wanted {
                    return;
                }
                more.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(600), reached)
            .await
            .with_context(|| format!("{} of {wanted} events were handled", self.seen()))
    }

    /// Emits one event after the other, each when the one before was handled by all.
    async fn cycles(&self, stage: &Stage, cycles: i64) -> Result<()> {
        let emit = stage
            .database
            .sql
            .prepare("select outlast.emit('load', '{\"n\":1}'::text, key => $1, tenant => $2)")
            .await?;
        for n in 0..cycles {
            let wanted = self.seen() + stage.scene.consumers;
            let key = (stage.scene.keys > 0).then(|| format!("key/{}", n % stage.scene.keys));
            let tenant = if stage.scene.tenants > 1 {
                format!("t{}", n % stage.scene.tenants)
            } else {
                String::new()
            };
            stage.database.sql.query(&emit, &[&key, &tenant]).await?;
            self.reach(wanted).await?;
        }
        Ok(())
    }

    /// Waits until no batch is in flight.
    async fn settle(&self, stage: &Stage) -> Result<()> {
        self.until(
            stage,
            "an end of all batches",
            "select count(*) from outlast._lease where room in ('batch', 'parked')",
            |n| n == 0,
        )
        .await
    }

    async fn until(
        &self,
        stage: &Stage,
        what: &str,
        sql: &str,
        reached: fn(i64) -> bool,
    ) -> Result<()> {
        for _ in 0..10_000 {
            anyhow::ensure!(
                !self.ended.is_finished(),
                "the worker ended while {what} was waited for"
            );
            if reached(stage.database.number(sql).await?) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        anyhow::bail!("{what} did not come about")
    }

    async fn pause(&self, stage: &Stage) -> Result<()> {
        stage
            .database
            .sql
            .batch_execute("select outlast.pause(name, 'filling in') from outlast._consumer")
            .await?;
        Ok(())
    }

    async fn resume(&self, stage: &Stage) -> Result<()> {
        stage
            .database
            .sql
            .batch_execute("select outlast.resume(name) from outlast._consumer")
            .await?;
        Ok(())
    }

    /// Ends the worker; what its handlers have seen must be what the database has.
    async fn stop(self, stage: &mut Stage) -> Result<()> {
        stage.completed += self.seen();
        let _ = self.stop.send(());
        self.ended.await??;
        let completed = stage
            .database
            .number("select count(*) from outlast._processed_event")
            .await?;
        anyhow::ensure!(
            completed == stage.completed,
            "{completed} completions, {} expected",
            stage.completed
        );
        Ok(())
    }
}
