//! E8: messages that no broker takes among good ones, a broker that is away, slow or full, handlers that fail: others are
//! unaffected, what is used up is bounded, and a person is told.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{
    super::{Row, Scenario},
    at_work, done, emitted, published, readers, served_once, site,
};
use crate::{
    drill::{
        site::{Site, Whose},
        source::Kind,
        world::{Judged, PATIENCE, World},
    },
    wait_for,
};

/// Intents of the first client, for which two write.
const POISON: [i64; 3] = [1_000_002, 1_000_008, 1_010_004];
/// So many are parked while a destination goes down: ten make it an outage, and others were on their way.
const PARKED: i64 = 40;
/// The largest message that the drill's stream takes, where poison is too large.
pub(super) const LARGEST: usize = 20_000;

pub(super) fn row(kind: Kind) -> Row {
    let mut scenarios = vec![
        Scenario::new("poison-among-good", move |world| poison(world, kind)).core(),
        Scenario::new("broker-gone", move |world| gone(world, kind)).core(),
        Scenario::new("slow", move |world| slow(world, kind)),
        Scenario::new("first-tries-fail", move |world| failing(world, kind)).core(),
    ];
    if kind == Kind::Nats {
        scenarios.push(Scenario::new("full", move |world| full(world, kind)).core());
    }
    Row {
        name: "E8",
        what: "poison, outage, throttling: others unaffected, bounded, a person is told",
        scenarios,
    }
}

/// Some messages can never be sent: NATS refuses them, one by one, as too large; a header of them is too long for Pub/Sub.
async fn poison(world: Arc<World>, kind: Kind) -> Result<()> {
    let specs = readers();
    let site = Site::start(kind, Whose::Shared, &specs).await?;
    // Where order is kept, what comes later of their keys would wait: that is E9's.
    site.route(&world, false).await?;
    if kind == Kind::Nats {
        site.change(json!({ "max_msg_size": LARGEST })).await?;
    }
    served_once(&world, &site).await?;
    site.forget_limits(&world).await?;
    let client = POISON
        .into_iter()
        .fold(world.emitter(1), |client, n| client.set("poison-at", n));
    // All at once, so that they go in one call.
    done(&*client.start()?).await?;
    at_work(&world, &site, &specs).await?;
    let judged = Judged {
        quarantined: POISON.into(),
        unordered: true,
        again: Some(0),
        failures: 1,
        ..Judged::default()
    };
    world.fault(format_args!("{} messages could not be sent", POISON.len()));
    world.settle_relayed(&site, &specs, &judged).await?;
    let told = "select count(*) from outlast.incident where consumer = 'relay/did' and kind = 'quarantined event'";
    let told = world.number(told).await?;
    if told != i64::try_from(POISON.len())? {
        world.violated(format_args!(
            "{told} incidents for {} messages",
            POISON.len()
        ));
    }
    Ok(())
}

/// The broker is away for a while: nothing is lost, few are parked, and the outage can be seen.
async fn gone(world: Arc<World>, kind: Kind) -> Result<()> {
    let specs = readers();
    let site = site(&world, kind, Whose::Own, &specs).await?;
    site.relay(&world, "only").await?;
    // For Pub/Sub the consumers come later: what they have not taken is gone with the emulator.
    if kind == Kind::Nats {
        site.worker(&world, "only")
            .consumers(&specs)
            .running()
            .await?;
    }
    emitted(&world, 1).await?;
    published(&world, 10).await;
    site.kill().await;
    let client = world.emitter(2).set("transactions", 30);
    done(&*client.start()?).await?;
    let seen = "select count(*) from outlast.outage where consumer = 'relay/did'";
    wait_for("the outage to be seen", PATIENCE, async || {
        (world.number(seen).await.ok()? > 0).then_some(())
    })
    .await;
    // The measure is a time.
    let away = Duration::from_secs(if world.small { 2 } else { 15 });
    tokio::time::sleep(away).await;
    let parked = "select count(*) from outlast._parked where state <> 'behind'";
    let parked = world.number(parked).await?;
    let worst = "select coalesce(max(failures), 0)::bigint from outlast._parked";
    let worst = world.number(worst).await?;
    // What was on its way when the server died is charged once: nobody knows whether it was there.
    if worst > 1 {
        world.violated(format_args!("an outage has cost an event {worst} tries"));
    }
    world.fault(format_args!(
        "the broker was away for {away:?}: {parked} events were parked"
    ));
    if parked > PARKED {
        world.violated(format_args!("{parked} events were parked in an outage"));
    }
    site.back().await;
    if kind == Kind::PubSub {
        site.make(&specs).await?;
        let rewind =
            "select events from outlast.rewind('did', outlast.clock() - interval '1 hour')";
        world.client().await?.query_one(rewind, &[]).await?;
        site.worker(&world, "only")
            .consumers(&specs)
            .running()
            .await?;
        let done = "select count(*) from outlast.rewind where state = 'done'";
        wait_for("the rewind to be done", PATIENCE * 2, async || {
            (world.number(done).await.ok()? == 1).then_some(())
        })
        .await;
    }
    let judged = Judged {
        failures: 4,
        // What is rewound goes on beside what is new: the emulator gets both.
        unordered: kind == Kind::PubSub,
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await?;
    let charged = "select coalesce(max(failures), 0)::bigint from outlast._parked";
    ensure!(world.number(charged).await? == 0, "something is parked");
    Ok(())
}

/// Each piece of what is said comes late: it takes longer, and that is all.
async fn slow(world: Arc<World>, kind: Kind) -> Result<()> {
    let specs = readers();
    let site = Site::start(kind, Whose::Shared, &specs)
        .await?
        .wired()
        .await;
    site.route(&world, true).await?;
    at_work(&world, &site, &specs).await?;
    site.wire()?.slow(Duration::from_millis(100));
    world.fault("each piece on the way to the broker comes 100 ms late");
    done(&*world.emitter(1).set("transactions", 40).start()?).await?;
    let judged = Judged {
        again: Some(0),
        failures: 2,
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}

/// The stream is full, and refuses: the relay waits, uncharged, until somebody makes room.
async fn full(world: Arc<World>, kind: Kind) -> Result<()> {
    const ROOM: i64 = 6;
    const CHARGED: &str = "select coalesce(sum(failures), 0)::bigint from outlast._parked";
    let specs = readers();
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    at_work(&world, &site, &specs).await?;
    site.change(json!({ "max_msgs": ROOM })).await?;
    emitted(&world, 1).await?;
    published(&world, ROOM).await;
    let refused = "select (select count(*) from outlast._parked where class = 'throttled')
                        + (select count(*) from outlast.outage where consumer = 'relay/did')";
    wait_for("the relay to be refused", PATIENCE, async || {
        (world.number(refused).await.ok()? > 0).then_some(())
    })
    .await;
    let charged = world.number(CHARGED).await?;
    world.fault("the stream was full");
    if charged > 0 {
        world.violated(format_args!("a full stream has cost {charged} tries"));
    }
    site.change(json!({ "max_msgs": -1 })).await?;
    let judged = Judged {
        again: Some(0),
        failures: 4,
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}

/// The first try of every third event fails: it is acked when a whole copy is there, and retried from that.
async fn failing(world: Arc<World>, kind: Kind) -> Result<()> {
    let specs = readers();
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    site.relay(&world, "only").await?;
    let worker = site.worker(&world, "only").consumers(&specs);
    worker.set("fail-every", 3).running().await?;
    emitted(&world, 1).await?;
    world.fault("the first try of every third event failed");
    let judged = Judged {
        again: Some(0),
        failures: 2,
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}
