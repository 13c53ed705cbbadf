//! Everything that runs: a private PostgreSQL, the provider, the service and the worker, each a process of its own.
//!
//! None of them outlives us, whatever happens: see `outlast_testkit::process` and `outlast_postgres::cluster`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use outlast_postgres::cluster::{Cluster, Stop};
use outlast_testkit::process::{self, Process};
use outlast_testkit::provider::Provider;
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

use crate::post::{Kind, Post};

/// How long a program may take to say that it is ready, or to end.
const PATIENCE: Duration = Duration::from_secs(30);
const PACKAGE: &str = "outlast-example-bookings";
const DATABASE: &str = "bookings";
const LEDGER: &str = "provider.jsonl";

pub(crate) struct Stage {
    // In the order in which they may go.
    worker: Process,
    /// With a broker.
    post: Option<Post>,
    service: Process,
    provider: Provider,
    cluster: Cluster,
    service_url: String,
    /// Journal, ledger, logs.
    folder: TempDir,
    /// What workers said that are dead now.
    last_words: Vec<Vec<String>>,
}

impl Stage {
    /// Starts everything.
    pub(crate) async fn set(broker: Option<Kind>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder")?;
        let cluster = Cluster::temporary().start().await?;
        eprintln!(
            "demo: PostgreSQL {} is process {}, in {}",
            cluster.installation().version(),
            cluster.pid(),
            cluster.folder().display()
        );
        let mut postgres = PgConnection::connect(&cluster.url("postgres")).await?;
        sqlx::query("create database bookings")
            .execute(&mut postgres)
            .await?;
        let url = cluster.url(DATABASE);
        outlast::migrate(&url).await.context("migrate")?;
        let mut database = PgConnection::connect(&url).await?;
        sqlx::raw_sql(include_str!("../schema.sql"))
            .execute(&mut database)
            .await?;

        let provider = Provider::start(&folder.path().join(LEDGER)).await;
        let mut post = match broker {
            Some(kind) => Some(Post::start(kind, folder.path(), &url).await?),
            None => None,
        };
        let mut command = Command::new(process::program(PACKAGE, "bookings-service"));
        let service = Process::spawn(command.env("DATABASE_URL", &url))?;
        let worker = start_worker(&url, &provider, post.as_ref())?;
        let line = service.line("listening on ", PATIENCE).await;
        let address = line
            .rsplit(' ')
            .next()
            .context("the service says where it listens")?;
        let service_url = format!("http://{address}");
        worker.line("worker is running", PATIENCE).await;
        for (name, process) in [
            ("provider", provider.process()),
            ("service", &service),
            ("worker", &worker),
        ] {
            eprintln!("demo: the {name} is process {}", process.pid());
        }
        if let Some(post) = &mut post {
            post.open().await?;
        }
        Ok(Self {
            worker,
            post,
            service,
            provider,
            cluster,
            service_url,
            folder,
            last_words: Vec::new(),
        })
    }

    pub(crate) fn service_url(&self) -> &str {
        &self.service_url
    }

    pub(crate) fn database_url(&self) -> String {
        self.cluster.url(DATABASE)
    }

    pub(crate) fn provider_ledger(&self) -> PathBuf {
        self.folder.path().join(LEDGER)
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.folder.path().join("journal.jsonl")
    }

    pub(crate) fn worker_pid(&self) -> u32 {
        self.worker.pid()
    }

    /// SIGKILL, and a new one at once.
    pub(crate) async fn kill_worker(&mut self) -> anyhow::Result<()> {
        self.check()?;
        self.worker.kill();
        self.next_worker().await
    }

    /// Resolves when the worker has ended: with a new one, as any supervisor of processes does it.
    pub(crate) async fn next_worker(&mut self) -> anyhow::Result<()> {
        self.worker.exit(Duration::MAX).await;
        let next = start_worker(&self.database_url(), &self.provider, self.post.as_ref())?;
        let dead = std::mem::replace(&mut self.worker, next);
        self.last_words.push(dead.lines());
        self.worker.line("worker is running", PATIENCE).await;
        Ok(())
    }

    /// SIGKILL to the postmaster, and a start. Service and worker must help themselves.
    pub(crate) async fn kill_postgres(&self) -> anyhow::Result<()> {
        self.check()?;
        self.cluster.kill().await?;
        self.cluster.start().await?;
        Ok(())
    }

    pub(crate) fn post(&self) -> Option<&Post> {
        self.post.as_ref()
    }

    /// SIGKILL to one of the relays, and a new one at once.
    pub(crate) async fn kill_relay(&mut self) -> anyhow::Result<()> {
        self.check()?;
        match &mut self.post {
            Some(post) => post.kill_relay().await,
            None => bail!("there is no broker, and no relay"),
        }
    }

    /// SIGKILL to the broker, and a start.
    pub(crate) async fn kill_broker(&mut self) -> anyhow::Result<Kind> {
        self.check()?;
        let post = self.post.as_ref().context("there is no broker")?;
        post.kill_server().await;
        Ok(post.kind())
    }

    /// Fills a broker that has forgotten everything: the worker makes its subscriptions anew when it starts, and what was
    /// published before is published once more.
    pub(crate) async fn refill_broker(&mut self) -> anyhow::Result<()> {
        self.worker.terminate();
        self.next_worker().await?;
        let post = self.post.as_ref().context("there is no broker")?;
        post.rewind().await
    }

    /// Nobody may die but of our hand.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if let Some(post) = &self.post {
            post.check()?;
        }
        for process in [&self.worker, &self.service, self.provider.process()] {
            if let Some(status) = process.ended() {
                bail!("it ended by itself, with {status}: {process:?}");
            }
        }
        Ok(())
    }

    /// Stops everything in peace.
    pub(crate) async fn strike(self) -> anyhow::Result<()> {
        if let Some(post) = &self.post {
            post.close().await;
        }
        for process in [&self.worker, &self.service] {
            process.terminate();
            process.exit(PATIENCE).await;
        }
        self.cluster.stop(Stop::Fast).await?;
        Ok(())
    }

    /// Adds to the folder what everybody said, a file each; the folder is not removed at the end.
    pub(crate) fn keep(&mut self) -> anyhow::Result<&Path> {
        self.folder.disable_cleanup(true);
        let folder = self.folder.path();
        let write =
            |name: String, lines: &[String]| fs::write(folder.join(name), lines.join("\n") + "\n");
        let mut workers = self.last_words.clone();
        workers.push(self.worker.lines());
        for (nth, lines) in workers.iter().enumerate() {
            write(format!("worker-{}.log", nth + 1), lines)?;
        }
        let relays = self.post.as_ref().map(Post::words).unwrap_or_default();
        for (nth, lines) in relays.iter().enumerate() {
            write(format!("relay-{}.log", nth + 1), lines)?;
        }
        write("service.log".into(), &self.service.lines())?;
        fs::copy(
            self.cluster.folder().join("server.log"),
            folder.join("postgres.log"),
        )?;
        Ok(folder)
    }
}

fn start_worker(url: &str, provider: &Provider, post: Option<&Post>) -> anyhow::Result<Process> {
    let mut command = Command::new(process::program(PACKAGE, "bookings-worker"));
    command
        .args(["run", "--log", "pretty"])
        .env("DATABASE_URL", url)
        .env("MAIL_URL", format!("{}/send", provider.url()));
    if let Some(post) = post {
        post.told(&mut command);
    }
    Ok(Process::spawn(&mut command)?)
}
