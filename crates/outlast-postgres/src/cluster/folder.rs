//! The folder of one cluster: what lies where, who may use it, and who does now.
//!
//! ```text
//! outlast.lock   held (flock) while a process of ours uses the folder; also the mark that the folder is ours
//! data/          what initdb made
//! socket/        the Unix socket, for the owner's eyes only
//! password       of the user postgres on TCP, made once
//! port           the TCP port of the last run, kept so that connection strings stay true
//! server.log     what the server said; initdb.log likewise. Past 8 MB a start moves it to server.log.old
//! ```

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{env, io};

use uuid::Uuid;

use super::Error;
use super::account::{self, Account};
use super::error::on;

const LOCK: &str = "outlast.lock";

/// The longest path of a Unix socket is 104 bytes on macOS and 108 on Linux, with the ending zero.
const SOCKET_PATH_MAX: usize = 103;

/// A log that is longer at a start is put aside.
const LOG_SIZE: u64 = 8 << 20;

#[derive(Debug)]
pub(super) struct Folder {
    pub(super) root: PathBuf,
    pub(super) account: Option<Account>,
    /// Dropping it frees the folder.
    _lock: File,
}

impl Folder {
    /// Makes or enters a folder that is kept. `fresh` empties it first, if it is ours and not in use.
    pub(super) fn kept(root: &Path, fresh: bool) -> Result<Self, Error> {
        let root = std::path::absolute(root).map_err(on("find", root))?;
        let account = Account::for_server()?;
        let nearest: Option<&Path> = root.ancestors().find(|folder| folder.exists());
        account::check_reach(account.as_ref(), nearest.as_slice())?;
        if nearest != Some(root.as_path()) {
            // Only the last folder is private and the server's: those above it may be anybody's.
            if let Some(parent) = root.parent() {
                fs::create_dir_all(parent).map_err(on("create", parent))?;
            }
            make_private(&root)?;
        } else if !root.join(LOCK).exists() && !is_empty(&root)? {
            return Err(Error::NotOurs { folder: root });
        }
        let folder = Self::enter(root, account)?;
        if fresh {
            folder.empty()?;
        }
        Ok(folder)
    }

    /// A new folder with a name of its own.
    pub(super) fn temporary() -> Result<Self, Error> {
        let account = Account::for_server()?;
        let mut parent = env::temp_dir();
        if account::check_reach(account.as_ref(), &[&parent]).is_err() {
            parent = PathBuf::from("/tmp");
        }
        let name = Uuid::new_v4().simple().to_string();
        let root = parent.join(format!("outlast-pg-{}", &name[..12]));
        make_private(&root)?;
        Self::enter(root, account)
    }

