//! E8, as far as the log goes: an event that kills its worker, and a database that is gone. Others are unaffected, and
//! what is used up meanwhile is bounded.

use std::{os::unix::process::ExitStatusExt, path::Path, sync::Arc, time::Duration};

use anyhow::{Result, bail, ensure};
use outlast_checker::Expect;
use outlast_postgres::cluster::Stop;

use super::{
    super::{
        worker::{Form, Spec},
        world::{LEASE, PATIENCE, World, expect},
    },
    Row, Scenario, everyone, watch_charges,
};
use crate::{
    process::{Process, Signal},
    proxy::Proxy,
    wait_for,
};

/// So many deaths of its worker while it runs alone make a person look at an event.
const SUSPECTS: i64 = 3;
/// Five consumers, the renewal and the wake-up; each leaves the database alone for a second or two at a time.
const EACH_SECOND: usize = 14;
/// And besides, while the pauses are still short.
const AT_FIRST: usize = 30;
/// The third intent of the first client.
const POISON: i64 = 1_000_004;

pub(super) fn row() -> Row {
    let poison = [
        ("abort-on_tx", Form::Tx, 1),
        ("abort-on", Form::Outside, 1),
        ("abort-in-a-crowd", Form::Tx, 4),
    ];
    let poison = poison.map(|(name, form, concurrency)| {
        let scenario = Scenario::new(name, move |world| aborts(world, form, concurrency));
        if concurrency > 1 || form == Form::Outside {
            scenario.core()
        } else {
            scenario
        }
    });
    let gone = Scenario::new("database-gone", database_gone).alone(&[]);
    let clocks = Scenario::new("clocks-differ", clocks_differ);
    Row {
        name: "E8",
        what: "poison and outage: bounded resources, a person is told, others are unaffected",
        scenarios: poison.into_iter().chain([gone.core(), clocks]).collect(),
    }
}

/// The handler of one event aborts the process, whenever it is tried. Somebody starts the worker again each time.
async fn aborts(world: Arc<World>, form: Form, concurrency: u32) -> Result<()> {
    let specs = [Spec::new("ledger", form)];
    watch_charges(&world).await?;
    let client = world.emitter(1).start()?;
    let mut deaths = 0;
    loop {
        let worker = world.worker(&format!("life-{deaths}")).consumers(&specs);
        let worker = worker
            .set("abort-at", POISON)
            .set("concurrency", concurrency);
        let worker = worker.start()?;
        if !dies_or_is_spared(&world, &worker).await? {
            break;
        }
        deaths += 1;
        world.fault("the handler of one event aborted its process");
        ensure!(
            deaths < 10,
            "the event has killed {deaths} workers, and may go on"
        );
    }
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    let expect = Expect {
        quarantined: [POISON].into(),
        ..expect(&specs)
    };
    world.settle_as(&expect, 3).await?;
    // One before anything was marked, one by which it became a suspect, and what it was charged for.
    if deaths > SUSPECTS + 1 {
        world.violated(format_args!(
            "it took {deaths} deaths to put one event aside"
        ));
    }
    let worst = "select coalesce(max(crashes), 0)::bigint from drill.charge c
                 join drill.business b on b.event_id = c.event_id where b.n <> 1000004";
    let worst = world.number(worst).await?;
    // Whoever ran beside it is a suspect once, runs alone, and is cleared.
    if worst > i64::from(concurrency > 1) {
        world.violated(format_args!(
            "an innocent event was charged with {worst} deaths"
        ));
    }
    Ok(())
}

/// Whether the worker was aborted; if not, the poison is in quarantine and it lives.
async fn dies_or_is_spared(world: &World, worker: &Process) -> Result<bool> {
    let end = wait_for("a death or a quarantine", PATIENCE, async || {
        let spared = "select count(*) from outlast._parked where state = 'quarantined'";
        match worker.ended() {
            Some(status) => Some(Some(status)),
            None => (world.number(spared).await.ok()? > 0).then_some(None),
        }
    });
    match end.await {
        None => Ok(false),
        Some(status) if status.signal() == Some(Signal::ABORT.as_raw()) => Ok(true),
        Some(status) => bail!("the worker ended otherwise ({status}): {worker:?}"),
    }
}

/// Where distributions put the library that tells a process another time.
const FAKETIME: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
];

/// Workers whose clocks are an hour behind, right, and an hour ahead; handlers outlast their leases. Only the database's
/// clock decides: nobody takes over what is alive, nothing is tried too early.
async fn clocks_differ(world: Arc<World>) -> Result<()> {
    let library = FAKETIME.into_iter().find(|path| Path::new(path).exists());
    let Some(library) = library else {
        bail!("libfaketime is missing: apt-get install libfaketime");
    };
    let specs = [
        Spec::new("ledger", Form::Tx),
        Spec::new("mail", Form::Outside),
    ];
    watch_charges(&world).await?;
    for (name, offset) in [("behind", "-1h"), ("right", "+0"), ("ahead", "+1h")] {
        let worker = world.worker(name).consumers(&specs);
        let worker = worker.set("lease-ms", (LEASE * 2).as_millis());
        let worker = worker.set("slow-ms", (LEASE * 3).as_millis());
        let worker = worker.env("LD_PRELOAD", library).env("FAKETIME", offset);
        let worker = worker.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        worker.running().await?;
    }
    let client = world.emitter(1).set("transactions", 8).start()?;
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    world.fault("three workers ran with clocks an hour apart");
    let all = 2 * world.number("select count(*) from outlast._event").await?;
    wait_for("the handlers to end", PATIENCE, async || {
        let done = "select count(*) from outlast._processed_event";
        (world.number(done).await.ok()? >= all).then_some(())
    })
    .await;
    world.settle(&specs, 0).await?;
    let (report, charged) = (
        world.report(),
        world.number("select count(*) from drill.charge").await?,
    );
    if report.again > 0 || report.attempt_max > 1 || charged > 0 {
        world.violated(format_args!(
            "a live lease was taken over: {} handled again, try {}, {charged} charged",
            report.again, report.attempt_max
        ));
    }
    Ok(())
}

/// The database is gone for a while: nobody hammers at its door, and all goes on when it is back.
async fn database_gone(world: Arc<World>) -> Result<()> {
    let specs = everyone();
    let proxy = Proxy::before(world.url()).await;
    let worker = world.worker("only").consumers(&specs);
    let worker = worker.set("url", proxy.url()).running().await?;
    let first = world.emitter(1).start()?;
    first.exit(PATIENCE).await;
    world.server.cluster().stop(Stop::Immediate).await?;
    let before = proxy.connections();
    // The measure is a time.
    let away = Duration::from_secs(if world.small { 5 } else { 20 });
    tokio::time::sleep(away).await;
    let tries = proxy.connections() - before;
    world.fault(format_args!(
        "the database was gone for {away:?}: {tries} connections were tried"
    ));
    ensure!(worker.ended().is_none(), "{worker:?}");
    // The first tries come fast, one of each loop after the other.
    if tries > AT_FIRST + EACH_SECOND * usize::try_from(away.as_secs())? {
        world.violated(format_args!("{tries} connections were tried in {away:?}"));
    }
    world.server.cluster().start().await?;
    let second = world.emitter(2).start()?;
    let status = second.exit(PATIENCE).await;
    ensure!(status.success(), "{second:?}");
    world.settle(&specs, 6).await
}
