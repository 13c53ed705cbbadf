//! The contestants of `adapters.toml`: how each is built and started, and what it says of itself.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

/// The folder of this workspace.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where things are built.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => std::path::absolute(&folder).unwrap_or_else(|_| folder.into()),
        None => home().join("target"),
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    pub name: String,
    build: Vec<String>,
    run: Vec<String>,
}

#[derive(Deserialize)]
struct Manifest {
    adapter: Vec<Adapter>,
}

pub fn all() -> Result<Vec<Adapter>> {
    let file = home().join("adapters.toml");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let manifest: Manifest = toml::from_str(&text)?;
    Ok(manifest.adapter)
}

/// Builds those that are packages of this workspace by one call of cargo, and answers whether that went well. One by one each
/// would have its dependencies built anew, because other packages beside it ask for other features of them.
pub fn build_together(adapters: &[Adapter]) -> Result<bool> {
    let packages = adapters.iter().filter_map(Adapter::package);
    let words = ["cargo", "build", "--release", "--quiet"].map(String::from);
    let words = words.into_iter();
    let words: Vec<_> = words
        .chain(packages.flat_map(|package| ["-p".into(), package.into()]))
        .collect();
    let mut cargo = command(&words)?;
    cargo
        .env("CARGO_TARGET_DIR", target())
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    Ok(cargo.status().context("cargo cannot be started")?.success())
}

impl Adapter {
    /// Its name in this workspace, if it is a package of it.
    pub fn package(&self) -> Option<&str> {
        let mut words = self.build.iter().skip_while(|word| *word != "-p");
        words.nth(1).map(String::as_str)
    }

    /// Builds it, or says why it cannot be had.
    pub fn build(&self) -> Result<()> {
        let output = command(&self.build)?
            .env("CARGO_TARGET_DIR", target())
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{} cannot be started", self.build.join(" ")))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            bail!("not built: {}", last_words(text.lines()));
        }
        Ok(())
    }

    pub fn command(&self) -> Result<Command> {
        command(&self.run)
    }

    pub fn describe(&self) -> Result<Description> {
        let output = self
            .command()?
            .env("BENCH_VERB", "describe")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{} cannot be started", self.run.join(" ")))?;
        let text = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!("describe: {}", last_words(text.lines()));
        }
        serde_json::from_slice(&output.stdout).context("its description cannot be read")
    }
}

fn command(words: &[String]) -> Result<Command> {
    let target = target();
    let mut words = words
        .iter()
        .map(|word| word.replace("{target}", &target.to_string_lossy()));
    let mut command = Command::new(words.next().context("no program is named")?);
    command.args(words).current_dir(home());
    Ok(command)
}

/// The end of what somebody said, on one line that fits into a table.
pub fn last_words<'a>(lines: impl DoubleEndedIterator<Item = &'a str>) -> String {
    const MOST: usize = 300;
    let mut last: Vec<&str> = lines
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .rev()
        .take(3)
        .collect();
    last.reverse();
    let text = last.join(" / ").replace('|', "¦");
    let skip = text.chars().count().saturating_sub(MOST);
    text.chars().skip(skip).collect()
}

/// What a contestant says of itself: bench/README.md.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Description {
    pub name: String,
    pub version: String,
    pub language: String,
    pub default: String,
    pub best: String,
    #[serde(default)]
    pub further: BTreeMap<String, String>,
    pub fenced: bool,
    pub history: bool,
    pub transactional: bool,
    /// Its schema knows its database: a copy of it would be refused.
    #[serde(default)]
    pub own_database: bool,
    pub left: String,
    pub done_at: Option<String>,
    pub stale: String,
    #[serde(default)]
    pub skips: BTreeMap<String, String>,
}

/// A contestant in one of its profiles.
#[derive(Clone, Debug)]
pub struct Who {
    pub adapter: Arc<Adapter>,
    pub description: Arc<Description>,
    pub profile: String,
}

impl Who {
    /// A contestant in every profile that it has.
    pub fn all(adapter: Adapter) -> Result<Vec<Self>> {
        let description = Arc::new(adapter.describe()?);
        let adapter = Arc::new(adapter);
        let further = description.further.keys().map(String::as_str);
        let who = |profile: &str| Self {
            adapter: adapter.clone(),
            description: description.clone(),
            profile: profile.to_owned(),
        };
        // The same words in both: one row.
        let usual: &[&str] = if description.default == description.best {
            &["best"]
        } else {
            &["default", "best"]
        };
        Ok(usual.iter().copied().chain(further).map(who).collect())
    }

    /// Why it does not take part in something, if it said so.
    pub fn skips(&self, what: &str) -> Option<&str> {
        self.description.skips.get(what).map(String::as_str)
    }

    pub fn has_further_profile(&self) -> bool {
        !matches!(self.profile.as_str(), "default" | "best")
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.adapter.name, self.profile)
    }
}
