//! Drains of another shape: handlers that take a millisecond, five consumers, larger payloads, two processes.

use crate::peers::{
    stage::{Found, Stage},
    workload::drain::{Drain, drain},
};

pub const HANDLERS: &str = "handlers";
pub const FAN_OUT: &str = "fan-out";
pub const PAYLOAD: &str = "payload";
pub const WORKERS: &str = "two-workers";

/// 50 at once of 1 ms each: nobody can do more than 50,000.
pub async fn handlers(stage: &Stage) {
    let seconds = stage.pick(1.5, 0.7, 0.1);
    stage
        .interleave(HANDLERS, &stage.usual(), stage.rounds, async |who, _| {
            let units = stage
                .units(who, seconds)
                .await?
                .min((40_000.0 * seconds) as i64);
            let plan = Drain {
                units,
                handler: "ms",
                ..Drain::default()
            };
            Ok(vec![Found::new("", drain(stage, who, &plan).await?)])
        })
        .await;
}

pub async fn fan_out(stage: &Stage) {
    stage
        .interleave(FAN_OUT, &stage.best(), stage.rounds, async |who, _| {
            let units = stage.units(who, stage.pick(0.5, 0.2, 0.1)).await?;
            let mut found = Vec::new();
            for (case, consumers) in [("1 consumer", 1), ("5 consumers", 5)] {
                let plan = Drain {
                    units,
                    consumers,
                    ..Drain::default()
                };
                found.push(Found::new(case, drain(stage, who, &plan).await?));
            }
            Ok(found)
        })
        .await;
}

pub async fn payload(stage: &Stage) {
    stage
        .interleave(PAYLOAD, &stage.best(), stage.rounds, async |who, _| {
            let units = stage.units(who, stage.pick(1.0, 0.3, 0.1)).await?;
            let mut found = Vec::new();
            for (case, payload, most) in [
                ("200 B", 200, i64::MAX),
                ("2 KB", 2_048, 50_000),
                ("64 KB", 65_536, 3_000),
            ] {
                let plan = Drain {
                    units: units.min(most),
                    payload,
                    ..Drain::default()
                };
                found.push(Found::new(case, drain(stage, who, &plan).await?));
            }
            Ok(found)
        })
        .await;
}

pub async fn two_workers(stage: &Stage) {
    stage
        .interleave(WORKERS, &stage.best(), stage.rounds, async |who, _| {
            let units = stage.units(who, stage.pick(1.5, 0.5, 0.1)).await?;
            let mut found = Vec::new();
            for (case, workers) in [("1 process", 1), ("2 processes", 2)] {
                let plan = Drain {
                    units,
                    workers,
                    ..Drain::default()
                };
                found.push(Found::new(case, drain(stage, who, &plan).await?));
            }
            Ok(found)
        })
        .await;
}
