//! E10: the business row is deleted in the transaction that gives the cleanup, or while the instruction still waits. What is to be
//! done, and the provider's own number for it, live on in the command.

use std::{collections::HashSet, sync::Arc};

use anyhow::Result;
use outlast_checker::orders::Expect;
use outlast_engine::crash::Point;
use outlast_postgres::tx::{OwnedTx, Tx};

use super::{Scenario, UNDER_WAY};
use crate::{
    drill::{
        desk::{Desk, number},
        order::Wanted,
        rows::crash::died,
        world::World,
    },
    provider::order::{Fault, Habits, Kind, What},
};

const EACH: i64 = 5;
/// The number of the order that takes back the nth.
const CLEANUP: i64 = 500_000;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("row-gone", row_gone).core()]
}

async fn row_gone(world: Arc<World>) -> Result<()> {
    let desk = Desk::open(world.clone()).await?;
    desk.give_each(0, EACH).await?;
    desk.sender("first").running().await?;
    desk.rests().await?;
    world.stop().await;
    // Each row goes, and with it in one commit comes the instruction to take back what is at the provider.
    let made = desk.provider().orders();
    let mut deleted = HashSet::new();
    for order in &made {
        let n = order.body["n"].as_i64().unwrap_or_default();
        let cleanup = Wanted {
            undoes: Some(order.number),
            ..Wanted::new(order.kind, n + CLEANUP)
        };
        delete(&desk, n, Some(&cleanup)).await?;
        deleted.extend([n, cleanup.n]);
    }
    // And of orders that still wait only the row goes: they were authorised, and nobody has withdrawn them.
    desk.give_each(100, 2).await?;
    for kind in 0..Kind::ALL.len() {
        for n in [100, 101].map(|n| number(kind, n)) {
            delete(&desk, n, None).await?;
            deleted.insert(n);
        }
    }
    for n in made.iter().filter_map(|order| order.body["n"].as_i64()) {
        delete(&desk, n + CLEANUP, None).await?;
    }
    desk.habits(&Habits::only(Fault::Slow)).await;
    let victim = desk
        .sender("victim")
        .dies(Point::Sealing, world.rng(3).u32(1..=6))
        .start()?;
    died(&world, &victim, Point::Sealing).await?;
    desk.sender("heir").running().await?;
    let report = desk
        .settle(&Expect {
            in_between: UNDER_WAY,
            deleted,
            ..Expect::default()
        })
        .await?;
    let rows = world.number("select count(*) from drill.business").await?;
    let given = usize::try_from(4 * (2 * EACH + 2))?;
    if rows != 0 || report.commands != given {
        world.violated(format_args!(
            "{rows} business rows, {} commands of {given}",
            report.commands
        ));
    }
    taken_back(&world, &desk, &made);
    Ok(())
}

/// What was made is taken back once; where the provider has neither keys nor answers, once or not (and then it is a person's).
fn taken_back(world: &World, desk: &Desk, made: &[crate::provider::order::Entry]) {
    let orders = desk.provider().orders();
    for order in made.iter().filter(|order| order.what == What::Effect) {
        let undone = orders.iter().filter(|entry| {
            entry.what == What::Effect
                && entry.kind == order.kind
                && entry.body["undoes"].as_u64() == Some(order.number)
        });
        let undone = undone.count();
        if undone > 1 || (undone == 0 && order.kind != Kind::Keyless) {
            world.violated(format_args!(
                "order {} of {} was taken back {undone} times",
                order.number,
                order.kind.as_str()
            ));
        }
    }
}

/// In one transaction: the row goes, and the cleanup comes.
async fn delete(desk: &Desk, n: i64, cleanup: Option<&Wanted>) -> Result<()> {
    let mut tx = desk.begin().await?;
    let text = n.to_string();
    tx.call(
        "delete from drill.business where n = $1::text::bigint",
        &[text.as_str().into()],
    )
    .await?;
    if let Some(cleanup) = cleanup {
        cleanup.give(&mut tx).await?;
    }
    Ok(tx.commit().await?)
}
