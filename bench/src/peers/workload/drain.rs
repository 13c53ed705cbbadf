//! A backlog is there before the worker starts; the database says when nothing is left.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::peers::{
    adapter::Who,
    child::{Child, Line},
    counting,
    meter::Meter,
    room::Room,
    samples::Numbers,
    stage::{Form, Found, Stage},
    task::Task,
};

/// What is drained, and by whom.
#[derive(Clone, Debug)]
pub struct Drain {
    pub units: i64,
    pub payload: usize,
    pub handler: &'static str,
    pub consumers: usize,
    pub workers: usize,
    /// Count statements, which is not for free.
    pub statements: bool,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            units: 20_000,
            payload: 200,
            handler: "noop",
            consumers: 1,
            workers: 1,
            statements: false,
        }
    }
}

pub const END: Duration = Duration::from_secs(60);

pub async fn run(stage: &Stage) {
    let whos = match stage.form {
        Form::Quick => stage.ours_in_all(),
        Form::Full | Form::Smoke => stage.whos.iter().collect(),
    };
    stage
        .interleave("drain", &whos, stage.rounds, async |who, round| {
            let plan = Drain {
                units: stage.units(who, stage.pick(1.5, 0.7, 0.1)).await?,
                ..Drain::default()
            };
            let mut numbers = drain(stage, who, &plan).await?;
            if round == 0 && stage.form != Form::Quick {
                let counted = Drain {
                    units: plan.units.min(20_000),
                    statements: true,
                    ..plan
                };
                let counted = drain(stage, who, &counted).await?;
                if let Some(statements) = counted.get("statements") {
                    numbers.insert("statements".into(), *statements);
                }
            }
            Ok(vec![Found::new("", numbers)])
        })
        .await;
}

/// In a database of its own.
pub async fn drain(stage: &Stage, who: &Who, plan: &Drain) -> Result<Numbers> {
    let room = Room::new(&stage.server, who, plan.consumers).await?;
    fill(&room, who, plan).await?;
    let numbers = work_off(stage, who, &room, plan).await?;
    room.leave(&stage.server).await?;
    Ok(numbers)
}

pub async fn fill(room: &Room, who: &Who, plan: &Drain) -> Result<()> {
    let before = room.left().await?;
    let task = Task {
        units: plan.units,
        payload: plan.payload,
        consumers: plan.consumers,
        ..Task::new("fill")
    };
    let patience = Duration::from_secs(60 + plan.units as u64 / 1000);
    room.run(who, &task, patience).await?;
    let waiting = room.left().await? - before;
    let wanted = plan.units * plan.consumers as i64;
    if waiting != wanted {
        bail!("fill left {waiting} units waiting instead of {wanted}");
    }
    // What any database has after a while of work; and no checkpoint of the filling falls into the measured time.
    room.execute("analyze").await?;
    room.execute("checkpoint").await
}

/// Starts the workers, and measures until nothing is left.
pub async fn work_off(stage: &Stage, who: &Who, room: &Room, plan: &Drain) -> Result<Numbers> {
    let counter = match plan.statements {
        true => counting::begin(&stage.server, room).await?,
        false => false,
    };
    let task = Task {
        units: plan.units / plan.workers as i64,
        payload: plan.payload,
        handler: plan.handler,
        consumers: plan.consumers,
        ..Task::new("work")
    };
    let mut workers = Vec::new();
    for _ in 0..plan.workers {
        let mut worker = Child::start(who, room, &task)?;
        worker.ready().await?;
        workers.push(worker);
    }
    let pids = workers.iter().map(Child::pid).collect();
    let meter = Meter::start(&stage.server, room, pids).await?;
    for worker in &mut workers {
        worker.go().await?;
    }
    let done = until_done(room, &mut workers, stage.patience()).await?;
    let read = meter.read(room, done).await?;
    let mut handled = 0;
    for worker in &mut workers {
        worker.close();
    }
    for worker in &mut workers {
        for line in worker.end(END).await? {
            if let Line::End {
                handled: Some(n), ..
            } = line
            {
                handled += n;
            }
        }
    }
    let units = plan.units * plan.consumers as i64;
    let mut numbers = read.finish(room, units as f64).await?;
    numbers.insert("losses".into(), room.left().await? as f64);
    numbers.insert("duplicates".into(), (handled - units) as f64);
    if counter {
        let calls = counting::statements(&stage.server, room).await?;
        numbers.insert("statements".into(), calls as f64 / units as f64);
    }
    Ok(numbers)
}

/// Answers when the question was asked that found nothing left. A hint of a worker says when to ask often.
pub async fn until_done(room: &Room, workers: &mut [Child], patience: Duration) -> Result<Instant> {
    const SELDOM: Duration = Duration::from_millis(500);
    let started = Instant::now();
    let mut asked = started;
    let mut hinted = false;
    loop {
        for worker in workers.iter_mut() {
            while let Some(line) = worker.now()? {
                hinted |= matches!(line, Line::Handled);
            }
        }
        if hinted || asked.elapsed() > SELDOM {
            asked = Instant::now();
            if room.left().await? == 0 {
                return Ok(asked);
            }
            if workers.iter().all(Child::is_silent) {
                let words = workers.first().map(Child::words).unwrap_or_default();
                bail!(
                    "every worker ended, and {} units are left{words}",
                    room.left().await?
                );
            }
        }
        if started.elapsed() > patience {
            bail!(
                "{} units are left after {} s",
                room.left().await?,
                patience.as_secs()
            );
        }
        // The asking itself may cost at most as much time as it leaves.
        let took = if hinted {
            asked.elapsed()
        } else {
            Duration::ZERO
        };
        tokio::time::sleep(took.max(Duration::from_millis(1))).await;
    }
}
