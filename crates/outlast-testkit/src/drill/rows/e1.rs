//! E1: of a transaction that rolled back nothing survives, and nobody ever hears of it.

use std::{fs, sync::Arc};

use anyhow::{Result, ensure};
use outlast_checker::Expect;
use outlast_engine::crash::Point;
use outlast_postgres::cluster::Stop;

use super::{
    super::{
        pools::Driver,
        worker::{Form, Spec},
        world::{PATIENCE, World, expect},
    },
    Row, Scenario,
    crash::died,
};
use crate::{process::Process, wait_for};

pub(super) fn row() -> Row {
    let rollbacks = Driver::ALL.map(|driver| {
        Scenario::new(format!("rollbacks-{}", driver.as_str()), move |world| {
            rollbacks(world, driver)
        })
        .core()
    });
    // Nothing is flushed but by those who wait for it.
    const LAZY: &[(&str, &str)] = &[
        ("wal_writer_delay", "10s"),
        ("wal_writer_flush_after", "1GB"),
    ];
    let asynchronous = [
        Scenario::new("crash-asynchronous", asynchronous)
            .alone(LAZY)
            .core(),
        Scenario::new("at-rest-asynchronous", at_rest).alone(LAZY),
    ];
    Row {
        name: "E1",
        what: "the business transaction rolls back: neither state nor intent survives",
        scenarios: rollbacks.into_iter().chain(asynchronous).collect(),
    }
}

/// Clients that roll back in every way, and one that dies between emit and COMMIT, while workers run.
async fn rollbacks(world: Arc<World>, driver: Driver) -> Result<()> {
    let specs = [
        Spec::new("ledger", Form::Tx),
        Spec::new("mail", Form::Outside),
    ];
    let mut rng = world.rng(1);
    world.worker("only").consumers(&specs).running().await?;
    let client = |number| {
        let client = world.emitter(number).set("driver", driver.as_str());
        client.flag("mixed")
    };
    let (plain, keyed) = (client(1).start()?, client(2).flag("dedup").start()?);
    let dying = client(3).dies(Point::Emitted, rng.u32(1..=5)).start()?;
    died(&world, &dying, Point::Emitted).await?;
    for client in [plain, keyed] {
        let status = client.exit(PATIENCE).await;
        ensure!(status.success(), "{client:?}");
    }
    world.settle(&specs, 0).await?;
    let rolled_back = world.report().rolled_back;
    world.faults(rolled_back, "a transaction rolled back");
    Ok(())
}

/// Clients commit asynchronously and the server is killed: what is gone then must never have reached a handler.
///
/// The crash comes just after a handler has written its line, and before anybody waits for the disk again. Before it the
/// worker stands still for a moment: what clients are told of then is certainly gone.
async fn asynchronous(world: Arc<World>) -> Result<()> {
    let specs = [Spec::new("mail", Form::Outside)];
    commit_asynchronously(&world).await?;
    let worker = world.worker("only").consumers(&specs);
    let worker = worker.set("slow-ms", 150).running().await?;
    let mut rng = world.rng(9);
    for crash in 1..=if world.small { 2 } else { 4 } {
        let seen = lines(&world, "outside-");
        let client = world.emitter(crash).set("transactions", 5000);
        let client = client.set("clients", 1).set("pause-ms", 500).start()?;
        reaches(&world, "outside-", seen + rng.usize(2..8), &worker).await;
        worker.freeze();
        let told = lines(&world, "client-");
        reaches(&world, "client-", told + 4, &worker).await;
        world.server.cluster().stop(Stop::Immediate).await?;
        client.kill();
        client.exit(PATIENCE).await;
        world.fault("the server was stopped as by a power cut");
        world.server.cluster().start().await?;
        worker.thaw();
    }
    let expect = Expect {
        durable: false,
        ..expect(&specs)
    };
    world.settle_as(&expect, 2).await?;
    let gone = world.report().taken_back;
    world.faults(gone, "an acknowledged transaction was taken back");
    Ok(())
}

/// Waits until journals have that many lines, or the worker has given up, which the end of the run will tell.
async fn reaches(world: &World, journals: &str, n: usize, worker: &Process) {
    wait_for("lines of a journal", PATIENCE, async || {
        (lines(world, journals) >= n || worker.ended().is_some()).then_some(())
    })
    .await;
}

/// The server is killed when all is done, and nobody has waited for the last commits: the worker goes on.
async fn at_rest(world: Arc<World>) -> Result<()> {
    let specs = [Spec::new("mail", Form::Outside)];
    commit_asynchronously(&world).await?;
    world.worker("only").consumers(&specs).running().await?;
    for number in 1..=if world.small { 1 } else { 2 } {
        let client = world.emitter(number).start()?;
        let status = client.exit(PATIENCE).await;
        ensure!(status.success(), "{client:?}");
        let sql = world.client().await?;
        wait_for("all work to be done", PATIENCE, async || {
            let open = outlast_checker::open_work(&sql, specs.len()).await;
            (open.ok()? == 0).then_some(())
        })
        .await;
        world.server.cluster().restart(Stop::Immediate).await?;
        world.fault("the server was stopped as by a power cut");
    }
    let client = world.emitter(3).start()?;
    client.exit(PATIENCE).await;
    let expect = Expect {
        durable: false,
        ..expect(&specs)
    };
    world.settle_as(&expect, 2).await
}

/// Nobody waits for the disk who does not ask for it.
async fn commit_asynchronously(world: &World) -> Result<()> {
    let off = "do $$ begin
        execute format('alter database %I set synchronous_commit = off', current_database()); end $$";
    Ok(world.client().await?.batch_execute(off).await?)
}

/// How many lines the journals of one kind have.
fn lines(world: &World, journals: &str) -> usize {
    let entries = fs::read_dir(world.folder()).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(journals) && name.ends_with(".jsonl")
    });
    ours.filter_map(|entry| fs::read(entry.path()).ok())
        .map(|text| text.iter().filter(|byte| **byte == b'\n').count())
        .sum()
}
