//! The results: a table for people, JSON for programs, both with the machine and the command.

use std::{fs, path::Path};

use anyhow::Result;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Row {
    pub workload: String,
    pub result: String,
    pub ratio: String,
    pub wal_bytes_per_unit: Option<f64>,
    pub server_cpu_us_per_unit: Option<f64>,
    pub client_cpu_us_per_unit: Option<f64>,
}

#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub title: String,
    pub facts: Vec<String>,
    pub rows: Vec<Row>,
}

impl Report {
    pub fn new(title: &str, postgres: &str) -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .unwrap_or(": unknown");
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        let facts = vec![
            format!(
                "machine: {cores} cores, {}",
                model.trim_start_matches(['\t', ' ', ':'])
            ),
            format!(
                "PostgreSQL {postgres} beside the client on a Unix socket; fsync, synchronous_commit, full_page_writes on; shared_buffers 512 MB, max_wal_size 4 GB"
            ),
            format!("command: `./run bench {command}`"),
        ];
        Self {
            title: title.into(),
            facts,
            rows: Vec::new(),
        }
    }

    pub fn push(&mut self, row: Row) {
        eprintln!("{:<58} {:<28} {}", row.workload, row.result, row.ratio);
        self.rows.push(row);
    }

    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n", self.title);
        for fact in &self.facts {
            out.push_str(&format!("- {fact}\n"));
        }
        out.push_str("\n| workload | result | ratio: median [min–max] | WAL B/unit | server CPU µs/unit | client CPU µs/unit |\n|---|--:|--:|--:|--:|--:|\n");
        let number = |n: Option<f64>| {
            n.map_or(String::from("–"), |n| {
                if n < 10.0 {
                    format!("{n:.1}")
                } else {
                    format!("{n:.0}")
                }
            })
        };
        for row in &self.rows {
            out.push_str(&format!(
                "| {} | {} | {} | {} | {} | {} |\n",
                row.workload,
                row.result,
                row.ratio,
                number(row.wal_bytes_per_unit),
                number(row.server_cpu_us_per_unit),
                number(row.client_cpu_us_per_unit)
            ));
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

/// The version of a crate that is compared with, from the lock file that this was built with.
pub fn locked(name: &str) -> &'static str {
    const LOCK: &str = include_str!("../Cargo.lock");
    let package = LOCK.split("[[package]]").find_map(|package| {
        let rest = package.strip_prefix(&format!("\nname = \"{name}\"\nversion = \""))?;
        rest.split('"').next()
    });
    package.unwrap_or("of unknown version")
}

/// Median, least and greatest.
pub fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => (f64::NAN, f64::NAN, f64::NAN),
        n => (values[n / 2], values[0], values[n - 1]),
    }
}

pub fn ratio(values: Vec<f64>) -> String {
    let (median, least, greatest) = spread(values);
    format!("{median:.2} [{least:.2}–{greatest:.2}]")
}

/// Of sorted values: the least that as many as `q` of them do not exceed.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let nth = (sorted.len() as f64 * q).ceil() as usize;
    sorted.get(nth.saturating_sub(1)).copied()
}
