//! E2: a crash after the commit, before anything else or anywhere after it: nothing is lost.

use std::sync::Arc;

use anyhow::{Result, ensure};
use outlast_engine::crash::Point;
use outlast_postgres::cluster::Stop;

use super::{
    super::{
        pools::Driver,
        world::{PATIENCE, World},
    },
    Row, Scenario, crash, everyone, watch_charges,
};
use crate::{
    pooler::{self, Pooler},
    wait_for,
};

/// How the server goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Down {
    /// `stop -m immediate`.
    Stopped,
    /// SIGKILL.
    Killed,
    /// `stop -m immediate`, and the worker is killed with it.
    WithWorker,
}

pub(super) fn row() -> Row {
    let points = Point::ALL.into_iter().map(|point| {
        let scenario = Scenario::new(point.as_str(), move |world| crash::dies_at(world, point));
        let core = matches!(
            point,
            Point::Claimed | Point::Sealed | Point::Committed | Point::Flushing | Point::Emitted
        );
        if core { scenario.core() } else { scenario }
    });
    let server = [
        ("server-stopped", Down::Stopped),
        ("server-killed", Down::Killed),
        ("server-and-worker", Down::WithWorker),
    ];
    let server = server.into_iter().map(|(name, down)| {
        let scenario = Scenario::new(name, move |world| goes_down(world, down, false)).alone(&[]);
        if down == Down::WithWorker {
            scenario.core()
        } else {
            scenario
        }
    });
    let load = [
        Scenario::new("twenty-restarts", |world| {
            let crashes = if world.small { 3 } else { 20 };
            restarts(world, Down::Stopped, crashes, false)
        })
        .alone(&[]),
        Scenario::new("told-to-stop-under-load", told_to_stop).core(),
    ];
    // Where there is none, that is said, loudly.
    let pooled = pooler::is_installed().then(|| {
        let drill = |world| goes_down(world, Down::Stopped, true);
        Scenario::new("server-behind-pooler", drill)
            .alone(&[])
            .core()
    });
    Row {
        name: "E2",
        what: "a crash after commit: it is found, and nothing is lost",
        scenarios: points.chain(server).chain(load).chain(pooled).collect(),
    }
}

/// SIGTERM while there is work, again and again, and another worker comes: each ends well, finishes what it has begun,
/// and charges nothing.
async fn told_to_stop(world: Arc<World>) -> Result<()> {
    let (specs, mut rng) = (everyone(), world.rng(8));
    watch_charges(&world).await?;
    let client = world.emitter(1).set("transactions", 100).start()?;
    let stops = if world.small { 3 } else { 8 };
    let worker = |nth: u32| {
        let worker = world.worker(&format!("nth-{nth}")).consumers(&specs);
        worker.set("slow-ms", 30)
    };
    let mut old = worker(0).running().await?;
    for nth in 1..=stops {
        let sealed = "select count(*) from outlast._processed_event";
        let some = world.number(sealed).await? + rng.i64(5..40);
        wait_for("some work to be done", PATIENCE, async || {
            let open = outlast_checker::open_work(&world.client().await.ok()?, specs.len()).await;
            (world.number(sealed).await.ok()? >= some || open.ok()? == 0).then_some(())
        })
        .await;
        let new = worker(nth).running().await?;
        old.terminate();
        let status = old.exit(PATIENCE).await;
        world.fault("a worker was told to stop");
        if !status.success() {
            world.violated(format_args!("told to stop, it ended badly: {status}"));
        }
        old = new;
    }
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    world.settle(&specs, 0).await?;
    let again = world.report().again;
    let charged = world.number("select count(*) from drill.charge").await?;
    if again > 0 || charged > 0 {
        world.violated(format_args!(
            "begun work was not finished: {again} handled again, {charged} charged"
        ));
    }
    Ok(())
}

/// The server goes down in the middle of all, twice.
async fn goes_down(world: Arc<World>, down: Down, pooled: bool) -> Result<()> {
    let crashes = if world.small { 1 } else { 2 };
    restarts(world, down, crashes, pooled).await
}

async fn restarts(world: Arc<World>, down: Down, crashes: u32, pooled: bool) -> Result<()> {
    let (mut specs, mut rng) = (everyone(), world.rng(3));
    let mut url = world.url().to_owned();
    let pooler = match pooled {
        true => Some(Pooler::before(&url).await?),
        false => None,
    };
    if let Some(pooler) = &pooler {
        let config: tokio_postgres::Config = url.parse()?;
        url = pooler.url(config.get_dbname().unwrap_or_default());
        // sqlx prepares under names unless its users switch that off, and a session's isolation is not to be had.
        specs.retain(|spec| spec.driver == Driver::Deadpool);
    }
    let client = world
        .emitter(1)
        .set("url", &url)
        .set("transactions", 30 * crashes)
        .flag("dedup");
    let client = client.start()?;
    let worker = |name: &str| {
        let worker = world.worker(name).set("url", &url);
        worker.consumers(&specs).set("slow-ms", 5)
    };
    let mut running = worker("first").running().await?;
    for crash in 1..=crashes {
        let sealed = "select count(*) from outlast._processed_event";
        let some = world.number(sealed).await? + rng.i64(5..60);
        wait_for("some work to be done", PATIENCE, async || {
            (world.number(sealed).await.ok()? >= some).then_some(())
        })
        .await;
        match down {
            Down::Stopped => world.server.cluster().stop(Stop::Immediate).await?,
            Down::Killed => world.server.cluster().kill().await?,
            Down::WithWorker => {
                running.kill();
                world.server.cluster().stop(Stop::Immediate).await?;
            }
        }
        world.fault(format_args!("the server went down: {down:?}"));
        world.server.cluster().start().await?;
        if down == Down::WithWorker {
            running = worker(&format!("heir-{crash}")).running().await?;
        }
    }
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    world.settle(&specs, 3).await
}
