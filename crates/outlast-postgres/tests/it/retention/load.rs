//! Slots are emptied in a loop beside emits and claims: who waits for that, and how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outlast_postgres::{
    connect::{Target, connect},
    retention::{Bounds, Step, pass},
    schema::Schema,
};
use outlast_testkit::proxy::{Fault, Proxy, When};
use tokio_postgres::Client;

use super::Barn;
use crate::house::DEADLINE;
use crate::seeds;
use crate::sql::{self, Claim};

/// Sorted times of one kind of work.
struct Times(Vec<Duration>);

impl Times {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self(times)
    }

    fn most(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = |part: f64| {
            self.0
                .get(((self.0.len() as f64 - 1.0) * part) as usize)
                .copied()
                .unwrap_or_default()
        };
        write!(
            f,
            "{} times, p50 {:.1?}, p99 {:.1?}, p100 {:.1?}",
            self.0.len(),
            at(0.5),
            at(0.99),
            self.most()
        )
    }
}

async fn emits(client: Client, stop: Arc<AtomicBool>) -> Vec<Duration> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        sql::emit(&client, "a", None).await;
        times.push(began.elapsed());
    }
    times
}

async fn claims(client: Client, consumer: i32, stop: Arc<AtomicBool>) -> (Vec<Duration>, usize) {
    let (mut times, mut events) = (Vec::new(), 0);
    loop {
        let last = stop.load(Ordering::Relaxed);
        let began = Instant::now();
        let batch = Claim::of(consumer)
            .run(&client)
            .await
            .expect("claims")
            .events;
        times.push(began.elapsed());
        let ids: Vec<uuid::Uuid> = batch.iter().map(|event| event.id).collect();
        events += ids.len();
        if let Some(first) = batch.first() {
            sql::seal(&client, first.token, &ids).await.expect("seals");
            sql::finish(&client, &[first.token])
                .await
                .expect("finishes");
        } else if last {
            return (times, events);
        }
    }
}

/// The longest that anybody but the cleaner has waited for the lock of a relation, as the server knows it.
async fn waits(client: Client, cleaner: i32, stop: Arc<AtomicBool>) -> Duration {
    let sql = "select coalesce(max(extract(epoch from clock_timestamp() - waitstart)), 0)::float8
        from pg_locks where locktype = 'relation' and not granted and pid <> $1";
    let mut longest = 0.0_f64;
    while !stop.load(Ordering::Relaxed) {
        longest = longest.max(sql::one(&client, sql, &[&cleaner]).await);
    }
    Duration::from_secs_f64(longest)
}

/// Rows of long ago in a leaf, that nobody has to pass: their transactions are older than any tick.
async fn fill(barn: &Barn, slot: i16) {
    let sql = format!(
        "insert into outlast._event (slot, schema_version, id, xid, event_id, emitted_at, type, tenant, content_type, payload)
         select {slot}, 1, -g, '3', gen_random_uuid(), outlast.clock() - interval '6 days', 'old', '', 'x/x', ''
         from generate_series(1, 100) g;
         update outlast._ring_slot set passed_at = outlast.clock() - interval '9 days', removable_at = outlast.clock() - interval '2 hours', tried_at = null
         where ring = 'log' and slot = {slot}"
    );
    sql::run(&barn.client, &sql).await;
}

/// What a run of some seconds has seen.
struct Seen {
    emptied: usize,
    late: usize,
    emits: Times,
    claims: Times,
    longest_wait: Duration,
}

