//! Several people do random things to some hundred jobs, leases are killed meanwhile; in the end each job has ended once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::{Client, Error};
use uuid::Uuid;

use super::{Job, Shop, ask, complete, finish, ids, start};
use crate::house::DEADLINE;
use crate::seeds;
use crate::sql::{self, one, run};

/// What was committed: each row of a run, and who may not commit. A completed effect stands for the handler's own work.
const WITNESS: &str = "
create table effect (job uuid not null, token uuid not null);
create table ended (id uuid not null, state text not null);
create function witness() returns trigger language plpgsql security definer set search_path = public as $$
begin insert into ended values (new.id, new.state); return null; end $$;
create trigger witness after insert on outlast._job_end for each row execute function witness()";

type Account = BTreeMap<String, u32>;

const JOBS: usize = 300;
const PEOPLE: u64 = 5;
const STEPS: usize = 350;

async fn step(
    client: &Client,
    rng: &mut Rng,
    mine: &mut Vec<Job>,
    process: Uuid,
    sent: &AtomicUsize,
) -> Result<String, Error> {
    let some = async |client: &Client, rng: &mut Rng| -> Result<Option<Uuid>, Error> {
        let sql = "select id from outlast._job order by id offset $1 limit 1";
        Ok(client
            .query_opt(sql, &[&rng.i64(0..JOBS as i64)])
            .await?
            .map(|row| row.get(0)))
    };
    let text = async |sql: &str, id: Uuid| -> Result<String, Error> {
        Ok(client.query_one(sql, &[&id]).await?.get(0))
    };
    match rng.u8(..20) {
        0..=3 => {
            if sent.fetch_add(1, Ordering::SeqCst) >= JOBS {
                return Ok("no more".into());
            }
            let (tenant, priority, after) = (
                rng.u8(..4),
                rng.i32(-1..2),
                if rng.bool() { 0 } else { rng.i64(0..40) },
            );
            let key = if rng.bool() {
                format!("key => 'k{}',", rng.u16(..200))
            } else {
                String::new()
            };
            let sql = format!(
                "select outlast.enqueue('mail', '{{}}', {key} tenant => 't{tenant}', priority => {priority}, after_ms => {after}, attempts => 3)"
            );
            client.batch_execute(&sql).await?;
            Ok("enqueued".into())
        }
        4..=8 => {
            let room = rng.i32(1..8);
            let jobs = ask("mail", room).process(process).claim(client).await?;
            let token = jobs.first().map(|job| job.token);
            if let Some(token) = token
                && (rng.bool() || jobs[0].lapses > 0)
            {
                start(client, token, &ids(&jobs)).await?;
            }
            mine.extend(jobs);
            Ok("claimed".into())
        }
        9..=12 if !mine.is_empty() => {
            let job = mine.swap_remove(rng.usize(..mine.len()));
            let isolation = ["read committed", "repeatable read", "serializable"][rng.usize(..3)];
            client
                .batch_execute(&format!("begin isolation level {isolation}"))
                .await?;
            let sql = "insert into effect values ($1, $2)";
            client.execute(sql, &[&job.id, &job.token]).await?;
            sql::complete(client, job.token, job.id).await?;
            let end = if rng.u8(..6) == 0 {
                "rollback"
            } else {
                "commit"
            };
            client.batch_execute(end).await?;
            Ok(format!("complete: {end}"))
        }
        13 | 14 if !mine.is_empty() => {
            let job = mine.swap_remove(rng.usize(..mine.len()));
            let class = ["retry", "throttled", "permanent"][rng.usize(..3)];
            Ok(format!(
                "failed: {}",
                sql::fail(client, job.token, job.id, class).await?
            ))
        }
        15 if !mine.is_empty() => {
            let token = mine[rng.usize(..mine.len())].token;
            if rng.bool() {
                finish(client, token).await?;
            } else {
                let running: Vec<Uuid> = mine
                    .iter()
                    .filter(|job| job.token == token && job.id.as_u128() % 2 == 0)
                    .map(|job| job.id)
                    .collect();
                sql::hand_back(client, token, &running).await?;
            }
            mine.retain(|job| job.token != token);
            Ok("given back".into())
        }
        16 => {
            // A worker is lost: whoever has it knows nothing of it yet.
            let sql = "update outlast._lease set expires_at = 'epoch' where token in (select token from outlast._lease where room = 'job' order by random() limit 1)";
            client.batch_execute(sql).await?;
            client
                .batch_execute("select outlast._reclaim_jobs(5)")
                .await?;
            Ok("lost".into())
        }
        17 => {
            let running = rng.bool() && !mine.is_empty();
            let id = if running {
                Some(mine[rng.usize(..mine.len())].id)
            } else {
                some(client, rng).await?
            };
            let Some(id) = id else {
                return Ok("nothing".into());
            };
            let slow = rng.u8(..3) == 0;
            if slow {
                client
                    .batch_execute(
                        ["begin", "begin isolation level repeatable read"][rng.usize(..2)],
                    )
                    .await?;
            }
            let sql = "select outlast.cancel($1, 'not wanted', (select tenant from outlast._job where id = $1))";
            let answer = text(sql, id).await?;
            if slow {
                client.batch_execute("select pg_sleep(0.02)").await?;
                client
                    .batch_execute(["commit", "rollback"][rng.usize(..2)])
                    .await?;
            }
            Ok(format!("cancel: {answer}"))
        }
        18 => {
            let Some(id) = some(client, rng).await? else {
                return Ok("nothing".into());
            };
            if rng.u8(..4) == 0 {
                return Ok(format!(
                    "abandon: {}",
                    text("select outlast.abandon_job($1, 'why')", id).await?
                ));
            }
            Ok(format!(
                "retry: {}",
                text("select outlast.retry_job($1)", id).await?
            ))
        }
        _ => {
            client.batch_execute("select outlast._promote(20)").await?;
            Ok("promoted".into())
        }
    }
}

