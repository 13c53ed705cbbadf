//! E3: published, and the relay dies before it has recorded that; handled, and the worker dies before the ack: the copy has
//! the same identity, and there is one completion.

use std::sync::Arc;

use anyhow::{Result, ensure};
use outlast_engine::crash::Point;

use super::{
    super::{Row, Scenario, crash::died},
    RECORDED, done, emitted, published, readers, served_once, site,
};
use crate::{
    drill::{
        site::{Site, Whose, flying},
        source::Kind,
        worker::{Form, Spec},
        world::{Judged, PATIENCE, World},
    },
    wait_for,
};

pub(super) fn row(kind: Kind) -> Row {
    let relay = [
        ("relay-dies-unrecorded", Point::Finishing),
        ("relay-dies-recorded", Point::Finished),
    ];
    let relay = relay.map(|(name, point)| {
        let scenario = Scenario::new(name, move |world| relay_dies(world, kind, point));
        match point {
            Point::Finishing => scenario.core(),
            _ => scenario,
        }
    });
    let consumer = [
        ("consumer-dies-in-handler", Form::Tx, Point::InHandler),
        ("consumer-dies-before-the-ack", Form::Tx, Point::Committed),
        ("consumer-dies-unrecorded", Form::Outside, Point::Flushing),
    ];
    let consumer = consumer.map(|(name, form, point)| {
        let drill = move |world| consumer_dies(world, kind, form, point);
        let scenario = Scenario::new(name, drill);
        match point {
            Point::Committed => scenario.core(),
            _ => scenario,
        }
    });
    let lost = Scenario::new("confirm-lost", move |world| confirm_lost(world, kind));
    Row {
        name: "E3",
        what: "published or handled, and not recorded: the copy has the same identity; one completion",
        scenarios: relay
            .into_iter()
            .chain(consumer)
            .chain([lost.core()])
            .collect(),
    }
}

async fn relay_dies(world: Arc<World>, kind: Kind, point: Point) -> Result<()> {
    let specs = readers();
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    served_once(&world, &site).await?;
    site.worker(&world, "only")
        .consumers(&specs)
        .running()
        .await?;
    let client = world.emitter(1).set("transactions", 30).start()?;
    let mut again = 0;
    // Twice: the second death is that of somebody who has taken over.
    for name in ["one", "other"] {
        let victim = site.relays(&world, name).dies(point, 1).start()?;
        died(&world, &victim, point).await?;
        again += flying(&world, None).await?;
    }
    site.relay(&world, "heir").await?;
    done(&client).await?;
    let judged = Judged {
        again: Some(again),
        ..Judged::default()
    };
    let copies = world.settle_relayed(&site, &specs, &judged).await?;
    if point == Point::Finishing {
        world.faults(usize::try_from(copies)?, "a message was published again");
    }
    Ok(())
}

async fn consumer_dies(world: Arc<World>, kind: Kind, form: Form, point: Point) -> Result<()> {
    let specs = [Spec::new("reader", form)];
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    site.relay(&world, "only").await?;
    let client = world.emitter(1).start()?;
    for name in ["first", "second"] {
        let victim = site.worker(&world, name).consumers(&specs);
        let victim = victim.dies(point, 2).start()?;
        died(&world, &victim, point).await?;
    }
    let heir = site.worker(&world, "heir").consumers(&specs);
    heir.running().await?;
    done(&client).await?;
    let judged = Judged {
        again: Some(0),
        failures: 1,
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}

/// The broker has messages, and what it says of them is lost. Then the connection is.
async fn confirm_lost(world: Arc<World>, kind: Kind) -> Result<()> {
    let specs = readers();
    let site = Site::start(kind, Whose::Shared, &specs)
        .await?
        .wired()
        .await;
    site.route(&world, true).await?;
    site.relay(&world, "only").await?;
    site.worker(&world, "only")
        .consumers(&specs)
        .running()
        .await?;
    let client = world.emitter(1).set("transactions", 60).start()?;
    let times = if world.small { 1 } else { 3 };
    for time in 1..=times {
        published(&world, i64::try_from(time)? * 10).await;
        site.wire()?.lose_answers();
        emitted(&world, 1 + time).await?;
        wait_for(
            "the broker to have what is not recorded",
            PATIENCE,
            async || {
                let there = site.seen().await.ok()?;
                let recorded = world.number(RECORDED).await.ok()?;
                (i64::try_from(there.len()).ok()? > recorded).then_some(())
            },
        )
        .await;
        ensure!(site.wire()?.lost() > 0, "no answer was lost");
        world.fault("confirmations were lost");
        site.wire()?.cut();
    }
    done(&client).await?;
    // How many come again is a matter of time here: what is not answered is sent anew until it is.
    let judged = Judged {
        failures: 3,
        ..Judged::default()
    };
    let copies = world.settle_relayed(&site, &specs, &judged).await?;
    world.faults(usize::try_from(copies)?, "a message was published again");
    Ok(())
}