async fn run(emptying: bool, length: Duration) -> Seen {
    let barn = Barn::new().await;
    let stop = Arc::new(AtomicBool::new(false));
    let emitting = tokio::spawn(emits(barn.house.connect().await, stop.clone()));
    let claiming = tokio::spawn(claims(
        barn.house.connect().await,
        barn.consumer,
        stop.clone(),
    ));
    let mut cleaner = barn.house.connect().await;
    let pid = sql::one(&cleaner, "select pg_backend_pid()", &[]).await;
    let waiting = tokio::spawn(waits(barn.house.connect().await, pid, stop.clone()));
    let (mut emptied, mut late) = (0, 0);
    let began = Instant::now();
    let slot = (barn.log_slot().await + 5) % 16;
    while began.elapsed() < length {
        if emptying {
            fill(&barn, slot).await;
            let tell = |step| match step {
                Step::Emptied { .. } => emptied += 1,
                Step::Kept { why, .. } => {
                    late += 1;
                    println!("{why}");
                }
                _ => {}
            };
            pass(&mut cleaner, Schema::DEFAULT, Bounds::default(), tell)
                .await
                .expect("a pass");
            sql::run(
                &barn.client,
                &format!("delete from outlast._event where slot = {slot}"),
            )
            .await;
        }
        tokio::task::yield_now().await;
    }
    stop.store(true, Ordering::Relaxed);
    let emits = emitting.await.expect("emits");
    let (claims, events) = claiming.await.expect("claims");
    assert_eq!(events, emits.len(), "nothing is lost beside it");
    barn.must_be_sound().await;
    Seen {
        emptied,
        late,
        emits: Times::new(emits),
        claims: Times::new(claims),
        longest_wait: waiting.await.expect("looks"),
    }
}

/// Their own times are the machine's, too (without emptying some take longer than any bound), so what is judged is how long
/// anybody has waited for a lock. An hour and more lie between two of these in production, here some milliseconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn emits_and_claims_hardly_wait_while_slots_are_emptied_in_a_loop() {
    let length = Duration::from_secs(if seeds::long() { 20 } else { 2 });
    let without = run(false, length).await;
    println!(
        "without: emits {}; claims {}",
        without.emits, without.claims
    );
    let seen = run(true, length).await;
    println!(
        "{} leaves emptied, {} not in time, the longest wait for a lock {:.1?}: emits {}; claims {}",
        seen.emptied, seen.late, seen.longest_wait, seen.emits, seen.claims
    );
    assert!(seen.emptied + seen.late > 0);
    if seeds::long() {
        assert!(seen.emptied > 10, "{}", seen.emptied);
        let bound = Duration::from_millis(100);
        assert!(seen.longest_wait <= bound, "{:?}", seen.longest_wait);
    }
}

/// The process that empties a leaf stands still when it has the lock: its session is ended, and the lock is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stands_still_with_the_lock_of_a_leaf_holds_up_nobody_for_long() {
    let barn = Barn::new().await;
    fill(&barn, (barn.log_slot().await + 5) % 16).await;
    let proxy = Proxy::before(barn.house.url()).await;
    let target = Target::parse(proxy.url()).expect("a connection string");
    let (mut cleaner, _driver) = connect(&target).await.expect("a connection");
    let stands_still = proxy.arm(When::Contains("_empty_take".into()), Fault::HoldReply);
    let bounds = Bounds {
        // This disk may be busy, and that is another reason to leave the leaf alone.
        hold: Duration::from_secs(2),
        ..Bounds::default()
    };
    let cleaning =
        tokio::spawn(async move { pass(&mut cleaner, Schema::DEFAULT, bounds, |_| ()).await });
    stands_still.answered().await;
    let began = Instant::now();
    tokio::time::timeout(DEADLINE, barn.emit(1))
        .await
        .expect("an emit");
    let ids = tokio::time::timeout(DEADLINE, barn.drain(barn.consumer))
        .await
        .expect("a claim");
    assert_eq!(ids.len(), 1, "after {:?}", began.elapsed());
    stands_still.release();
    let ended = cleaning.await.expect("a pass ends");
    assert!(ended.is_err(), "its session was ended: {ended:?}");
    let left = "select count(*) from outlast._event where type = 'old'";
    assert_eq!(sql::one::<i64>(&barn.client, left, &[]).await, 100);
}
