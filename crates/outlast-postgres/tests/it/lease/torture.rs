//! Runners that freeze, reclaimers and finishers that do not wait for them, all isolation levels, some seconds long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::{Client, Error};
use uuid::Uuid;

use super::scene::ISOLATIONS;
use crate::house::{DEADLINE, House};
use crate::seeds;
use crate::sql::{self, Claim, Event};

/// Whoever deletes a lease leaves a snapshot: what is committed under that token and not visible in it is stale.
const WITNESS: &str = "
create table effect (event uuid not null, token uuid not null, xid xid8 not null);
create table ended (token uuid not null, snap pg_snapshot not null);
-- As its own owner: what deletes a lease runs as the schema's.
create function witness() returns trigger language plpgsql security definer set search_path = public as $$
begin insert into ended values (old.token, pg_current_snapshot()); return null; end $$;
create trigger witness after delete on outlast._lease for each row execute function witness()";

/// Shorter than what a runner may sleep.
const LEASE_MS: i32 = 40;

type Refusals = BTreeMap<String, u32>;

/// Some milliseconds; now and then longer than the lease.
async fn gap(client: &Client, rng: &mut Rng) -> Result<(), Error> {
    let ms = if rng.u8(..10) == 0 { 120.0 } else { 4.0 };
    client
        .batch_execute(&format!("select pg_sleep({})", rng.f64() * ms / 1000.0))
        .await
}

/// Takes whatever it gets, in any isolation level, and gives each token to the finisher, often too early.
async fn runner(
    client: Client,
    consumer: i32,
    mut rng: Rng,
    stop: Arc<AtomicBool>,
    tokens: UnboundedSender<Uuid>,
) -> Refusals {
    let mut refusals = Refusals::new();
    while !stop.load(Ordering::SeqCst) {
        let got = match rng.u8(..4) {
            0 => sql::reclaim(&client, consumer, 2).await,
            1 => sql::claim_parked(&client, consumer, 3).await,
            _ => {
                Claim::of(consumer)
                    .n(rng.i32(1..8))
                    .lease_ms(LEASE_MS)
                    .next(&client)
                    .await
            }
        };
        let events = got.unwrap_or_else(|error| {
            *refusals.entry(sql::short(&error)).or_default() += 1;
            Vec::new()
        });
        if let Some(event) = events.first()
            && rng.u8(..4) == 0
        {
            let _ = tokens.send(event.token);
        }
        for event in &events {
            if let Err(error) = handle(&client, event, &mut rng).await {
                *refusals.entry(sql::short(&error)).or_default() += 1;
                client.batch_execute("rollback").await.expect("rolls back");
            }
        }
        for event in events {
            let _ = tokens.send(event.token);
        }
    }
    refusals
}

async fn handle(client: &Client, event: &Event, rng: &mut Rng) -> Result<(), Error> {
    if rng.u8(..12) == 0 {
        return sql::fail(client, event.token, event.id, "retry")
            .await
            .map(|_| ());
    }
    let isolation = ISOLATIONS[rng.usize(..3)];
    client
        .batch_execute(&format!("begin isolation level {isolation}"))
        .await?;
    let sql = "insert into effect values ($1, $2, pg_current_xact_id())";
    client.execute(sql, &[&event.id, &event.token]).await?;
    gap(client, rng).await?;
    sql::complete(client, event.token, event.id).await?;
    gap(client, rng).await?;
    client
        .batch_execute(if rng.u8(..12) == 0 {
            "rollback"
        } else {
            "commit"
        })
        .await
}

async fn finisher(client: Client, mut tokens: UnboundedReceiver<Uuid>) -> Refusals {
    let mut refusals = Refusals::new();
    let mut batch = Vec::new();
    while tokens.recv_many(&mut batch, 3).await > 0 {
        if let Err(error) = sql::finish(&client, &batch).await {
            *refusals
                .entry(format!("finish: {}", sql::short(&error)))
                .or_default() += 1;
        }
        batch.clear();
    }
    refusals
}

async fn emitter(client: Client, mut rng: Rng, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::SeqCst) {
        sql::emit(&client, "a", None).await;
        gap(&client, &mut rng).await.expect("waits");
    }
}

/// What a run has shown.
#[derive(Debug)]
struct Shown {
    events: i64,
    ends: i64,
    /// Committed under a token behind the end of its lease.
    stale: i64,
    doubled: i64,
    unsealed: i64,
    done: i64,
    refusals: Refusals,
    broken: Vec<String>,
}