async fn person(client: Client, mut rng: Rng, sent: Arc<AtomicUsize>) -> Account {
    let (mut account, mut mine, process) = (Account::new(), Vec::new(), Uuid::new_v4());
    for _ in 0..STEPS {
        let what = match step(&client, &mut rng, &mut mine, process, &sent).await {
            Ok(what) => what,
            Err(error) => {
                client.batch_execute("rollback").await.expect("rolls back");
                sql::short(&error)
            }
        };
        *account.entry(what).or_default() += 1;
    }
    account
}

/// Somebody calm does what is left.
async fn drain(shop: &Shop) {
    let end = Instant::now() + DEADLINE;
    loop {
        shop.lapse().await;
        shop.reclaim().await;
        let stopped = shop
            .client
            .query(
                "select id from outlast._job_state where incident_at is not null",
                &[],
            )
            .await
            .expect("looks");
        for row in stopped {
            one::<String>(
                &shop.client,
                "select outlast.retry_job($1)",
                &[&row.get::<_, Uuid>(0)],
            )
            .await;
        }
        shop.due().await;
        let jobs = shop.claim("mail", 50).await;
        for job in &jobs {
            run(&shop.client, "begin").await;
            let sql = "insert into effect values ($1, $2)";
            shop.client
                .execute(sql, &[&job.id, &job.token])
                .await
                .expect("has an effect");
            complete(&shop.client, job.token, &[job.id])
                .await
                .expect("completes");
            run(&shop.client, "commit").await;
        }
        if jobs.is_empty() && shop.count("select count(*) from outlast._lease").await == 0 {
            return;
        }
        assert!(Instant::now() < end, "the drain does not end");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_done_to_them_each_job_ends_once_and_with_it_its_effect() {
    for seed in seeds::seeds(2) {
        let shop = Shop::new().await;
        run(&shop.client, WITNESS).await;
        let sent = Arc::new(AtomicUsize::new(0));
        let mut people = JoinSet::new();
        for n in 0..PEOPLE {
            let rng = Rng::with_seed(seed * 1000 + n);
            people.spawn(person(shop.house.connect().await, rng, Arc::clone(&sent)));
        }
        let mut account = Account::new();
        for one in people.join_all().await {
            for (what, n) in one {
                *account.entry(what).or_default() += n;
            }
        }
        println!("seed {seed}: {account:#?}");
        shop.must_be_sound().await;
        drain(&shop).await;
        shop.must_be_sound().await;
        let jobs = shop.count("select count(*) from outlast._job").await;
        assert!(jobs > 100, "seed {seed}: too little happened");
        for (what, sql) in [
            (
                "ended twice",
                "select count(*) - count(distinct id) from ended",
            ),
            (
                "not ended",
                "select count(*) from outlast._job j where not exists (select from ended e where e.id = j.id)",
            ),
            (
                "done twice",
                "select count(*) - count(distinct job) from effect",
            ),
            (
                "an effect without its end",
                "select count(*) from effect f where not exists (select from ended e where e.id = f.job and e.state = 'd')",
            ),
            (
                "an end without its effect",
                "select count(*) from ended e where e.state = 'd' and not exists (select from effect f where f.job = e.id)",
            ),
        ] {
            assert_eq!(shop.count(sql).await, 0, "seed {seed}: {what}");
        }
        for seldom in [
            "complete: commit",
            "failed: retry",
            "cancel: requested",
            "cancel: withdrawn",
            "lost",
            "given back",
        ] {
            assert!(account.contains_key(seldom), "seed {seed}: never {seldom}");
        }
        let bad: Vec<_> = account
            .keys()
            .filter(|what| {
                what.contains("40P01")
                    || what.contains("23505")
                    || what.contains("55P03")
                    || what.contains("P0002")
            })
            .collect();
        assert_eq!(
            bad,
            Vec::<&String>::new(),
            "seed {seed}: deadlocks and doubles are nobody's answer"
        );
    }
}
