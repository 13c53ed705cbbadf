//! What a worker costs that has nothing to do.

use std::time::{Duration, Instant};

use crate::peers::{
    child::Child,
    counting,
    meter::Meter,
    room::Room,
    stage::{Found, Stage},
    task::Task,
    workload::drain::END,
};

pub const IDLE: &str = "idle";

pub async fn run(stage: &Stage) {
    // Long enough to be quiet: some look less often after a minute.
    let (quiet, measured) = stage.pick((65.0, 20.0), (2.0, 2.0), (0.2, 0.5));
    stage
        .interleave(IDLE, &stage.usual(), 1, async |who, _| {
            let room = Room::new(&stage.server, who, 1).await?;
            let counts = counting::begin(&stage.server, &room).await?;
            let mut worker = Child::start(who, &room, &Task::new("work"))?;
            worker.ready().await?;
            worker.go().await?;
            tokio::time::sleep(Duration::from_secs_f64(quiet)).await;
            let meter = Meter::start(&stage.server, &room, vec![worker.pid()]).await?;
            let before = counted(stage, &room, counts).await?;
            tokio::time::sleep(Duration::from_secs_f64(measured)).await;
            let read = meter.read(&room, Instant::now()).await?;
            let after = counted(stage, &room, counts).await?;
            worker.close();
            worker.end(END).await?;
            let mut numbers = read.finish(&room, measured).await?;
            if let (Some(before), Some(after)) = (before, after) {
                numbers.insert("statements".into(), (after - before) as f64 / measured);
            }
            numbers.insert("server_percent".into(), numbers["server"] / 1e4);
            numbers.insert("client_percent".into(), numbers["client"] / 1e4);
            room.leave(&stage.server).await?;
            Ok(vec![Found::new("", numbers)])
        })
        .await;
}

async fn counted(stage: &Stage, room: &Room, counts: bool) -> anyhow::Result<Option<i64>> {
    match counts {
        true => counting::statements(&stage.server, room).await.map(Some),
        false => Ok(None),
    }
}