async fn torture(house: &House, seed: u64, seconds: u64) -> Shown {
    let client = house.connect().await;
    sql::run(&client, WITNESS).await;
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    sql::run(&client, "update outlast._consumer set attempts = 1000000").await;

    let (stop, mut people) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    let (sender, receiver) = unbounded_channel();
    for n in 0..4 {
        let rng = Rng::with_seed(seed * 1000 + n);
        people.spawn(runner(
            house.connect().await,
            consumer,
            rng,
            Arc::clone(&stop),
            sender.clone(),
        ));
    }
    drop(sender);
    people.spawn(finisher(house.connect().await, receiver));
    let writing = tokio::spawn(emitter(
        house.connect().await,
        Rng::with_seed(seed * 1000 + 99),
        Arc::clone(&stop),
    ));

    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.store(true, Ordering::SeqCst);
    writing.await.expect("the emitter ends");
    let mut refusals = Refusals::new();
    for one in people.join_all().await {
        for (what, n) in one {
            *refusals.entry(what).or_default() += n;
        }
    }
    drain(&client, consumer).await;

    let count = async |sql: &str| sql::one::<i64>(&client, sql, &[]).await;
    Shown {
        events: count("select count(*) from outlast._event").await,
        ends: count("select count(*) from ended").await,
        stale: count(
            "select count(*) from effect f join ended e using (token) where not pg_visible_in_snapshot(f.xid, e.snap)",
        )
        .await,
        doubled: count("select count(*) - count(distinct event) from effect").await,
        unsealed: count(
            "select count(*) from effect f
             where not exists (select from outlast._processed_event p where p.event_id = f.event)",
        )
        .await,
        done: count("select count(distinct event) from effect").await,
        refusals,
        broken: sql::broken(&client).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torture_of_runners_reclaimers_and_finishers_has_no_stale_commit() {
    let seconds = if seeds::long() { 20 } else { 4 };
    for seed in seeds::seeds(1) {
        let house = House::new().await;
        let shown = torture(&house, seed, seconds).await;
        println!("seed {seed}: {shown:#?}");
        assert!(
            shown.events > 50 && shown.ends > 50,
            "seed {seed}: too little happened"
        );
        assert_eq!(
            (shown.stale, shown.doubled, shown.unsealed),
            (0, 0, 0),
            "seed {seed}"
        );
        assert_eq!(shown.done, shown.events, "seed {seed}: something is lost");
        assert_eq!(shown.broken, Vec::<String>::new(), "seed {seed}");
        let bad = |what: &&String| what.contains("40P01") || what.contains("23505");
        let bad: Vec<_> = shown.refusals.keys().filter(bad).collect();
        assert_eq!(
            bad,
            Vec::<&String>::new(),
            "seed {seed}: deadlocks and doubles are nobody's answer"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_torture_finds_enders_that_lock_rows_only() {
    let house = House::new().await;
    house
        .plant(
            "_reclaim",
            &[(
                "continue when not pg_try_advisory_xact_lock(outlast._lease_lock(t));",
                "",
            )],
        )
        .await;
    house
        .plant(
            "_take",
            &[(
                "perform pg_advisory_xact_lock(outlast._lease_lock(_take.token));",
                "null;",
            )],
        )
        .await;
    let shown = torture(&house, 1, 3).await;
    println!("{shown:#?}");
    assert!(shown.stale > 0);
}

/// Somebody calm does what is left.
async fn drain(client: &Client, consumer: i32) {
    let end = Instant::now() + DEADLINE;
    loop {
        sql::run(
            client,
            "update outlast._lease set expires_at = outlast.clock() - interval '1 second'",
        )
        .await;
        sql::run(
            client,
            "update outlast._parked set next_at = outlast.clock() where state = 'retry'",
        )
        .await;
        let mut events = sql::reclaim(client, consumer, 100).await.expect("reclaims");
        events.extend(
            sql::claim_parked(client, consumer, 100)
                .await
                .expect("claims what is parked"),
        );
        events.extend(Claim::of(consumer).next(client).await.expect("claims"));
        if events.is_empty() {
            let left: i64 = sql::one(client, "select count(*) from outlast._lease", &[]).await;
            if left == 0 {
                return;
            }
        }
        for event in &events {
            sql::run(client, "begin").await;
            let sql = "insert into effect values ($1, $2, pg_current_xact_id())";
            client
                .execute(sql, &[&event.id, &event.token])
                .await
                .expect("has an effect");
            sql::complete(client, event.token, event.id)
                .await
                .expect("completes");
            sql::run(client, "commit").await;
        }
        let tokens: Vec<_> = events.iter().map(|event| event.token).collect();
        sql::finish(client, &tokens).await.expect("finishes");
        assert!(Instant::now() < end, "the drain does not end");
    }
}
