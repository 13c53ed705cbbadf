//! E7: partial fan-out. An event's children are written in the commit of its completion: after a crash anywhere between
//! them the missing ones come, and those that are there are not repeated.

use std::sync::Arc;

use anyhow::{Result, ensure};
use outlast_checker::Expect;
use outlast_engine::crash::Point;

use super::{
    super::{
        pools::{Driver, Isolation},
        worker::{Form, Spec},
        world::{PATIENCE, World, expect},
    },
    Row, Scenario,
    crash::died,
};

/// How many children an event has.
const CHILDREN: u32 = 3;

pub(super) fn row() -> Row {
    let points = [
        ("between-two-children", Point::InHandler),
        ("after-the-last-child", Point::Sealing),
        ("before-the-commit", Point::Sealed),
        ("after-the-commit", Point::Committed),
    ];
    let scenarios = points.map(|(name, point)| {
        let scenario = Scenario::new(name, move |world| fans_out(world, point));
        let core = matches!(point, Point::InHandler | Point::Committed);
        if core { scenario.core() } else { scenario }
    });
    Row {
        name: "E7",
        what: "partial fan-out: missing children recover, completed ones are not repeated",
        scenarios: scenarios.into(),
    }
}

async fn fans_out(world: Arc<World>, point: Point) -> Result<()> {
    let mut rng = world.rng(7);
    let isolation = Isolation::ALL[rng.usize(..3)];
    let driver = Driver::ALL[rng.usize(..2)];
    let specs = [
        Spec {
            isolation,
            driver,
            ..Spec::new("parent", Form::FanOut)
        },
        Spec::new("child", Form::Child),
    ];
    let client = world.emitter(1).start()?;
    let worker = |name: &str| {
        let worker = world.worker(name).consumers(&specs);
        worker.set("children", CHILDREN)
    };
    // Twice: the second death is that of somebody who has taken over.
    for name in ["first", "second"] {
        let nth = match point {
            // After one of its children, and not the last.
            Point::InHandler => rng.u32(1..CHILDREN),
            _ => rng.u32(1..=4),
        };
        let victim = worker(name)
            .set("concurrency", 1)
            .dies(point, nth)
            .start()?;
        died(&world, &victim, point).await?;
    }
    worker("heir").running().await?;
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    let expect = Expect {
        fan_out: Some(("parent".to_owned(), CHILDREN as usize)),
        ..expect(&specs)
    };
    world.settle_as(&expect, 2).await
}
