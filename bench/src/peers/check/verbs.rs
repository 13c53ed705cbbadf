//! The verbs, one after the other.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, bail, ensure};
use tokio::time::Instant;

use super::Findings;
use crate::{
    peers::{
        adapter::Who,
        child::{Child, Line},
        room::Room,
        task::Task,
        workload::drain::until_done,
    },
    server::Server,
};

const PATIENCE: Duration = Duration::from_secs(30);
const UNITS: i64 = 100;

pub async fn run(server: &Server, who: &Who, findings: &mut Findings) {
    let skips = |what: &str| who.skips(what).map(str::to_owned);
    findings.step(
        "install, fill and work: all is done, once, in good order",
        drained(server, who, 1, 200).await,
    );
    findings.step(
        "a payload of 64 KB",
        drained(server, who, 1, 64 * 1024).await,
    );
    match skips("fan-out") {
        Some(why) => findings.left_out("five consumers", &why),
        None => findings.step("five consumers", drained(server, who, 5, 200).await),
    }
    findings.step("fill a second time", twice(server, who).await);
    for emit in ["none", "own", "joined"] {
        let what = format!("enqueue with BENCH_EMIT={emit}");
        match skips("enqueue").or_else(|| skips(emit)) {
            Some(why) => findings.left_out(&what, &why),
            None => findings.step(&what, enqueued(server, who, emit, 1).await),
        }
    }
    findings.step(
        "enqueue in batches of 50",
        enqueued(server, who, "own", 50).await,
    );
    match skips("trickle") {
        Some(why) => findings.left_out("trickle, and handlers that stamp", &why),
        None => findings.step(
            "trickle, and handlers that stamp",
            trickled(server, who).await,
        ),
    }
    findings.step(
        "a handler at its gate is not done before it opens",
        gated(server, who).await,
    );
}

async fn worked(who: &Who, room: &Room, units: i64, consumers: usize) -> Result<()> {
    let mut worker = Child::start(
        who,
        room,
        &Task {
            units,
            consumers,
            ..Task::new("work")
        },
    )?;
    worker.ready().await?;
    worker.go().await?;
    until_done(room, std::slice::from_mut(&mut worker), PATIENCE).await?;
    worker.close();
    let mut handled = None;
    for line in worker.end(PATIENCE).await? {
        match line {
            Line::End {
                handled: Some(n), ..
            } => handled = Some(n),
            Line::Handled => {}
            other => bail!("{other:?} from a worker of no-ops"),
        }
    }
    let wanted = units * consumers as i64;
    ensure!(
        handled == Some(wanted),
        "its end says {handled:?} handled instead of {wanted}"
    );
    let left = room.left().await?;
    ensure!(left == 0, "{left} are left after its end");
    Ok(())
}

async fn drained(server: &Server, who: &Who, consumers: usize, payload: usize) -> Result<()> {
    let room = Room::new(server, who, consumers).await?;
    let left = room.left().await?;
    ensure!(left == 0, "{left} are left in an empty database");
    let fill = Task {
        units: UNITS,
        consumers,
        payload,
        ..Task::new("fill")
    };
    room.run(who, &fill, PATIENCE).await?;
    let left = room.left().await?;
    ensure!(
        left == UNITS * consumers as i64,
        "after fill of {UNITS} for {consumers} consumers {left} are left"
    );
    worked(who, &room, UNITS, consumers).await?;
    match (room.done_at().await?, who.description.history) {
        (None, true) => bail!("it keeps finished units, and has no done_at"),
        (Some(_), false) => bail!("it keeps no finished units, and has a done_at"),
        (None, false) => {}
        (Some(done), true) => {
            let numbers: BTreeSet<i64> = done.iter().map(|(n, _)| *n).collect();
            let wanted = UNITS as usize * consumers;
            ensure!(
                done.len() == wanted,
                "done_at has {} rows instead of {wanted}",
                done.len()
            );
            ensure!(
                numbers.iter().copied().eq(1..=UNITS),
                "done_at does not number them from 1 to {UNITS}"
            );
        }
    }
    room.leave(server).await
}

