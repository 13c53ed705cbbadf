//! Emits under load, each timed: while workers are woken by whoever emits, and while a migration
//! waits behind a long reader.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use outlast_checker::Of;
use outlast_postgres::{
    Error,
    connect::{self, Target},
    migrate,
};
use tokio::time::{Instant, sleep_until};

use super::{
    super::{
        worker::{Form, Spec},
        world::{PATIENCE, World},
    },
    Row, Scenario,
    wake::woken_by,
};

use crate::wait_for;

/// What a migration may cost an emit.
const MOST: Duration = Duration::from_secs(1);
/// How long a try of its waits.
const TRY: Duration = Duration::from_millis(300);

pub(super) fn row() -> Row {
    let hours = Duration::from_secs(2 * 3600);
    Row {
        name: "load",
        what: "emits under load: how workers are woken costs them nothing to speak of, and a migration never a second",
        scenarios: vec![
            Scenario::new("woken-by-emits", woken_by_emits)
                .alone(&[("max_wal_size", "4GB")])
                .patient(hours)
                .core(),
            Scenario::new("migrate-behind-a-reader", behind_a_reader)
                .patient(hours)
                .core(),
        ],
    }
}

/// Somebody sleeps under the lock.
const ASLEEP: &str = "select count(*) from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock' and granted
    and database = (select oid from pg_database where datname = current_database())
    and objsubid = 1 and (classid::bigint << 32 | objid::bigint) = outlast._wake_lock()";

/// From when on an emit counts as waiting.
#[derive(Clone, Copy)]
enum Since {
    /// It was due: whoever is kept waiting keeps those after him waiting, too.
    Due,
    /// It was sent: where the rate is more than the machine can give.
    Sent,
}

/// Emits at a steady rate, or as many as the machine gives.
#[derive(Clone, Copy)]
struct Load {
    since: Since,
    sessions: u32,
    a_second: u32,
    length: Duration,
}

/// How long the emits of a load took, sorted.
struct Times {
    times: Vec<Duration>,
    a_second: f64,
}

impl Times {
    /// How many there were.
    fn emits(&self) -> i64 {
        self.times.len() as i64
    }

    fn at(&self, part: f64) -> Duration {
        let last = self.times.len().saturating_sub(1);
        let at = (last as f64 * part) as usize;
        self.times.get(at).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (p50, p99, most) = (self.at(0.5), self.at(0.99), self.at(1.0));
        let a_second = self.a_second;
        write!(
            f,
            "{a_second:.0} emits a second, p50 {p50:.1?}, p99 {p99:.1?}, p100 {most:.1?}"
        )
    }
}

impl Load {
    /// How many emits there are at most.
    fn most(self) -> i64 {
        i64::from(self.a_second) * self.length.as_secs() as i64 + i64::from(self.sessions)
    }

    /// Each emit is a transaction with a business row. `first` is the number of the first intent.
    async fn run(self, world: &World, first: i64) -> Result<Times> {
        const SQL: &str = r#"
            insert into drill.business (n, event_id, digest)
            select $1::bigint, e.id, encode(sha256(convert_to(p, 'UTF8')), 'hex')
            from (select format('{"n":%s,"text":"%s"}', $1::bigint, repeat('x', ($1::bigint % 200)::int)) p) t
            cross join lateral outlast.emit('drill.did', p, key => 'thing/' || $1::bigint % 1000) e"#;
        let every = Duration::from_secs(1) * self.sessions / self.a_second;
        let sessions = (0..self.sessions).map(|_| async move {
            let client = world.client().await?;
            let emit = client.prepare(SQL).await?;
            anyhow::Ok((client, emit))
        });
        let sessions = try_join_all(sessions).await?;
        let began = Instant::now();
        let emitting = sessions
            .iter()
            .enumerate()
            .map(|(session, (client, emit))| async move {
                let offset = every.mul_f64(session as f64 / f64::from(self.sessions));
                let mut times = Vec::new();
                for nth in 0_u32.. {
                    let due = began + offset + every * nth;
                    if due.max(Instant::now()) >= began + self.length {
                        break;
                    }
                    sleep_until(due).await;
                    let sent = Instant::now();
                    let n = first + i64::from(nth * self.sessions) + i64::try_from(session)?;
                    client.execute(emit, &[&n]).await?;
                    times.push(match self.since {
                        Since::Due => due.elapsed(),
                        Since::Sent => sent.elapsed(),
                    });
                }
                anyhow::Ok(times)
            });
        let mut times = try_join_all(emitting).await?.concat();
        times.sort_unstable();
        let a_second = times.len() as f64 / began.elapsed().as_secs_f64();
        Ok(Times { times, a_second })
    }
}

fn specs() -> [Spec; 2] {
    [
        Spec::new("ledger", Form::Batch),
        Spec::new("mail", Form::Outside),
    ]
}

