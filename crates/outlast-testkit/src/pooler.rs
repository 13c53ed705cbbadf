//! PgBouncer in transaction mode before a server: each transaction may run on another connection of the server.
//!
//! LISTEN, session locks and prepared statements do not work behind it; our own path needs none of them. Prepared
//! statements stay off (`max_prepared_statements = 0`, from 1.21 on they are on), as everybody had it for years.
//!
//! Who wants to try a whole suite behind it sets `OUTLAST_TEST_POOLED`: [`pg`](crate::pg) then hands out URLs through
//! one that all tests of the run share.

use std::{
    env, fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::getuid;
use tokio::net::UnixStream;
use tokio_postgres::config::{Config, Host};

use crate::{process::Process, wait::until};

/// Names the folder of a running pooler's socket.
pub const POOLED: &str = "OUTLAST_TEST_POOLED";

/// The port in the name of its socket; each has a folder of its own.
const PORT: u16 = 6432;
const PATIENCE: Duration = Duration::from_secs(30);
/// So few connections to the server that its clients have to share them.
const SIZE: usize = 4;

/// A running PgBouncer. It ends, and its folder is removed, when this is dropped.
#[derive(Debug)]
pub struct Pooler {
    // It ends before its folder goes.
    _process: Process,
    folder: tempfile::TempDir,
}

/// Where it is installed; Debian keeps it off the PATH of most people.
fn program() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders
        .map(|folder| folder.join("pgbouncer"))
        .find(|program| program.is_file())
}

/// False where PgBouncer is missing, which is said loudly; in CI it must be there.
///
/// # Panics
/// In CI, if it is missing.
#[expect(
    clippy::print_stderr,
    reason = "a test that could not run must not look like one that did"
)]
pub fn is_installed() -> bool {
    let found = program().is_some();
    let missing = "PgBouncer is missing, so NOTHING WAS TRIED BEHIND A POOLER: sudo apt-get install pgbouncer";
    assert!(found || env::var_os("CI").is_none(), "{missing}");
    if !found {
        eprintln!("{missing}");
    }
    found
}

impl Pooler {
    /// Starts one before the server of this connection string, for all of its databases and any user.
    ///
    /// # Errors
    /// When it is not installed or does not start.
    pub async fn before(server: &str) -> Result<Self> {
        let program = program().context("PgBouncer is not installed")?;
        let config: Config = server.parse()?;
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let host = match config.get_hosts().first() {
            Some(Host::Unix(folder)) => folder.display().to_string(),
            Some(Host::Tcp(host)) => host.clone(),
            None => bail!("a connection string with a host, not {server}"),
        };
        let user = config.get_user().unwrap_or("postgres");
        let password = config.get_password().map(String::from_utf8_lossy);
        let password = password.map_or(String::new(), |password| format!("password={password}"));

        let folder = tempfile::Builder::new()
            .prefix("outlast-pooler-")
            .tempdir()?;
        let path = folder.path();
        let off = if version(&program)? >= (1, 21) {
            "max_prepared_statements = 0"
        } else {
            ""
        };
        let ini = path.join("pgbouncer.ini");
        // `options` and `extra_float_digits` are said by drivers at their start and are not needed behind it.
        fs::write(
            &ini,
            format!(
                "[databases]\n* = host={host} port={port} user={user} {password}\n[pgbouncer]\npool_mode = transaction\n{off}\n\
                 listen_addr =\nlisten_port = {PORT}\nunix_socket_dir = {dir}\nunix_socket_mode = 0700\nauth_type = any\n\
                 max_client_conn = 1000\ndefault_pool_size = {SIZE}\nserver_idle_timeout = 5\nserver_login_retry = 1\n\
                 ignore_startup_parameters = extra_float_digits, options\nlog_connections = 0\nlog_disconnections = 0\n",
                dir = path.display(),
            ),
        )?;
        let mut command = Command::new(&program);
        command.arg(&ini).current_dir(path);
        if getuid().is_root() {
            // It refuses root, as PostgreSQL does, and has to get into the folder of PostgreSQL's socket.
            let (uid, gid) = postgres()?;
            for file in [path, &ini] {
                std::os::unix::fs::chown(file, Some(uid), Some(gid))?;
            }
            command.uid(uid).gid(gid);
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        let process = Process::spawn(&mut command)?;
        let socket = path.join(format!(".s.PGSQL.{PORT}"));
        let up = until(PATIENCE, async || {
            UnixStream::connect(&socket).await.ok().map(drop)
        })
        .await;
        ensure!(
            up.is_some(),
            "PgBouncer does not start: {:?}",
            process.lines()
        );
        Ok(Self {
            _process: process,
            folder,
        })
    }

    /// The folder of its socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The connection string of a database, through it.
    pub fn url(&self, database: &str) -> String {
        through(self.folder(), database)
    }
}

/// The connection string of a database, through the pooler whose socket is in `folder`.
pub(crate) fn through(folder: &Path, database: &str) -> String {
    let folder = folder.display().to_string().replace('/', "%2F");
    format!("postgres:///{database}?host={folder}&port={PORT}&user=postgres")
}

fn version(program: &Path) -> Result<(u32, u32)> {
    let said = Command::new(program).arg("--version").output()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let mut numbers = said
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok());
    let both = numbers.next().zip(numbers.next());
    both.with_context(|| format!("pgbouncer --version says {said:?}"))
}

fn postgres() -> Result<(u32, u32)> {
    let id = |what: &str| -> Result<u32> {
        let said = Command::new("id").args([what, "postgres"]).output()?;
        Ok(String::from_utf8_lossy(&said.stdout).trim().parse()?)
    };
    Ok((id("-u")?, id("-g")?))
}
