//! E2: a crash after the commit, before the broker has it: the relay finds it, and nothing is lost.

use std::sync::Arc;

use anyhow::{Context, Result};
use outlast_engine::crash::Point;
use outlast_postgres::cluster::Stop;

use super::{
    super::{Row, Scenario, crash::died},
    at_work, done, emitted, events, on_their_way, published, readers, served_once, site,
};
use crate::{
    drill::{
        site::{Whose, flying},
        source::Kind,
        world::{Judged, PATIENCE, World},
    },
    wait_for,
};

pub(super) fn row(kind: Kind) -> Row {
    let mut scenarios = vec![
        Scenario::new("relay-dies-claimed", move |world| dies(world, kind)),
        Scenario::new("no-relay-lives", move |world| nobody(world, kind)).core(),
        Scenario::new("broker-wiped", move |world| wiped(world, kind)).core(),
        Scenario::new("postgres-killed", move |world| postgres(world, kind)).alone(&[]),
    ];
    if kind == Kind::Nats {
        // The emulator keeps nothing that it could come back with.
        let killed = Scenario::new("broker-killed", move |world| killed(world, kind));
        scenarios.push(killed.core());
    }
    Row {
        name: "E2",
        what: "a crash after commit and before publish: the relay finds it, nothing is lost",
        scenarios,
    }
}

/// A relay dies with events that it has claimed and not sent.
async fn dies(world: Arc<World>, kind: Kind) -> Result<()> {
    let specs = readers();
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    served_once(&world, &site).await?;
    site.worker(&world, "only")
        .consumers(&specs)
        .running()
        .await?;
    let client = world.emitter(1).start()?;
    let nth = world.rng(2).u32(1..=3);
    let victim = site.relays(&world, "victim").dies(Point::Claimed, nth);
    let victim = victim.start()?;
    died(&world, &victim, Point::Claimed).await?;
    let again = flying(&world, None).await?;
    site.relay(&world, "heir").await?;
    done(&client).await?;
    let judged = Judged {
        again: Some(again),
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}

/// All is committed while no relay lives; then one comes.
async fn nobody(world: Arc<World>, kind: Kind) -> Result<()> {
    let specs = readers();
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    served_once(&world, &site).await?;
    site.worker(&world, "only")
        .consumers(&specs)
        .running()
        .await?;
    emitted(&world, 1).await?;
    world.fault("no relay lived while all of it was committed");
    site.relay(&world, "late").await?;
    let judged = Judged {
        again: Some(0),
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}

/// The server stands still while it is published to, and is killed then. It comes back with what it had confirmed.
async fn killed(world: Arc<World>, kind: Kind) -> Result<()> {
    let specs = readers();
    let site = site(&world, kind, Whose::Own, &specs).await?;
    let _running = at_work(&world, &site, &specs).await?;
    let client = world.emitter(1).set("transactions", 60).start()?;
    let (kills, mut again) = (if world.small { 1 } else { 3 }, 0);
    for kill in 1..=kills {
        published(&world, i64::try_from(kill)? * 10).await;
        site.freeze();
        // These go to a server that takes nothing any more.
        emitted(&world, 1 + kill).await?;
        on_their_way(&world).await;
        again += flying(&world, None).await?;
        site.kill().await;
        world.fault("the broker was killed");
        // What was claimed between the look and the kill.
        again += flying(&world, None).await?;
        site.back().await;
    }
    done(&client).await?;
    let judged = Judged {
        again: Some(again),
        failures: 3,
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}

/// The server loses all it had, with consumers amid it: one rewind fills it again, with the same ids.
async fn wiped(world: Arc<World>, kind: Kind) -> Result<()> {
    const REWOUND: &str = "select count(*) from outlast.rewind where route = 'did' and state = 'done' and sent = events";
    let specs = readers();
    let site = site(&world, kind, Whose::Own, &specs).await?;
    site.relay(&world, "first").await?;
    let worker = site.worker(&world, "first").consumers(&specs);
    worker.set("slow-ms", 30).running().await?;
    emitted(&world, 1).await?;
    let all = events(&world).await?;
    published(&world, all).await;
    site.kill().await;
    site.wipe();
    site.back().await;
    site.make(&specs).await?;
    let left = "select count(*) from drill.business b where not exists (
                  select from drill.effect d where d.event_id = b.event_id and d.consumer = 'ledger')";
    let left = world.number(left).await?;
    world.fault(format_args!(
        "the broker lost {all} messages, {left} of which the ledger had not taken"
    ));
    let rewind = "select events from outlast.rewind('did', outlast.clock() - interval '1 hour', reason => 'wiped', actor => 'drill')";
    let row = world.client().await?.query_one(rewind, &[]).await?;
    let rewound: i64 = row.get(0);
    if rewound != all {
        world.violated(format_args!(
            "a rewind has {rewound} events, and {all} were lost"
        ));
    }
    wait_for("the rewind to be done", PATIENCE * 2, async || {
        (world.number(REWOUND).await.ok()? == 1).then_some(())
    })
    .await;
    let audited =
        "select count(*) from outlast._audit where action = 'relay.rewound' and actor = 'drill'";
    if world.number(audited).await? != 1 {
        world.violated("nobody has written down who rewound");
    }
    // It goes on as before.
    emitted(&world, 2).await?;
    let judged = Judged::default();
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}

/// PostgreSQL is stopped as by a power cut, while it is relayed and consumed from it.
async fn postgres(world: Arc<World>, kind: Kind) -> Result<()> {
    let specs = readers();
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    let _running = at_work(&world, &site, &specs).await?;
    let client = world.emitter(1).set("transactions", 60).flag("dedup");
    let client = client.start()?;
    for stop in 1..=2 {
        published(&world, stop * 25).await;
        let cluster = world.server.cluster();
        cluster.stop(Stop::Immediate).await.context("stop")?;
        world.fault("PostgreSQL went down");
        cluster.start().await.context("start")?;
    }
    done(&client).await?;
    let judged = Judged {
        failures: 3,
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}