async fn twice(server: &Server, who: &Who) -> Result<()> {
    let room = Room::new(server, who, 1).await?;
    let fill = Task {
        units: UNITS,
        ..Task::new("fill")
    };
    for _ in 0..2 {
        room.run(who, &fill, PATIENCE).await?;
        let left = room.left().await?;
        ensure!(left == UNITS, "{left} are left after fill");
        worked(who, &room, UNITS, 1).await?;
    }
    room.leave(server).await
}

async fn enqueued(server: &Server, who: &Who, emit: &'static str, batch: usize) -> Result<()> {
    let room = Room::new(server, who, 1).await?;
    let task = Task {
        emit,
        batch,
        writers: 2,
        seconds: 0.3,
        ..Task::new("enqueue")
    };
    let mut child = Child::start(who, &room, &task)?;
    child.close();
    let transactions = match child.end(PATIENCE).await?[..] {
        [
            Line::End {
                transactions: Some(n),
                seconds: Some(_),
                ..
            },
        ] => n,
        ref other => bail!("it said {other:?} instead of one end with transactions and seconds"),
    };
    let committed = room.number("select count(*) from business").await?;
    ensure!(
        committed == transactions && committed > 0,
        "it says {transactions} transactions, the table {committed}"
    );
    let units = if emit == "none" {
        0
    } else {
        transactions * batch as i64
    };
    let left = room.left().await?;
    ensure!(
        left == units,
        "{transactions} transactions of {batch} leave {left} units waiting"
    );
    room.leave(server).await
}

async fn trickled(server: &Server, who: &Who) -> Result<()> {
    let room = Room::new(server, who, 1).await?;
    let work = Task {
        units: 20,
        handler: "stamp",
        ..Task::new("work")
    };
    let mut worker = Child::start(who, &room, &work)?;
    worker.ready().await?;
    worker.go().await?;
    let task = Task {
        units: 20,
        rate: 100.0,
        ..Task::new("trickle")
    };
    let mut child = Child::start(who, &room, &task)?;
    child.ready().await?;
    let committed = room.number("select count(*) from business").await?;
    ensure!(committed == 0, "it begins before the line on stdin");
    child.go().await?;
    let said = child.end(PATIENCE).await?;
    let numbers: Vec<i64> = said
        .iter()
        .filter_map(|line| {
            if let Line::Committed { n, .. } = line {
                Some(*n)
            } else {
                None
            }
        })
        .collect();
    ensure!(
        numbers.iter().copied().eq(1..=20),
        "it says that {numbers:?} were committed"
    );
    let committed = room.number("select count(*) from business").await?;
    ensure!(committed == 20, "{committed} business rows");
    let mut started = BTreeSet::new();
    let until = Instant::now() + PATIENCE;
    while started.len() < 20 {
        match worker.next(until).await? {
            Some(Line::Start { n, .. }) => _ = started.insert(n),
            Some(_) => {}
            None => bail!("the worker ended"),
        }
    }
    ensure!(
        started.iter().copied().eq(1..=20),
        "{started:?} were started"
    );
    until_done(&room, std::slice::from_mut(&mut worker), PATIENCE).await?;
    worker.close();
    worker.end(PATIENCE).await?;
    room.leave(server).await
}

async fn gated(server: &Server, who: &Who) -> Result<()> {
    let room = Room::new(server, who, 1).await?;
    room.run(
        who,
        &Task {
            units: 1,
            ..Task::new("fill")
        },
        PATIENCE,
    )
    .await?;
    let gate = room.gate("check");
    let task = Task {
        units: 1,
        handler: "gate",
        gate: gate.clone(),
        ..Task::new("work")
    };
    let mut worker = Child::start(who, &room, &task)?;
    worker.ready().await?;
    worker.go().await?;
    match worker.next(Instant::now() + PATIENCE).await? {
        Some(Line::Start { n: 1, .. }) => {}
        other => bail!("{other:?} instead of the start of unit 1"),
    }
    let left = room.left().await?;
    ensure!(left == 1, "{left} are left while its handler waits");
    std::fs::write(&gate, "")?;
    until_done(&room, std::slice::from_mut(&mut worker), PATIENCE).await?;
    worker.close();
    worker.end(PATIENCE).await?;
    room.leave(server).await
}
