//! E13: another database than the one that was. A backup restored, a dump, a copy beside the original, a standby promoted:
//! each has its own right answer, with real servers, and after it nothing is lost and nothing is completed twice.

mod files;
mod other;
mod rewound;
mod rows;

use std::{fs::File, sync::Arc, time::Duration};

use anyhow::{Result, ensure};

use super::{
    super::{
        server::client,
        worker::{Form, Spec},
        world::{PATIENCE, World},
    },
    Row, Scenario,
};
use crate::{process::Process, proxy::Proxy, wait_for};
use other::Other;

/// The server keeps its log, so that a backup can be brought to any later point.
const ARCHIVING: &[(&str, &str)] = &[
    ("archive_mode", "on"),
    (
        "archive_command",
        "mkdir -p ../archive && cp %p ../archive/.%f && mv ../archive/.%f ../archive/%f",
    ),
];

pub(super) fn row() -> Row {
    let scenarios = vec![
        Scenario::new("dump", dump).alone(&[]).core(),
        Scenario::new("restored", |world| rewound::restored(world, true))
            .alone(ARCHIVING)
            .core(),
        Scenario::new("restored-unseen", |world| rewound::restored(world, false))
            .alone(ARCHIVING)
            .core(),
        Scenario::new("copy-beside", copy_beside).alone(&[]).core(),
        Scenario::new("promoted-synchronous", promoted_synchronous)
            .alone(&[])
            .core(),
        Scenario::new("promoted-lagging", rewound::promoted_lagging)
            .alone(&[])
            .core(),
    ];
    Row {
        name: "E13",
        what: "restored, copied, promoted: the right answer for each; nothing lost, nothing completed twice",
        scenarios,
    }
}

fn local() -> [Spec; 2] {
    [
        Spec::new("ledger", Form::Tx),
        Spec::new("archive", Form::Batch),
    ]
}

fn all() -> Vec<Spec> {
    let mut specs = Vec::from(local());
    specs.push(Spec::new("mail", Form::Outside));
    specs
}

/// One client's work, to its end.
async fn emit(world: &World, number: u64) -> Result<()> {
    let client = world.emitter(number).flag("dedup").start()?;
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    Ok(())
}

/// Waits until so many completions are there.
async fn sealed(world: &World, at_least: i64) {
    wait_for("some work to be done", PATIENCE, async || {
        let sealed = "select count(*) from outlast._processed_event";
        (world.number(sealed).await.ok()? >= at_least).then_some(())
    })
    .await;
}

/// The person, with the statement that `outlast restore confirm` is.
async fn confirm(world: &World) -> Result<()> {
    let client = world.client().await?;
    let row = client
        .query_one("select outlast._confirm('a drill')::text", &[])
        .await?;
    world.note(format_args!("confirmed: {}", row.get::<_, &str>(0)));
    Ok(())
}

