//! One axis: its points prepared side by side, then measured in turns.

use std::time::Instant;

use anyhow::{Context, Result};

use super::{
    Size,
    axes::Axis,
    scene::Stage,
    table::{Point, Series},
    work::{self, Work},
};
use crate::server::Server;

/// How often the points of an axis take turns.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub most: usize,
    /// No round begins that would not be over by then, but the first.
    pub until: Instant,
}

pub async fn measure(server: &Server, axis: &Axis, rounds: Rounds, size: Size) -> Result<Series> {
    let mut stages = Vec::new();
    for (n, value) in axis.values.iter().enumerate() {
        let stage = Stage::build(server, &format!("growth_{n}"), (axis.scene)(*value)).await;
        stages.push(stage.with_context(|| format!("{} {value}", axis.what))?);
    }
    let mut points: Vec<Point> = axis
        .works
        .iter()
        .flat_map(|work| axis.values.iter().map(|value| Point::new(*work, *value)))
        .collect();
    let place = |work: &Work, n: usize| {
        let works = axis.works.iter().position(|one| one == work).unwrap_or(0);
        works * axis.values.len() + n
    };
    for round in 0..rounds.most {
        let begun = Instant::now();
        // There and back: drift hits all alike.
        let mut turns: Vec<usize> = (0..stages.len()).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for work in &axis.works {
            for &n in &turns {
                let sample = work::measure(server, &mut stages[n], *work, size)
                    .await
                    .with_context(|| format!("{work:?} with {} {}", axis.values[n], axis.what))?;
                points[place(work, n)].tell(axis.what, &sample);
                points[place(work, n)].rounds.push(sample);
            }
        }
        if Instant::now() + begun.elapsed() > rounds.until {
            break;
        }
    }
    for (n, stage) in stages.into_iter().enumerate() {
        if stage.completed <= 2_000_000 {
            let broken = stage
                .database
                .number("select coalesce(sum(violations), 0)::bigint from outlast._verify()")
                .await?;
            anyhow::ensure!(
                broken == 0,
                "{broken} violations: {} {:?}",
                axis.what,
                stage.scene
            );
        }
        drop(stage);
        server.drop(&format!("growth_{n}")).await?;
    }
    Ok(Series {
        axis: axis.name.into(),
        what: axis.what.into(),
        points,
    })
}
