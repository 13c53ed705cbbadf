//! E11: nobody knows what became of a COMMIT. The caller is told exactly that, and a safe retry makes one intent.

use std::sync::Arc;

use anyhow::{Result, ensure};

use super::{
    super::{
        pools::Driver,
        worker::{Form, Spec},
        world::{PATIENCE, World},
    },
    Row, Scenario, everyone,
};
use crate::{
    proxy::{Armed, Fault, Proxy, When},
    wait_for,
};

/// Faults a run.
const TIMES: usize = 3;

pub(super) fn row() -> Row {
    let mut scenarios = Vec::new();
    for driver in Driver::ALL {
        for (name, fault) in [
            ("dropped", Fault::DropRequest),
            ("unheard", Fault::DropReply),
        ] {
            let word = driver.as_str();
            let core = driver == Driver::Deadpool || fault == Fault::DropReply;
            let mut add = |scenario: Scenario| {
                scenarios.push(if core { scenario.core() } else { scenario });
            };
            add(Scenario::new(
                format!("client-{name}-{word}"),
                move |world| client(world, driver, fault),
            ));
            add(Scenario::new(
                format!("worker-{name}-{word}"),
                move |world| worker(world, driver, fault),
            ));
        }
        let word = driver.as_str();
        let held = Scenario::new(format!("client-held-{word}"), move |world| {
            client_held(world, driver)
        });
        scenarios.push(held.core());
        scenarios.push(Scenario::new(format!("worker-held-{word}"), move |world| {
            worker_held(world, driver, false)
        }));
        scenarios.push(Scenario::new(
            format!("worker-held-past-its-deadline-{word}"),
            move |world| worker_held(world, driver, true),
        ));
    }
    scenarios.push(Scenario::new("engine-unheard", engine).core());
    Row {
        name: "E11",
        what: "commit outcome unknown: the caller is told so, and a safe retry makes one intent",
        scenarios,
    }
}

fn arm(world: &World, proxy: &Proxy, fault: Fault) -> Vec<Armed> {
    let mut rng = world.rng(5);
    let arm = |nth| proxy.arm_after(4 * nth + rng.usize(..4), When::Commit, fault);
    (0..TIMES).map(arm).collect()
}

fn fired(world: &World, armed: &[Armed]) {
    let fired = armed.iter().filter(|fault| fault.has_fired()).count();
    world.faults(fired, "a COMMIT had its fault");
}

/// A client's COMMIT is lost, or its answer.
async fn client(world: Arc<World>, driver: Driver, fault: Fault) -> Result<()> {
    let specs = [
        Spec::new("ledger", Form::Tx),
        Spec::new("mail", Form::Outside),
    ];
    world.worker("only").consumers(&specs).running().await?;
    let proxy = Proxy::before(world.url()).await;
    let armed = arm(&world, &proxy, fault);
    let client = world.emitter(1).set("url", proxy.url());
    let client = client
        .set("driver", driver.as_str())
        .flag("dedup")
        .start()?;
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    fired(&world, &armed);
    told(&world, &client.lines(), armed.len());
    world.settle(&specs, 0).await
}

/// Each fault must have been told as what it is.
fn told(world: &World, lines: &[String], faults: usize) {
    let unknown = lines
        .iter()
        .filter(|line| line.starts_with("unknown"))
        .count();
    if unknown != faults {
        world.violated(format_args!(
            "{faults} outcomes were unknown, {unknown} were told so"
        ));
    }
}

