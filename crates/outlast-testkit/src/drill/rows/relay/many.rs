//! Three relays, of which one is killed every two seconds, for a minute, and two workers: nothing is lost, the ids are the
//! same, each key has its order at the consumer, and of a kill no more comes again than was on its way.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use tokio::time::{Instant, sleep_until};

use super::{
    super::{Row, Scenario},
    done, readers, site,
};
use crate::drill::{
    site::Whose,
    source::Kind,
    world::{Judged, World},
};

/// Between two kills.
const EVERY: Duration = Duration::from_secs(2);

pub(super) fn row(kind: Kind) -> Row {
    let scenario = Scenario::new("one-killed-every-two-seconds", move |world| {
        three(world, kind)
    });
    Row {
        name: "relays",
        what: "three relays, one killed every 2 s for a minute: exact, ordered, duplicates within what was on its way",
        scenarios: vec![scenario.patient(Duration::from_secs(600)).core()],
    }
}

async fn three(world: Arc<World>, kind: Kind) -> Result<()> {
    let kills: u32 = if world.small { 5 } else { 30 };
    let specs = readers();
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    let mut relays = Vec::new();
    for name in ["1", "2", "3"] {
        relays.push(site.relay(&world, name).await?);
    }
    for name in ["one", "other"] {
        site.worker(&world, name)
            .consumers(&specs)
            .running()
            .await?;
    }
    let client = world.emitter(1).set("transactions", 5000);
    let client = client
        .set("pause-ms", 60)
        .set("seconds", (EVERY * kills).as_secs());
    let client = client.start()?;
    let (mut rng, mut again, mut at) = (world.rng(11), 0, Instant::now());
    for kill in 0..kills {
        // The measure is a time.
        at += EVERY;
        sleep_until(at).await;
        let victim = rng.usize(..relays.len());
        again += relays[victim].kill(&world).await?;
        relays[victim] = site.relay(&world, &format!("heir-{kill}")).await?;
    }
    done(&client).await?;
    let judged = Judged {
        again: Some(again),
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}
