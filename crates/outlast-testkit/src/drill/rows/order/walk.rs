//! Commands of every kind, many at a time, while everything goes wrong at once: senders are killed and sleep past their leases,
//! the server is stopped as by a power cut, and the provider loses, delays, halves, doubles and throttles.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use outlast_checker::orders::Expect;
use outlast_postgres::cluster::Stop;

use super::{Scenario, UNDER_WAY};
use crate::{
    drill::{
        desk::{Desk, gone, number},
        order::Wanted,
        world::{LEASE, World},
    },
    process::Process,
    provider::order::{Habits, Kind},
};

const SENDERS: usize = 3;
/// How many requests of a hundred are treated badly.
const PERCENT: u32 = 30;

/// What goes wrong on our side.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// A sender is killed, and another one started.
    Kill(usize),
    /// A sender sleeps for so long, and wakes.
    Sleep(usize, Duration),
    /// The server is stopped immediately.
    Server,
}

pub(super) fn scenario() -> Scenario {
    Scenario::new("walk", walk)
        .alone(&[])
        .core()
        .patient(Duration::from_secs(1500))
}

/// The same seed makes the same plan.
fn plan(world: &World) -> Vec<Blow> {
    let mut rng = world.rng(11);
    let times = if world.small { 1 } else { 10 };
    let mut plan = vec![Blow::Server; times];
    for _ in 0..2 * times {
        let longer = Duration::from_millis(rng.u64(200..1200));
        plan.push(Blow::Sleep(rng.usize(0..SENDERS), LEASE + longer));
    }
    plan.extend((0..4 * times).map(|_| Blow::Kill(rng.usize(0..SENDERS))));
    rng.shuffle(&mut plan);
    plan
}

async fn walk(world: Arc<World>) -> Result<()> {
    let each: i64 = if world.small { 100 } else { 2000 };
    let plan = plan(&world);
    world.note(format_args!("the plan: {plan:?}"));
    let desk = Desk::open(world.clone()).await?;
    desk.habits(&Habits {
        seed: world.seed,
        percent: PERCENT,
        slow_ms: 600,
        ..Habits::default()
    })
    .await;
    let mut senders = Vec::new();
    for nth in 0..SENDERS {
        senders.push(desk.sender(&format!("{nth}-0")).running().await?);
    }
    let mut rng = world.rng(12);
    let blows = i64::try_from(plan.len())?;
    let mut lost = 0;
    for (nth, blow) in (0..).zip(plan) {
        // What comes in stays ahead of what is done, so that each blow finds work under way.
        let wanted = wanted(&desk, each * nth / blows..each * (nth + 1) / blows);
        desk.give(wanted).await?;
        tokio::time::sleep(Duration::from_millis(rng.u64(0..150))).await;
        lost += blows_at(&desk, &mut senders, blow, nth).await?;
    }
    desk.settle(&Expect {
        in_between: lost,
        ..Expect::default()
    })
    .await?;
    Ok(())
}

/// Some are refused for good, and of half of them the provider calls back.
fn wanted(desk: &Desk, numbers: std::ops::Range<i64>) -> Vec<Wanted> {
    let kinds = Kind::ALL.into_iter().enumerate();
    let of = |(kind, of): (usize, Kind)| {
        numbers.clone().map(move |n| Wanted {
            refuse: n % 17 == 3,
            call_back: if n % 2 == 0 { desk.call_back() } else { None },
            ..Wanted::new(of, number(kind, n))
        })
    };
    kinds.flat_map(of).collect()
}

/// Answers of how many commands nobody may know whether they had left.
async fn blows_at(
    desk: &Desk,
    senders: &mut [Arc<Process>],
    blow: Blow,
    nth: i64,
) -> Result<usize> {
    let world = &desk.world;
    Ok(match blow {
        Blow::Kill(whom) => {
            gone(&senders[whom]).await;
            world.fault(format_args!("sender {whom} was killed"));
            senders[whom] = desk.sender(&format!("{whom}-{}", nth + 1)).start()?;
            UNDER_WAY
        }
        Blow::Sleep(whom, how_long) => {
            senders[whom].freeze();
            // The measure is a time.
            tokio::time::sleep(how_long).await;
            senders[whom].thaw();
            world.fault(format_args!("sender {whom} slept for {how_long:?}"));
            UNDER_WAY
        }
        Blow::Server => {
            world.server.cluster().stop(Stop::Immediate).await?;
            world.server.cluster().start().await?;
            world.fault("the server was stopped immediately");
            SENDERS * UNDER_WAY
        }
    })
}
