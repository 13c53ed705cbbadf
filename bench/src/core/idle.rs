//! What a worker with five consumers costs when there is nothing to do, and how many connections it takes.

use std::time::Duration;

use anyhow::Result;
use outlast::{Attempt, Consumer, Event, Failure, Outlast};
use serde::{Deserialize, Serialize};

use super::Args;
use crate::{
    cost::Meter,
    report::{Report, Row},
    server::Server,
};

#[derive(Serialize, Deserialize)]
struct Load {
    n: u64,
}
impl Event for Load {
    const NAME: &'static str = "load";
}

async fn never(_: (), _: Attempt<Load>) -> Result<(), Failure> {
    Ok(())
}

pub async fn run(server: &Server, args: &Args, report: &mut Report) -> Result<()> {
    let database = server.database("bench_idle").await?;
    let mut worker = Outlast::new().worker(()).database(&database.url);
    for n in 0..5 {
        worker = worker.consumer(Consumer::new(&format!("c{n}")).concurrency(200).on(never));
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    while database
        .number("select count(*) from outlast._consumer")
        .await?
        < 5
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Long enough to be quiet: the poller slows down over a minute.
    let (quiet, measured) = if args.smoke { (0.5, 1.0) } else { (65.0, 20.0) };
    tokio::time::sleep(Duration::from_secs_f64(quiet)).await;
    let statements = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()";
    let before = database.number(statements).await?;
    let meter = Meter::start(server, &database).await?;
    tokio::time::sleep(Duration::from_secs_f64(measured)).await;
    let cost = meter.stop(server, &database).await?;
    let after = database.number(statements).await?;
    let open = database.number("select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()").await?;
    let _ = stop.send(());
    worker.await??;
    report.push(Row {
        workload: "idle: one worker, 5 consumers at concurrency 200".into(),
        result: format!(
            "{:.1} statements/s, {open} connections",
            (after - before - 2) as f64 / cost.seconds
        ),
        ratio: format!(
            "{:.2} % of a core on the server",
            cost.server_cpu / cost.seconds * 100.0
        ),
        wal_bytes_per_unit: None,
        server_cpu_us_per_unit: None,
        client_cpu_us_per_unit: None,
    });
    Ok(())
}