/// A client's COMMIT is on the wire while the client already does the same again.
async fn client_held(world: Arc<World>, driver: Driver) -> Result<()> {
    let specs = [
        Spec::new("ledger", Form::Tx),
        Spec::new("mail", Form::Outside),
    ];
    let mut rng = world.rng(6);
    world.worker("only").consumers(&specs).running().await?;
    let proxy = Proxy::before(world.url()).await;
    let held = proxy.arm_after(rng.usize(..8), When::Commit, Fault::HoldRequest);
    let client = world
        .emitter(1)
        .set("url", proxy.url())
        .set("commit-ms", 2000);
    let client = client
        .set("driver", driver.as_str())
        .flag("dedup")
        .start()?;
    client.line("unknown", PATIENCE).await;
    let (lands, hears) = (rng.bool(), rng.bool());
    wait_for("the retry to wait for the first try, or to be done", PATIENCE, async || {
        let waiting = "select count(*) from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock' and query like '%outlast.emit%'";
        let again = client.lines().iter().any(|line| line.contains("is done"));
        (again || world.number(waiting).await.ok()? > 0).then_some(())
    })
    .await;
    if !hears {
        held.hang_up();
    }
    world.fault(format_args!(
        "a COMMIT was held while its caller did the same again; it {}",
        if lands { "lands" } else { "is lost" }
    ));
    if lands {
        held.release();
        ensure!(held.answered().await == "COMMIT", "it did not land");
    } else {
        proxy.cut();
    }
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    world.settle(&specs, 0).await
}

/// The COMMIT of a handler is lost, or its answer.
async fn worker(world: Arc<World>, driver: Driver, fault: Fault) -> Result<()> {
    let specs = specs(driver);
    let proxy = Proxy::before(world.url()).await;
    let armed = arm(&world, &proxy, fault);
    let worker = world
        .worker("only")
        .consumers(&specs)
        .set("pool-url", proxy.url());
    worker.running().await?;
    let client = world.emitter(1).start()?;
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    world.settle(&specs, 2).await?;
    fired(&world, &armed);
    Ok(())
}

fn specs(driver: Driver) -> [Spec; 3] {
    [Form::Tx, Form::Batch, Form::Seal].map(|form| Spec {
        driver,
        ..Spec::new(form.as_str(), form)
    })
}

/// The COMMIT of a handler is on the wire while the engine already looks for its seal, or has given the try up.
async fn worker_held(world: Arc<World>, driver: Driver, past_deadline: bool) -> Result<()> {
    let specs = [Spec {
        driver,
        ..Spec::new("ledger", Form::Tx)
    }];
    let mut rng = world.rng(7);
    let proxy = Proxy::before(world.url()).await;
    let held = proxy.arm_after(rng.usize(..8), When::Commit, Fault::HoldRequest);
    let worker = world
        .worker("only")
        .consumers(&specs)
        .set("pool-url", proxy.url());
    let deadline = if past_deadline { 500 } else { 30_000 };
    let worker = worker.set("deadline-ms", deadline).running().await?;
    let client = world.emitter(1).start()?;
    held.fired().await;
    if past_deadline {
        wait_for("the try to be given up", PATIENCE, async || {
            let parked = "select count(*) from outlast._parked";
            (world.number(parked).await.ok()? > 0).then_some(())
        })
        .await;
    } else {
        held.hang_up();
        worker.line("looking for the seal", PATIENCE).await;
    }
    world.fault("a COMMIT was held while the engine had gone on");
    if rng.bool() {
        // Too late perhaps: the server ends a transaction that is idle for the rest of its lease.
        held.release();
    } else {
        world.note("it is lost");
        proxy.cut();
    }
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    world.settle(&specs, 3).await
}

/// The engine's own statements are done, and it does not hear of it.
async fn engine(world: Arc<World>) -> Result<()> {
    let specs = everyone();
    let mut rng = world.rng(8);
    let proxy = Proxy::before(world.url()).await;
    let statements = ["_claim(", "_seal(", "_finish(", "_renew_all(", ".fail("];
    let armed: Vec<_> = statements
        .into_iter()
        .map(|text| {
            let when = When::Contains(format!("outlast.{}", text.trim_start_matches('.')));
            proxy.arm_after(rng.usize(..3), when, Fault::DropReply)
        })
        .collect();
    let worker = world
        .worker("only")
        .consumers(&specs)
        .set("url", proxy.url());
    let worker = worker.set("pool-url", world.url()).set("fail-every", 5);
    let _worker = worker.set("slow-ms", 30).running().await?;
    let client = world.emitter(1).start()?;
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    world.settle(&specs, 3).await?;
    fired(&world, &armed);
    Ok(())
}
