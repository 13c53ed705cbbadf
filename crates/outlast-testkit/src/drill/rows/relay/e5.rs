//! E5: two runners overlap. A relay stands still past its lease with what it has published and not recorded, and wakes when
//! another one has it; a consumer wakes while another one is inside the handler of the same event.

use std::{fs::File, sync::Arc};

use anyhow::{Result, ensure};
use outlast_engine::crash::Point;

use super::{
    super::{Row, Scenario},
    RECORDED, done, emitted, events, published, readers, served_once, site,
};
use crate::{
    drill::{
        site::{Relay, Whose, flying},
        source::Kind,
        worker::{Form, Spec},
        world::{Judged, PATIENCE, World},
    },
    wait_for,
};

pub(super) fn row(kind: Kind) -> Row {
    let consumer = [
        ("consumer-frozen-in-handler", Point::InHandler),
        ("consumer-frozen-sealed", Point::Sealed),
    ];
    let consumer = consumer.map(|(name, point)| {
        let scenario = Scenario::new(name, move |world| consumer_frozen(world, kind, point));
        match point {
            Point::Sealed => scenario.core(),
            _ => scenario,
        }
    });
    let relay = [
        Scenario::new("relay-frozen-unrecorded", move |world| {
            relay_frozen(world, kind)
        })
        .core(),
        Scenario::new("relay-frozen-under-load", move |world| {
            under_load(world, kind)
        }),
    ];
    let copy = Scenario::new("copy-while-it-runs", move |world| copied(world, kind));
    Row {
        name: "E5",
        what: "a relay or a consumer is frozen past its lease and woken: every write of it is refused; a copy comes while its event runs",
        scenarios: relay.into_iter().chain(consumer).chain([copy]).collect(),
    }
}

/// Everything is published once more while handlers with outside effects are at it: two workers are given the same events.
async fn copied(world: Arc<World>, kind: Kind) -> Result<()> {
    const REWOUND: &str =
        "select count(*) from outlast.rewind where route = 'did' and state = 'done'";
    const DONE: &str = "select count(*) from outlast.processed where consumer = 'mail'";
    let specs = [Spec::new("mail", Form::Outside)];
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    site.relay(&world, "only").await?;
    for name in ["one", "other"] {
        let worker = site.worker(&world, name).consumers(&specs);
        // A place for each event and for its copy.
        let worker = worker.set("concurrency", 16).set("lease-ms", 6000);
        worker.set("slow-ms", 1500).running().await?;
    }
    let client = world.emitter(1).set("clients", 1).set("transactions", 8);
    done(&*client.set("pause-ms", 0).start()?).await?;
    let all = events(&world).await?;
    published(&world, all).await;
    let rewind = "select outlast.rewind('did', outlast.clock() - interval '1 hour', reason => 'again', actor => 'drill')";
    world.client().await?.batch_execute(rewind).await?;
    wait_for("the rewind to be done", PATIENCE, async || {
        (world.number(REWOUND).await.ok()? == 1).then_some(())
    })
    .await;
    let done = world.number(DONE).await?;
    ensure!(done < all, "all was done before the copies came");
    world.faults(
        usize::try_from(all - done)?,
        "a copy came of what was not done",
    );
    world
        .settle_relayed(&site, &specs, &Judged::default())
        .await?;
    let again = world.handled_again();
    if again > 0 {
        world.violated(format_args!(
            "{again} were handled again, and nobody had died"
        ));
    }
    Ok(())
}

