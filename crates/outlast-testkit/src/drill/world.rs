//! One run of one scenario: its database, its processes, its history, and what was found.

mod program;
mod relayed;
mod rest;

use std::{
    collections::HashSet,
    fmt::Display,
    fs::{self, File},
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use outlast_checker::{Consumer, Effects, Expect, Handles, Report};
use tokio_postgres::Client;

use super::{
    plant::Plant,
    server::{Server, client},
    worker::{Form, Spec},
};
use crate::process::Process;
pub use program::Program;
pub(super) use relayed::Judged;
pub use rest::Rest;

/// Long enough for a loaded machine; nothing waits so long when all is well.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The leases of drill workers.
pub(super) const LEASE: Duration = Duration::from_secs(2);
/// Without any news, a worker looks at everything this often.
const POLL: Duration = Duration::from_secs(5);
/// What one completion may take on a slow machine.
const WORK: Duration = Duration::from_millis(20);

/// One run.
#[derive(Debug)]
pub struct World {
    /// Row and scenario.
    pub name: String,
    /// All chances of this run come from here.
    pub seed: u64,
    /// Smaller amounts, for the tests of the repository.
    pub small: bool,
    pub(super) server: Arc<Server>,
    folder: PathBuf,
    url: String,
    moved: OnceLock<String>,
    program: PathBuf,
    plant: Option<Plant>,
    began: Instant,
    found: Mutex<Found>,
}

/// What a run has found so far.
#[derive(Debug, Default)]
struct Found {
    faults: usize,
    violations: Vec<String>,
    rest: Option<Rest>,
    report: Report,
    figures: Vec<String>,
    processes: Vec<(String, Arc<Process>)>,
    /// Who may end badly.
    others: Vec<(String, Arc<Process>)>,
    history: Option<File>,
    /// Kept for those who ask often.
    asking: Option<Arc<Client>>,
}

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Faults that have happened.
    pub faults: usize,
    /// Each broken promise.
    pub violations: Vec<String>,
    /// How long it took from the last healing to the last completion.
    pub rest: Option<Rest>,
    /// What the checker counted.
    pub report: Report,
    /// What was measured.
    pub figures: Vec<String>,
}

impl World {
    pub(super) async fn new(
        name: &str,
        seed: u64,
        small: bool,
        server: Arc<Server>,
        folder: &Path,
        program: &Path,
        plant: Option<Plant>,
    ) -> Result<Self> {
        let database: String = format!("{name}-{seed}")
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let url = server.database(&database).await?;
        let found = Found {
            history: Some(File::create(folder.join("history.log"))?),
            ..Found::default()
        };
        let world = Self {
            name: name.to_owned(),
            seed,
            small,
            server,
            folder: folder.to_owned(),
            url,
            moved: OnceLock::new(),
            program: program.to_owned(),
            plant,
            began: Instant::now(),
            found: Mutex::new(found),
        };
        if let Some(plant) = plant {
            world.client().await?.batch_execute(&plant.sql()).await?;
            world.note(format_args!("planted: {}", plant.as_str()));
        }
        Ok(world)
    }

