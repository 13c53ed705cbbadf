//! History that was rewound: a backup restored to an earlier point, a standby promoted that had not received everything.
//! What stays in the database goes on; what leaves it waits for a person, also when no process is left that could miss
//! anything. What others saw of the lost time is counted.

use std::sync::Arc;

use anyhow::{Result, ensure};
use outlast_checker::Expect;
use outlast_postgres::cluster::Stop;

use super::{
    super::super::world::{PATIENCE, World, expect},
    all, confirm, emit,
    other::{self, Other},
    sealed,
};
use crate::{proxy::Proxy, wait_for};

/// A backup, brought to a point in the middle of the work. `seen`: a worker lives through it.
pub(super) async fn restored(world: Arc<World>, seen: bool) -> Result<()> {
    let backup = Other::copy(&world).await?;
    let proxy = Proxy::before(world.url()).await;
    let old = world.worker("old").consumers(&all()).set("slow-ms", 10);
    let old = old.set("url", proxy.url()).set("pool-url", proxy.url());
    let old = old.running().await?;
    emit(&world, 1).await?;
    sealed(&world, world.rng(1).i64(5..20)).await;
    let point = "select pg_walfile_name(pg_create_restore_point('here'))";
    let client = world.client().await?;
    let file: String = client.query_one(point, &[]).await?.get(0);
    emit(&world, 2).await?;
    all_done(&world).await;
    client.batch_execute("select pg_switch_wal()").await?;
    let file = other::archive(&world).join(file);
    wait_for("the log to be kept", PATIENCE, async || {
        file.exists().then_some(())
    })
    .await;
    if !seen {
        old.terminate();
        old.exit(PATIENCE).await;
    }
    world.server.cluster().stop(Stop::Immediate).await?;
    backup.recover(&world, "here").await?;
    world.fault("a backup was restored to an earlier point");
    world.move_to(backup.url(&world));
    proxy.lead_to(world.url());
    proxy.cut();
    if !seen {
        world.worker("new").consumers(&all()).running().await?;
    }
    goes_on(&world, seen).await
}

/// A standby that was promoted and had not received everything.
pub(super) async fn promoted_lagging(world: Arc<World>) -> Result<()> {
    let proxy = Proxy::before(world.url()).await;
    let standby = Other::copy(&world).await?;
    standby.follow(&world).await?;
    let worker = world.worker("only").consumers(&all()).set("slow-ms", 10);
    let worker = worker.set("url", proxy.url()).set("pool-url", proxy.url());
    worker.running().await?;
    emit(&world, 1).await?;
    sealed(&world, world.rng(1).i64(5..20)).await;
    standby.lag(&world).await?;
    emit(&world, 2).await?;
    all_done(&world).await;
    world.server.cluster().kill().await?;
    standby.promote(&world).await?;
    world.fault("the primary was killed, and a standby promoted that lagged behind");
    world.move_to(standby.url(&world));
    proxy.lead_to(world.url());
    proxy.cut();
    goes_on(&world, true).await
}

/// Everything is handled, so that all of the lost time was acknowledged to somebody.
async fn all_done(world: &World) {
    let consumers = all().len();
    wait_for("all work to be done", PATIENCE, async || {
        let client = world.client().await.ok()?;
        let open = outlast_checker::open_work(&client, consumers).await.ok()?;
        (open == 0).then_some(())
    })
    .await;
}

/// Local consumers go on, mail waits, a person confirms, and then the account is right.
async fn goes_on(world: &World, seen: bool) -> Result<()> {
    const HELD: &str = "select count(*) from outlast._house where held is not null";
    wait_for(
        "what leaves the database to be held",
        PATIENCE,
        async || (world.number(HELD).await.ok()? == 1).then_some(()),
    )
    .await;
    emit(world, 3).await?;
    wait_for("local consumers to be done", PATIENCE, async || {
        let open = "select 2 * (select count(*) from outlast._event)
            - (select count(*) from outlast._processed_event p join outlast._consumer c on c.id = p.consumer where c.local)";
        (world.number(open).await.ok()? == 0).then_some(())
    })
    .await;
    let claimed = "select count(*) from outlast._batch b join outlast._consumer c on c.id = b.consumer
        where not c.local and b.claimed_at > (select min(at) from outlast._audit where action = 'restore.held')";
    if world.number(claimed).await? > 0 {
        world.violated("mail went on without a person");
    }
    let waits = "select 1 * (select count(*) from outlast._event)
        - (select count(*) from outlast._processed_event p join outlast._consumer c on c.id = p.consumer where not c.local)";
    ensure!(
        world.number(waits).await? > 0,
        "this run proves nothing: no mail waits"
    );
    let missing = world
        .number("select count(*) from outlast._missing")
        .await?;
    if seen && missing == 0 {
        world.violated("the report does not name the process that misses its commits");
    }
    confirm(world).await?;
    let expect = Expect {
        durable: false,
        rewound: true,
        ..expect(&all())
    };
    world.settle_as(&expect, 1).await?;
    let report = world.report();
    world.note(format_args!(
        "{} committed transactions are gone; {} mails were sent for events that are gone, {} were sent again",
        report.taken_back, report.only_outside, report.again
    ));
    ensure!(
        report.taken_back > 0,
        "this run proves nothing: no commit is gone"
    );
    ensure!(
        report.only_outside > 0,
        "this run proves nothing: no mail was sent in the lost time"
    );
    Ok(())
}
