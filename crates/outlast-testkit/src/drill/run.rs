//! Runs rows: several runs side by side, each in a folder of its own that is kept if it failed.

use std::{
    any::Any,
    io::Write,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures_util::FutureExt;
use serde::Serialize;
use tokio::{
    runtime::Builder,
    sync::{OnceCell, Semaphore},
    task::{JoinSet, spawn_blocking},
};

use super::{
    plant::Plant,
    rows::{self, Row, Scenario},
    server::Server,
    source::Kind,
    world::{Verdict, World},
};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Row names; all if empty.
    pub rows: Vec<String>,
    /// The rows with this broker, instead of those without one.
    pub broker: Option<Kind>,
    /// Only scenarios whose name contains this.
    pub only: Option<String>,
    /// How many seeds each scenario gets.
    pub seeds: u64,
    /// The first of them.
    pub seed: u64,
    /// The small setting: the core of each row, with smaller amounts.
    pub small: bool,
    /// Runs side by side.
    pub jobs: usize,
    /// A fault to plant in each database.
    pub plant: Option<Plant>,
    /// Keep every folder, not only those of failed runs.
    pub keep: bool,
    /// The program that plays clients and workers.
    pub program: PathBuf,
    /// No progress lines.
    pub quiet: bool,
}

/// One line of the result.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// `E1` and so on.
    pub row: String,
    /// With which broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker: Option<Kind>,
    /// How many runs.
    pub runs: usize,
    /// How many faults have happened in them.
    pub faults: usize,
    /// How many promises were broken.
    pub violations: usize,
    /// How long it took.
    pub seconds: f64,
}

/// Runs what was asked for; the lines come in the order of the table.
///
/// # Errors
/// When nothing can be run at all: an unknown row, no PostgreSQL.
pub async fn run(options: Options) -> Result<Vec<Line>> {
    let mut table = rows::all(options.broker);
    for name in &options.rows {
        let known = table.iter().any(|row| row.name.eq_ignore_ascii_case(name));
        let names: Vec<_> = table.iter().map(|row| row.name).collect();
        ensure!(
            known,
            "there is no row {name}; there are {}",
            names.join(", ")
        );
    }
    table.retain(|row| {
        (options.rows.is_empty() && !row.is_long())
            || options
                .rows
                .iter()
                .any(|name| row.name.eq_ignore_ascii_case(name))
    });
    let runner = Arc::new(Runner {
        slots: Semaphore::new(options.jobs),
        shared: OnceCell::new(),
        options,
    });
    let mut lines = Vec::new();
    for row in table {
        lines.push(runner.row(row).await?);
    }
    ensure!(lines.iter().any(|line| line.runs > 0), "no scenario fits");
    Ok(lines)
}

struct Runner {
    options: Options,
    slots: Semaphore,
    /// The server of all runs that leave it alone.
    shared: OnceCell<Arc<Server>>,
}

