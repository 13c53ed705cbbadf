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
        site::{Relay, Site, Whose},
        source::Kind,
        worker::{Form, Spec},
        world::{PATIENCE, World},
    },
    process::Process,
    wait_for,
};

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
    let sql = "select count(*) from outlast._processed_event p join outlast._consumer c on c.id = p.consumer
               where c.name = 'relay/did'";
    wait_for("events to be published", PATIENCE, async || {
        (world.number(sql).await.ok()? >= at_least).then_some(())
    })
    .await;
}

/// Waits until so many events, at least, are committed.
async fn committed(world: &World, at_least: i64) {
    let sql = "select count(*) from drill.business";
    wait_for("transactions to commit", PATIENCE, async || {
        (world.number(sql).await.ok()? >= at_least).then_some(())
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

/// A relay and a worker with these consumers, both at work.
async fn at_work(world: &World, site: &Site, specs: &[Spec]) -> Result<(Relay, Arc<Process>)> {
    let relay = site.relay(world, "first").await?;
    let worker = site.worker(world, "first").consumers(specs);
    Ok((relay, worker.running().await?))
}
