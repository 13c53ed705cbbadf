//! Who runs the server: we ourselves, or another user when we are root, because PostgreSQL refuses root.
//!
//! The change of user happens in the child between fork and exec (`CommandExt::uid`), not through `runuser` or `su`:
//! those stand between us and the server's process id, need PAM, and do not exist on macOS.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs, io};

use super::Error;
use super::error::on;

/// The other user.
#[derive(Clone, Debug)]
pub(super) struct Account {
    name: String,
    uid: u32,
    gid: u32,
}

impl Account {
    /// None if we are not root: then everything runs as ourselves.
    /// `postgres`, the packages' own user, may read its programs for sure; `nobody` exists everywhere.
    pub(super) fn for_server() -> Result<Option<Self>, Error> {
        if ask_id(&["-u"])? != Some(0) {
            return Ok(None);
        }
        for name in ["postgres", "nobody"] {
            if let (Some(uid), Some(gid)) = (ask_id(&["-u", name])?, ask_id(&["-g", name])?) {
                return Ok(Some(Self {
                    name: name.to_owned(),
                    uid,
                    gid,
                }));
            }
        }
        let none = io::Error::new(
            io::ErrorKind::NotFound,
            "neither the user postgres nor nobody exists",
        );
        Err(on("find a user to run", Path::new("postgres"))(none))
    }

    /// The user that owns an existing data folder: PostgreSQL accepts no other.
    pub(super) fn owner(uid: u32, gid: u32) -> Self {
        Self {
            name: uid.to_string(),
            uid,
            gid,
        }
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    pub(super) fn own(&self, path: &Path) -> Result<(), Error> {
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
            .map_err(on("give away", path))
    }
}

/// A command that runs as `account`, in `folder`, in English, untouched by the caller's PG* variables.
pub(super) fn command(account: Option<&Account>, program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
        command.env_remove(name);
    }
    command
        .env("LC_ALL", "C")
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

/// Can the account get to each of these? Names the first folder it may not enter.
pub(super) fn check_reach(account: Option<&Account>, paths: &[&Path]) -> Result<(), Error> {
    let Some(account) = account else {
        return Ok(());
    };
    let mut way: Vec<_> = paths.iter().flat_map(|path| path.ancestors()).collect();
    way.sort_by_key(|path| path.as_os_str().len());
    way.dedup();
    let test = r#"for step; do [ -x "$step" ] || { printf %s "$step"; exit 1; }; done"#;
    let sh = Path::new("/bin/sh");
    let answer = command(Some(account), sh, Path::new("/"))
        .args(["-c", test, "reach"])
        .args(&way)
        .output()
        .map_err(on("run", sh))?;
    if answer.status.success() {
        return Ok(());
    }
    let blocked = String::from_utf8_lossy(&answer.stdout).into_owned().into();
    Err(Error::Unreachable {
        account: account.name.clone(),
        blocked,
    })
}

/// `id` knows users that no file lists, and needs neither unsafe code nor a dependency.
fn ask_id(question: &[&str]) -> Result<Option<u32>, Error> {
    let answer = Command::new("id")
        .args(question)
        .output()
        .map_err(on("run", Path::new("id")))?;
    Ok(String::from_utf8_lossy(&answer.stdout).trim().parse().ok())
}

/// The owner of a file or folder, if it exists.
pub(super) fn owner_of(path: &Path) -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|meta| (meta.uid(), meta.gid()))
}
