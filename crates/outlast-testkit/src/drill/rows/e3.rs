//! E3, in its in-database form: the effect is there, the worker dies before recording it. The next try has the same
//! identity, and one completion is recorded.

use std::sync::Arc;

use anyhow::{Result, ensure};
use outlast_engine::crash::Point;

use super::{
    super::{
        worker::{Form, Spec},
        world::{PATIENCE, World},
    },
    Row, Scenario,
    crash::died,
};

pub(super) fn row() -> Row {
    let scenarios = [
        ("in-handler", Point::InHandler),
        ("before-recording", Point::Flushing),
    ];
    let scenarios = scenarios.map(|(name, point)| {
        Scenario::new(name, move |world| effect_then_death(world, point)).core()
    });
    Row {
        name: "E3",
        what: "handled, worker dies before recording it: the duplicate has the same identity; one completion",
        scenarios: scenarios.into(),
    }
}

async fn effect_then_death(world: Arc<World>, point: Point) -> Result<()> {
    let specs = [Spec::new("mail", Form::Outside)];
    let client = world.emitter(1).start()?;
    // Twice: the second try is marked, its event becomes a suspect and runs alone.
    for (nth, name) in ["first", "second"].into_iter().enumerate() {
        let victim = world.worker(name).consumers(&specs);
        let victim = victim.dies(point, 1).start()?;
        died(&world, &victim, point).await?;
        world.note(format_args!("death {}", nth + 1));
    }
    world.worker("heir").consumers(&specs).running().await?;
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    world.settle(&specs, 2).await?;
    let report = world.report();
    world.faults(report.again, "an event was handled again");
    if report.attempt_max < 2 {
        world.violated("an event was handled again, and called it its first try");
    }
    Ok(())
}
