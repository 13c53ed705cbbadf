//! A worker is frozen in the middle of a unit, longer than its lease, and wakes up when another one has the unit. Is what it
//! says then believed?

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    crash::LEASE,
    drain::{Drain, END, fill},
};
use crate::peers::{
    adapter::Who,
    child::{Child, Line},
    room::Room,
    samples::Numbers,
    stage::{Found, Stage},
    task::Task,
};

pub const STOP: &str = "stop";
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the old worker has to say that it is done, after its gate opened.
const STALE: Duration = Duration::from_secs(2);

pub async fn run(stage: &Stage) {
    stage
        .interleave(STOP, &stage.best_and_ours(), 1, async |who, _| {
            Ok(vec![stop(stage, who).await?])
        })
        .await;
}

async fn stop(stage: &Stage, who: &Who) -> Result<Found> {
    let room = Room::new(&stage.server, who, 1).await?;
    fill(
        &room,
        who,
        &Drain {
            units: 1,
            ..Drain::default()
        },
    )
    .await?;
    let (gate_a, gate_b) = (room.gate("a"), room.gate("b"));
    let task = |gate: &std::path::PathBuf| Task {
        units: 1,
        handler: "gate",
        gate: gate.clone(),
        lease: LEASE,
        ..Task::new("work")
    };
    let mut old = Child::start(who, &room, &task(&gate_a))?;
    old.ready().await?;
    old.go().await?;
    started(&mut old, PATIENCE)
        .await?
        .then_some(())
        .context("the first worker never started the unit")?;
    old.freeze()?;
    let frozen = Instant::now();
    let mut new = Child::start(who, &room, &task(&gate_b))?;
    new.ready().await?;
    new.go().await?;
    // From the moment at which both are there.
    let patience = Duration::from_secs_f64(stage.pick(60.0, 4.0 * LEASE, 4.0 * LEASE));
    let taken = started(&mut new, patience).await?;
    let taken_after = frozen.elapsed().as_secs_f64();
    old.wake()?;
    fs::write(&gate_a, "")?;
    let mut numbers = Numbers::new();
    let mut words = String::new();
    if taken {
        let stale = done_within(&room, STALE).await?;
        numbers.insert("taken_after".into(), taken_after);
        numbers.insert("stale".into(), f64::from(u8::from(stale)));
        if stale {
            words =
                "the woken worker's completion was accepted while the new owner was at work".into();
        }
    } else {
        words = format!("nobody else got the unit within {} s", patience.as_secs());
    }
    fs::write(&gate_b, "")?;
    done_within(&room, PATIENCE).await?;
    let mut handled = 0;
    for worker in [&mut old, &mut new] {
        worker.close();
        match worker.end(END).await {
            Ok(lines) => {
                handled += lines
                    .iter()
                    .filter_map(|line| {
                        if let Line::End { handled, .. } = line {
                            *handled
                        } else {
                            None
                        }
                    })
                    .sum::<i64>();
            }
            Err(error) => {
                words = format!(
                    "{words}{}{error:#}",
                    if words.is_empty() { "" } else { "; " }
                )
            }
        }
    }
    numbers.insert("handled".into(), handled as f64);
    numbers.insert("losses".into(), room.left().await? as f64);
    room.leave(&stage.server).await?;
    Ok(Found {
        case: String::new(),
        numbers,
        words,
    })
}

/// Whether it has started the unit in time.
async fn started(worker: &mut Child, patience: Duration) -> Result<bool> {
    let until = Instant::now() + patience;
    while Instant::now() < until {
        while let Some(line) = worker.now()? {
            if matches!(line, Line::Start { .. }) {
                return Ok(true);
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(false)
}

async fn done_within(room: &Room, patience: Duration) -> Result<bool> {
    let until = Instant::now() + patience;
    while Instant::now() < until {
        if room.left().await? == 0 {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(false)
}
