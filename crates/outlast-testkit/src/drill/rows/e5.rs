//! E5: two runners overlap. The old one sleeps past its lease, the new one is inside the handler of the same event when
//! the old one wakes: every write of the old one is refused, nothing is lost, nothing is believed without its row.

mod lies;

use std::{fs::File, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use outlast_engine::crash::Point;

use super::{
    super::{
        pools::{Driver, Isolation},
        worker::{Form, Spec},
        world::{LEASE, PATIENCE, World},
    },
    Row, Scenario,
};
use crate::{process::Process, wait_for};

/// How a run of two runners goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The old one is told to stop as soon as it wakes.
    Stops,
    /// The old one works on, and takes new events.
    WorksOn,
}

pub(super) fn row() -> Row {
    use Isolation::{Committed, Repeatable, Serializable};
    let mut scenarios = Vec::new();
    let mut cell = |form, isolation, point, core| {
        scenarios.push(overlap(form, isolation, point, core));
    };
    for isolation in Isolation::ALL {
        cell(Form::Tx, isolation, Point::Begun, false);
        cell(Form::Tx, isolation, Point::InHandler, true);
        cell(Form::Tx, isolation, Point::Sealed, true);
    }
    for (form, isolation, point) in [
        (Form::Tx, Committed, Point::Claimed),
        (Form::Batch, Committed, Point::Sealed),
        (Form::Batch, Repeatable, Point::InHandler),
        (Form::Batch, Serializable, Point::Begun),
        (Form::Seal, Committed, Point::InHandler),
        (Form::Seal, Repeatable, Point::Sealed),
        (Form::Seal, Serializable, Point::Sealed),
        (Form::Outside, Committed, Point::InHandler),
        (Form::Outside, Committed, Point::Flushing),
    ] {
        cell(form, isolation, point, point == Point::Flushing);
    }
    scenarios.push(Scenario::new("wakes-and-works-on", |world| {
        let spec = Spec::new("ledger", Form::Tx);
        two_runners(world, spec, Point::InHandler, Then::WorksOn)
    }));
    for isolation in Isolation::ALL {
        let name = format!("clock-jumps-{}", isolation.as_str());
        let scenario = Scenario::new(name, move |world| clock_jumps(world, isolation));
        scenarios.push(match isolation {
            Committed => scenario.core(),
            _ => scenario,
        });
    }
    scenarios.push(Scenario::new("later-batch-ends-first", later_first).core());
    scenarios.push(Scenario::new("sleeps-alone", sleeps_alone));
    scenarios.push(
        Scenario::new("longer-than-its-lease", |world| {
            let few = if world.small { 2 } else { 4 };
            longer(world, LEASE * 2, LEASE * 4, few)
        })
        .core(),
    );
    scenarios.push(Scenario::new("thirty-seconds-under-five", |world| {
        longer(world, Duration::from_secs(5), Duration::from_secs(30), 50)
    }));
    scenarios.extend(lies::scenarios());
    Row {
        name: "E5",
        what: "two runners overlap: every write of the old one is refused, nothing is lost or believed without its row",
        scenarios,
    }
}

fn overlap(form: Form, isolation: Isolation, point: Point, core: bool) -> Scenario {
    let (handler, level, at) = (form.as_str(), isolation.as_str(), point.as_str());
    let scenario = Scenario::new(format!("{handler}-{level}-{at}"), move |world| {
        let driver = Driver::ALL[usize::from(world.rng(4).bool())];
        let spec = Spec {
            isolation,
            driver,
            ..Spec::new("ledger", form)
        };
        two_runners(world, spec, point, Then::Stops)
    });
    if core { scenario.core() } else { scenario }
}

/// What the old runner has committed: its rows, and all completions (while the new one is inside, there are no others).
async fn committed(world: &World, old: &Process) -> Result<i64> {
    let pid = old.pid();
    let sql = format!(
        "select (select count(*) from drill.effect where pid = {pid}) * 1000000
              + (select count(*) from outlast._processed_event)"
    );
    world.number(&sql).await
}

async fn two_runners(world: Arc<World>, spec: Spec, point: Point, then: Then) -> Result<()> {
    let specs = [spec];
    emit(&world, 1).await?;
    let old = world.worker("old").consumers(&specs);
    let old = old.set("concurrency", 2).stops(point, 1).start()?;
    old.line("crash point: stops", PATIENCE).await;
    let gate = world.folder().join("gate");
    let new = world.worker("new").consumers(&specs);
    let new = new.set("gate", gate.display()).running().await?;
    // Its leases have lapsed by then, and the new one has taken over.
    let inside = new.line("inside ", PATIENCE).await;
    ensure!(!inside.ends_with("try 1"), "not taken over: {inside}");
    let before = committed(&world, &old).await?;
    world.fault(format_args!(
        "the old runner wakes at {} while the new one is inside",
        point.as_str()
    ));
    old.thaw();
    if then == Then::Stops {
        old.terminate();
        let status = old.exit(PATIENCE).await;
        if !status.success() {
            world.violated(format_args!("the old runner ended badly: {status}"));
        }
        let after = committed(&world, &old).await?;
        if after != before {
            world.violated(format_args!(
                "the old runner committed after its work was taken over (rows and completions: {before}, then {after})"
            ));
        }
    } else {
        emit(&world, 2).await?;
    }
    File::create(&gate)?;
    world.settle(&specs, 2).await
}

