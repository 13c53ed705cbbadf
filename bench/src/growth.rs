//! How cost grows: one thing at a time is made larger, from little to much, and the same work is measured beside each.
//!
//! The points of an axis stand side by side on one server and take turns, so that whatever else the machine does hits all
//! of them. Each is compared with the smallest of its axis in the same round. Trust CPU of the server and WAL, not rates.

mod axes;
mod history;
mod rest;
mod scene;
mod series;
mod table;
mod work;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{report::Report, server::Server};

#[derive(clap::Args)]
pub struct Args {
    /// Rounds of each axis, at most: an axis has fewer when its share of the time is over, and one in any case.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long all of it may take: 14, or in the full form as long as it takes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Also the points that take long to prepare: 10,000,000 waiting events, as many finished ones.
    #[arg(long, conflicts_with = "smoke")]
    full: bool,
    /// Only a smoke of everything: seconds instead of minutes, figures without worth.
    #[arg(long)]
    smoke: bool,
    /// Where the results go.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
    /// Only these axes: backlog, consumers, keys, ordered-keys, tenants, ordered-tenants, retained, writers, snapshot, rest.
    only: Vec<String>,
}

/// How much of everything.
#[derive(Clone, Copy, PartialEq)]
enum Size {
    Smoke,
    Usual,
    Full,
}

impl Args {
    fn size(&self) -> Size {
        match (self.smoke, self.full) {
            (true, _) => Size::Smoke,
            (_, true) => Size::Full,
            _ => Size::Usual,
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

pub async fn run(mut args: Args) -> Result<()> {
    if args.smoke {
        args.rounds = 1;
    }
    let server = Server::start().await?;
    quiet(&server).await?;
    let mut facts = Report::new("How cost grows", server.version()).facts;
    facts.push(server.today().await?);
    facts.push(
        "autovacuum off and a checkpoint before each measurement: both would hit one point or the other by chance".into(),
    );
    let mut growth = table::Growth::new(facts);
    let usual = if args.full { 24 * 60 } else { 14 };
    let minutes = args.minutes.unwrap_or(usual);
    let until = Instant::now() + Duration::from_secs(60 * minutes);
    let mut wanted = axes::all(args.size());
    wanted.retain(|axis| args.wants(axis.name));
    // What was measured last is not short of time because something before it was slow.
    let mut shares = wanted.len() as u32 + u32::from(args.wants("rest"));
    for axis in wanted {
        let begun = Instant::now();
        let share = until.saturating_duration_since(begun) / shares;
        shares -= 1;
        let rounds = series::Rounds {
            most: args.rounds,
            until: begun + share,
        };
        let series = series::measure(&server, &axis, rounds, args.size()).await?;
        eprintln!("{}: {:.0} s", axis.name, begun.elapsed().as_secs_f64());
        growth.axes.push(series);
    }
    if args.wants("rest") {
        growth.rest = rest::measure(&server, args.size()).await?;
    }
    println!("{}", growth.markdown());
    if !args.smoke {
        growth.write(&args.out, "growth")?;
        crate::peers::draw_growth(&args.out)?;
    }
    Ok(())
}

/// Nothing that begins by itself.
async fn quiet(server: &Server) -> Result<()> {
    let database = server.database("growth_settings").await?;
    for setting in ["autovacuum = off", "checkpoint_timeout = '1h'"] {
        database
            .sql
            .batch_execute(&format!("alter system set {setting}"))
            .await?;
    }
    database
        .number("select pg_reload_conf()::int::bigint")
        .await?;
    Ok(())
}
