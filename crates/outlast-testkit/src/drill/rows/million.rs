//! A million events through three workers, of which one is killed every few seconds: the account is exact.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use futures_util::future::try_join_all;

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
    let settings: &[_] = &[("max_wal_size", "4GB"), ("shared_buffers", "512MB")];
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
        worker.flag("unwritten").set("concurrency", 8).start()
    };
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(start()?);
    }
    let written = write(&world, total);
    let killed = async {
        let done = "select count(*) from outlast._processed_event";
        let mut kills = 0;
        // Lives are short, and not all alike.
        while world.number(done).await? < 2 * total {
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
    for wrong in outlast_checker::account(&client, total, &["ledger", "mail"], &["ledger"]).await? {
        world.violated(wrong);
    }
    Ok(())
}

/// Business rows and events, in transactions of some hundred.
async fn write(world: &World, total: i64) -> Result<()> {
    const SQL: &str = r#"
        insert into drill.business (n, event_id, digest)
        select n, e.id, encode(sha256(convert_to(p, 'UTF8')), 'hex')
        from generate_series($1::bigint, $2::bigint) n
        cross join lateral (select format('{"n":%s,"text":"%s"}', n, repeat('x', (n % 200)::int)) p) t
        cross join lateral outlast.emit('drill.did', p, key => 'thing/' || n % 1000) e"#;
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
