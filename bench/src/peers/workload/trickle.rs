//! Steady traffic: from COMMIT to the start of the handler, and to the commit of the completion.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{
    peers::{
        adapter::Who,
        child::{Child, Line},
        meter::Meter,
        room::Room,
        samples::Numbers,
        stage::{Form, Found, Stage},
        task::Task,
        workload::{drain::until_done, enqueue},
    },
    report::quantile,
};

const PATIENCE: Duration = Duration::from_secs(60);
pub const STEADY: &str = "200/s";
pub const OWN: &str = "30 % of its own peak";

pub async fn run(stage: &Stage) {
    let seconds = stage.pick(5.0, 2.5, 0.3);
    let mut whos = stage.usual();
    if stage.form == Form::Quick {
        whos = stage.best();
    }
    stage
        .interleave(
            "trickle",
            &whos,
            stage.pick(2 * stage.rounds, stage.rounds, 1),
            async |who, _| {
                Ok(vec![Found::new(
                    STEADY,
                    trickle(stage, who, 200.0, seconds).await?,
                )])
            },
        )
        .await;
    if stage.form == Form::Quick {
        return;
    }
    stage
        .interleave("trickle", &stage.best(), stage.rounds, async |who, _| {
            let rate = 0.3 * peak(stage, who).await?;
            let mut numbers = trickle(stage, who, rate, seconds).await?;
            numbers.insert("asked".into(), rate);
            Ok(vec![Found::new(OWN, numbers)])
        })
        .await;
}

/// What one connection can write and one worker can do, whichever is less.
async fn peak(stage: &Stage, who: &Who) -> Result<f64> {
    let room = Room::new(&stage.server, who, 1).await?;
    let written =
        enqueue::slice(stage, who, &room, 1, 1, "own", stage.pick(1.0, 0.5, 0.1)).await?["rate"];
    room.leave(&stage.server).await?;
    Ok(written.min(stage.rate(who).await?))
}

async fn trickle(stage: &Stage, who: &Who, rate: f64, seconds: f64) -> Result<Numbers> {
    let room = Room::new(&stage.server, who, 1).await?;
    let units = (rate * seconds).ceil() as i64;
    let work = Task {
        units,
        handler: "stamp",
        ..Task::new("work")
    };
    let mut worker = Child::start(who, &room, &work)?;
    worker.ready().await?;
    worker.go().await?;
    let task = Task {
        units,
        rate,
        ..Task::new("trickle")
    };
    let mut source = Child::start(who, &room, &task)?;
    source.ready().await?;
    // The worker has looked once or twice, and found nothing.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let meter = Meter::start(&stage.server, &room, vec![worker.pid()]).await?;
    source.go().await?;
    let told = source
        .end(PATIENCE + Duration::from_secs_f64(seconds))
        .await?;
    let read = meter.read(&room, Instant::now()).await?;
    let mut lines = Vec::new();
    let done = until_done_keeping(&room, &mut worker, &mut lines).await;
    worker.close();
    lines.extend(worker.end(PATIENCE).await?);
    done?;
    let committed: BTreeMap<i64, i64> = told
        .iter()
        .filter_map(|line| {
            if let Line::Committed { n, at } = line {
                Some((*n, *at))
            } else {
                None
            }
        })
        .collect();
    let mut started = BTreeMap::new();
    let mut starts = 0;
    for line in &lines {
        if let Line::Start { n, at } = line {
            starts += 1;
            started.entry(*n).or_insert(*at);
        }
    }
    let mut numbers = read.finish(&room, units as f64).await?;
    numbers.insert("duplicates".into(), (starts - units) as f64);
    numbers.insert("losses".into(), room.left().await? as f64);
    // Started before COMMIT was answered: nothing to wait for.
    put(
        &mut numbers,
        "",
        committed
            .iter()
            .filter_map(|(n, at)| Some(started.get(n)? - at))
            .collect(),
    );
    if let Some(done) = room.done_at().await? {
        let business: BTreeMap<i64, i64> = room.business_at().await?.into_iter().collect();
        put(
            &mut numbers,
            "done_",
            done.iter()
                .filter_map(|(n, at)| Some(at - business.get(n)?))
                .collect(),
        );
    }
    room.leave(&stage.server).await?;
    Ok(numbers)
}

async fn until_done_keeping(room: &Room, worker: &mut Child, lines: &mut Vec<Line>) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while room.left().await? > 0 {
        while let Some(line) = worker.now()? {
            lines.push(line);
        }
        if worker.is_silent() || Instant::now() > until {
            return until_done(room, std::slice::from_mut(worker), Duration::ZERO)
                .await
                .map(drop);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Microseconds in, milliseconds out.
fn put(numbers: &mut Numbers, prefix: &str, micros: Vec<i64>) {
    let mut ms: Vec<f64> = micros
        .into_iter()
        .map(|micros| micros.max(0) as f64 / 1000.0)
        .collect();
    ms.sort_by(f64::total_cmp);
    for (name, q) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        if let Some(value) = quantile(&ms, q) {
            numbers.insert(format!("{prefix}{name}"), value);
        }
    }
}
