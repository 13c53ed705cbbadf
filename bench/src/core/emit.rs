//! A business transaction with one emit against the same without, side by side in slices.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use outlast::{Event, Outlast};
use serde::{Deserialize, Serialize};

use super::Args;
use crate::{
    cost::{Cost, Meter},
    report::{Report, Row, ratio, spread},
    server::{Database, Server},
};

#[derive(Serialize, Deserialize)]
struct Load {
    n: i64,
    note: String,
}
impl Event for Load {
    const NAME: &'static str = "load";
    fn key(&self) -> Option<String> {
        Some(format!("load/{}", self.n))
    }
}

pub async fn run(server: &Server, args: &Args, report: &mut Report) -> Result<()> {
    let database = server.database("bench_emit").await?;
    for writers in [1, 8, 16] {
        slice(server, &database, writers, true, args.seconds / 4.0).await?;
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for round in 0..args.rounds {
            // A-B-B-A: drift hits both alike.
            for emit in if round % 2 == 0 {
                [false, true]
            } else {
                [true, false]
            } {
                let one = slice(server, &database, writers, emit, args.seconds).await?;
                if emit {
                    with.push(one)
                } else {
                    without.push(one)
                }
            }
        }
        let pairs = with.iter().zip(&without).map(|(a, b)| a.0 / b.0).collect();
        let (rate, ..) = spread(with.iter().map(|one| one.0).collect());
        let (base, ..) = spread(without.iter().map(|one| one.0).collect());
        let per_unit = |get: fn(&Cost) -> f64| {
            Some(
                spread(
                    with.iter()
                        .map(|(rate, cost)| get(cost) / (rate * cost.seconds))
                        .collect(),
                )
                .0,
            )
        };
        report.push(Row {
            workload: format!(
                "transaction with one emit, {writers} writers (against none: {base:.0}/s)"
            ),
            result: format!("{rate:.0}/s"),
            ratio: ratio(pairs),
            wal_bytes_per_unit: per_unit(|cost| cost.wal_bytes),
            server_cpu_us_per_unit: per_unit(|cost| cost.server_cpu * 1e6),
            client_cpu_us_per_unit: per_unit(|cost| cost.client_cpu * 1e6),
        });
    }
    Ok(())
}

async fn slice(
    server: &Server,
    database: &Database,
    writers: usize,
    emit: bool,
    seconds: f64,
) -> Result<(f64, Cost)> {
    let (stop, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut tasks = tokio::task::JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..writers {
        clients.push(database.connect().await?);
    }
    let meter = Meter::start(server, database).await?;
    let start = Instant::now();
    for mut client in clients {
        let (stop, done) = (stop.clone(), done.clone());
        tasks.spawn(async move {
            let outlast = Outlast::new();
            let insert = client
                .prepare("insert into business (note) values ($1)")
                .await?;
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                let mut tx = client.transaction().await?;
                tx.execute(&insert, &[&"a business row of modest length"])
                    .await?;
                if emit {
                    outlast
                        .emit(
                            &mut tx,
                            &Load {
                                n,
                                note: "x".repeat(170),
                            },
                        )
                        .await?;
                }
                tx.commit().await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    Ok((rate, meter.stop(server, database).await?))
}
