//! The results: a table for people, JSON with every round for programs and pictures.

use std::{fs, path::Path};

use anyhow::Result;
use serde::Serialize;

use super::{
    rest::AtRest,
    work::{Sample, Work},
};
use crate::report::spread;

#[derive(Debug, Serialize)]
pub struct Growth {
    pub title: String,
    pub facts: Vec<String>,
    pub axes: Vec<Series>,
    pub rest: Vec<AtRest>,
}

#[derive(Debug, Serialize)]
pub struct Series {
    pub axis: String,
    pub what: String,
    pub points: Vec<Point>,
}

#[derive(Debug, Serialize)]
pub struct Point {
    pub work: Work,
    pub value: i64,
    /// In the order in which they were measured: round n of one point is the neighbour of round n of another.
    pub rounds: Vec<Sample>,
}

impl Sample {
    fn cpu(&self) -> f64 {
        self.server_cpu * 1e6 / self.units as f64
    }

    fn wal(&self) -> f64 {
        self.wal_bytes / self.units as f64
    }

    fn client(&self) -> f64 {
        self.client_cpu * 1e6 / self.units as f64
    }

    fn rate(&self) -> f64 {
        self.units as f64 / self.seconds
    }
}

impl Point {
    pub fn new(work: Work, value: i64) -> Self {
        Self {
            work,
            value,
            rounds: Vec::new(),
        }
    }

    /// Says on the way what was found.
    pub fn tell(&self, what: &str, sample: &Sample) {
        eprintln!(
            "{:<60} {:<8} {:>9.0}/s {:>8.2} µs server {:>8.2} µs client {:>8.1} B WAL",
            format!("{} {what}", thousands(self.value)),
            format!("{:?}", self.work),
            sample.rate(),
            sample.cpu(),
            sample.client(),
            sample.wal(),
        );
    }

    fn median(&self, get: fn(&Sample) -> f64) -> f64 {
        spread(self.rounds.iter().map(get).collect()).0
    }

    /// Against another point, round by round.
    fn against(&self, first: &Point, get: fn(&Sample) -> f64) -> (f64, f64, f64) {
        spread(
            self.rounds
                .iter()
                .zip(&first.rounds)
                .map(|(a, b)| get(a) / get(b))
                .collect(),
        )
    }
}

impl Growth {
    pub fn new(facts: Vec<String>) -> Self {
        Self {
            title: "How cost grows".into(),
            facts,
            axes: Vec::new(),
            rest: Vec::new(),
        }
    }

    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n", self.title);
        for fact in &self.facts {
            out.push_str(&format!("- {fact}\n"));
        }
        out.push_str(
            "- drain: events that wait are handled by one worker (`on`, concurrency 50, handlers that do nothing), a unit is a \
             completion; trickle: one event is committed and handled by all, then the next one, a unit is a completion; emit: one event a \
             transaction\n- ratios: against the first value of the axis in the same round, median [min–max]; **bold**: 10 % or more away from 1\n",
        );
        for series in &self.axes {
            out.push_str(&format!(
                "\n## {}\n\nRounds: {}.\n\n| {} | work | server CPU µs/unit | ratio | WAL B/unit | ratio | rate | client CPU µs/unit |\n|--:|---|--:|--:|--:|--:|--:|--:|\n",
                series.axis,
                series.points.first().map_or(0, |point| point.rounds.len()),
                series.what
            ));
            for point in &series.points {
                let first = series
                    .points
                    .iter()
                    .find(|first| first.work == point.work)
                    .unwrap_or(point);
                out.push_str(&format!(
                    "| {} | {} | {:.1} | {} | {:.0} | {} | {:.0}/s | {:.1} |\n",
                    thousands(point.value),
                    format!("{:?}", point.work).to_lowercase(),
                    point.median(Sample::cpu),
                    ratio(point.against(first, Sample::cpu)),
                    point.median(Sample::wal),
                    ratio(point.against(first, Sample::wal)),
                    point.median(Sample::rate),
                    point.median(Sample::client),
                ));
            }
        }
        if !self.rest.is_empty() {
            out.push_str("\n## at rest\n\n| what | rows | heap B/row | index B/row | together |\n|---|--:|--:|--:|--:|\n");
            for one in &self.rest {
                out.push_str(&format!(
                    "| {} | {} | {:.1} | {:.1} | {:.1} |\n",
                    one.what,
                    thousands(one.rows),
                    one.heap,
                    one.index,
                    one.heap + one.index
                ));
            }
        }
        out
    }

    pub fn write(&self, folder: &Path, name: &str) -> Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join(format!("{name}.md")), self.markdown())?;
        fs::write(
            folder.join(format!("{name}.json")),
            serde_json::to_string_pretty(self)?,
        )?;
        Ok(())
    }
}

fn ratio((median, least, greatest): (f64, f64, f64)) -> String {
    let text = format!("{median:.2}");
    let text = if (median - 1.0).abs() >= 0.1 {
        format!("**{text}**")
    } else {
        text
    };
    format!("{text} [{least:.2}–{greatest:.2}]")
}

fn thousands(n: i64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
