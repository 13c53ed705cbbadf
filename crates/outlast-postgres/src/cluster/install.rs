//! Finds the PostgreSQL server programs of this machine.
//!
//! Looks where the distributions put them, because most keep `postgres` and `initdb` off the PATH. Never installs
//! anything: that is for the person, who is told the exact command.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use super::Error;
use super::advice::{install_command, spell};

/// The major versions Outlast works with.
pub const VERSIONS: RangeInclusive<u32> = 14..=18;

/// The variable that names the folder of the server programs and beats every search.
pub const OVERRIDE: &str = "OUTLAST_PG_BIN";

/// Server programs live in `<parent>/<prefix>*/<tail>`.
const PLACES: [(&str, &str, &str); 9] = [
    ("/usr/lib/postgresql", "", "bin"),         // Debian, Ubuntu
    ("/usr", "pgsql-", "bin"),                  // PostgreSQL's own packages for Red Hat
    ("/usr/lib", "postgresql", "bin"),          // SUSE
    ("/usr/libexec", "postgresql", ""),         // Alpine
    ("/usr/local", "pgsql", "bin"),             // built from source
    ("/opt/homebrew/opt", "postgresql", "bin"), // Homebrew on Apple silicon
    ("/usr/local/opt", "postgresql", "bin"),    // Homebrew on Intel
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"), // Homebrew on Linux
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"), // Postgres.app
];

/// A folder with `postgres` and `initdb` of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    bin: PathBuf,
    major: u32,
    version: String,
}

impl Installation {
    /// The newest acceptable server: of `OUTLAST_PG_BIN` if that is set, else of PATH and the usual folders.
    ///
    /// # Errors
    /// [`Error::NotInstalled`] with the command that installs one; [`Error::Override`] if the variable misleads.
    pub fn find() -> Result<Self, Error> {
        Search::of_this_machine().newest(VERSIONS)
    }

