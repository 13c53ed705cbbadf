//! E7: partial fan-out, and publishing that fails half-way. Children of a consumed event are written in the commit of its
//! completion and are relayed themselves; of a batch that was not confirmed only what is missing is published again.

use std::sync::Arc;

use anyhow::Result;
use outlast_engine::crash::Point;

use super::{
    super::{Row, Scenario, crash::died},
    done, emitted, on_their_way, published, readers, site,
};
use crate::{
    drill::{
        site::{Site, Whose},
        source::Kind,
        worker::{Form, Spec},
        world::{Judged, PATIENCE, World},
    },
    wait_for,
};

/// How many children an event has.
const CHILDREN: usize = 3;

/// What becomes of the way to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// What is sent is lost, then the connection is cut.
    Loses,
    /// The connection stays open and carries nothing more; new ones carry.
    HalfOpen,
}

pub(super) fn row(kind: Kind) -> Row {
    let points = [
        ("children-relayed", Point::InHandler),
        ("children-relayed-after-the-commit", Point::Committed),
    ];
    let children = points.map(|(name, point)| {
        let scenario = Scenario::new(name, move |world| children(world, kind, point));
        match point {
            Point::InHandler => scenario.core(),
            _ => scenario,
        }
    });
    let ways = [("request-lost", Way::Loses), ("half-open", Way::HalfOpen)];
    let ways = ways.map(|(name, way)| {
        let scenario = Scenario::new(name, move |world| half_way(world, kind, way));
        match way {
            Way::HalfOpen => scenario.core(),
            Way::Loses => scenario,
        }
    });
    Row {
        name: "E7",
        what: "partial fan-out, publishing that fails half-way: what is missing comes, what is there is not repeated",
        scenarios: children.into_iter().chain(ways).collect(),
    }
}

/// From the broker to a handler that writes children, which go to the broker, and to their own consumer.
async fn children(world: Arc<World>, kind: Kind, point: Point) -> Result<()> {
    let specs = [
        Spec::new("parent", Form::FanOut),
        Spec::new("child", Form::Child),
    ];
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    site.relay(&world, "only").await?;
    let client = world.emitter(1).start()?;
    let mut rng = world.rng(7);
    let worker = |name: &str| {
        let worker = site.worker(&world, name).consumers(&specs);
        worker.set("children", CHILDREN)
    };
    for name in ["first", "second"] {
        let nth = match point {
            // After one of its children, and not the last.
            Point::InHandler => rng.u32(1..3),
            _ => rng.u32(1..=4),
        };
        let victim = worker(name)
            .set("concurrency", 1)
            .dies(point, nth)
            .start()?;
        died(&world, &victim, point).await?;
    }
    worker("heir").running().await?;
    done(&client).await?;
    let judged = Judged {
        again: Some(0),
        failures: 1,
        fan_out: Some(("parent".to_owned(), CHILDREN)),
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}

async fn half_way(world: Arc<World>, kind: Kind, way: Way) -> Result<()> {
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
    published(&world, 20).await;
    match way {
        Way::Loses => site.wire()?.lose_requests(),
        Way::HalfOpen => site.wire()?.hold_open(),
    }
    emitted(&world, 2).await?;
    on_their_way(&world).await;
    if way == Way::Loses {
        wait_for("a request to be lost", PATIENCE, async || {
            (site.wire().ok()?.lost() > 0).then_some(())
        })
        .await;
        site.wire()?.cut();
    }
    world.fault(format_args!("the way to the broker: {way:?}"));
    done(&client).await?;
    let judged = Judged {
        failures: 3,
        ..Judged::default()
    };
    world.settle_relayed(&site, &specs, &judged).await.map(drop)
}
