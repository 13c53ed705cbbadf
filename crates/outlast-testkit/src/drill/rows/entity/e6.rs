//! E6, entities: what is changed while it is converged is converged once more, whoever dies or sleeps; and nobody who changes it waits.

use std::{fs::File, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use outlast_checker::entities::Expect;
use outlast_engine::crash::Point;
use tokio_postgres::IsolationLevel;

use super::{Scenario, office::Office};
use crate::{
    drill::{
        rows::crash::died,
        world::{PATIENCE, World},
    },
    wait_for,
};

const WRITERS: i32 = 8;
/// How long a run of the hot things takes.
const RUN_MS: u64 = 60;

pub(super) fn scenarios() -> Vec<Scenario> {
    let points = [Point::Claimed, Point::InHandler, Point::Flushed];
    let dies = points.map(|point| {
        let name = format!("entity-dies-{}", point.as_str());
        Scenario::new(name, move |world| hot(world, Some(point)))
    });
    [
        Scenario::new("entity-changed-inside", changed_inside).core(),
        Scenario::new("entity-sleeps", sleeps).core(),
        Scenario::new("entity-hot", |world| hot(world, None)),
    ]
    .into_iter()
    .chain(
        dies.map(|scenario| match scenario.name.ends_with("in-handler") {
            true => scenario.core(),
            false => scenario,
        }),
    )
    .collect()
}

/// A run has read and has not written. Its thing is changed, and that was taken notice of before it returns.
async fn changed_inside(world: Arc<World>) -> Result<()> {
    let office = Office::open(world.clone(), 1).await?;
    let mut writer = office.writer(1).await?;
    writer.change(1).await?;
    let gate = world.folder().join("gate");
    let first = office
        .mirror("first")
        .set("gate", gate.display())
        .running()
        .await?;
    office
        .mirror("second")
        .set("gate", gate.display())
        .running()
        .await?;
    inside(&world).await;
    writer.change(1).await?;
    // Whoever looks for work takes notice; what is changed after that is a mark that lies there.
    wait_for("the change to be taken notice of", PATIENCE, async || {
        // An idle process looks every five seconds; this wakes it.
        let wakes = "select nextval('outlast._event_id')";
        world.number(wakes).await.ok()?;
        let again = "select count(*) from outlast._entity where again";
        (world.number(again).await.ok()? == 1).then_some(())
    })
    .await;
    world.fault("a thing was changed between a run's reading and its writing");
    File::create(&gate)?;
    let report = office.settle(&Expect::default()).await?;
    ensure!(report.runs > 1, "it was converged once only");
    drop(first);
    Ok(())
}

/// Waits until somebody is inside a run.
async fn inside(world: &World) {
    wait_for("a run that has read", PATIENCE, async || {
        (world.said("inside thing") > 0).then_some(())
    })
    .await;
}

/// The owner of a run has read and sleeps past its lease. What it read is old when it wakes and tells it.
async fn sleeps(world: Arc<World>) -> Result<()> {
    let office = Office::open(world.clone(), 3).await?;
    let mut writer = office.writer(1).await?;
    let before = office.mirror("before").running().await?;
    for n in 1..=3 {
        writer.change(n).await?;
    }
    office.rests().await?;
    before.terminate();
    before.exit(PATIENCE).await;
    writer.change(2).await?;
    let old = office.mirror("old").stops(Point::InHandler, 1).start()?;
    old.line("crash point: stops", PATIENCE).await;
    writer.change(2).await?;
    office.mirror("new").running().await?;
    office.rests().await?;
    // Once more, so that it wakes while there is something newer to lose.
    writer.change(2).await?;
    world.fault("a run woke behind its successor's");
    old.thaw();
    // It finds out by itself first what it may still do.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let report = office
        .settle(&Expect {
            slept: true,
            run_ms: None,
        })
        .await?;
    if report.refused == 0 {
        world.violated("this run proves nothing: the old owner has told the provider nothing");
    }
    Ok(())
}

/// Eight writers in all isolation levels change two hot things, half of them in the opposite order, without a retry; a process dies.
async fn hot(world: Arc<World>, dies: Option<Point>) -> Result<()> {
    let office = Office::open(world.clone(), 2).await?;
    let rounds = if world.small { 25 } else { 250 };
    let slow = |name: &str| office.mirror(name).set("slow-ms", RUN_MS);
    let victim = match dies {
        // Of each thing something is kept once only.
        Some(point @ Point::Flushed) => slow("victim").dies(point, 1),
        Some(point) => slow("victim").dies(point, 2),
        None => slow("victim"),
    };
    let victim = victim.running().await?;
    let writes = async {
        let writes = (1..=WRITERS).map(|number| writes(&office, number, rounds));
        if let Err(why) = try_join_all(writes).await {
            world.violated(format_args!("a writer was refused: {why:#}"));
        }
        anyhow::Ok(())
    };
    let dies = async {
        match dies {
            Some(point) => died(&world, &victim, point).await?,
            None => world.fault("eight writers change two things in opposite orders"),
        }
        slow("heir").running().await
    };
    tokio::try_join!(writes, dies)?;
    let report = office
        .settle(&Expect {
            run_ms: Some(RUN_MS),
            slept: false,
        })
        .await?;
    let written = i64::from(WRITERS * rounds * 2);
    ensure!(
        report.changes == written,
        "{} of {written} changes",
        report.changes
    );
    Ok(())
}

async fn writes(office: &Office, number: i32, rounds: i32) -> Result<()> {
    use IsolationLevel::{ReadCommitted, RepeatableRead, Serializable};
    let levels = [ReadCommitted, RepeatableRead, Serializable];
    let level = levels[usize::try_from(number)? % levels.len()];
    let both = if number % 2 == 0 { [1, 2] } else { [2, 1] };
    let mut writer = office.writer(number).await?;
    for _ in 0..rounds {
        writer.changes(level, &both).await?;
    }
    Ok(())
}
