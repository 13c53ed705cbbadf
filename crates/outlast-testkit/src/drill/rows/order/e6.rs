//! E6, commands: a webhook, a withdrawal or a correction comes while a try is under way.

use std::sync::Arc;

use anyhow::Result;
use outlast_checker::orders::{Expect, Step, Wire};
use outlast_engine::Outlast;
use outlast_postgres::{job::Cancel, tx::OwnedTx};

use super::{Scenario, UNDER_WAY};
use crate::{
    drill::{
        desk::{Desk, gone, number},
        order::{Order, Wanted},
        world::{PATIENCE, World},
    },
    provider::order::{Fault, Habits, Kind},
    wait_for,
};

const EACH: i64 = 6;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("called-back-first", called_back_first).core(),
        Scenario::new("called-back-and-asked", called_back_and_asked),
        Scenario::new("withdrawn-and-corrected", withdrawn).core(),
    ]
}

/// The provider tells the end by a webhook before it answers; one sender dies before it has the answer.
async fn called_back_first(world: Arc<World>) -> Result<()> {
    let desk = Desk::open(world.clone()).await?;
    desk.habits(&Habits {
        slow_ms: 1200,
        ..Habits::only(Fault::CalledBack)
    })
    .await;
    desk.give(called_back(&desk, 0..EACH)).await?;
    let first = desk.sender("first").running().await?;
    wait_for("webhooks", PATIENCE, async || {
        let told = "select count(*) from outlast._evidence where what = 'told' and moved";
        (world.number(told).await.ok()? > 0).then_some(())
    })
    .await;
    gone(&first).await;
    world.fault("a sender was killed with webhooks ahead of its answers");
    desk.sender("heir").running().await?;
    desk.settle(&Expect {
        in_between: UNDER_WAY,
        ..Expect::default()
    })
    .await?;
    Ok(())
}

/// The answer is lost, and the webhook comes while the provider is asked.
async fn called_back_and_asked(world: Arc<World>) -> Result<()> {
    let desk = Desk::open(world.clone()).await?;
    desk.habits(&Habits {
        settle_ms: 4000,
        ..Habits::only(Fault::Dropped)
    })
    .await;
    desk.sender("only").running().await?;
    desk.give(called_back(&desk, 0..4 * EACH)).await?;
    world.fault("answers were lost, and webhooks come about when the provider is asked");
    wait_for("webhooks", PATIENCE, async || {
        let told = "select count(*) from outlast._evidence where what = 'told'";
        (world.number(told).await.ok()? >= 16 * EACH).then_some(())
    })
    .await;
    let report = desk.settle(&Expect::default()).await?;
    if report.persons > 0 {
        world.violated(format_args!(
            "{} are a person's, and were all told",
            report.persons
        ));
    }
    Ok(())
}

fn called_back(desk: &Desk, numbers: std::ops::Range<i64>) -> Vec<Wanted> {
    let kinds = Kind::ALL.into_iter().enumerate();
    let of = |(kind, of): (usize, Kind)| {
        numbers.clone().map(move |n| Wanted {
            call_back: desk.call_back(),
            ..Wanted::new(of, number(kind, n))
        })
    };
    kinds.flat_map(of).collect()
}

/// What is on its way is withdrawn, or corrected by another one: that is on record, and comes to pass only where the provider says
/// that it has had no effect.
async fn withdrawn(world: Arc<World>) -> Result<()> {
    let desk = Desk::open(world.clone()).await?;
    desk.habits(&Habits {
        slow_ms: 1600,
        ..Habits::only(Fault::Late)
    })
    .await;
    desk.sender("first").running().await?;
    let all: Vec<_> = (0..4).flat_map(|n| [2, 3].map(|kind| (kind, n))).collect();
    let wanted = all
        .iter()
        .map(|&(kind, n)| Wanted::new(Kind::ALL[kind], number(kind, n)));
    desk.give(wanted.collect()).await?;
    on_its_way(&desk, all.len()).await?;
    // Two of each are withdrawn, one is corrected.
    for n in 0..2 {
        withdraw::<2>(&desk, n).await?;
        withdraw::<3>(&desk, n).await?;
    }
    correct::<2>(&desk, 2, 102).await?;
    correct::<3>(&desk, 2, 102).await?;
    world.fault("commands were withdrawn and corrected with their requests on their way");
    // Of these nothing arrives, and nothing has when their senders die: the provider can prove that of one kind.
    desk.rests().await?;
    desk.habits(&Habits {
        visits: 1,
        ..Habits::only(Fault::Lost)
    })
    .await;
    desk.give(
        (200..203)
            .flat_map(|n| [2, 3].map(|kind| Wanted::new(Kind::ALL[kind], number(kind, n))))
            .collect(),
    )
    .await?;
    wait_for("them to be unknown", PATIENCE, async || {
        let unknown = "select count(*) from outlast._command where state = 'unknown'";
        (world.number(unknown).await.ok()? >= 6).then_some(())
    })
    .await;
    for n in 200..203 {
        withdraw::<2>(&desk, n).await?;
    }
    desk.settle(&Expect::default()).await?;
    let cancelled = world
        .number("select count(*) from outlast._command where state = 'cancelled'")
        .await?;
    if cancelled != 3 {
        world.violated(format_args!(
            "{cancelled} of 3 are cancelled, which have proof that nothing happened"
        ));
    }
    Ok(())
}

/// Waits until so many requests have left.
async fn on_its_way(desk: &Desk, count: usize) -> Result<()> {
    let folder = desk.world.folder().to_owned();
    wait_for("requests to leave", PATIENCE, async || {
        let wire: Vec<Wire> = outlast_checker::facts::journals(&folder, "wire-").ok()?;
        (wire.iter().filter(|wire| wire.step == Step::Leaves).count() >= count).then_some(())
    })
    .await;
    Ok(())
}

/// In an application's transaction. What has left cannot simply be taken back.
async fn withdraw<const K: usize>(desk: &Desk, n: i64) -> Result<()> {
    let key = format!("order/{}", number(K, n));
    let mut tx = desk.begin().await?;
    let cancel = Outlast::new()
        .cancel_command::<Order<K>>(&mut tx, &key, "a mistake")
        .await?;
    tx.commit().await?;
    if cancel != Cancel::Requested {
        desk.world.violated(format_args!(
            "order {n} of {} was on its way, and withdrawing it was answered with {cancel:?}",
            Kind::ALL[K].as_str()
        ));
    }
    Ok(())
}

async fn correct<const K: usize>(desk: &Desk, old: i64, new: i64) -> Result<()> {
    let find = format!(
        "select id::text from outlast._job where key = 'order/{}'",
        number(K, old)
    );
    let old = desk.world.client().await?.query_one(&find, &[]).await?;
    let mut wanted = Wanted::new(Kind::ALL[K], number(K, new));
    wanted.supersedes = Some(old.get::<_, String>(0).parse()?);
    desk.give(vec![wanted]).await
}