    fn enter(root: PathBuf, account: Option<Account>) -> Result<Self, Error> {
        // Root meets a folder that an ordinary user made: that user goes on running the server.
        let account = match (account, account::owner_of(&root.join("data"))) {
            (Some(_), Some((uid, gid))) if uid != 0 => Some(Account::owner(uid, gid)),
            (account, _) => account,
        };
        let lock = take_lock(&root)?;
        if let Some(account) = &account {
            account.own(&root)?;
            account.own(&root.join(LOCK))?;
        }
        let folder = Self {
            root,
            account,
            _lock: lock,
        };
        account::check_reach(folder.account.as_ref(), &[&folder.root])?;
        Ok(folder)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// The major version that wrote the data, if there is any.
    pub(super) fn data_major(&self) -> Option<u32> {
        fs::read_to_string(self.data().join("PG_VERSION"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    pub(super) fn log(&self, name: &str) -> Result<Log, Error> {
        let path = self.root.join(name);
        if fs::metadata(&path).is_ok_and(|log| log.len() > LOG_SIZE) {
            fs::rename(&path, path.with_extension("log.old")).map_err(on("rename", &path))?;
        }
        let file = File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(on("write", &path))?;
        if let Some(account) = &self.account {
            account.own(&path)?;
        }
        let from = file.metadata().map_err(on("read", &path))?.len();
        Ok(Log { file, path, from })
    }

    pub(super) fn remember(&self, name: &str, value: &str) -> Result<(), Error> {
        let path = self.root.join(name);
        let mut options = File::options();
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path);
        file.and_then(|mut file| writeln!(file, "{value}"))
            .map_err(on("write", &path))?;
        self.account
            .as_ref()
            .map_or(Ok(()), |account| account.own(&path))
    }

    pub(super) fn remembered(&self, name: &str) -> Option<String> {
        let value = fs::read_to_string(self.root.join(name)).ok()?;
        Some(value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The socket's folder: inside ours unless the path would be too long for a socket.
    pub(super) fn socket(&self) -> Result<PathBuf, Error> {
        let mut socket = self.root.join("socket");
        if socket.join(".s.PGSQL.65535").as_os_str().len() > SOCKET_PATH_MAX {
            let digest = Uuid::from_u64_pair(fnv(self.root.as_os_str().as_encoded_bytes()), 0);
            socket = PathBuf::from(format!(
                "/tmp/outlast-socket-{}",
                &digest.simple().to_string()[..16]
            ));
        }
        if !socket.exists() {
            make_private(&socket)?;
            if let Some(account) = &self.account {
                account.own(&socket)?;
            }
        }
        // In /tmp somebody else may have been first: trust is only good behind a door that is ours.
        let server = self
            .account
            .as_ref()
            .map(Account::uid)
            .or_else(|| account::owner_of(&self.root).map(|(uid, _)| uid));
        if account::owner_of(&socket).map(|(uid, _)| uid) != server {
            let taken = io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it belongs to another user",
            );
            return Err(on("use", &socket)(taken));
        }
        Ok(socket)
    }

    pub(super) fn remove(&self) {
        if let Ok(socket) = self.socket() {
            let _ = fs::remove_dir_all(socket);
        }
        let _ = fs::remove_dir_all(&self.root);
    }

    fn empty(&self) -> Result<(), Error> {
        for entry in fs::read_dir(&self.root).map_err(on("read", &self.root))? {
            let path = entry.map_err(on("read", &self.root))?.path();
            if path.is_dir() {
                fs::remove_dir_all(&path).map_err(on("remove", &path))?;
            } else if !path.ends_with(LOCK) {
                fs::remove_file(&path).map_err(on("remove", &path))?;
            }
        }
        Ok(())
    }
}

/// A log of one run: the file has those of earlier runs before it.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) file: File,
    path: PathBuf,
    from: u64,
}

impl Log {
    /// The last lines of this run, for an error message.
    pub(super) fn tail(&self) -> String {
        let log = fs::read(&self.path).unwrap_or_default();
        let from = usize::try_from(self.from).unwrap_or(0).min(log.len());
        let log = String::from_utf8_lossy(&log[from..]);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

/// A port that nobody listens on now. Somebody else may take it before the server does: the caller tries again.
pub(super) fn free_port(wish: Option<u16>) -> Result<u16, Error> {
    let wished = wish.and_then(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    let listener = match wished {
        Some(listener) => Ok(listener),
        None => TcpListener::bind(("127.0.0.1", 0)),
    };
    let port = listener
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port());
    port.map_err(on("find a free port on", Path::new("127.0.0.1")))
}

fn take_lock(root: &Path) -> Result<File, Error> {
    let path = root.join(LOCK);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(on("open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            return Err(Error::InUse {
                folder: root.to_owned(),
                pid: holder.trim().parse().ok(),
            });
        }
        Err(TryLockError::Error(error)) => return Err(on("lock", &path)(error)),
    }
    let write = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    write.map_err(on("write", &path))?;
    Ok(file)
}

fn make_private(path: &Path) -> Result<(), Error> {
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(on("create", path))
}

fn is_empty(path: &Path) -> Result<bool, Error> {
    Ok(fs::read_dir(path)
        .map_err(on("read", path))?
        .next()
        .is_none())
}

/// FNV-1a: the same short name for the same folder, in every process.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
