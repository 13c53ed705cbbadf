//! E10, entities: the business row is deleted, and what its provider calls it is cleaned up by those refs, whatever comes after.

use std::{fs::File, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use outlast_checker::entities::Expect;
use outlast_engine::crash::Point;
use outlast_postgres::cluster::Stop;

use super::{
    Scenario,
    office::{Office, Writer},
};
use crate::{
    drill::{
        desk::gone,
        rows::crash::died,
        world::{LEASE, PATIENCE, World},
    },
    process::Process,
    wait_for,
};

const THINGS: i64 = 6;
const PROCESSES: usize = 3;

pub(super) fn scenarios() -> Vec<Scenario> {
    let points = [Point::Claimed, Point::InHandler];
    let dies = points.map(|point| {
        let name = format!("entity-deleted-dies-{}", point.as_str());
        Scenario::new(name, move |world| deleted(world, point))
    });
    let [claimed, inside] = dies;
    vec![
        Scenario::new("entity-deleted-inside", deleted_inside).core(),
        claimed,
        inside.core(),
        Scenario::new("entity-walk", walk)
            .alone(&[])
            .patient(Duration::from_secs(600)),
    ]
}

/// All things are shown, and nobody runs any more.
async fn shown(office: &Office, writer: &mut Writer) -> Result<()> {
    let before = office.mirror("before").running().await?;
    for n in 1..=THINGS {
        writer.change(n).await?;
    }
    office.rests().await?;
    before.terminate();
    before.exit(PATIENCE).await;
    Ok(())
}

/// A thing is deleted with its refs while a run for an earlier change has read, and comes again; both are taken notice of before that
/// run returns.
async fn deleted_inside(world: Arc<World>) -> Result<()> {
    let office = Office::open(world.clone(), THINGS).await?;
    let mut writer = office.writer(1).await?;
    shown(&office, &mut writer).await?;
    let gate = world.folder().join("gate");
    writer.change(1).await?;
    for name in ["first", "second"] {
        let gated = office.mirror(name).set("gate", gate.display());
        gated.running().await?;
    }
    wait_for("a run that has read", PATIENCE, async || {
        (world.said("inside thing") > 0).then_some(())
    })
    .await;
    ensure!(
        writer.delete(1).await?,
        "nothing is known of what is deleted"
    );
    wait_for("the deletion to be taken notice of", PATIENCE, async || {
        let wakes = "select nextval('outlast._event_id')";
        world.number(wakes).await.ok()?;
        let buried = "select count(*) from outlast._tombstone";
        (world.number(buried).await.ok()? == 1).then_some(())
    })
    .await;
    writer.restore(1).await?;
    world.fault("a thing was deleted between a run's reading and its writing, and came again");
    File::create(&gate)?;
    office.settle(&Expect::default()).await?;
    Ok(())
}

/// Things are deleted, some of them come again; a process dies with what it has claimed, or when it has read.
async fn deleted(world: Arc<World>, point: Point) -> Result<()> {
    let office = Office::open(world.clone(), THINGS).await?;
    let mut writer = office.writer(1).await?;
    shown(&office, &mut writer).await?;
    for n in 1..=THINGS {
        ensure!(
            writer.delete(n).await?,
            "nothing is known of what is deleted"
        );
        if n % 2 == 0 {
            writer.restore(n).await?;
        }
    }
    let victim = office.mirror("victim").dies(point, 1).start()?;
    died(&world, &victim, point).await?;
    office.mirror("heir").running().await?;
    let report = office.settle(&Expect::default()).await?;
    ensure!(report.deletions == usize::try_from(THINGS)?);
    Ok(())
}

/// What goes wrong on our side.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// A process is killed, and another one started.
    Kill(usize),
    /// A process sleeps for so long, and wakes.
    Sleep(usize, Duration),
    /// The server is stopped immediately.
    Server,
}

/// The same seed makes the same plan.
fn plan(world: &World) -> Vec<Blow> {
    let mut rng = world.rng(21);
    let times = if world.small { 1 } else { 6 };
    let mut plan = vec![Blow::Server; times];
    for _ in 0..2 * times {
        let longer = Duration::from_millis(rng.u64(200..1200));
        plan.push(Blow::Sleep(rng.usize(0..PROCESSES), LEASE + longer));
    }
    plan.extend((0..4 * times).map(|_| Blow::Kill(rng.usize(0..PROCESSES))));
    rng.shuffle(&mut plan);
    plan
}

/// Things are changed, deleted and come again all the time, while three processes are killed and put to sleep at random and the server
/// is stopped as by a power cut.
async fn walk(world: Arc<World>) -> Result<()> {
    let plan = plan(&world);
    world.note(format_args!("the plan: {plan:?}"));
    let office = Office::open(world.clone(), THINGS).await?;
    let mut processes = Vec::new();
    for nth in 0..PROCESSES {
        processes.push(
            office
                .mirror(&format!("{nth}-0"))
                .set("slow-ms", 20)
                .running()
                .await?,
        );
    }
    let mut rng = world.rng(22);
    for (nth, blow) in plan.into_iter().enumerate() {
        let mut writer = office.writer(1).await?;
        for _ in 0..20 {
            let n = rng.i64(1..=THINGS);
            match rng.u32(0..4) {
                0 => drop(writer.delete(n).await?),
                1 => writer.restore(n).await?,
                _ => writer.change(n).await?,
            }
            tokio::time::sleep(Duration::from_millis(rng.u64(0..20))).await;
        }
        strikes(&office, &mut processes, blow, nth).await?;
    }
    office
        .settle(&Expect {
            slept: true,
            run_ms: None,
        })
        .await?;
    Ok(())
}

async fn strikes(
    office: &Office,
    processes: &mut [Arc<Process>],
    blow: Blow,
    nth: usize,
) -> Result<()> {
    let world = &office.world;
    match blow {
        Blow::Kill(whom) => {
            gone(&processes[whom]).await;
            world.fault(format_args!("process {whom} was killed"));
            let heir = office.mirror(&format!("{whom}-{}", nth + 1));
            processes[whom] = heir.set("slow-ms", 20).start()?;
        }
        Blow::Sleep(whom, how_long) => {
            processes[whom].freeze();
            // The measure is a time.
            tokio::time::sleep(how_long).await;
            processes[whom].thaw();
            world.fault(format_args!("process {whom} slept for {how_long:?}"));
        }
        Blow::Server => {
            world.server.cluster().stop(Stop::Immediate).await?;
            world.server.cluster().start().await?;
            world.fault("the server was stopped immediately");
        }
    }
    Ok(())
}