/// It has published, stands still before it records that, and wakes when another one has published the same and recorded it.
async fn relay_frozen(world: Arc<World>, kind: Kind) -> Result<()> {
    let specs = readers();
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    served_once(&world, &site).await?;
    site.worker(&world, "only")
        .consumers(&specs)
        .running()
        .await?;
    let client = world.emitter(1);
    done(&*client.set("pause-ms", 0).start()?).await?;
    let old = site
        .relays(&world, "old")
        .stops(Point::Finishing, 1)
        .start()?;
    old.line("crash point: stops", PATIENCE).await;
    let again = flying(&world, None).await?;
    let new = site.relay(&world, "new").await?;
    let all = events(&world).await?;
    published(&world, all).await;
    world.fault("a relay wakes when another one has recorded what it has published");
    let before = world.number(RECORDED).await?;
    old.thaw();
    old.terminate();
    let status = old.exit(PATIENCE).await;
    ensure!(status.success(), "{old:?}");
    let after = world.number(RECORDED).await?;
    if after != before {
        world.violated(format_args!(
            "the old relay recorded after its work was taken over ({before}, then {after})"
        ));
    }
    emitted(&world, 2).await?;
    drop(new);
    let judged = Judged {
        again: Some(again),
        ..Judged::default()
    };
    let copies = world.settle_relayed(&site, &specs, &judged).await?;
    world.faults(usize::try_from(copies)?, "a message was published again");
    Ok(())
}

/// One of two relays stands still whenever that is, with events on their way; the other one takes them; it wakes.
async fn under_load(world: Arc<World>, kind: Kind) -> Result<()> {
    let specs = readers();
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    let relays = [
        site.relay(&world, "one").await?,
        site.relay(&world, "other").await?,
    ];
    site.worker(&world, "only")
        .consumers(&specs)
        .running()
        .await?;
    let (times, mut again, mut clients) = (if world.small { 2 } else { 6 }, 0, Vec::new());
    for time in 0..times {
        let client = world.emitter(u64::try_from(time)? + 1);
        clients.push(client.set("transactions", 60).start()?);
        let sleeper = &relays[time % 2];
        again += caught(&world, sleeper).await;
        wait_for("another relay to take over", PATIENCE, async || {
            (sleeper.flying(&world).await.ok()? == 0).then_some(())
        })
        .await;
        world.fault("a relay stood still until another one had taken over, and woke");
        sleeper.process.thaw();
    }
    for client in clients {
        done(&client).await?;
    }
    let judged = Judged {
        again: Some(again),
        failures: 1,
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}

/// Freezes it with something on its way: how much.
async fn caught(world: &World, relay: &Relay) -> i64 {
    wait_for("a relay with events on their way", PATIENCE, async || {
        relay.process.freeze();
        let flying = relay.flying(world).await.ok()?;
        if flying == 0 {
            relay.process.thaw();
        }
        (flying > 0).then_some(flying)
    })
    .await
}

/// A worker stands still; the broker gives its message to another one, who is inside the handler when the old one wakes.
async fn consumer_frozen(world: Arc<World>, kind: Kind, point: Point) -> Result<()> {
    let specs = [Spec::new("ledger", Form::Tx)];
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    site.relay(&world, "only").await?;
    let client = world.emitter(1).set("clients", 1);
    done(&*client.set("transactions", 8).set("pause-ms", 0).start()?).await?;
    let all = events(&world).await?;
    published(&world, all).await;
    let old = site.worker(&world, "old").consumers(&specs);
    let old = old.set("concurrency", 2).stops(point, 1).start()?;
    old.line("crash point: stops", PATIENCE).await;
    let gate = world.folder().join("gate");
    let new = site.worker(&world, "new").consumers(&specs);
    let new = new.set("gate", gate.display()).set("concurrency", 10);
    let new = new.running().await?;
    // What never ran comes first; of what did, the broker and the lease have to let go.
    while new.line("inside ", PATIENCE).await.ends_with("try 1") {}
    let pid = old.pid();
    let committed = format!("select count(*) from drill.effect where pid = {pid}");
    let before = world.number(&committed).await?;
    world.fault(format_args!(
        "the old worker wakes at {} while the new one is inside",
        point.as_str()
    ));
    old.thaw();
    old.terminate();
    let status = old.exit(PATIENCE).await;
    if !status.success() {
        world.violated(format_args!("the old worker ended badly: {status}"));
    }
    let after = world.number(&committed).await?;
    if after != before {
        world.violated(format_args!(
            "the old worker committed after its work was taken over ({before}, then {after})"
        ));
    }
    File::create(&gate)?;
    let judged = Judged {
        again: Some(0),
        failures: 2,
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}