/// It gives up, and says that a person must look.
async fn gives_up(world: &World, process: &Process) {
    let status = process.exit(PATIENCE).await;
    // Its last words may be read a moment after its end.
    let says = || process.lines().iter().any(|line| line.contains("OUT-0006"));
    let heard = async {
        while !says() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let said = tokio::time::timeout(Duration::from_secs(5), heard)
        .await
        .is_ok();
    if status.success() || !said {
        world.violated(format_args!(
            "a worker ended with {status} instead of OUT-0006: {:?}",
            process.lines().last()
        ));
    }
}

/// A dump, in the middle of all; emits on the new server before anybody looks; a worker of the old one that meets it.
async fn dump(world: Arc<World>) -> Result<()> {
    let specs = all();
    // A server that has lived: the new one will not come to its transaction ids for a while.
    const LIVED: &str =
        "do $$ begin for i in 1..20000 loop perform pg_current_xact_id(); commit; end loop; end $$";
    world.client().await?.batch_execute(LIVED).await?;
    let proxy = Proxy::before(world.url()).await;
    let gate = world.folder().join("gate");
    emit(&world, 1).await?;
    // Some of it is done, then the handlers of another worker stand still in the middle.
    let first = world.worker("first").consumers(&specs).set("slow-ms", 10);
    let first = first.running().await?;
    sealed(&world, world.rng(1).i64(5..20)).await;
    first.terminate();
    first.exit(PATIENCE).await;
    emit(&world, 2).await?;
    let old = world.worker("old").consumers(&specs);
    let old = old.set("url", proxy.url()).set("pool-url", proxy.url());
    let old = old.set("gate", gate.display()).start_doomed()?;
    wait_for(
        "a handler of each consumer to be inside",
        PATIENCE,
        async || {
            let lines = old.lines();
            let inside = |name| {
                lines
                    .iter()
                    .any(|line| line.contains(&format!("inside {name}")))
            };
            specs.iter().all(|spec| inside(&spec.name)).then_some(())
        },
    )
    .await;
    // Two batches of each are in flight at most; what comes then no tick has seen.
    for number in 5..8 {
        emit(&world, number).await?;
    }
    let other = Other::empty().await?;
    other.restore_dump(&world).await?;
    world.fault("dumped in the middle of all, and restored on a new server");
    world
        .server
        .cluster()
        .stop(outlast_postgres::cluster::Stop::Immediate)
        .await?;
    world.move_to(other.url(&world));
    proxy.lead_to(world.url());
    proxy.cut();
    emit(&world, 3).await?;
    let refused = world.worker("refused").consumers(&specs).start_doomed()?;
    gives_up(&world, &refused).await;
    File::create(&gate)?;
    gives_up(&world, &old).await;
    let claimed = "select count(*) from outlast._audit";
    ensure!(world.number(claimed).await? == 0, "nobody has confirmed");
    confirm(&world).await?;
    let client = world.emitter(4).flag("dedup").start()?;
    world.worker("new").consumers(&specs).running().await?;
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    world.settle(&specs, 1).await
}

/// The copy that nobody can tell from the original, until a process of the original meets it.
async fn copy_beside(world: Arc<World>) -> Result<()> {
    let specs = [Spec::new("mail", Form::Outside)];
    let named = "select outlast._name_deployment('production')";
    world.client().await?.batch_execute(named).await?;
    let proxy = Proxy::before(world.url()).await;
    let worker = |name: &str| {
        world
            .worker(name)
            .consumers(&specs)
            .set("deployment", "production")
    };
    worker("original")
        .set("url", proxy.url())
        .set("slow-ms", 10)
        .running()
        .await?;
    let client = world.emitter(1).flag("dedup").start()?;
    sealed(&world, 3).await;
    let copy = Other::copy(&world).await?;
    client.exit(PATIENCE).await;
    // Acknowledged after the copy, so that there is something to miss.
    let before = world
        .number("select count(*) from outlast._processed_event")
        .await?;
    emit(&world, 2).await?;
    sealed(&world, before + 1).await;
    copy.start().await?;
    let at_copy = client_of(&copy, &world).await?;
    world.fault(
        "a copy of the files was started beside the original, and the original's worker led there",
    );
    proxy.lead_to(&copy.url(&world));
    proxy.cut();
    wait_for("the copy to be held", PATIENCE, async || {
        let held = "select held from outlast._house where held like 'history was rewound%'";
        at_copy.query_opt(held, &[]).await.ok()?.map(drop)
    })
    .await;
    proxy.lead_to(world.url());
    proxy.cut();
    emit(&world, 3).await?;
    // Nobody who is configured for the original works on the copy once it has a name of its own.
    at_copy
        .batch_execute(
            "select outlast._name_deployment('staging'); select outlast._confirm('a copy')",
        )
        .await?;
    let stray = worker("stray")
        .set("url", copy.url(&world))
        .start_doomed()?;
    gives_up(&world, &stray).await;
    world.settle(&specs, 1).await?;
    let held = "select count(*) from outlast._house where held is not null";
    if world.number(held).await? > 0 {
        world.violated("the original is held");
    }
    Ok(())
}

async fn client_of(other: &Other, world: &World) -> Result<tokio_postgres::Client> {
    client(&other.url(world)).await
}

/// A standby that has everything: nobody needs a person, and nothing is lost.
async fn promoted_synchronous(world: Arc<World>) -> Result<()> {
    let specs = all();
    let proxy = Proxy::before(world.url()).await;
    let standby = Other::copy(&world).await?;
    standby.follow(&world).await?;
    let admin = world.client().await?;
    admin
        .batch_execute("alter system set synchronous_standby_names = '*'")
        .await?;
    admin.batch_execute("select pg_reload_conf()").await?;
    wait_for("the standby to be synchronous", PATIENCE, async || {
        let sync = "select count(*) from pg_stat_replication where sync_state = 'sync'";
        (world.number(sync).await.ok()? == 1).then_some(())
    })
    .await;
    let worker = world.worker("only").consumers(&specs).set("slow-ms", 5);
    let worker = worker.set("url", proxy.url()).set("pool-url", proxy.url());
    worker.running().await?;
    let client = world
        .emitter(1)
        .set("url", proxy.url())
        .set("transactions", 30);
    let client = client.flag("dedup").start()?;
    sealed(&world, world.rng(2).i64(10..40)).await;
    world.server.cluster().kill().await?;
    world.fault("the primary was killed, and its synchronous standby promoted");
    standby.promote(&world).await?;
    world.move_to(standby.url(&world));
    proxy.lead_to(world.url());
    proxy.cut();
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    world.settle(&specs, 2).await?;
    let waited = "select count(*) from outlast._audit where action = 'restore.held'";
    if world.number(waited).await? > 0 {
        world.violated("work waited for a person, and nothing was lost");
    }
    Ok(())
}
