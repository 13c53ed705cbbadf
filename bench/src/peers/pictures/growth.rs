//! How cost grows, from what `./run bench growth` has left: each axis a small picture, each line the server CPU of a unit
//! against the first value of the axis.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Result;
use serde::Deserialize;

use super::{
    lines::{HEIGHT, Line, Lines, WIDTH},
    svg::Svg,
};
use crate::report::spread;

#[derive(Deserialize)]
struct Growth {
    axes: Vec<Axis>,
}

#[derive(Deserialize)]
struct Axis {
    axis: String,
    what: String,
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    work: String,
    value: f64,
    rounds: Vec<Round>,
}

#[derive(Deserialize)]
struct Round {
    units: f64,
    server_cpu: f64,
}

/// Draws `growth.svg` beside `growth.json`.
pub fn write(folder: &Path) -> Result<()> {
    let Ok(text) = fs::read_to_string(folder.join("growth.json")) else {
        return Ok(());
    };
    let growth: Growth = serde_json::from_str(&text)?;
    let axes: Vec<&Axis> = growth
        .axes
        .iter()
        .filter(|axis| axis.points.len() > 1)
        .collect();
    if axes.is_empty() {
        return Ok(());
    }
    const TITLE: f64 = 52.0;
    let rows = axes.len().div_ceil(2);
    let mut svg = Svg::new(
        2.0 * WIDTH + 20.0,
        TITLE + rows as f64 * HEIGHT,
        "How cost grows",
    );
    svg.text(0.0, 18.0, "t", "How cost grows");
    svg.text(
        0.0,
        38.0,
        "s",
        "server CPU of a unit against that at the first value; 1 is flat",
    );
    for (nth, axis) in axes.iter().enumerate() {
        let corner = (
            (nth % 2) as f64 * (WIDTH + 20.0),
            TITLE + (nth / 2) as f64 * HEIGHT,
        );
        let picture = Lines {
            title: &axis.axis,
            across: &axis.what,
            lines: axis.lines(),
        };
        picture.draw(&mut svg, corner);
    }
    fs::write(folder.join("growth.svg"), svg.finish())?;
    Ok(())
}

impl Axis {
    fn lines(&self) -> Vec<Line> {
        let mut works: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for point in &self.points {
            let cost = spread(
                point
                    .rounds
                    .iter()
                    .map(|round| round.server_cpu / round.units)
                    .collect(),
            )
            .0;
            works
                .entry(point.work.to_lowercase())
                .or_default()
                .push((point.value, cost));
        }
        let against_the_first = |(label, points): (String, Vec<(f64, f64)>)| {
            let first = points.first().map_or(1.0, |(_, cost)| cost.max(1e-12));
            let points = points.iter().filter(|(_, cost)| cost.is_finite());
            Line {
                label,
                points: points.map(|(value, cost)| (*value, cost / first)).collect(),
            }
        };
        works.into_iter().map(against_the_first).collect()
    }
}
