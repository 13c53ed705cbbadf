//! What can go wrong with a private server, each with what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// Why a private server could not be found, made, started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No server of an acceptable version on this machine.
    #[error("no PostgreSQL {wanted} server on this machine{}; {advice}", also_found(.found))]
    NotInstalled {
        /// The versions that would do, as a person reads them: `14 to 18`, or `15`.
        wanted: String,
        /// Servers that are here but do not fit, such as `PostgreSQL 13.22 in /usr/lib/postgresql/13/bin`.
        found: Vec<String>,
        /// The exact command that installs one on this platform.
        advice: String,
    },
    /// `OUTLAST_PG_BIN` is set and does not hold an acceptable server. Nothing else is tried then.
    #[error("OUTLAST_PG_BIN is {}: {reason}", .folder.display())]
    Override {
        /// What the variable says.
        folder: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The data needs a server of the version that wrote it.
    #[error("the data in {} was written by PostgreSQL {major}: {why}; or start over with a new folder", .folder.display())]
    OtherVersion {
        /// The cluster's folder.
        folder: PathBuf,
        /// The major version that wrote the data.
        major: u32,
        /// Why its server is not to be had.
        why: Box<Error>,
    },
    /// Somebody runs a server in this folder.
    #[error(
        "{} is in use{}: stop that one first, or choose another folder",
        .folder.display(),
        .pid.map(|pid| format!(" by process {pid}")).unwrap_or_default(),
    )]
    InUse {
        /// The cluster's folder.
        folder: PathBuf,
        /// Who uses it, where that is known.
        pid: Option<u32>,
    },
    /// The folder holds something that was not put there by us, so it is neither used nor emptied.
    #[error("{} is neither empty nor a cluster of Outlast: choose another folder", .folder.display())]
    NotOurs {
        /// The refused folder.
        folder: PathBuf,
    },
    /// Root may not run PostgreSQL, and the account that does it for root cannot get to the folder.
    #[error(
        "PostgreSQL does not run as root, and the user {account} that runs it instead may not enter {}: \
         choose a folder it can reach, such as one under /var/lib or /tmp, or run as another user than root",
        .blocked.display()
    )]
    Unreachable {
        /// The account that would run the server.
        account: String,
        /// The first folder on the way that it may not enter.
        blocked: PathBuf,
    },
    /// A program that should have done its work failed, with what it printed.
    #[error("{program} failed in {}: {output}", .folder.display())]
    Program {
        /// `initdb` or `postgres`.
        program: &'static str,
        /// The cluster's folder; `server.log` and `initdb.log` in it have all of the output.
        folder: PathBuf,
        /// The last lines of the output.
        output: String,
    },
    /// The server neither became ready nor stopped in time.
    #[error("PostgreSQL in {} did not {what} within {seconds} s: {output}", .folder.display())]
    Slow {
        /// `start`, `stop`, or the like.
        what: &'static str,
        /// The cluster's folder.
        folder: PathBuf,
        /// How long we waited.
        seconds: u64,
        /// The last lines of the server's log.
        output: String,
    },
    /// The operating system refused something.
    #[error("{what} {}", .path.display())]
    Io {
        /// What was tried, such as `read`.
        what: &'static str,
        /// On which file, folder or program.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

fn also_found(found: &[String]) -> String {
    if found.is_empty() {
        String::new()
    } else {
        format!(" (found only {})", found.join(", "))
    }
}

/// `map_err(on("read", path))`: says what was tried on which path.
pub(super) fn on(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { what, path, source }
}
