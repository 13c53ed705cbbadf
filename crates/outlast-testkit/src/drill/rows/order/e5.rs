//! E5, commands: the owner of a try sleeps past its lease, and wakes when another one has done with it.

use std::sync::Arc;

use anyhow::Result;
use outlast_checker::orders::Expect;
use outlast_engine::crash::Point;

use super::{Scenario, UNDER_WAY};
use crate::{
    drill::{
        desk::Desk,
        world::{PATIENCE, World},
    },
    provider::order::Kind,
};

const EACH: i64 = 6;

pub(super) fn scenarios() -> Vec<Scenario> {
    let sleeps = [Point::Claimed, Point::Marked, Point::Sealing].map(|point| {
        let scenario = Scenario::new(format!("command-sleeps-{}", point.as_str()), move |world| {
            sleeps_at(world, point)
        });
        if point == Point::Marked {
            scenario.core()
        } else {
            scenario
        }
    });
    let jumps = Scenario::new("command-clock-jumps", clock_jumps);
    sleeps.into_iter().chain([jumps.core()]).collect()
}

/// One sender for each kind of provider stands still exactly there until nothing is open any more; then it goes on as if nothing
/// had happened.
async fn sleeps_at(world: Arc<World>, point: Point) -> Result<()> {
    let desk = Desk::open(world.clone()).await?;
    desk.give_each(0, EACH).await?;
    let mut olds = Vec::new();
    for kind in Kind::ALL {
        let old = desk.sender(kind.as_str()).set("only", kind.as_str());
        olds.push(old.stops(point, 1).start()?);
    }
    for old in &olds {
        old.line("crash point: stops", PATIENCE).await;
    }
    desk.sender("new").running().await?;
    desk.rests().await?;
    for old in &olds {
        old.thaw();
    }
    world.faults(
        olds.len(),
        format_args!("an old sender woke at {}", point.as_str()),
    );
    for old in &olds {
        wakes(&desk, old).await?;
    }
    desk.settle(&Expect {
        in_between: UNDER_WAY,
        ..Expect::default()
    })
    .await?;
    Ok(())
}

/// The server's clock jumps, and all leases lapse, before anything of a claim has left; its owner's clock says that it has
/// time. Another one has sent everything by then.
async fn clock_jumps(world: Arc<World>) -> Result<()> {
    let desk = Desk::open(world.clone()).await?;
    desk.give_each(0, EACH).await?;
    let old = desk.sender("old").set("lease-ms", 120_000);
    let old = old.stops(Point::Claimed, 1).start()?;
    old.line("crash point: stops", PATIENCE).await;
    let jump =
        "create or replace function outlast.clock() returns timestamptz language sql volatile as $$
        select clock_timestamp() + interval '4 minutes' $$";
    world.client().await?.batch_execute(jump).await?;
    desk.sender("new").running().await?;
    desk.rests().await?;
    world.fault("the clock jumped, and everything was sent by another sender");
    old.thaw();
    wakes(&desk, &old).await?;
    desk.settle(&Expect::default()).await?;
    Ok(())
}

/// It goes on, and is told to end: what it still does is done when it has ended.
async fn wakes(desk: &Desk, old: &crate::process::Process) -> Result<()> {
    // It finds out by itself first what it may still do.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    old.terminate();
    let status = old.exit(PATIENCE).await;
    if !status.success() {
        desk.world
            .violated(format_args!("the old sender ended badly: {status}"));
    }
    Ok(())
}
