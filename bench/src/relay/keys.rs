//! Many ordering keys through the Pub/Sub adapter: what a relay remembers of them would be seen in its memory.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use super::{
    duel::{self, Place},
    pubsub::PubSub,
    way::{self, Route},
};
use crate::{
    cost::Meter,
    report::{Report, Row},
    server::{Database, Server},
};

/// No word for so long: it hangs.
const SILENCE: Duration = Duration::from_secs(30);

/// How far the relay was, and its memory then.
#[derive(Clone, Copy, Debug)]
struct Point {
    confirmed: u64,
    kb: u64,
}

pub async fn run(server: &Server, pubsub: &PubSub, events: u64, report: &mut Report) -> Result<()> {
    let keys = events / 10;
    let database = server.database("bench_keys").await?;
    database.backlog(events as i64, keys as i64).await?;
    let topic = "bench-keys";
    duel::make(&pubsub.broker(), topic, true).await?;
    Route::to(topic, true).set(&database).await?;
    let meter = Meter::start(server, &database).await?;
    let mut relay = start(&database, pubsub)?;
    let points = follow(&mut relay, events).await?;
    way::all(&database, || events, events).await;
    let cost = meter.stop(server, &database).await?;
    drop(relay.stdin.take());
    ensure!(relay.wait().await?.success(), "the relay failed");
    database.must_be_sound().await?;
    // What a process holds once it is warm.
    let warm = points.iter().filter(|point| point.confirmed >= events / 20);
    let all: Vec<u64> = warm.map(|point| point.kb).collect();
    let mb = |kb: Option<&u64>| kb.map_or(f64::NAN, |kb| *kb as f64 / 1024.0);
    let (least, most) = (mb(all.iter().min()), mb(all.iter().max()));
    let rest = |cpu: f64| Some(cpu * 1e6 / events as f64);
    report.push(Row {
        workload: format!(
            "relay to {} in a process of its own: {events} events, ordered by {keys} keys",
            PubSub::NAME
        ),
        result: format!("{:.0}/s", events as f64 / cost.seconds),
        ratio: format!(
            "memory {least:.0} to {most:.0} MB from 5 % of the events on ({:.0} MB apart)",
            most - least
        ),
        wal_bytes_per_unit: Some(cost.wal_bytes / events as f64),
        server_cpu_us_per_unit: rest(cost.server_cpu),
        client_cpu_us_per_unit: None,
    });
    report.facts.push(format!(
        "memory of the relay with {keys} keys, by events confirmed: {}",
        series(&points, events)
    ));
    Ok(())
}

fn start(database: &Database, pubsub: &PubSub) -> Result<Child> {
    let (endpoint, project) = pubsub.address();
    let relay = Command::new(std::env::current_exe()?)
        .arg("relay-process")
        .args(["--database", &database.url])
        .args(["--endpoint", &endpoint, "--project", project])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    relay.context("the relay cannot be started")
}

/// What it says of itself until it has all.
async fn follow(relay: &mut Child, events: u64) -> Result<Vec<Point>> {
    let stdout = relay.stdout.take().context("no stdout")?;
    let (mut lines, mut points) = (BufReader::new(stdout).lines(), Vec::new());
    let (mut last, mut since) = (0, std::time::Instant::now());
    loop {
        let line = timeout(SILENCE, lines.next_line()).await;
        let line = line.context("the relay says nothing")??;
        let line = line.context("the relay has ended")?;
        let (confirmed, kb) = line.split_once(' ').context(line.clone())?;
        let point = Point {
            confirmed: confirmed.parse()?,
            kb: kb.parse()?,
        };
        points.push(point);
        if point.confirmed >= events {
            return Ok(points);
        }
        if point.confirmed > last {
            (last, since) = (point.confirmed, std::time::Instant::now());
        }
        ensure!(
            since.elapsed() < SILENCE,
            "the relay stands still at {last} of {events}"
        );
    }
}

/// At each tenth.
fn series(points: &[Point], events: u64) -> String {
    let at = |tenth: u64| {
        let reached = |point: &&Point| point.confirmed >= events * tenth / 10;
        let point = points.iter().find(reached)?;
        Some(format!("{} %: {} MB", tenth * 10, point.kb / 1024))
    };
    let all: Vec<String> = (0..=10).filter_map(at).collect();
    all.join(", ")
}
