//! Outlast beside others: interleaved rounds of contestants that know nothing of each other, each in a database of its own.
//! What a contestant must do is in bench/README.md.

mod adapter;
mod book;
mod check;
mod child;
mod counting;
mod goals;
mod layout;
mod meter;
mod pictures;
mod room;
mod samples;
mod stage;
mod table;
mod task;
mod workload;

pub use pictures::growth::write as draw_growth;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{report::Report, server::Server};
use adapter::{Adapter, Who};
use book::{Absent, Book, Chapter};
use samples::Samples;
use stage::{Form, OURS, Stage};

/// The measuring of the quick form; what follows the last workload takes some seconds more.
const QUICK: Duration = Duration::from_secs(265);
const GRACE: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub struct Args {
    /// Rounds of each workload; 5, or 1 in the quick form.
    #[arg(long)]
    rounds: Option<usize>,
    /// Only these workloads; what was found about the others stays in the results.
    #[arg(long, num_args = 1..)]
    only: Vec<String>,
    /// Only these contestants (`outlast` is always there: it is what the others are compared with).
    #[arg(long, num_args = 1..)]
    contestant: Vec<String>,
    /// Under five minutes when everything is built: short slices, few rounds.
    #[arg(long)]
    quick: bool,
    /// Seconds: outlast and by-hand only, figures without worth.
    #[arg(long)]
    smoke: bool,
    /// Tries everything that an adapter must do, and says what it does not.
    #[arg(long, value_name = "NAME")]
    check: Option<String>,
    /// Where the results go.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
}

pub async fn run(args: Args) -> Result<()> {
    tokio::select! {
        done = play(args) => done,
        // What was started ends with its guards.
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
    }
}

async fn play(args: Args) -> Result<()> {
    if let Some(name) = &args.check {
        return check::run(name).await;
    }
    let form = match (args.smoke, args.quick) {
        (true, _) => Form::Smoke,
        (_, true) => Form::Quick,
        _ => Form::Full,
    };
    let chosen = chosen(&args, form)?;
    let (whos, absent) = gather(&args, form)?;
    let begun = Instant::now();
    let rounds = args
        .rounds
        .unwrap_or(if form == Form::Full { 5 } else { 1 });
    let until = (form == Form::Quick).then(|| begun + QUICK);
    let server = Server::start_for_peers().await?;
    let (place, how) = facts(&server).await?;
    // Figures without worth are not kept.
    let mut book = match form {
        Form::Smoke => Book::new(place),
        Form::Full | Form::Quick => Book::open(&args.out, place),
    };
    book.present(&whos, absent);
    let stage = Stage::new(server, whos, form, rounds, until);
    for workload in chosen {
        let run = workload::run(&stage, workload);
        match until {
            // What was found by then counts; whoever was at it ends with its guards.
            Some(until) => _ = tokio::time::timeout_at((until + GRACE).into(), run).await,
            None => run.await,
        }
        let samples = stage.samples(workload);
        if form == Form::Smoke {
            failed(&samples)?;
        }
        book.put(Chapter {
            workload: workload.to_owned(),
            how: how.clone(),
            samples,
        });
        // After each: a long run that is interrupted has not been for nothing.
        if form != Form::Smoke {
            book.write(&args.out)?;
        }
    }
    if form == Form::Smoke {
        let folder = std::env::temp_dir().join(format!("outlast-bench-{}", std::process::id()));
        let written = book.write(&folder);
        std::fs::remove_dir_all(&folder)?;
        println!("{}", written?);
    } else {
        println!("{}", args.out.join("peers.md").display());
    }
    Ok(())
}

/// Builds those who are wanted; who cannot be had is told of, and the others go on.
fn gather(args: &Args, form: Form) -> Result<(Vec<Who>, Vec<Absent>)> {
    let wanted = |adapter: &Adapter| match &args.contestant[..] {
        [] => form != Form::Smoke || [OURS, "by-hand"].contains(&adapter.name.as_str()),
        names => adapter.name == OURS || names.contains(&adapter.name),
    };
    let (mut whos, mut absent) = (Vec::new(), Vec::new());
    let adapters: Vec<_> = adapter::all()?.into_iter().filter(wanted).collect();
    eprintln!("building those in Rust");
    let together = adapter::build_together(&adapters)?;
    for adapter in adapters {
        let name = adapter.name.clone();
        let built = if together && adapter.package().is_some() {
            Ok(())
        } else {
            eprintln!("building {name}");
            adapter.build()
        };
        match built.and_then(|()| Who::all(adapter)) {
            Ok(profiles) => whos.extend(profiles),
            Err(why) => {
                eprintln!("{name}: {why:#}");
                absent.push(Absent {
                    name,
                    why: format!("{why:#}"),
                });
            }
        }
    }
    Ok((whos, absent))
}

fn chosen(args: &Args, form: Form) -> Result<Vec<&'static str>> {
    if args.only.is_empty() {
        return Ok(workload::of(form));
    }
    for only in &args.only {
        let known = workload::ALL.contains(&only.as_str());
        anyhow::ensure!(
            known,
            "there is no workload {only}: {}",
            workload::ALL.join(", ")
        );
    }
    let asked = |name: &&str| args.only.iter().any(|only| only == name);
    Ok(workload::ALL.into_iter().filter(asked).collect())
}

/// Of a smoke nothing may fail.
fn failed(samples: &Samples) -> Result<()> {
    match samples
        .0
        .iter()
        .find(|sample| sample.words.starts_with("failed"))
    {
        Some(sample) => anyhow::bail!("{}: {}", sample.who, sample.words),
        None => Ok(()),
    }
}

/// Machine and server; command, load and date.
async fn facts(server: &Server) -> Result<(Vec<String>, String)> {
    let mut place = Report::new("", server.version()).facts;
    let command = place.pop().unwrap_or_default();
    let admin = room::connect(server, "postgres").await?;
    let today = "select current_date::text";
    let today: String = admin.query_one(today, &[]).await?.get(0);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("unknown");
    Ok((
        place,
        format!("{today}, {command}, load average at its begin {load}"),
    ))
}
