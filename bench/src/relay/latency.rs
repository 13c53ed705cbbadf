//! Commit → the broker's confirmation, at 200 events a second.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use hdrhistogram::Histogram;

use super::{
    duel::{self, Place},
    way::{self, Route, Seen, Watched},
};
use crate::{
    core::latency::trickle,
    cost::Meter,
    report::{Report, Row},
    server::Server,
};

pub async fn run<P: Place>(
    server: &Server,
    place: &P,
    events: u64,
    report: &mut Report,
) -> Result<()> {
    let database = server.database("bench_latency").await?;
    let (topic, broker) = ("bench-latency", place.broker());
    duel::make(&broker, topic, false).await?;
    Route::to(topic, false).set(&database).await?;
    // Without times first, and then what counts, with the relay warm.
    let seen = Arc::new(Seen::with_times());
    let worker = way::worker(&database.url, Watched::new(broker, seen.clone()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    let warm = events / 10;
    trickle(&database, 0..warm).await?;
    until(&seen, warm).await?;
    let meter = Meter::start(server, &database).await?;
    let committed = trickle(&database, warm..warm + events).await?;
    until(&seen, warm + events).await?;
    let cost = meter.stop(server, &database).await?;
    let _ = stop.send(());
    worker.await??;
    let (mut histogram, times) = (Histogram::<u64>::new(3)?, seen.times());
    for (n, committed) in &committed {
        // Confirmed before COMMIT was answered to us: nothing to wait for.
        let took = times.get(n).map_or(Duration::ZERO, |confirmed| {
            confirmed.saturating_duration_since(*committed)
        });
        histogram.record(took.as_micros() as u64)?;
    }
    let ms = |q: f64| histogram.value_at_quantile(q) as f64 / 1000.0;
    let each = |cpu: f64| Some(cpu * 1e6 / events as f64);
    report.push(Row {
        workload: format!(
            "commit → confirmation of {} at 200/s, {events} events",
            P::NAME
        ),
        result: format!(
            "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
            ms(0.5),
            ms(0.99),
            histogram.max() as f64 / 1000.0
        ),
        ratio: "–".into(),
        wal_bytes_per_unit: Some(cost.wal_bytes / events as f64),
        server_cpu_us_per_unit: each(cost.server_cpu),
        client_cpu_us_per_unit: each(cost.client_cpu),
    });
    Ok(())
}

async fn until(seen: &Seen, confirmed: u64) -> Result<()> {
    let reached = async {
        while seen.confirmed() < confirmed {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let reached = tokio::time::timeout(Duration::from_secs(60), reached).await;
    anyhow::ensure!(
        reached.is_ok(),
        "{} of {confirmed} were confirmed",
        seen.confirmed()
    );
    Ok(())
}
