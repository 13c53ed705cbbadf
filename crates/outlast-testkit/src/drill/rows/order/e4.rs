//! E4: a sender dies at a named point of a try, or the provider's answer is lost; and a key that the provider has forgotten.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use outlast_checker::orders::Expect;
use outlast_engine::crash::Point;

use super::{Scenario, UNDER_WAY};
use crate::{
    drill::{
        desk::{Desk, gone},
        rows::crash::died,
        world::{PATIENCE, World},
    },
    provider::order::{Fault, Habits, Kind},
    wait_for,
};

/// Of each kind.
const EACH: i64 = 6;
const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn scenarios() -> Vec<Scenario> {
    let dies = [
        Point::Claimed,
        Point::Marked,
        Point::Sealing,
        Point::Flushed,
    ];
    let dies = dies.map(|point| {
        let scenario = Scenario::new(format!("dies-{}", point.as_str()), move |world| {
            dies_at(world, point)
        });
        if point == Point::Claimed {
            scenario.core()
        } else {
            scenario
        }
    });
    let dropped = Scenario::new("answers-lost", answers_lost).core();
    let passes = Scenario::new("window-passes", window_passes).core();
    dies.into_iter().chain([dropped, passes]).collect()
}

/// A sender dies exactly there, and another one comes.
async fn dies_at(world: Arc<World>, point: Point) -> Result<()> {
    let desk = Desk::open(world.clone()).await?;
    desk.give_each(0, EACH).await?;
    let nth = match point {
        Point::Claimed => 1,
        _ => world.rng(2).u32(1..=8),
    };
    let victim = desk.sender("victim").dies(point, nth).start()?;
    died(&world, &victim, point).await?;
    desk.sender("heir").running().await?;
    let report = desk
        .settle(&Expect {
            // What was only claimed has certainly not left.
            in_between: if point == Point::Claimed {
                0
            } else {
                UNDER_WAY
            },
            ..Expect::default()
        })
        .await?;
    if point == Point::Claimed && report.unknown > 0 {
        world.violated(format_args!(
            "{} commands were unknown, and were only claimed",
            report.unknown
        ));
    }
    Ok(())
}

/// The first answer to each order is lost, and who answers a repeat with a refusal does so.
async fn answers_lost(world: Arc<World>) -> Result<()> {
    let desk = Desk::open(world.clone()).await?;
    desk.habits(&Habits::only(Fault::Dropped)).await;
    desk.sender("only").running().await?;
    desk.give_each(0, EACH).await?;
    let report = desk.settle(&Expect::default()).await?;
    let dropped = desk.provider().orders();
    let dropped = dropped.iter().filter(|entry| entry.fault.is_some()).count();
    world.faults(dropped, "an answer was lost");
    // All of them, and the keyless ones for good.
    let keyless = usize::try_from(EACH)?;
    if (report.unknown, report.persons) != (4 * keyless, keyless) {
        world.violated(format_args!(
            "{} were unknown and {} are a person's",
            report.unknown, report.persons
        ));
    }
    Ok(())
}

/// No answer ever comes, and then the provider has forgotten its keys: what was sent before is asked after, not sent again.
async fn window_passes(world: Arc<World>) -> Result<()> {
    let desk = Desk::open(world.clone()).await?;
    let deaf = Habits {
        percent: 100,
        visits: u32::MAX,
        window_ms: Some(HOUR.as_millis().try_into()?),
        ..Habits::only(Fault::Dropped)
    };
    desk.habits(&deaf).await;
    let first = desk.sender("first");
    let first = first.set("window-ms", HOUR.as_millis()).running().await?;
    desk.give_each(0, EACH).await?;
    // Each has been sent at least twice with its key.
    wait_for("repeats", PATIENCE, async || {
        let orders = desk.provider().orders();
        let repeats = orders.iter().filter(|entry| entry.visit == 1);
        let repeats = repeats
            .filter(|entry| matches!(entry.kind, Kind::Keyed))
            .count();
        (repeats >= usize::try_from(EACH).ok()?).then_some(())
    })
    .await;
    gone(&first).await;
    let before = desk.provider().orders().len();
    desk.habits(&Habits {
        window_ms: deaf.window_ms,
        ahead_ms: 2 * u64::try_from(HOUR.as_millis())?,
        ..Habits::default()
    })
    .await;
    let jump =
        "create or replace function outlast.clock() returns timestamptz language sql volatile as $$
        select clock_timestamp() + interval '2 hours' $$";
    world.client().await?.batch_execute(jump).await?;
    world.fault("two hours have passed, and the provider has forgotten its keys");
    let heir = desk.sender("heir");
    heir.set("window-ms", HOUR.as_millis()).running().await?;
    desk.settle(&Expect {
        in_between: UNDER_WAY,
        ..Expect::default()
    })
    .await?;
    let orders = desk.provider().orders();
    let again = orders.iter().skip(before);
    let again: Vec<_> = again.filter(|entry| entry.visit > 0).collect();
    ensure!(again.is_empty(), "sent again after the window: {again:?}");
    Ok(())
}