    /// The server of one major version, for a data folder that this version wrote.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_major(major: u32) -> Result<Self, Error> {
        Search::of_this_machine().newest(major..=major)
    }

    /// The folder of its programs.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// Its major version, such as 15.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// Its full version as it prints it, such as `15.18`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The path of one of its programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// Reads a folder; says what is missing otherwise.
    fn at(folder: &Path) -> Result<Self, String> {
        let server = folder.join("postgres");
        if !server.is_file() {
            return Err("there is no `postgres` in it".into());
        }
        // A folder on the PATH often has only a link to the real one, and initdb is beside the real one.
        let bin = match server.canonicalize() {
            Ok(real) if real.with_file_name("initdb").is_file() => {
                real.parent().map(Path::to_owned)
            }
            _ => folder.join("initdb").is_file().then(|| folder.to_owned()),
        };
        let bin = bin.ok_or("there is no `initdb` in it")?;
        let output = Command::new(bin.join("postgres"))
            .arg("--version")
            .output()
            .map_err(|error| format!("its `postgres` does not run: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let version = said
            .split_whitespace()
            .find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let version =
            version.ok_or_else(|| format!("its `postgres --version` says {:?}", said.trim()))?;
        let major = version
            .split(|c: char| !c.is_ascii_digit())
            .next()
            .and_then(|digits| digits.parse().ok());
        let major =
            major.ok_or_else(|| format!("its `postgres --version` says {:?}", said.trim()))?;
        Ok(Self {
            bin,
            major,
            version: version.to_owned(),
        })
    }
}

/// Where to look; the machine's own except in tests.
struct Search {
    chosen: Option<PathBuf>,
    path: Option<OsString>,
    /// Put before every usual place.
    root: PathBuf,
}

impl Search {
    fn of_this_machine() -> Self {
        let chosen = env::var_os(OVERRIDE)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from);
        Self {
            chosen,
            path: env::var_os("PATH"),
            root: PathBuf::from("/"),
        }
    }

    fn newest(&self, wanted: RangeInclusive<u32>) -> Result<Installation, Error> {
        if let Some(folder) = &self.chosen {
            let refuse = |reason| Error::Override {
                folder: folder.clone(),
                reason,
            };
            let here = Installation::at(folder).map_err(refuse)?;
            if !wanted.contains(&here.major) {
                return Err(refuse(format!(
                    "PostgreSQL {}, but {} is needed",
                    here.version,
                    spell(&wanted)
                )));
            }
            return Ok(here);
        }
        let mut best: Option<Installation> = None;
        let mut unfit = Vec::new();
        for here in self
            .folders()
            .iter()
            .filter_map(|folder| Installation::at(folder).ok())
        {
            if !wanted.contains(&here.major) {
                unfit.push(format!(
                    "PostgreSQL {} in {}",
                    here.version,
                    here.bin.display()
                ));
            } else if best.as_ref().is_none_or(|best| here.major > best.major) {
                best = Some(here);
            }
        }
        unfit.sort();
        unfit.dedup();
        best.ok_or_else(|| Error::NotInstalled {
            wanted: spell(&wanted),
            found: unfit,
            advice: self.advice(&wanted),
        })
    }

    fn folders(&self) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = self.path.iter().flat_map(env::split_paths).collect();
        for (parent, prefix, tail) in PLACES {
            let parent = self.root.join(parent.trim_start_matches('/'));
            let entries = fs::read_dir(parent).into_iter().flatten().flatten();
            let named =
                entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
            folders.extend(named.map(|entry| entry.path().join(tail)));
        }
        folders
    }

    fn advice(&self, wanted: &RangeInclusive<u32>) -> String {
        let release = fs::read_to_string(self.root.join("etc/os-release")).unwrap_or_default();
        let command = install_command(
            env::consts::OS,
            &release,
            (wanted.start() == wanted.end()).then_some(*wanted.start()),
        );
        format!(
            "install one: `{command}`, or set {OVERRIDE} to the folder that has `postgres` and `initdb`"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A root folder with programs that only know their version.
    fn machine(servers: &[(&str, &str)]) -> (tempfile::TempDir, Search) {
        let root = tempfile::tempdir().unwrap();
        for (folder, version) in servers {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            for program in ["postgres", "initdb"] {
                let program = folder.join(program);
                fs::write(
                    &program,
                    format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n"),
                )
                .unwrap();
                fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        let search = Search {
            chosen: None,
            path: None,
            root: root.path().to_owned(),
        };
        (root, search)
    }

    #[test]
    fn the_newest_acceptable_server_wins_wherever_it_is() {
        let (root, mut search) = machine(&[
            (
                "usr/lib/postgresql/15/bin",
                "15.18 (Debian 15.18-0+deb12u1)",
            ),
            ("usr/pgsql-17/bin", "17.6"),
            ("opt/homebrew/opt/postgresql@16/bin", "16.10 (Homebrew)"),
            ("usr/lib/postgresql/19/bin", "19devel"),
            ("somewhere/bin", "14.20"),
        ]);
        assert_eq!(search.newest(VERSIONS).unwrap().version(), "17.6");
        assert_eq!(search.newest(15..=15).unwrap().version(), "15.18");
        search.path = Some(root.path().join("somewhere/bin").into());
        assert_eq!(
            search.newest(14..=14).unwrap().bin(),
            root.path().join("somewhere/bin").canonicalize().unwrap()
        );
    }

    #[test]
    fn the_override_wins_and_is_never_passed_over() {
        let (root, mut search) = machine(&[
            ("usr/lib/postgresql/18/bin", "18.1"),
            ("old", "15.2"),
            ("ancient", "9.6.24"),
        ]);
        search.chosen = Some(root.path().join("old"));
        assert_eq!(search.newest(VERSIONS).unwrap().major(), 15);
        search.chosen = Some(root.path().join("ancient"));
        let error = search.newest(VERSIONS).unwrap_err().to_string();
        assert!(
            error.contains("OUTLAST_PG_BIN")
                && error.contains("9.6.24")
                && error.contains("14 to 18"),
            "{error}"
        );
        search.chosen = Some(root.path().join("empty"));
        assert!(
            search
                .newest(VERSIONS)
                .unwrap_err()
                .to_string()
                .contains("no `postgres`")
        );
    }

    #[test]
    fn without_a_server_the_error_names_the_command_and_what_did_not_fit() {
        let (root, search) = machine(&[("usr/lib/postgresql/13/bin", "13.22")]);
        fs::create_dir_all(root.path().join("etc")).unwrap();
        fs::write(
            root.path().join("etc/os-release"),
            "ID=ubuntu\nID_LIKE=debian\n",
        )
        .unwrap();
        let error = search.newest(VERSIONS).unwrap_err().to_string();
        assert!(
            error.contains("PostgreSQL 13.22") && error.contains("OUTLAST_PG_BIN"),
            "{error}"
        );
        if cfg!(target_os = "linux") {
            assert!(
                error.contains("`sudo apt-get install postgresql`"),
                "{error}"
            );
        }
    }
}
