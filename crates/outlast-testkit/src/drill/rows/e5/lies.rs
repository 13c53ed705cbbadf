//! Handlers and pools that say "done" when nothing is there: the end of a batch must not believe them.

use std::sync::Arc;

use anyhow::{Result, ensure};

use super::super::{
    super::{
        lie::Lie,
        pools::Driver,
        worker::{Form, Spec},
        world::{PATIENCE, World},
    },
    Scenario,
};

pub(super) fn scenarios() -> Vec<Scenario> {
    let lie = |name: &str, lie| Scenario::new(name, move |world| lies(world, lie));
    vec![
        lie("savepoint-rolled-back-after-the-seal", Lie::Savepoint).core(),
        lie("failed-transaction-committed", Lie::Failed),
        Scenario::new("swallowed-error", swallows),
    ]
}

fn specs() -> [Spec; 4] {
    [
        Spec::new("ledger", Form::Tx),
        Spec {
            driver: Driver::Sqlx,
            ..Spec::new("books", Form::Tx)
        },
        Spec::new("archive", Form::Batch),
        Spec::new("post", Form::Seal),
    ]
}

/// The pool commits, and the seal is not in it.
async fn lies(world: Arc<World>, lie: Lie) -> Result<()> {
    let worker = world.worker("only").consumers(&specs());
    let worker = worker.set("lie", lie.as_str()).set("lie-every", 5);
    believed(&world, worker.running().await?, "lies about a commit").await
}

/// The handler goes on after a statement has failed, and returns `Ok`.
async fn swallows(world: Arc<World>) -> Result<()> {
    let worker = world.worker("only").consumers(&specs());
    let worker = worker.set("swallow-every", 9);
    believed(&world, worker.running().await?, "swallows an error").await
}

async fn believed(world: &World, worker: Arc<crate::process::Process>, what: &str) -> Result<()> {
    let client = world.emitter(1).set("clients", 1).start()?;
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    world.settle(&specs(), 4).await?;
    let lines = worker.lines();
    let times = lines.iter().filter(|line| line.contains(what)).count();
    world.faults(times, format_args!("the worker {what}"));
    Ok(())
}