async fn worker(world: &World, name: &str) -> Result<()> {
    let worker = world.worker(name).consumers(&specs());
    let worker = worker.flag("grouped").set("concurrency", 32);
    worker.running().await.map(drop)
}

/// All that was emitted is done, once.
async fn account(world: &World, events: i64) -> Result<()> {
    world.comes_to_rest(2, Duration::from_secs(120)).await?;
    let of = Of {
        events,
        inside: &["ledger"],
        outside: &["mail"],
    };
    let client = world.client().await?;
    let (report, _) = outlast_checker::account(&client, world.folder(), &of).await?;
    world.judged(report);
    Ok(())
}

/// 32 sessions emit 5,000 a second, or as many as this machine gives, with either way of waking workers, in turns. A notification
/// serialises commits: in every transaction it multiplied the p99 by 70 elsewhere. Here one comes only while the elected
/// process sleeps.
async fn woken_by_emits(world: Arc<World>) -> Result<()> {
    let load = match world.small {
        true => Load {
            since: Since::Sent,
            sessions: 32,
            a_second: 400,
            length: Duration::from_secs(2),
        },
        false => Load {
            since: Since::Sent,
            sessions: 32,
            a_second: 5000,
            length: Duration::from_secs(20),
        },
    };
    worker(&world, "first").await?;
    worker(&world, "second").await?;
    let (mut first, mut emitted, mut best) = (0, 0, [None::<Times>, None]);
    for _ in 0..if world.small { 2 } else { 3 } {
        for (way, best) in ["poll", "notify"].into_iter().zip(&mut best) {
            woken_by(&world, way).await?;
            if way == "notify" {
                wait_for("the elected process to sleep", PATIENCE, async || {
                    (world.number(ASLEEP).await.ok()? > 0).then_some(())
                })
                .await;
            }
            let times = load.run(&world, first).await?;
            first += load.most();
            emitted += times.emits();
            world.note(format_args!("{way}: {times}"));
            if best
                .as_ref()
                .is_none_or(|best| times.at(0.99) < best.at(0.99))
            {
                *best = Some(times);
            }
        }
    }
    world.fault("workers were woken by whoever emits");
    let [Some(poll), Some(notify)] = best else {
        unreachable!("each way was tried");
    };
    world.figure(format_args!("poll: {poll}; notify: {notify}"));
    let most = poll.at(0.99) * 2 + Duration::from_millis(50);
    if notify.at(0.99) > most || notify.a_second < poll.a_second * 0.8 {
        world.violated(format_args!(
            "to wake by emits is dear: {notify}; to poll: {poll}"
        ));
    }
    account(&world, emitted).await
}

/// A transaction has read the log and stays open, as a dump does; a migration wants the strongest lock on it, and gets it
/// only when that reader has ended. Meanwhile 200 emits a second go on.
async fn behind_a_reader(world: Arc<World>) -> Result<()> {
    let length = Duration::from_secs(if world.small { 8 } else { 600 });
    let load = Load {
        since: Since::Due,
        sessions: 8,
        a_second: 200,
        length,
    };
    worker(&world, "only").await?;
    let (owner, reader) = (world.client().await?, world.client().await?);
    owner
        .batch_execute(
            "create function drill.want() returns event_trigger language plpgsql as
               $$ begin lock table outlast._event in access exclusive mode; end $$;
             create event trigger want on ddl_command_start when tag in ('CREATE FUNCTION') execute function drill.want();
             update outlast._functions set digest = 'older'",
        )
        .await?;
    reader
        .batch_execute("begin; select from outlast._event limit 1")
        .await?;
    let (mut migrating, _driver) = connect::connect(&Target::parse(world.url())?).await?;
    let migration = async {
        // After a minute of tries a run gives up, and a person runs it again.
        loop {
            match migrate::run(&mut migrating, |_| ()).await {
                Ok(_) => return anyhow::Ok(Instant::now()),
                Err(Error::Database(_)) => world.fault("a migration gave up behind a reader"),
                Err(error) => return Err(error.into()),
            }
        }
    };
    let emits = async {
        let times = load.run(&world, 0).await?;
        let ended = Instant::now();
        reader.batch_execute("commit").await?;
        anyhow::Ok((times, ended))
    };
    let (migrated, (times, ended)) = tokio::try_join!(migration, emits)?;
    ensure!(migrated > ended, "the migration waited for the reader");
    // Whoever comes while a try waits for its lock waits behind it: that is how tries are seen.
    ensure!(times.at(1.0) > TRY / 2, "no emit met a try: {times}");
    world.fault("a migration waited behind a reader");
    world.figure(format_args!("{times}"));
    if times.at(0.99) >= MOST {
        world.violated(format_args!("emits waited for a migration: {times}"));
    }
    account(&world, times.emits()).await
}
