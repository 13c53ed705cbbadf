//! The monitoring of a server, for the one thing that no client is told: how often the store is synced to the disk.
//!
//! A confirmed message is in the server's memory and in the kernel's; by default it is synced every two minutes. A server that
//! is killed loses nothing, a machine that loses power does, unless other replicas have it or `sync_interval` is `always`.

use std::time::Duration;

use outlast_core::{
    broker::{Finding, Severity},
    duration,
};
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout_at},
};

const ABOUT: &str = "sync_interval";
/// A page of it has some kilobytes.
const MOST: u64 = 1 << 20;

#[derive(Debug, Deserialize)]
struct Varz {
    #[serde(default)]
    jetstream: JetStream,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JetStream {
    config: Option<Config>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    /// In nanoseconds.
    sync_interval: u64,
    sync_always: bool,
}

/// How often the store is synced, as far as anybody tells us.
pub(crate) async fn sync(monitor: Option<&str>, by: Instant) -> Finding {
    let unverified = |found: &str| {
        let advice = "set monitor to http://host:8222; in the server's configuration: jetstream { sync_interval: always }";
        Finding::new(Severity::Unverified, ABOUT, found, advice)
    };
    let Some(address) = monitor.and_then(|url| url.strip_prefix("http://")) else {
        return unverified("no client is told");
    };
    // Beside the point when it fails: never longer than this.
    let by = by.min(Instant::now() + Duration::from_secs(2));
    match timeout_at(by, page(address.trim_end_matches('/'))).await {
        Ok(Ok(body)) => match serde_json::from_slice(&body) {
            Ok(varz) => judged(&varz),
            Err(_) => unverified("the monitoring answers something else"),
        },
        Ok(Err(why)) => unverified(&format!("the monitoring does not answer: {why}")),
        Err(_) => unverified("the monitoring does not answer in time"),
    }
}

fn judged(varz: &Varz) -> Finding {
    let Some(config) = &varz.jetstream.config else {
        let advice = "the monitoring is of a server without JetStream: ask one that has it";
        return Finding::new(Severity::Unverified, ABOUT, "no JetStream there", advice);
    };
    if config.sync_always {
        return Finding::new(Severity::Good, ABOUT, "always", "");
    }
    let found = duration::show(Duration::from_nanos(config.sync_interval));
    let advice = "a machine that loses power loses what it confirmed since: jetstream { sync_interval: always }, or 3 \
                  replicas that do not fail together";
    Finding::new(Severity::Warning, ABOUT, found, advice)
}

/// One request of HTTP 1.0: the whole answer, then the end.
async fn page(address: &str) -> std::io::Result<Vec<u8>> {
    let other = |what: &str| std::io::Error::other(what.to_owned());
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /varz HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer).await?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.ok_or_else(|| other("no answer of HTTP"))?;
    let good = answer.starts_with(b"HTTP/1.0 200") || answer.starts_with(b"HTTP/1.1 200");
    if !good {
        return Err(other("it refuses"));
    }
    Ok(answer.split_off(end + 4))
}