impl Runner {
    async fn row(self: &Arc<Self>, row: Row) -> Result<Line> {
        let options = &self.options;
        let mut line = Line {
            row: row.name.to_owned(),
            broker: options.broker,
            runs: 0,
            faults: 0,
            violations: 0,
            seconds: 0.0,
        };
        let fits = |scenario: &Scenario| {
            let only = options.only.as_ref();
            only.is_none_or(|only| scenario.name.contains(only))
                && (!options.small || scenario.core || only.is_some())
        };
        let scenarios: Vec<_> = row.scenarios.into_iter().filter(fits).collect();
        self.say(format_args!(
            "{}: {} ({} scenarios)",
            row.name,
            row.what,
            scenarios.len()
        ));
        let began = Instant::now();
        let mut runs = JoinSet::new();
        for scenario in scenarios {
            for seed in options.seed..options.seed + options.seeds {
                let (this, scenario) = (self.clone(), scenario.clone());
                runs.spawn(async move {
                    let _slot = this.slots.acquire().await?;
                    // A thread and a runtime of its own: what a run leaves behind ends with it.
                    let this = this.clone();
                    let run = spawn_blocking(move || {
                        let runtime = Builder::new_current_thread().enable_all().build()?;
                        runtime.block_on(this.once(row.name, &scenario, seed))
                    });
                    run.await?
                });
            }
        }
        while let Some(ended) = runs.join_next().await {
            let verdict = ended?.with_context(|| row.name)?;
            line.runs += 1;
            line.faults += verdict.faults;
            line.violations += verdict.violations.len();
        }
        line.seconds = (began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        Ok(line)
    }

    /// One run, from its server to its verdict.
    async fn once(&self, row: &str, scenario: &Scenario, seed: u64) -> Result<Verdict> {
        let began = Instant::now();
        let server = match scenario.server {
            Some(settings) => Arc::new(Server::start(settings).await?),
            None => self.shared().await?,
        };
        let folder = tempfile::Builder::new()
            .prefix(&format!("outlast-{row}-{}-{seed}-", scenario.name))
            .tempdir()?;
        let options = &self.options;
        let broker = options
            .broker
            .map_or(String::new(), |kind| format!(" {}", kind.as_str()));
        let (name, program) = (format!("{row}{broker} {}", scenario.name), &options.program);
        let world = World::new(
            &name,
            seed,
            options.small,
            server,
            folder.path(),
            program,
            options.plant,
        );
        let world = Arc::new(world.await?);
        // A drill that panics has failed, and the others go on.
        let work = AssertUnwindSafe(scenario.work(world.clone())).catch_unwind();
        match tokio::time::timeout(scenario.patience, work).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => world.violated(format_args!("the drill failed: {error:#}")),
            Ok(Err(panic)) => world.violated(format_args!("the drill failed: {}", text(&*panic))),
            Err(_) => world.violated(format_args!(
                "the drill hangs: no end after {:?}",
                scenario.patience
            )),
        }
        let verdict = world.end();
        let failed = !verdict.violations.is_empty();
        self.tell(&name, seed, &verdict, began.elapsed());
        if failed || options.keep {
            let kept = folder.keep();
            self.tell_kept(row, &scenario.name, seed, &kept);
        }
        Ok(verdict)
    }

    async fn shared(&self) -> Result<Arc<Server>> {
        let server = self
            .shared
            .get_or_try_init(async || anyhow::Ok(Arc::new(Server::start(&[]).await?)));
        server.await.cloned()
    }

    fn tell(&self, name: &str, seed: u64, verdict: &Verdict, took: Duration) {
        let report = &verdict.report;
        let rest = verdict
            .rest
            .map_or("never at rest".to_owned(), |rest| rest.to_string());
        let word = if verdict.violations.is_empty() {
            "ok"
        } else {
            "VIOLATED"
        };
        self.write(!verdict.violations.is_empty(), format_args!(
            "  {name} seed {seed}: {word}, {} faults, {} events, {} handled again, {rest}, {:.1} s",
            verdict.faults,
            report.events,
            report.again,
            took.as_secs_f64()
        ));
        for figure in &verdict.figures {
            self.write(false, format_args!("    {figure}"));
        }
        for violation in &verdict.violations {
            // All of it is in the history.
            let first = violation.lines().next().unwrap_or_default();
            let short: String = first.chars().take(300).collect();
            self.write(true, format_args!("    {short}"));
        }
    }

    fn tell_kept(&self, row: &str, scenario: &str, seed: u64, folder: &Path) {
        let plant = self.options.plant.map_or(String::new(), |plant| {
            format!(" --plant {}", plant.as_str())
        });
        let small = if self.options.small { " --small" } else { "" };
        let broker = self
            .options
            .broker
            .map_or(String::new(), |kind| format!(" --broker {}", kind.as_str()));
        self.write(
            true,
            format_args!("    history and logs: {}", folder.display()),
        );
        self.write(true, format_args!(
            "    again: ./run prove {row}{broker} --only {scenario} --seed {seed} --seeds 1{small}{plant}"
        ));
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        self.write(false, what);
    }

    /// What is wrong is told in any case: a log of CI that only counts helps nobody.
    fn write(&self, wrong: bool, what: std::fmt::Arguments<'_>) {
        if wrong || !self.options.quiet {
            // Nobody may be listening any more.
            let _ = writeln!(std::io::stderr(), "{what}");
        }
    }
}

/// What a drill that panicked has to say.
fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "it panicked without a text".to_owned())
}
