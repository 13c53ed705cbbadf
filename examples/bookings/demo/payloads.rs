//! The real input: every payload of the npm package `@octokit/webhooks-examples`, byte for byte as its files have it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, fs, io};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::process::Command;
use tokio::time::timeout;

const PACKAGE: &str = "@octokit/webhooks-examples";
const VERSION: &str = "7.6.1";

/// What GitHub would send.
#[derive(Debug)]
pub(crate) struct Payload {
    /// Such as `push`.
    pub(crate) event: String,
    /// As it stands in the file, spaces and all.
    pub(crate) body: Box<RawValue>,
}

/// Those in `folder`, else those of the package.
pub(crate) async fn get(folder: Option<&Path>) -> anyhow::Result<Vec<Payload>> {
    if let Some(folder) = folder {
        return read(folder);
    }
    match fetch().await {
        Ok(folder) => read(&folder),
        Err(why) => leave_out(why, env::var("CI").is_ok_and(|ci| ci == "true")),
    }
}

/// Where there is no npm, or no way to the registry, the demo goes on without. In CI that would hide what is not tried.
fn leave_out(why: anyhow::Error, ci: bool) -> anyhow::Result<Vec<Payload>> {
    if ci {
        return Err(why.context(format!("get {PACKAGE}")));
    }
    eprintln!("demo: LEFT OUT: every payload of {PACKAGE}: {why:#}");
    eprintln!("demo: LEFT OUT: so there are bookings only, and no webhooks");
    Ok(Vec::new())
}

/// The package's folder, from an earlier run or from the registry.
async fn fetch() -> anyhow::Result<PathBuf> {
    let program = env::current_exe().context("find myself")?;
    // target/PROFILE/demo: the cache is beside the profiles and goes with `cargo clean`.
    let target = program
        .ancestors()
        .nth(2)
        .context("find the target folder")?;
    let cache = target.join("demo");
    let folder = cache.join(format!("webhooks-examples-{VERSION}"));
    if folder.exists() {
        return Ok(folder);
    }
    fs::create_dir_all(&cache).with_context(|| format!("make {}", cache.display()))?;
    let fresh = tempfile::tempdir_in(&cache).context("make a folder")?;
    let spec = format!("{PACKAGE}@{VERSION}");
    eprintln!("demo: fetching {spec} from npm");
    run(
        fresh.path(),
        &[
            "npm",
            "pack",
            &spec,
            "--silent",
            "--fetch-retries=1",
            "--fetch-timeout=20000",
        ],
    )
    .await?;
    let archive = fs::read_dir(fresh.path())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "tgz"))
        .context("npm pack has made no .tgz")?;
    run(fresh.path(), &["tar", "-xzf", &archive.to_string_lossy()]).await?;
    match fs::rename(fresh.path().join("package"), &folder) {
        // Another demo was faster.
        Err(_) if folder.exists() => Ok(folder),
        Err(error) => Err(error).context("move the package into the cache"),
        Ok(()) => Ok(folder),
    }
}

async fn run(folder: &Path, words: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .current_dir(folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ended = timeout(Duration::from_secs(90), command.output()).await;
    let output = match ended.with_context(|| format!("{} takes too long", words[0]))? {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("{} is not installed", words[0])
        }
        output => output.with_context(|| format!("run {}", words[0]))?,
    };
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} failed: {}",
        words.join(" "),
        told.trim()
    );
    Ok(())
}

#[derive(Deserialize)]
struct Webhook {
    name: String,
    examples: Vec<Box<RawValue>>,
}

fn read(folder: &Path) -> anyhow::Result<Vec<Payload>> {
    let what = || format!("read the payloads in {}", folder.display());
    let mut files: Vec<_> = fs::read_dir(folder)
        .with_context(what)?
        .filter_map(|entry| Some(entry.ok()?.path().join("index.json")))
        .filter(|file| file.exists())
        .collect();
    files.sort();
    let mut payloads = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(what)?;
        let webhooks: Vec<Webhook> =
            serde_json::from_str(&text).with_context(|| format!("read {}", file.display()))?;
        for Webhook { name, examples } in webhooks {
            payloads.extend(examples.into_iter().map(|body| Payload {
                event: name.clone(),
                body,
            }));
        }
    }
    ensure!(
        !payloads.is_empty(),
        "there are no payloads in {}",
        folder.display()
    );
    Ok(payloads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_the_bytes_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let body = "{ \"a\" : 1e400, \"a\":\"\\u00e9é\",\n\t\"n\": 9007199254740993 }";
        let file = folder.path().join("ghes-1/index.json");
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(
            file,
            format!(r#"[{{"name":"push","examples":[ {body} ]}}]"#),
        )
        .unwrap();
        let payloads = read(folder.path()).unwrap();
        assert_eq!(
            (payloads[0].event.as_str(), payloads[0].body.get()),
            ("push", body)
        );
        assert!(
            read(&folder.path().join("ghes-1")).is_err(),
            "a folder without payloads is a mistake"
        );
    }

    #[test]
    fn what_cannot_be_fetched_is_left_out_except_in_ci() {
        let why = || anyhow::anyhow!("npm is not installed");
        assert!(leave_out(why(), false).unwrap().is_empty());
        assert!(leave_out(why(), true).is_err());
    }
}
