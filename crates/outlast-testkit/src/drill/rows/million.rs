//! A million events through three workers, of which one is killed every few seconds: the account is exact.
//!
//! So that it is the product that takes the time and not the drill, the drill writes many at a time: business rows and
//! their events by one statement, effect rows by one statement a batch, lines of the outside journals by one wait for the
//! disk a group. Each event still has a business row, an effect row, and a line outside, of its own.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use futures_util::future::try_join_all;
use outlast_checker::Of;

use super::{
    super::{
        worker::{Form, Spec},
        world::World,
    },
    Row, Scenario,
};

/// How many connections write at once, and how many events a transaction has.
const WRITERS: i64 = 4;
const EACH: i64 = 500;

pub(super) fn row() -> Row {
    let scenario = Scenario::new("one-killed-every-few-seconds", million);
    let settings: &[_] = &[
        ("max_wal_size", "4GB"),
        ("shared_buffers", "512MB"),
        // The account compares a million rows with a million others.
        ("work_mem", "128MB"),
    ];
    let hours = Duration::from_secs(3 * 3600);
    Row {
        name: "million",
        what: "1,000,000 events, three workers, kills: the account is exact",
        scenarios: vec![scenario.alone(settings).patient(hours).core()],
    }
}

async fn million(world: Arc<World>) -> Result<()> {
    let total: i64 = if world.small { 20_000 } else { 1_000_000 };
    let specs = [
        Spec::new("ledger", Form::Batch),
        Spec::new("mail", Form::Outside),
    ];
    let (mut rng, mut lives) = (world.rng(10), 0);
    let mut start = || {
        lives += 1;
        let worker = world.worker(&format!("life-{lives}")).consumers(&specs);
        worker.flag("grouped").set("concurrency", 64).start()
    };
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(start()?);
    }
    let written = write(&world, total);
    let killed = async {
        let mut kills = 0;
        // Lives are short, and not all alike.
        while !all_done(&world, 2 * total).await? {
            tokio::time::sleep(Duration::from_millis(rng.u64(1500..4500))).await;
            let victim = rng.usize(..workers.len());
            // One that has not come up yet does nothing: on a slow machine nobody ever would.
            let up = workers[victim].lines();
            if !up.iter().any(|line| line.contains("worker is running")) {
                continue;
            }
            workers[victim].kill();
            kills += 1;
            world.fault("a worker was killed");
            workers[victim] = start()?;
        }
        anyhow::Ok(kills)
    };
    let ((), kills) = tokio::try_join!(written, killed)?;
    world.note(format_args!("{total} events, {kills} kills"));
    world
        .comes_to_rest(specs.len(), Duration::from_secs(120))
        .await?;
    let client = world.client().await?;
    let of = Of {
        events: total,
        inside: &["ledger"],
        outside: &["mail"],
    };
    let (report, words) = outlast_checker::account(&client, world.folder(), &of).await?;
    world.note(format_args!("{words}"));
    world.judged(report);
    Ok(())
}

/// Whether so many completions are there. They are counted only when the server's statistics, which cost nothing and may be
/// late, say that it may be so.
async fn all_done(world: &World, completions: i64) -> Result<bool> {
    let about = "select coalesce(sum(n_tup_ins), 0)::bigint from pg_stat_user_tables where relname like '\\_processed\\_event%'";
    let exactly = "select count(*) from outlast._processed_event";
    Ok(world.number(about).await? >= completions && world.number(exactly).await? >= completions)
}

/// Business rows and events, in transactions of some hundred.
async fn write(world: &World, total: i64) -> Result<()> {
    const SQL: &str = r#"
        with did as materialized (
          select row_number() over (order by n) as ord, n, format('{"n":%s,"text":"%s"}', n, repeat('x', (n % 200)::int)) as payload
          from generate_series($1::bigint, $2::bigint) n)
        insert into drill.business (n, event_id, digest)
        select d.n, e.id, encode(sha256(convert_to(d.payload, 'UTF8')), 'hex')
        from outlast.emit_all('drill.did', array(select payload from did order by ord),
                              array(select 'thing/' || n % 1000 from did order by ord)) e
        join did d on d.ord = e.ord"#;
    let share = total / WRITERS;
    let writers = (0..WRITERS).map(|writer| async move {
        let client = world.client().await?;
        for first in (writer * share + 1..=(writer + 1) * share).step_by(EACH as usize) {
            let last = (first + EACH - 1).min((writer + 1) * share);
            client.execute(SQL, &[&first, &last]).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(writers).await.map(drop)
}