    /// Chances of this run, for one purpose.
    pub(super) fn rng(&self, purpose: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(1_000_003) ^ purpose)
    }

    /// Where the database is.
    pub(super) fn url(&self) -> &str {
        self.moved.get().unwrap_or(&self.url)
    }

    /// From now on the database is there. Once.
    pub(super) fn move_to(&self, url: String) {
        self.note(format_args!("the database is at {url}"));
        assert!(self.moved.set(url).is_ok(), "a world moves once");
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A connection of the drill's own.
    pub(super) async fn client(&self) -> Result<Client> {
        client(self.url()).await
    }

    /// One number from the database.
    pub(super) async fn number(&self, sql: &str) -> Result<i64> {
        let open = self.found().asking.clone();
        let asking = match open.filter(|asking| !asking.is_closed()) {
            Some(asking) => asking,
            None => Arc::new(self.client().await?),
        };
        self.found().asking = Some(asking.clone());
        let row = asking.query_one(sql, &[]).await;
        Ok(row.with_context(|| sql.to_owned())?.get(0))
    }

    /// One line of the history.
    pub(super) fn note(&self, what: impl Display) {
        let at = self.began.elapsed().as_millis();
        if let Some(history) = &mut self.found().history {
            // A history that cannot be written stops nothing.
            let _ = writeln!(history, "{at:>7} ms  {what}");
        }
    }

    /// A fault has happened.
    pub(super) fn fault(&self, what: impl Display) {
        self.note(format_args!("FAULT  {what}"));
        self.found().faults += 1;
    }

    /// Faults that were counted elsewhere.
    pub(super) fn faults(&self, n: usize, what: impl Display) {
        self.note(format_args!("FAULT  {n} times: {what}"));
        self.found().faults += n;
        if n == 0 {
            self.violated(format_args!("this run proves nothing: not once {what}"));
        }
    }

    /// What the checker counted.
    pub(super) fn report(&self) -> Report {
        self.found().report.clone()
    }

    /// Something was measured.
    pub(super) fn figure(&self, what: impl Display) {
        self.note(&what);
        self.found().figures.push(what.to_string());
    }

    /// A promise is broken.
    pub(super) fn violated(&self, what: impl Display) {
        self.note(format_args!("VIOLATION  {what}"));
        self.found().violations.push(what.to_string());
    }

    /// A client process; `number` tells it from the others.
    pub(super) fn emitter(&self, number: u64) -> Program<'_> {
        Program::emitter(self, number)
    }

    /// A worker process.
    pub(super) fn worker(&self, name: &str) -> Program<'_> {
        Program::worker(self, name)
    }

    /// A reconciler process.
    pub(super) fn mirror(&self, name: &str) -> Program<'_> {
        Program::mirror(self, name)
    }

    /// A sender process, before this provider.
    pub(super) fn sender(&self, name: &str, provider: SocketAddr) -> Program<'_> {
        Program::sender(self, name, provider)
    }

    /// After the last fault has healed and the last client is done: waits until no work is open, stops the workers,
    /// and judges. `failures` is how often one event may have been charged.
    pub(super) async fn settle(&self, specs: &[Spec], failures: u32) -> Result<()> {
        self.settle_as(&expect(specs), failures).await
    }

    pub(super) async fn settle_as(&self, expect: &Expect, failures: u32) -> Result<()> {
        let consumers = expect.consumers.len();
        let work = self.number("select count(*) from outlast._event").await?;
        let work = WORK * u32::try_from(work)? * u32::try_from(consumers)?;
        let backoff = Duration::from_secs(failures.checked_sub(1).map_or(0, |n| 1 << n));
        let client = self.client().await?;
        self.comes_to_rest(consumers, LEASE + backoff + 2 * POLL + work)
            .await?;
        let (facts, report) = outlast_checker::check(&client, &self.folder, expect).await?;
        if !report.violations.is_empty() {
            // The database is gone when somebody looks.
            fs::write(self.folder.join("facts.txt"), format!("{facts:#?}"))?;
        }
        self.judged(report);
        Ok(())
    }

    /// What the checker has found.
    pub(super) fn judged(&self, report: Report) {
        for violation in &report.violations {
            self.violated(violation);
        }
        self.note(format_args!("{report:?}"));
        self.found().report = report;
    }

    /// How many effects outside there were beyond the first of their event, as judged.
    pub(super) fn handled_again(&self) -> usize {
        self.found().report.again
    }

    /// Waits until no work is open, and stops the workers.
    pub(super) async fn comes_to_rest(&self, consumers: usize, allowed: Duration) -> Result<()> {
        self.rests(consumers, 0, allowed).await?;
        self.stop().await;
        Ok(())
    }

    /// `never`: so many completions are not to come.
    async fn rests(&self, consumers: usize, never: i64, allowed: Duration) -> Result<()> {
        let open = async |client: &Client| {
            let open = outlast_checker::open_work(client, consumers).await;
            Some(open.ok()? - never)
        };
        self.rests_as(allowed, open).await
    }

    /// Waits until nothing is open any more.
    pub(super) async fn rests_as(
        &self,
        allowed: Duration,
        open: impl AsyncFn(&Client) -> Option<i64>,
    ) -> Result<()> {
        let client = self.client().await?;
        let rest = rest::until_rest(&client, allowed, open).await;
        self.note(format_args!("{rest}"));
        if !rest.in_time {
            self.violated(format_args!(
                "{rest} (lease {LEASE:?} + backoff + 2 polls of {POLL:?} + work)"
            ));
        }
        self.found().rest = Some(rest);
        Ok(())
    }

    /// SIGTERM to all that still runs: a worker drains and ends well. Whoever gave up by himself before is told of.
    pub(super) async fn stop(&self) {
        let processes = self.found().processes.clone();
        for (name, process) in processes {
            process.terminate();
            let status = process.exit(PATIENCE).await;
            // By a signal: that was the drill.
            if status.code().is_some_and(|code| code != 0) {
                let lines = process.lines();
                let last = lines.last().map_or("", String::as_str);
                self.violated(format_args!("{name} ended badly ({status}): {last}"));
            }
        }
    }

    /// Ends the run: all processes are killed, their output is kept, and so is the server's.
    pub(super) fn end(&self) -> Verdict {
        let mut found = std::mem::take(&mut *self.found());
        for (name, process) in found.processes.iter().chain(&found.others) {
            process.kill();
            let log = self.folder.join(format!("{name}.log"));
            let _ = fs::write(log, process.lines().join("\n"));
        }
        found.processes.clear();
        found.others.clear();
        let log = self.server.cluster().folder().join("server.log");
        let _ = fs::copy(log, self.folder.join("server.log"));
        Verdict {
            faults: found.faults,
            violations: found.violations,
            rest: found.rest,
            report: found.report,
            figures: found.figures,
        }
    }

    /// How many lines of the run's processes have this in them.
    pub(super) fn said(&self, text: &str) -> usize {
        let found = self.found();
        let processes = found.processes.iter().chain(&found.others);
        let lines = processes.flat_map(|(_, process)| process.lines());
        lines.filter(|line| line.contains(text)).count()
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What follows from the consumers of a drill.
pub(super) fn expect(specs: &[Spec]) -> Expect {
    let consumer = |spec: &Spec| Consumer {
        name: spec.name.clone(),
        effects: match spec.form {
            Form::Outside => Effects::Outside,
            _ => Effects::Inside,
        },
        handles: match spec.form {
            Form::Child => Handles::Children,
            _ => Handles::Intents,
        },
    };
    Expect {
        consumers: specs.iter().map(consumer).collect(),
        durable: true,
        fan_out: None,
        quarantined: HashSet::new(),
        given_up: HashSet::new(),
        rewound: false,
    }
}
