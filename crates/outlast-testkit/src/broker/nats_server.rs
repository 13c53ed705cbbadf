//! A real NATS server with JetStream, one for each test: 12 to 50 ms to start, and nobody else is harmed when it is killed.
//!
//! `./run nats` fetches one into the target folder, where it is found; `OUTLAST_NATS_SERVER` names another, the program or its
//! folder.

use std::{
    env, fs, io,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures_util::future::LocalBoxFuture;
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::conformance::Server;
use crate::{process::Process, wait::until};

/// Names the program, or its folder.
pub const SERVER: &str = "OUTLAST_NATS_SERVER";

const PATIENCE: Duration = Duration::from_secs(30);

/// A running server. It ends, and its store is removed, when the last clone of this is dropped.
#[derive(Clone, Debug)]
pub struct NatsServer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    // It ends before its folder goes.
    process: Mutex<Option<Process>>,
    program: PathBuf,
    ports: Ports,
    jetstream: String,
    extra: String,
    folder: tempfile::TempDir,
}

#[derive(Clone, Debug, Default)]
struct Ports {
    client: u16,
    monitor: u16,
}

/// False where there is no server, which is said loudly; in CI there must be one.
///
/// # Panics
/// In CI, if it is missing.
#[expect(
    clippy::print_stderr,
    reason = "a test that could not run must not look like one that did"
)]
pub fn is_installed() -> bool {
    let found = program().is_some();
    let missing = "there is no NATS server, so NOTHING WAS TRIED WITH NATS: `./run nats` fetches one, and \
                   OUTLAST_NATS_SERVER names it";
    assert!(found || env::var_os("CI").is_none(), "{missing}");
    if !found {
        eprintln!("{missing}");
    }
    found
}

fn program() -> Option<PathBuf> {
    let named = env::var_os(SERVER).map(PathBuf::from);
    let named = named.map(|named| match named.is_dir() {
        true => named.join("nats-server"),
        false => named,
    });
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|folder| folder.join("nats-server"));
    let mut all = named.into_iter().chain(fetched()).chain(on_path);
    all.find(|program| program.is_file())
}

/// Those that `./run nats` has fetched into the target folder that we are in.
fn fetched() -> Vec<PathBuf> {
    let me = env::current_exe().unwrap_or_default();
    let folders = me.ancestors().map(|folder| folder.join("nats"));
    let versions = folders.filter_map(|folder| fs::read_dir(folder).ok());
    let versions = versions.flatten().flatten().map(|version| version.path());
    let whole = versions.filter(|version| version.join("complete").exists());
    let mut whole: Vec<_> = whole.collect();
    // The newest one first, as long as its number has as many digits.
    whole.sort_by(|a, b| b.cmp(a));
    whole
        .iter()
        .map(|version| version.join("nats-server"))
        .collect()
}

impl NatsServer {
    /// Starts one with an empty store.
    ///
    /// # Errors
    /// When there is none, or it does not start.
    pub async fn start() -> Result<Self> {
        Self::start_with("").await
    }

    /// Starts one that syncs each message to the disk before it confirms.
    ///
    /// # Errors
    /// When there is none, or it does not start.
    pub async fn start_syncing() -> Result<Self> {
        Self::begin("sync_interval: always", "").await
    }

    /// Starts one with more lines of configuration.
    ///
    /// # Errors
    /// When there is none, or it does not start.
    pub async fn start_with(extra: &str) -> Result<Self> {
        Self::begin("", extra).await
    }

    /// Starts three that are one cluster, where a stream has three replicas.
    ///
    /// # Errors
    /// When there is none, or they do not find each other.
    pub async fn start_cluster() -> Result<[Self; 3]> {
        // Who is told of the others has to know where they will be. Held until all are known, so that they differ.
        let held = [(); 3].map(|()| std::net::TcpListener::bind("127.0.0.1:0"));
        let mut ports = Vec::new();
        for one in &held {
            let address = one.as_ref().ok().and_then(|one| one.local_addr().ok());
            ports.push(address.context("there is no free port")?.port());
        }
        drop(held);
        let routes = ports
            .iter()
            .map(|port| format!("\"nats://127.0.0.1:{port}\""));
        let routes = routes.collect::<Vec<_>>().join(", ");
        let mut servers = Vec::new();
        for port in ports {
            let extra = format!(
                "server_name: \"n{port}\"\ncluster {{ name: \"c\", listen: \"127.0.0.1:{port}\", routes: [{routes}] }}"
            );
            servers.push(Self::launch("", &extra).await?);
        }
        for server in &servers {
            server.0.healthy().await?;
        }
        servers.try_into().ok().context("three were started")
    }

