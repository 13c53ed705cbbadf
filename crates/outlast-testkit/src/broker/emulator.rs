//! Google's Pub/Sub emulator, a Java program, started without the gcloud command around it.
//!
//! It keeps everything in memory: killed and started again it knows nothing. One is shared by the tests of a run
//! ([`Porter`]), or else of a process; each test has a project of its own, by a name that nobody else has. A test that kills
//! or freezes it takes one for itself ([`Emulator::start`]).

use std::{
    env,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::LocalBoxFuture;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net,
    sync::OnceCell,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

use super::conformance::Server;
use crate::process::Process;

/// Names the emulator: its jar, or the folder `pubsub-emulator` of a gcloud installation.
pub const INSTALLED: &str = "OUTLAST_PUBSUB_EMULATOR";
/// Names the [`Porter`] of a run.
pub const PORTER: &str = "OUTLAST_TEST_PUBSUB";

/// It takes 1 to 3 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);
const ANSWER: Duration = Duration::from_secs(2);

/// A running emulator, which ends when this is dropped.
#[derive(Debug)]
pub struct Emulator {
    java: PathBuf,
    jar: PathBuf,
    address: SocketAddr,
    process: Mutex<Arc<Process>>,
}

/// The address of the emulator that tests share, and a project of the test's own; `None` where there is none to be had, which
/// is said loudly.
///
/// # Panics
/// In CI, if it cannot be had; anywhere, if it is there and does not start.
pub async fn shared() -> Option<(SocketAddr, String)> {
    // Never dropped: the guard of our children ends it with this process.
    static OWN: OnceCell<Emulator> = OnceCell::const_new();
    if !is_installed() {
        return None;
    }
    if let Some(porter) = env::var(PORTER).ok().filter(|porter| !porter.is_empty()) {
        let address = Porter::ask(&porter).await;
        let address = address.unwrap_or_else(|why| panic!("{PORTER}={porter}: {why:?}"));
        return Some((address, project()));
    }
    let start = async || {
        Emulator::start()
            .await
            .unwrap_or_else(|why| panic!("the Pub/Sub emulator does not start: {why:?}"))
    };
    Some((OWN.get_or_init(start).await.address, project()))
}

/// Tells the tests of a run where their emulator is, and starts it when the first one asks: most runs do not need it.
#[derive(Debug)]
pub struct Porter {
    address: SocketAddr,
    door: JoinHandle<()>,
}

impl Porter {
    /// Waits for tests; nothing is started yet.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn open() -> Result<Self> {
        let listener = net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let door = tokio::spawn(async move {
            let mut emulator: Option<Emulator> = None;
            while let Ok((mut guest, _)) = listener.accept().await {
                if emulator.is_none() {
                    match Emulator::start().await {
                        Ok(started) => emulator = Some(started),
                        Err(why) => {
                            let _ = guest.write_all(format!("{why:#}").as_bytes()).await;
                            continue;
                        }
                    }
                }
                let address = emulator.as_ref().map(Emulator::address);
                let address = address.map(|address| address.to_string());
                // A guest that has gone does not matter.
                let _ = guest
                    .write_all(address.unwrap_or_default().as_bytes())
                    .await;
            }
        });
        Ok(Self { address, door })
    }

    /// What [`PORTER`] is set to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    async fn ask(porter: &str) -> Result<SocketAddr> {
        let mut said = String::new();
        let mut porter = net::TcpStream::connect(porter).await?;
        porter.read_to_string(&mut said).await?;
        said.parse().context(said)
    }
}

impl Drop for Porter {
    fn drop(&mut self) {
        // The emulator goes with the task.
        self.door.abort();
    }
}

/// The name of a project that no other test has.
pub fn project() -> String {
    format!("test-{}", &Uuid::new_v4().simple().to_string()[..20])
}

/// False where it is missing, which is said loudly; in CI it must be there.
///
/// # Panics
/// In CI, if it is missing.
#[expect(
    clippy::print_stderr,
    reason = "a test that could not run must not look like one that did"
)]
pub fn is_installed() -> bool {
    let Err(why) = found() else { return true };
    let missing = format!("NOTHING WAS TRIED WITH PUB/SUB: {why:#}");
    assert!(env::var_os("CI").is_none(), "{missing}");
    eprintln!("{missing}");
    false
}

impl Emulator {
    /// Starts one on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When it or Java is not installed, or it does not answer within a minute.
    pub async fn start() -> Result<Self> {
        let (jar, java) = found()?;
        // Between asking for a free port and using it somebody else may take it; then the program ends at once.
        let (mut last, began) = (None, Instant::now());
        for _ in 0..3 {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
            match run(&java, &jar, free).await {
                Ok(process) => {
                    return Ok(Self {
                        java,
                        jar,
                        address: free,
                        process: Mutex::new(Arc::new(process)),
                    });
                }
                Err(why) if began.elapsed() > PATIENCE => return Err(why),
                Err(why) => last = Some(why),
            }
        }
        Err(last.context("no port was tried")?)
    }

