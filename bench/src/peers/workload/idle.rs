//! What a worker costs that has nothing to do.

use std::time::{Duration, Instant};

use crate::peers::{
    child::Child,
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
            let mut worker = Child::start(who, &room, &Task::new("work"))?;
            worker.ready().await?;
            worker.go().await?;
            tokio::time::sleep(Duration::from_secs_f64(quiet)).await;
            let meter = Meter::start(&stage.server, &room, vec![worker.pid()]).await?;
            tokio::time::sleep(Duration::from_secs_f64(measured)).await;
            let read = meter.read(&room, Instant::now()).await?;
            // Sessions that are busy hand in their counts each second; what is asked for is a rate.
            let mut numbers = read.finish(&room, measured).await?;
            numbers.insert("server_percent".into(), numbers["server"] / 1e4);
            numbers.insert("client_percent".into(), numbers["client"] / 1e4);
            worker.close();
            worker.end(END).await?;
            room.leave(&stage.server).await?;
            Ok(vec![Found::new("", numbers)])
        })
        .await;
}
