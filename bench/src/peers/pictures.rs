//! The results as pictures: SVG, readable on a light page and on a dark one.

mod bars;
pub mod growth;
mod lines;
mod svg;

use std::{fs, path::Path};

use anyhow::Result;

use super::{
    book::Book,
    workload::{enqueue, trickle},
};
use bars::{Bar, Bars};

pub fn write(book: &Book, folder: &Path) -> Result<()> {
    let one_unit = enqueue::case(8, 1, "own");
    for (file, workload, case, number, digits, least_first, title, unit) in [
        (
            "drain",
            "drain",
            "",
            "rate",
            0,
            false,
            "Drain of no-ops",
            "units a second, median of the rounds; more is better",
        ),
        (
            "enqueue",
            "enqueue",
            one_unit.as_str(),
            "ratio",
            2,
            false,
            "A business transaction with one unit, 8 writers",
            "rate against the same without; more is better",
        ),
        (
            "latency",
            "trickle",
            trickle::STEADY,
            "p99",
            1,
            true,
            "Commit → start at 200/s",
            "milliseconds, p99, median of the rounds; less is better",
        ),
    ] {
        let Some(samples) = book.samples(workload) else {
            continue;
        };
        let bar = |who: String| {
            Some(Bar {
                value: samples.median(&who, case, number)?,
                ours: who.starts_with("outlast"),
                floor: who.starts_with("by-hand"),
                label: who,
            })
        };
        let mut bars: Vec<Bar> = samples.whos().into_iter().filter_map(bar).collect();
        bars.sort_by(|a, b| {
            if least_first {
                a.value.total_cmp(&b.value)
            } else {
                b.value.total_cmp(&a.value)
            }
        });
        if !bars.is_empty() {
            let picture = Bars {
                title,
                unit,
                digits,
                bars,
            };
            fs::write(folder.join(format!("{file}.svg")), picture.svg())?;
        }
    }
    Ok(())
}