    async fn begin(jetstream: &str, extra: &str) -> Result<Self> {
        let server = Self::launch(jetstream, extra).await?;
        server.0.healthy().await?;
        Ok(server)
    }

    async fn launch(jetstream: &str, extra: &str) -> Result<Self> {
        let program = program().context("there is no NATS server: `./run nats` fetches one")?;
        let folder = tempfile::Builder::new().prefix("outlast-nats-").tempdir()?;
        let mut inner = Inner {
            process: Mutex::new(None),
            program,
            ports: Ports::default(),
            jetstream: jetstream.to_owned(),
            extra: extra.to_owned(),
            folder,
        };
        let process = inner.spawn()?;
        inner.ports = inner.read_ports(&process).await?;
        *inner.process() = Some(process);
        Ok(Self(Arc::new(inner)))
    }

    /// Where clients connect. The same after a restart.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.0.ports.client)
    }

    /// Where it is monitored.
    pub fn monitor(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.ports.monitor)
    }

    /// Removes its store: what a lost disk is. Only while it is killed.
    ///
    /// # Panics
    /// If it runs, or the store cannot be removed.
    pub fn wipe(&self) {
        assert!(self.0.process().is_none(), "a running server has its store");
        fs::remove_dir_all(self.0.folder.path().join("store")).expect("the store was there");
    }
}

impl Server for NatsServer {
    fn freeze(&self) {
        self.0.process().as_ref().expect("it runs").freeze();
    }

    fn thaw(&self) {
        self.0.process().as_ref().expect("it runs").thaw();
    }

    fn kill(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(async {
            let process = self.0.process().take().expect("it runs");
            process.kill();
            process.exit(PATIENCE).await;
        })
    }

    fn start(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(async {
            let process = self.0.spawn().expect("it started before");
            *self.0.process() = Some(process);
            self.0.healthy().await.expect("it was healthy before");
        })
    }
}

impl Inner {
    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self) -> io::Result<Process> {
        let folder = self.folder.path();
        // -1: a free one; the file of ports says which.
        let port = |port| {
            if port == 0 {
                "-1".to_owned()
            } else {
                format!("{port}")
            }
        };
        let config = format!(
            "listen: \"127.0.0.1:{}\"\nhttp: \"127.0.0.1:{}\"\nports_file_dir: \"{folder}\"\n\
             jetstream {{ store_dir: \"{folder}/store\", max_file_store: 1GB, max_memory_store: 64MB\n{} }}\n{}\n",
            port(self.ports.client),
            port(self.ports.monitor),
            self.jetstream,
            self.extra,
            folder = folder.display(),
        );
        let file = folder.join("nats.conf");
        fs::write(&file, config)?;
        Process::spawn(Command::new(&self.program).arg("--config").arg(&file))
    }

    async fn read_ports(&self, process: &Process) -> Result<Ports> {
        #[derive(Deserialize)]
        struct File {
            nats: Vec<String>,
            monitoring: Vec<String>,
        }
        let file = self
            .folder
            .path()
            .join(format!("nats-server_{}.ports", process.pid()));
        let read = until(PATIENCE, async || {
            if process.ended().is_some() {
                return Some(None);
            }
            // Half written it does not read.
            let file: File = serde_json::from_slice(&fs::read(&file).ok()?).ok()?;
            Some(Some(file))
        });
        let file = read.await.flatten();
        let file = file.with_context(|| format!("the server does not start: {process:?}"))?;
        let port =
            |urls: &[String]| -> Option<u16> { urls.first()?.rsplit(':').next()?.parse().ok() };
        let both = port(&file.nats).zip(port(&file.monitoring));
        let (client, monitor) = both.context("the file of ports has no ports")?;
        Ok(Ports { client, monitor })
    }

    async fn healthy(&self) -> Result<()> {
        let port = self.ports.monitor;
        let up = until(PATIENCE, async || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
            stream
                .write_all(b"GET /healthz HTTP/1.0\r\n\r\n")
                .await
                .ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            answer.contains("\"ok\"").then_some(())
        });
        let up = up.await.is_some();
        ensure!(up, "the server is not healthy: {:?}", self.process());
        Ok(())
    }
}
