//! What stands between the service and the consumers with `--broker`: a real server, and two relays that publish to it, which
//! are the ordinary `outlast run --only relay` with a configuration file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use outlast_testkit::broker::{Emulator, NatsServer, conformance::Server};
use outlast_testkit::process::{self, Process};

/// How long a program may take to say that it is ready, or to end.
const PATIENCE: Duration = Duration::from_secs(60);
const PROJECT: &str = "outlast-demo";

/// Which broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nats,
    PubSub,
}

impl Kind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Nats => "nats",
            Self::PubSub => "pubsub",
        }
    }

    /// What it is called in sentences.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nats => "NATS",
            Self::PubSub => "the Pub/Sub emulator",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = [Self::Nats, Self::PubSub];
        let known = known.into_iter().find(|kind| kind.as_str() == word);
        known.ok_or_else(|| "nats or pubsub is expected".into())
    }
}

enum Running {
    Nats(NatsServer),
    PubSub(Emulator),
}

/// A running broker and those who publish to it.
pub(crate) struct Post {
    // In the order in which they may go.
    relays: Vec<Process>,
    server: Running,
    /// Where the configuration is.
    folder: PathBuf,
    database: String,
    /// What relays said that are dead now.
    last_words: Vec<Vec<String>>,
}

impl Post {
    /// Starts the server. Nothing is published before [`open`](Self::open).
    pub(crate) async fn start(kind: Kind, folder: &Path, database: &str) -> anyhow::Result<Self> {
        let server = match kind {
            Kind::Nats => Running::Nats(NatsServer::start().await?),
            Kind::PubSub => Running::PubSub(Emulator::start().await?),
        };
        let post = Self {
            relays: Vec::new(),
            server,
            folder: folder.to_owned(),
            database: database.to_owned(),
            last_words: Vec::new(),
        };
        fs::write(folder.join("outlast.toml"), post.configuration())?;
        eprintln!("demo: {} listens at {}", kind.name(), post.address());
        Ok(post)
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.server {
            Running::Nats(_) => Kind::Nats,
            Running::PubSub(_) => Kind::PubSub,
        }
    }

    pub(crate) fn address(&self) -> String {
        match &self.server {
            Running::Nats(server) => server.url(),
            Running::PubSub(emulator) => emulator.endpoint(),
        }
    }

    /// What a person would write: where the broker is, and what goes there.
    fn configuration(&self) -> String {
        let broker = match &self.server {
            Running::Nats(server) => format!("kind = \"nats\"\nurls = [\"{}\"]", server.url()),
            Running::PubSub(emulator) => format!(
                "kind = \"pubsub\"\nproject = \"{PROJECT}\"\nendpoint = \"{}\"",
                emulator.endpoint()
            ),
        };
        format!(
            "# The work of a relay that was killed waits so long for another one.\nlease = \"3s\"\nheartbeat = \"1s\"\n\n\
             [broker.main]\n{broker}\n\n\
             [cluster.route.bookings]\nbroker = \"main\"\ntopic = \"bookings\"\ntypes = [\"booking.*\", \"github.*\"]\n"
        )
    }

    /// Tells the worker where its events come from.
    pub(crate) fn told<'c>(&self, worker: &'c mut Command) -> &'c mut Command {
        match &self.server {
            Running::Nats(server) => worker.env("NATS_URL", server.url()),
            Running::PubSub(emulator) => worker
                .env("PUBSUB_PROJECT", PROJECT)
                .env("PUBSUB_EMULATOR_HOST", emulator.address().to_string()),
        }
    }

    /// Writes the route into the database, and starts two relays. The subscriptions are there by now.
    pub(crate) async fn open(&mut self) -> anyhow::Result<()> {
        self.run(&["apply", "--yes"]).await?;
        for _ in 0..2 {
            self.relays.push(self.relay()?);
        }
        for relay in &self.relays {
            relay.line("relaying", PATIENCE).await;
            eprintln!("demo: a relay is process {}", relay.pid());
        }
        Ok(())
    }

    fn outlast(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(process::program("outlast-cli", "outlast"));
        command.args(arguments).args(["--database", &self.database]);
        command.current_dir(&self.folder);
        command
    }

    async fn run(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let process = Process::spawn(&mut self.outlast(arguments))?;
        let status = process.exit(PATIENCE).await;
        ensure!(status.success(), "{process:?}");
        Ok(())
    }

    fn relay(&self) -> anyhow::Result<Process> {
        Ok(Process::spawn(
            &mut self.outlast(&["run", "--only", "relay"]),
        )?)
    }

    /// SIGKILL to the older one, and a new one at once.
    pub(crate) async fn kill_relay(&mut self) -> anyhow::Result<()> {
        let victim = self.relays.remove(0);
        victim.kill();
        victim.exit(PATIENCE).await;
        self.last_words.push(victim.lines());
        let next = self.relay()?;
        next.line("relaying", PATIENCE).await;
        self.relays.push(next);
        Ok(())
    }

    /// SIGKILL to the server, and a start. NATS has its store on the disk; the emulator has forgotten all it had.
    pub(crate) async fn kill_server(&self) {
        match &self.server {
            Running::Nats(server) => {
                server.kill().await;
                Server::start(server).await;
            }
            Running::PubSub(emulator) => {
                Emulator::kill(emulator).await;
                Server::start(emulator).await;
            }
        }
    }

    /// Publishes once more what there was of the last hour, with the same ids; returns when all of it is there.
    pub(crate) async fn rewind(&self) -> anyhow::Result<()> {
        let rewind = ["relay", "rewind", "bookings", "--to", "1h"];
        let why = ["--reason", "the broker was wiped", "--yes", "--wait"];
        self.run(&[&rewind[..], &why].concat())
            .await
            .context("rewind")
    }

    /// Nobody may die but of our hand.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        for relay in &self.relays {
            if let Some(status) = relay.ended() {
                bail!("a relay ended by itself, with {status}: {relay:?}");
            }
        }
        Ok(())
    }

    /// Stops the relays in peace.
    pub(crate) async fn close(&self) {
        for relay in &self.relays {
            relay.terminate();
        }
        for relay in &self.relays {
            relay.exit(PATIENCE).await;
        }
    }

    /// What all relays have said, one after the other.
    pub(crate) fn words(&self) -> Vec<Vec<String>> {
        let alive = self.relays.iter().map(Process::lines);
        self.last_words.iter().cloned().chain(alive).collect()
    }
}
