//! Commit → handler start at 200 events a second, and what an event costs the server then: against the same emits while
//! nobody works.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::Result;
use hdrhistogram::Histogram;
use outlast::{Attempt, Consumer, Event, Failure, Outlast};
use serde::{Deserialize, Serialize};

use super::Args;
use crate::{
    cost::Meter,
    report::{Report, Row},
    server::{Database, Server},
};

#[derive(Serialize, Deserialize)]
struct Load {
    n: u64,
}
impl Event for Load {
    const NAME: &'static str = "load";
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<HashMap<u64, Instant>>>);

async fn started(seen: Seen, load: Attempt<Load>) -> Result<(), Failure> {
    let now = Instant::now();
    seen.0
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .entry(load.n)
        .or_insert(now);
    Ok(())
}

pub async fn run(server: &Server, args: &Args, report: &mut Report) -> Result<()> {
    let database = server.database("bench_latency").await?;
    let events = (args.seconds * 5.0 * 200.0) as u64;
    trickle(&database, 0..events / 10).await?;
    let meter = Meter::start(server, &database).await?;
    trickle(&database, 0..events).await?;
    let without = meter.stop(server, &database).await?;

    let seen = Seen::default();
    let worker = Outlast::new()
        .worker(seen.clone())
        .database(&database.url)
        .consumer(Consumer::new("c").on(started));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    while database
        .number("select count(*) from outlast._consumer")
        .await?
        == 0
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let meter = Meter::start(server, &database).await?;
    let committed = trickle(&database, 0..events).await?;
    while database
        .number("select count(*) from outlast._processed_event")
        .await?
        < events as i64
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let cost = meter.stop(server, &database).await?;
    let _ = stop.send(());
    worker.await??;
    let mut histogram = Histogram::<u64>::new(3)?;
    let seen = seen
        .0
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    for (n, committed) in &committed {
        // Started before COMMIT was answered to us: nothing to wait for.
        let took = seen.get(n).map_or(Duration::ZERO, |started| {
            started.saturating_duration_since(*committed)
        });
        histogram.record(took.as_micros() as u64)?;
    }
    let ms = |q: f64| histogram.value_at_quantile(q) as f64 / 1000.0;
    let each = |cpu: f64| cpu * 1e6 / events as f64;
    report.push(Row {
        workload: format!(
            "commit → handler start at 200/s, {events} events (of the server's CPU without a worker: {:.0} µs)",
            each(without.server_cpu)
        ),
        result: format!(
            "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
            ms(0.5),
            ms(0.99),
            histogram.max() as f64 / 1000.0
        ),
        ratio: "–".into(),
        wal_bytes_per_unit: Some(cost.wal_bytes / events as f64),
        server_cpu_us_per_unit: Some(each(cost.server_cpu)),
        client_cpu_us_per_unit: Some(each(cost.client_cpu)),
    });
    Ok(())
}

/// Emits events of these numbers, 200 a second; answers when each was committed. By another session than the worker's process would
/// know of: the SQL function, so that nothing is nudged.
pub async fn trickle(database: &Database, numbers: Range<u64>) -> Result<HashMap<u64, Instant>> {
    let mut client = database.connect().await?;
    let emit = client
        .prepare("select outlast.emit('load', $1::text)")
        .await?;
    let mut committed = HashMap::new();
    let mut every = tokio::time::interval(Duration::from_millis(5));
    for n in numbers {
        every.tick().await;
        let tx = client.transaction().await?;
        tx.query(&emit, &[&format!("{{\"n\":{n}}}")]).await?;
        tx.commit().await?;
        committed.insert(n, Instant::now());
    }
    Ok(committed)
}
