//! `outlast verify`: the invariants, from the tables alone.

use clap::Args;
use serde::Serialize;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Table, text},
    problem::Answer,
};

#[derive(Debug, Args)]
pub(crate) struct Verify {}

#[derive(Serialize)]
struct Checked<'a> {
    invariant: &'a str,
    violations: i64,
    example: Option<&'a str>,
}

impl Verify {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_read(global).await?;
        let rows = database
            .rows(
                "verify the invariants",
                include_str!("../../sql/house/verify.sql"),
                &[],
            )
            .await?;
        let checked = rows.iter().map(|row| Checked {
            invariant: row.get(0),
            violations: row.get(1),
            example: row.get(2),
        });
        let mut table = Table::new(["INVARIANT", "VIOLATIONS", "EXAMPLE"]).right(["VIOLATIONS"]);
        let mut broken = 0;
        for one in checked {
            broken += i64::from(one.violations > 0);
            if out.json {
                out.object(&one)?;
            } else {
                let count = one.violations.to_string();
                let (mark, example) = if one.violations > 0 {
                    ("broken: ", one.example.unwrap_or_default())
                } else {
                    ("", "")
                };
                table.row([&format!("{mark}{}", one.invariant), &count, example]);
            }
        }
        if !out.json {
            out.table(&table)?;
            let verdict = match broken {
                0 => format!("all {} invariants of {database} hold", rows.len()),
                n => format!(
                    "{} of {} broken in {database}",
                    text::count(n, "invariant", "invariants"),
                    rows.len()
                ),
            };
            out.say(&verdict)?;
        }
        Ok(if broken == 0 { Exit::Done } else { Exit::Found })
    }
}
