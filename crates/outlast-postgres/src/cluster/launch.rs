//! Getting a server to run: initdb, the command line, one try to start, and what a refusal means.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::Error;
use super::account::check_reach;
use super::error::on;
use super::folder::Log;
use super::server::{END_PATIENCE, START_PATIENCE, Server};
use super::supervise::{End, Supervised};

const SERVER_LOG: &str = "server.log";
const INITDB_LOG: &str = "initdb.log";

/// Why one try to start failed: some reasons pass.
pub(super) enum Refused {
    /// Processes of the last server are still there.
    Predecessor(Error),
    PortTaken(Error),
    Other(Error),
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Predecessor(error) | Refused::PortTaken(error) | Refused::Other(error) => {
                error
            }
        }
    }
}

impl Server {
    /// initdb, into a folder that gets its name only when it is complete.
    pub(super) fn prepare(&self) -> Result<(), Error> {
        check_reach(
            self.folder.account.as_ref(),
            &[&self.installation.program("postgres")],
        )?;
        if self.folder.data_major().is_some() {
            return Ok(());
        }
        let data = self.folder.data();
        let unfinished = self.folder.path("data.new");
        for left in [&unfinished, &data] {
            if left.exists() {
                fs::remove_dir_all(left).map_err(on("remove", left))?;
            }
        }
        let mut program: Vec<OsString> = vec![self.installation.program("initdb").into()];
        // The C locale exists everywhere, and sorts the same everywhere.
        let fixed = [
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
        ];
        program.extend(fixed.map(OsString::from));
        program.extend(["--pwfile".into(), self.folder.path("password").into()]);
        if self.temporary {
            // A machine that crashes takes the temporary folder with it. A server that is killed loses nothing.
            program.push("--no-sync".into());
        }
        program.extend(["--pgdata".into(), unfinished.clone().into()]);
        let (mut initdb, log) = self.supervised(INITDB_LOG, &program)?;
        let status = initdb
            .wait(START_PATIENCE)
            .ok_or_else(|| self.slow("finish initdb", START_PATIENCE, log.tail()))?;
        if !status.success() {
            return Err(Error::Program {
                program: "initdb",
                folder: self.folder.root.clone(),
                output: log.tail(),
            });
        }
        fs::rename(&unfinished, &data).map_err(on("rename", &unfinished))
    }

    /// Starts the server and waits until it says that it is ready, or ends.
    pub(super) fn try_start(&self) -> Result<Supervised, Refused> {
        let (mut process, log) = self
            .supervised(SERVER_LOG, &self.command_line())
            .map_err(Refused::Other)?;
        self.pid.store(process.pid(), Ordering::Relaxed);
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            if process.ended().is_some() {
                return Err(self.read_refusal(log.tail()));
            }
            if is_ready(&self.folder.data(), process.pid()) {
                return Ok(process);
            }
            if Instant::now() >= deadline {
                process.order(End::Immediate);
                process.wait(END_PATIENCE);
                return Err(Refused::Other(self.slow(
                    "start",
                    START_PATIENCE,
                    log.tail(),
                )));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn command_line(&self) -> Vec<OsString> {
        let mut line = vec![
            self.installation.program("postgres").into(),
            "-D".into(),
            self.folder.data().into(),
        ];
        let socket = self.socket.to_string_lossy();
        let port = self.port.to_string();
        let mut settings = vec![
            ("fsync", "on"),
            ("synchronous_commit", "on"),
            ("full_page_writes", "on"),
            ("listen_addresses", "127.0.0.1"),
            ("port", &port),
            ("unix_socket_directories", &socket),
            ("unix_socket_permissions", "0700"),
            ("logging_collector", "off"),
            ("log_destination", "stderr"),
        ];
        if cfg!(target_os = "macos") {
            // There a plain fsync leaves the data in the drive's cache.
            settings.push(("wal_sync_method", "fsync_writethrough"));
        }
        settings.extend(
            self.settings
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
        for (name, value) in settings {
            line.push("-c".into());
            line.push(format!("{name}={value}").into());
        }
        line
    }

    fn supervised(&self, log: &str, program: &[OsString]) -> Result<(Supervised, Log), Error> {
        let root = &self.folder.root;
        let log = self.folder.log(log)?;
        let remove = self.temporary.then_some(root.as_path());
        let process = Supervised::start(
            self.folder.account.as_ref(),
            root,
            &log.file,
            remove,
            program,
        )?;
        Ok((process, log))
    }

    fn read_refusal(&self, output: String) -> Refused {
        let folder = self.folder.root.clone();
        if output.contains("Address already in use") {
            return Refused::PortTaken(Error::Program {
                program: "postgres",
                folder,
                output,
            });
        }
        if output.contains("Is another postmaster")
            || output.contains("pre-existing shared memory block")
        {
            let lock =
                fs::read_to_string(self.folder.data().join("postmaster.pid")).unwrap_or_default();
            let pid = lock.lines().next().and_then(|pid| pid.trim().parse().ok());
            return Refused::Predecessor(Error::InUse { folder, pid });
        }
        Refused::Other(Error::Program {
            program: "postgres",
            folder,
            output,
        })
    }

    pub(super) fn slow(&self, what: &'static str, patience: Duration, output: String) -> Error {
        Error::Slow {
            what,
            folder: self.folder.root.clone(),
            seconds: patience.as_secs(),
            output,
        }
    }
}

/// The server writes its state into its lock file, as pg_ctl reads it: process id first, "ready" in the eighth line, or
/// "standby" where it takes connections to read from.
fn is_ready(data: &Path, pid: u32) -> bool {
    let lock = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let mut lines = lock.lines().map(str::trim);
    lines.next().and_then(|first| first.parse().ok()) == Some(pid)
        && matches!(lines.nth(6), Some("ready" | "standby"))
}
