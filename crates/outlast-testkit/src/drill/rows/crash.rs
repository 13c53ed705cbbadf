//! How each crash point is reached. A new point does not compile without its drill.

use std::{os::unix::process::ExitStatusExt, sync::Arc};

use anyhow::{Result, ensure};
use outlast_engine::crash::Point;

use super::{
    super::world::{PATIENCE, World},
    everyone,
};
use crate::{
    process::{Process, Signal},
    proxy::{Fault, Proxy, When},
    wait_for,
};

/// What has to happen for a process to come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Ordinary work.
    Work,
    /// Handlers take so long that a lease is renewed.
    Slow,
    /// First tries fail, and are tried again.
    Failing,
    /// Another worker has died before, and its batches are taken over.
    Heir,
    /// It is told to stop amid a batch.
    Stopped,
    /// COMMIT is not answered.
    Unanswered,
    /// A client comes by, not a worker.
    Client,
}

const fn way(point: Point) -> Way {
    match point {
        Point::Registered
        | Point::Claimed
        | Point::Begun
        | Point::InHandler
        | Point::Sealing
        | Point::Sealed
        | Point::Committed
        | Point::Flushing
        | Point::Flushed
        | Point::Finishing
        | Point::Finished => Way::Work,
        Point::Renewed => Way::Slow,
        Point::Failed | Point::ParkedClaimed => Way::Failing,
        Point::Reclaimed | Point::Marked => Way::Heir,
        Point::HandedBack => Way::Stopped,
        Point::Unsure => Way::Unanswered,
        Point::Emitted => Way::Client,
    }
}

/// A process dies exactly there; another one comes, and nothing is lost.
pub(super) async fn dies_at(world: Arc<World>, point: Point) -> Result<()> {
    let specs = everyone();
    let (way, mut rng) = (way(point), world.rng(2));
    // Some points are certainly passed more than once: five consumers claim and finish, each event is sealed.
    let nth = match (way, point) {
        (_, Point::Registered | Point::Flushing | Point::Flushed) => 1,
        (Way::Work, _) => rng.u32(1..=3),
        (Way::Client, _) => rng.u32(1..=8),
        _ => 1,
    };
    let client = world.emitter(1);
    let client = if rng.bool() {
        client.flag("dedup")
    } else {
        client
    };
    let victim = world.worker("victim").consumers(&specs);
    let (client, victim) = match way {
        Way::Work => (client.start()?, victim.dies(point, nth).start()?),
        Way::Slow => {
            let slow = victim.set("slow-ms", 150).set("concurrency", 1);
            (client.start()?, slow.dies(point, nth).start()?)
        }
        Way::Failing => {
            let failing = victim.set("fail-every", 3).dies(point, nth);
            (client.start()?, failing.start()?)
        }
        Way::Heir => {
            let client = client.start()?;
            let first = world.worker("first").consumers(&specs);
            let first = first.dies(Point::Claimed, 1).start()?;
            died(&world, &first, Point::Claimed).await?;
            (client, victim.dies(point, nth).start()?)
        }
        Way::Stopped => {
            let client = client.start()?;
            client.exit(PATIENCE).await;
            let slow = victim.set("slow-ms", 100).set("concurrency", 1);
            let victim = slow.dies(point, nth).start()?;
            wait_for("a batch to be in flight", PATIENCE, async || {
                let batches = "select count(*) from outlast._lease where room = 'batch'";
                (world.number(batches).await.ok()? > 0).then_some(())
            })
            .await;
            victim.terminate();
            (client, victim)
        }
        Way::Unanswered => {
            let proxy = Proxy::before(world.url()).await;
            let lost = proxy.arm_after(rng.usize(..3), When::Commit, Fault::DropReply);
            let victim = victim.set("pool-url", proxy.url());
            let (client, victim) = (client.start()?, victim.dies(point, nth).start()?);
            died(&world, &victim, point).await?;
            ensure!(lost.has_fired(), "no COMMIT went by");
            (client, victim)
        }
        Way::Client => {
            let client = client.dies(point, nth).start()?;
            died(&world, &client, point).await?;
            let second = world.emitter(2).start()?;
            (second, victim.start()?)
        }
    };
    if !matches!(way, Way::Client | Way::Unanswered) {
        died(&world, &victim, point).await?;
    }
    if way != Way::Client {
        world.worker("heir").consumers(&specs).running().await?;
    }
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    world.settle(&specs, 2).await
}

/// Waits for the death of a process, which must be by its own hand.
pub(super) async fn died(world: &World, process: &Process, point: Point) -> Result<()> {
    let status = process.exit(PATIENCE).await;
    let killed = status.signal() == Some(Signal::KILL.as_raw());
    ensure!(killed, "it did not die at {}: {process:?}", point.as_str());
    world.fault(format_args!("a process died at {}", point.as_str()));
    Ok(())
}
