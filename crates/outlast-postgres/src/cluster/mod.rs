//! Private PostgreSQL servers: for `outlast dev`, tests, benchmarks and drills.
//!
//! A [`Cluster`] is a server of our own in a folder of its own, either kept between runs or temporary. It never touches
//! a server that somebody else runs. It is durable unless told otherwise (fsync, synchronous commit, full page writes),
//! because what Outlast promises can only be tried on a server that keeps its own promises.
//!
//! - The server ends when this process ends, even by SIGKILL: `supervise.sh` says how.
//! - As root it runs as the user `postgres`, else `nobody`, because PostgreSQL refuses root.
//! - It listens on 127.0.0.1 with a generated password (scram-sha-256): every user of a shared machine can reach
//!   loopback, and without a password each of them would be superuser. On the Unix socket, in a folder that only its
//!   owner may enter, no password is asked for: tests connect often, and scram costs milliseconds each time.
//!
//! ```no_run
//! # async fn example() -> Result<(), outlast_postgres::cluster::Error> {
//! use outlast_postgres::cluster::{Cluster, Stop};
//!
//! let cluster = Cluster::temporary().set("max_connections", "300").start().await?;
//! println!("psql '{}'", cluster.url("postgres"));
//! cluster.kill().await?;            // the postmaster dies of SIGKILL
//! cluster.start().await?;           // and comes back with everything that was committed
//! cluster.stop(Stop::Fast).await?;
//! # Ok(())
//! # }
//! ```

mod account;
mod advice;
mod builder;
mod error;
mod folder;
mod install;
mod launch;
mod server;
mod supervise;

use std::path::Path;
use std::sync::Arc;

pub use builder::Builder;
pub use error::Error;
pub use install::{Installation, OVERRIDE, VERSIONS};
use server::Server;

/// How to stop a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Roll back what is open, write everything out, end.
    Fast,
    /// End at once, as after a power cut; the next start recovers from the log.
    Immediate,
}

/// A private server. Dropping it stops the server; if it is temporary, its folder is removed.
///
/// The methods work in a blocking thread: a future that is dropped half-way does not leave the work half done.
#[derive(Debug)]
pub struct Cluster {
    server: Arc<Server>,
}

impl Cluster {
    /// A server whose folder is removed when it is dropped, and also when this process is killed while it runs.
    pub fn temporary() -> Builder {
        Builder::new(None)
    }

    /// A server in `folder`, made at the first start and used again later: data, password and, if it is free, port.
    pub fn kept(folder: impl AsRef<Path>) -> Builder {
        Builder::new(Some(folder.as_ref()))
    }

    /// Starts a stopped or killed server, on the same port and with the same settings. Nothing happens if it runs.
    ///
    /// When it returns, the server takes connections. After a kill it waits until the last process of the killed
    /// server is gone, so that nothing of the old run can still commit.
    ///
    /// # Errors
    /// [`Error::Program`] with the end of the server's log.
    pub async fn start(&self) -> Result<(), Error> {
        self.blocking(Server::start).await
    }

    /// Stops the server and waits until it is gone. Nothing happens if it does not run.
    ///
    /// # Errors
    /// [`Error::Slow`] if it had to be killed in the end.
    pub async fn stop(&self, how: Stop) -> Result<(), Error> {
        self.blocking(move |server| server.stop(how)).await
    }

    /// Kills the postmaster with SIGKILL. Its children notice and end by themselves a moment later.
    ///
    /// # Errors
    /// [`Error::Slow`] if it does not even die of that.
    pub async fn kill(&self) -> Result<(), Error> {
        self.blocking(Server::kill).await
    }

    /// [`stop`](Self::stop) and [`start`](Self::start).
    ///
    /// # Errors
    /// Theirs.
    pub async fn restart(&self, how: Stop) -> Result<(), Error> {
        self.blocking(move |server| server.stop(how).and_then(|()| server.start()))
            .await
    }

    /// Does the server run? It may have died without our doing: then [`start`](Self::start) helps.
    pub fn is_running(&self) -> bool {
        self.server.is_running()
    }

    /// The process id of the postmaster, or of the last one: to freeze it with SIGSTOP, say.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// The connection string over TCP, with the password: for programs of every kind.
    pub fn url(&self, database: &str) -> String {
        let Server { password, port, .. } = &*self.server;
        format!(
            "postgres://postgres:{password}@127.0.0.1:{port}/{}",
            encode(database)
        )
    }

    /// The connection string over the Unix socket, without a password: only for this user (and root).
    pub fn socket_url(&self, database: &str) -> String {
        let Server { socket, port, .. } = &*self.server;
        let socket = encode(&socket.to_string_lossy());
        // The user comes last: a user without a host before the path is no URL to many parsers.
        format!(
            "postgres:///{}?host={socket}&port={port}&user=postgres",
            encode(database)
        )
    }

    /// The TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// The socket itself, for a proxy in front of the server.
    pub fn socket(&self) -> std::path::PathBuf {
        self.server
            .socket
            .join(format!(".s.PGSQL.{}", self.server.port))
    }

    /// The cluster's folder; its `server.log` has what the server said since the last start.
    pub fn folder(&self) -> &Path {
        &self.server.folder.root
    }

    /// Which programs run it.
    pub fn installation(&self) -> &Installation {
        &self.server.installation
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Server) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let server = Arc::clone(&self.server);
        blocking(move || work(&server)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and nobody waits for the answer.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Percent-encodes all but what is plain everywhere in a URL.
fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
