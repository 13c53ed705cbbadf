//! What should not matter: a snapshot that somebody holds open, and rows that are finished and kept.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::peers::{
    adapter::Who,
    room::Room,
    stage::{Found, Stage},
    workload::drain::{Drain, fill, work_off},
};

pub const SNAPSHOT: &str = "snapshot";
pub const RETAINED: &str = "retained";

/// The same drain again and again in one database, first without and then under a snapshot that stays open.
pub async fn snapshot(stage: &Stage) {
    let held_for = Duration::from_secs_f64(stage.pick(120.0, 3.0, 0.5));
    stage
        .interleave(
            SNAPSHOT,
            &stage.best(),
            stage.rounds.div_ceil(5),
            async |who, _| {
                let plan = Drain {
                    units: stage.units(who, stage.pick(1.5, 0.4, 0.1)).await?,
                    ..Drain::default()
                };
                let room = Room::new(&stage.server, who, 1).await?;
                fill(&room, who, &plan).await?;
                let free = work_off(stage, who, &room, &plan).await?;
                let holder = room.connect().await?;
                holder
                    .batch_execute(
                        "begin isolation level repeatable read; select count(*) from business",
                    )
                    .await?;
                let start = Instant::now();
                let mut last = free.clone();
                let mut cycles = 0.0;
                while start.elapsed() < held_for {
                    fill(&room, who, &plan).await?;
                    last = work_off(stage, who, &room, &plan).await?;
                    cycles += 1.0;
                }
                drop(holder);
                last.insert("ratio".into(), last["rate"] / free["rate"]);
                last.insert("cycles".into(), cycles);
                room.leave(&stage.server).await?;
                Ok(vec![
                    Found::new("before", free),
                    Found::new("at the end of the hold", last),
                ])
            },
        )
        .await;
}

/// First without anything finished, then after many were finished by the contestant itself.
pub async fn retained(stage: &Stage) {
    stage
        .interleave(
            RETAINED,
            &stage.best(),
            stage.rounds.div_ceil(5),
            async |who, _| {
                if !who.description.history {
                    return Ok(vec![Found::saying("", "keeps no finished units")]);
                }
                let plan = Drain {
                    units: stage.units(who, stage.pick(1.5, 0.4, 0.1)).await?,
                    ..Drain::default()
                };
                let room = Room::new(&stage.server, who, 1).await?;
                fill(&room, who, &plan).await?;
                let few = work_off(stage, who, &room, &plan).await?;
                let kept = finish_many(stage, who, &room).await?;
                fill(&room, who, &plan).await?;
                let mut many = work_off(stage, who, &room, &plan).await?;
                many.insert("ratio".into(), many["rate"] / few["rate"]);
                many.insert("kept".into(), (kept + plan.units) as f64);
                room.leave(&stage.server).await?;
                Ok(vec![
                    Found::new("nothing kept", few),
                    Found::new("many kept", many),
                ])
            },
        )
        .await;
}

/// A million, or as many as it can do in some minutes.
async fn finish_many(stage: &Stage, who: &Who, room: &Room) -> Result<i64> {
    const AT_ONCE: i64 = 250_000;
    let most = stage.pick(1_000_000, 20_000, 500);
    let wanted = (stage.rate(who).await? * stage.pick(150.0, 2.0, 0.5)) as i64;
    let wanted = wanted.min(most);
    let mut kept = 0;
    while kept < wanted {
        // No more at once than is done within the patience of a drain.
        let at_once = ((stage.rate(who).await? * 40.0) as i64).clamp(500, AT_ONCE);
        let part = Drain {
            units: at_once.min(wanted - kept),
            ..Drain::default()
        };
        fill(room, who, &part).await?;
        work_off(stage, who, room, &part).await?;
        kept += part.units;
    }
    Ok(kept)
}