    /// The version that its jar is named after.
    pub fn version(&self) -> String {
        let name = self.jar.file_stem().unwrap_or_default().to_string_lossy();
        let version = name.trim_start_matches("cloud-pubsub-emulator-");
        version.trim_end_matches("-all").to_owned()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What `Options::endpoint` wants.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// SIGKILL; waits until it is gone, and all topics, subscriptions and messages with it.
    pub async fn kill(&self) {
        let process = self.process();
        process.kill();
        process.exit(PATIENCE).await;
    }

    /// It stands still, with its connections open, until [`thaw`](Self::thaw).
    pub fn freeze(&self) {
        self.process().freeze();
    }

    /// It goes on.
    pub fn thaw(&self) {
        self.process().thaw();
    }

    /// Kills it if it still runs, and starts it again on the same port. It has forgotten everything.
    ///
    /// # Errors
    /// When it does not answer within a minute.
    pub async fn restart(&self) -> Result<()> {
        self.kill().await;
        let process = run(&self.java, &self.jar, self.address).await?;
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(process);
        Ok(())
    }

    fn process(&self) -> Arc<Process> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&process)
    }
}

impl Server for Emulator {
    fn freeze(&self) {
        Self::freeze(self);
    }

    fn thaw(&self) {
        Self::thaw(self);
    }

    fn kill(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(Self::kill(self))
    }

    fn start(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(async {
            let started = self.restart().await;
            started
                .unwrap_or_else(|why| panic!("the Pub/Sub emulator does not start again: {why:?}"));
        })
    }
}

async fn run(java: &Path, jar: &Path, address: SocketAddr) -> Result<Process> {
    let mut command = Command::new(java);
    // A small heap and the quick compiler only: many may run beside each other.
    command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command.arg("-jar").arg(jar);
    command.arg(format!("--host={}", address.ip()));
    command.arg(format!("--port={}", address.port()));
    let process = Process::spawn(&mut command).context("start java")?;
    // Not `until`: its closures cannot go into a task.
    let ready = async {
        while process.ended().is_none() {
            if matches!(timeout(ANSWER, is_ready(address)).await, Ok(Ok(true))) {
                return true;
            }
            sleep(Duration::from_millis(20)).await;
        }
        false
    };
    let ready = timeout(PATIENCE, ready).await;
    ensure!(ready == Ok(true), "it does not answer: {process:?}");
    Ok(process)
}

/// Whether it says Ok. It keeps the connection open, whatever is asked of it, so that there is no end to wait for.
async fn is_ready(address: SocketAddr) -> std::io::Result<bool> {
    let mut stream = net::TcpStream::connect(address).await?;
    let ask = format!("GET / HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stream.write_all(ask.as_bytes()).await?;
    let (mut said, mut part) = (Vec::new(), [0; 256]);
    loop {
        let read = stream.read(&mut part).await?;
        said.extend_from_slice(&part[..read]);
        let whole = said.ends_with(b"Ok\n");
        if whole || read == 0 {
            return Ok(whole);
        }
    }
}

/// The jar, and the Java to run it with.
fn found() -> Result<(PathBuf, PathBuf)> {
    let jar = jar()?;
    let java = match env::var_os("JAVA_HOME").filter(|home| !home.is_empty()) {
        Some(home) => Some(PathBuf::from(home).join("bin/java")).filter(|java| java.is_file()),
        None => on_path("java"),
    };
    let java = java.context(
        "the Pub/Sub emulator is here, but no Java to run it: sudo apt-get install default-jre-headless",
    )?;
    Ok((jar, java))
}

fn jar() -> Result<PathBuf> {
    if let Some(named) = env::var_os(INSTALLED).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        return match named.is_file() {
            true => Ok(named),
            false => jar_in(&named).with_context(|| format!("{INSTALLED}={}", named.display())),
        };
    }
    let mut roots: Vec<PathBuf> = Vec::new();
    // The command is a link into the installation, or beside it.
    if let Some(root) = on_path("gcloud").and_then(|gcloud| gcloud.canonicalize().ok()) {
        roots.extend(root.ancestors().skip(1).take(3).map(Path::to_owned));
    }
    let known = [
        "/usr/lib/google-cloud-sdk",
        "/usr/share/google-cloud-sdk",
        "/opt/google-cloud-sdk",
        "/opt/homebrew/share/google-cloud-sdk",
        "/usr/local/share/google-cloud-sdk",
        "/snap/google-cloud-sdk/current",
    ];
    roots.extend(known.map(PathBuf::from));
    roots.extend(env::home_dir().map(|home| home.join("google-cloud-sdk")));
    let mut folders = roots
        .iter()
        .map(|root| root.join("platform/pubsub-emulator"));
    if let Some(jar) = folders.find_map(|folder| jar_in(&folder).ok()) {
        return Ok(jar);
    }
    bail!(
        "Google's Pub/Sub emulator is not installed. Debian does not have it; Google's own package source does \
         (https://cloud.google.com/sdk/docs/install#deb), and then: sudo apt-get install \
         google-cloud-cli-pubsub-emulator default-jre-headless. With a gcloud that was unpacked by hand: gcloud components \
         install pubsub-emulator. Elsewhere: set {INSTALLED} to its jar"
    )
}

/// `lib/cloud-pubsub-emulator-VERSION-all.jar` of such a folder.
fn jar_in(folder: &Path) -> Result<PathBuf> {
    let lib = folder.join("lib");
    let files = lib.read_dir().with_context(|| lib.display().to_string())?;
    let mut jars: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    jars.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("cloud-pubsub-emulator") && name.ends_with(".jar")
    });
    jars.sort();
    jars.pop()
        .with_context(|| format!("no jar of the emulator in {}", lib.display()))
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut programs = env::split_paths(&path).map(|folder| folder.join(program));
    programs.find(|program| program.is_file())
}