/// The server's clock jumps, and all leases lapse, while a seal is written and its COMMIT was not sent. Somebody who
/// wants to take over must not get it as long as that transaction may still commit.
async fn clock_jumps(world: Arc<World>, isolation: Isolation) -> Result<()> {
    let driver = Driver::ALL[usize::from(world.rng(4).bool())];
    let specs = [Spec {
        isolation,
        driver,
        ..Spec::new("ledger", Form::Tx)
    }];
    emit(&world, 1).await?;
    let old = world.worker("old").consumers(&specs);
    // Long, because the server ends a transaction that is idle for the rest of its lease.
    let old = old
        .set("lease-ms", 60_000)
        .stops(Point::Sealed, 1)
        .start()?;
    old.line("crash point: stops", PATIENCE).await;
    let sql = world.client().await?;
    let jump =
        "create or replace function outlast.clock() returns timestamptz language sql volatile as $$
        select clock_timestamp() + interval '2 minutes' $$";
    sql.batch_execute(jump).await?;
    let claim = "select id from outlast.claim('event', 'ledger', 100, 15000, 'somebody else')";
    let taken = sql.query(claim, &[]).await?.len();
    world.fault(format_args!(
        "the clock jumped, {taken} events were taken over"
    ));
    let before = committed(&world, &old).await?;
    old.thaw();
    if taken > 0 {
        old.terminate();
        old.exit(PATIENCE).await;
        let after = committed(&world, &old).await?;
        if after != before {
            world.violated(format_args!(
                "the old runner committed after its work was taken over (rows and completions: {before}, then {after})"
            ));
        }
    }
    world.settle(&specs, 2).await
}

/// A batch is over while an earlier one is still in flight, whose worker then dies: that one is nobody else's.
async fn later_first(world: Arc<World>) -> Result<()> {
    let specs = [Spec::new("ledger", Form::Tx)];
    emit(&world, 1).await?;
    let victim = world.worker("victim").consumers(&specs);
    let victim = victim.stops(Point::Claimed, 1).start()?;
    victim.line("crash point: stops", PATIENCE).await;
    world.worker("other").consumers(&specs).running().await?;
    emit(&world, 2).await?;
    wait_for("the later batch to be done", PATIENCE, async || {
        let done = "select count(*) from outlast._processed_event";
        (world.number(done).await.ok()? >= 8).then_some(())
    })
    .await;
    victim.kill();
    world.fault("a later batch has ended, and the worker of an earlier one died");
    world.settle(&specs, 2).await
}

/// Nobody takes over: the old one finds its lease lapsed, and does the work all the same.
async fn sleeps_alone(world: Arc<World>) -> Result<()> {
    let specs = [
        Spec::new("ledger", Form::Tx),
        Spec::new("mail", Form::Outside),
    ];
    emit(&world, 1).await?;
    let old = world.worker("only").consumers(&specs);
    let old = old.stops(Point::InHandler, 1).start()?;
    old.line("crash point: stops", PATIENCE).await;
    wait_for("its lease to lapse", PATIENCE, async || {
        let live = "select count(*) from outlast._lease where room = 'batch' and expires_at >= outlast.clock()";
        (world.number(live).await.ok()? == 0).then_some(())
    })
    .await;
    world.fault("the only runner wakes after its lease");
    old.thaw();
    world.settle(&specs, 2).await
}

/// A handler that takes longer than its lease keeps it: it is renewed, and the other worker leaves it alone.
async fn longer(world: Arc<World>, lease: Duration, slow: Duration, events: usize) -> Result<()> {
    let specs = [
        Spec::new("ledger", Form::Tx),
        Spec::new("mail", Form::Outside),
    ];
    for name in ["one", "other"] {
        let worker = world.worker(name).consumers(&specs);
        let worker = worker.set("lease-ms", lease.as_millis());
        let worker = worker.set("concurrency", (events / 2).max(4));
        let worker = worker.set("deadline-ms", (slow * 4).as_millis());
        worker.set("slow-ms", slow.as_millis()).running().await?;
    }
    let client = world
        .emitter(1)
        .set("clients", 1)
        .set("transactions", events);
    let client = client.start()?;
    client.exit(PATIENCE).await;
    world.fault(format_args!("handlers take {slow:?}, leases {lease:?}"));
    // The handlers themselves: those that find no free place wait for a second round.
    let all = i64::try_from(2 * events)?;
    let patient = slow * 3 + Duration::from_secs(20);
    wait_for("long handlers to end", patient, async || {
        let done = "select count(*) from outlast._processed_event";
        (world.number(done).await.ok()? >= all).then_some(())
    })
    .await;
    world.settle(&specs, 0).await?;
    let report = world.report();
    if report.attempt_max > 1 || report.again > 0 {
        world.violated(format_args!(
            "a renewed lease was taken over: try {}, {} again",
            report.attempt_max, report.again
        ));
    }
    Ok(())
}

/// A few events, all at once.
async fn emit(world: &World, number: u64) -> Result<()> {
    let client = world.emitter(number).set("clients", 1);
    let client = client.set("transactions", 8).set("pause-ms", 0).start()?;
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    Ok(())
}
