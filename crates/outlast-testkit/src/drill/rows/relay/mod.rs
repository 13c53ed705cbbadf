//! The rows of the evidence table that need a broker: from a transaction through relay and real server to the consumers.
//!
//! Three witnesses: the database, the broker's own messages (asked without any of the product), and what consumers did.

mod e2;
mod e3;
mod e5;
mod e7;
mod e8;
mod e9;
mod many;

use std::sync::Arc;

use anyhow::{Result, ensure};

use super::Row;
use crate::{
    drill::{
        site::{Relay, Site, Whose, flying},
        source::Kind,
        worker::{Form, Spec},
        world::{PATIENCE, World},
    },
    process::Process,
    wait_for,
};

/// How many events are recorded as published.
const RECORDED: &str =
    "select count(*) from outlast._processed_event p join outlast._consumer c on c.id = p.consumer
                        where c.name = 'relay/did'";

/// Every row that there is with this broker.
pub(super) fn rows(kind: Kind) -> Vec<Row> {
    vec![
        e2::row(kind),
        e3::row(kind),
        e5::row(kind),
        e7::row(kind),
        e8::row(kind),
        e9::row(kind),
        many::row(kind),
    ]
}

/// One that writes in its transaction and keeps the order of each key, and one with effects outside.
fn readers() -> Vec<Spec> {
    vec![
        Spec::new("ledger", Form::Tx).ordered(),
        Spec::new("mail", Form::Outside),
    ]
}

/// The server, its topics, and routes that keep the order of each key.
async fn site(world: &World, kind: Kind, whose: Whose, specs: &[Spec]) -> Result<Site> {
    let site = Site::start(kind, whose, specs).await?;
    site.route(world, true).await?;
    Ok(site)
}

/// A route begins with what is emitted after it was first served: a relay comes, and goes again.
async fn served_once(world: &World, site: &Site) -> Result<()> {
    let relay = site.relay(world, "first").await?;
    relay.process.terminate();
    let status = relay.process.exit(PATIENCE).await;
    ensure!(status.success(), "{:?}", relay.process);
    Ok(())
}

/// Waits until so many events, at least, are recorded as published.
async fn published(world: &World, at_least: i64) {
    wait_for("events to be published", PATIENCE, async || {
        (world.number(RECORDED).await.ok()? >= at_least).then_some(())
    })
    .await;
}

async fn events(world: &World) -> Result<i64> {
    world.number("select count(*) from drill.business").await
}

/// Waits for a client to be done.
async fn done(client: &Process) -> Result<()> {
    let status = client.exit(PATIENCE * 2).await;
    ensure!(status.success(), "{client:?}");
    Ok(())
}

/// Some transactions of a client of this number, to their end.
async fn emitted(world: &World, number: u64) -> Result<()> {
    done(&*world.emitter(number).start()?).await
}

/// Waits until a relay has claimed something and not recorded it, or has recorded all there is.
async fn on_their_way(world: &World) {
    wait_for("events to be on their way", PATIENCE, async || {
        let flying = flying(world, None).await.ok()?;
        let left = events(world).await.ok()? - world.number(RECORDED).await.ok()?;
        (flying > 0 || left == 0).then_some(())
    })
    .await;
}

/// A relay and a worker with these consumers, both at work.
async fn at_work(world: &World, site: &Site, specs: &[Spec]) -> Result<(Relay, Arc<Process>)> {
    let relay = site.relay(world, "first").await?;
    let worker = site.worker(world, "first").consumers(specs);
    Ok((relay, worker.running().await?))
}
