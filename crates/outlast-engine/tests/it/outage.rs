//! A destination that is down: nothing new is started but probes, nobody is charged for it, and one success ends it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use outlast_core::{Failure, outage::EVENTS};
use outlast_engine::{Attempt, Consumer, Start};
use tokio::sync::{Barrier, mpsc};

use crate::given::{Given, Ping, Told, given, next};

#[derive(Clone)]
struct Provider {
    down: Arc<AtomicBool>,
    tries: Arc<AtomicI64>,
    told: Told,
}

async fn call(provider: Provider, ping: Attempt<Ping>) -> Result<(), Failure> {
    provider.tries.fetch_add(1, Ordering::SeqCst);
    if provider.down.load(Ordering::SeqCst) {
        return Err(Failure::retry("connection refused"));
    }
    let _ = provider.told.send(ping.n);
    Ok(())
}

const CONCURRENCY: i64 = 4;
const EMITTED: i64 = 120;
const KEYS: i64 = 40;

async fn emit(given: &Given) {
    for n in 0..EMITTED {
        let sql = "select outlast.emit(type => 'ping', payload => $1::text, key => $2)";
        let (payload, key) = (format!("{{\"n\":{n}}}"), format!("k{}", n % KEYS));
        given.sql.execute(sql, &[&payload, &key]).await.unwrap();
    }
}

/// What was parked because it failed; what waits behind it is not.
const FAILED: &str = "select count(*) from outlast.parked where state <> 'behind'";

async fn outage(consumer: Consumer<Provider>) -> Vec<i64> {
    let given = given().await;
    emit(&given).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let provider = Provider {
        down: Arc::new(AtomicBool::new(true)),
        tries: Arc::default(),
        told,
    };
    let consumer = consumer
        .from(Start::Earliest)
        .concurrency(CONCURRENCY as usize)
        .on(call);
    let worker = given.start(provider.clone(), consumer);
    given
        .until(
            "select count(*) from outlast.outage where reason = 'connection refused'",
            1,
        )
        .await;
    given
        .until(
            "select outages from outlast.consumer where name = 'mailer'",
            1,
        )
        .await;
    // Through some probes nothing moves but them, in turns a parked event and a new one.
    given
        .until("select count(*) from outlast.outage where probes >= 2", 1)
        .await;
    let before = EVENTS as i64 + CONCURRENCY - 1;
    let probes = provider.tries.load(Ordering::SeqCst) - before;
    assert!(probes <= 4, "one at a time, with pauses: {probes}");
    let failed = given.count(FAILED).await;
    assert!(
        failed <= before + (probes.max(0) + 1) / 2,
        "{failed} events were parked by {probes} probes"
    );
    let charged = "select coalesce(sum(failures), 0)::bigint from outlast.parked";
    assert!(
        given.count(charged).await <= before,
        "a probe is not charged"
    );
    given.verified().await;

    provider.down.store(false, Ordering::SeqCst);
    given.processed(EMITTED).await;
    given.until("select count(*) from outlast.outage", 0).await;
    worker.stop().await.unwrap();
    drop(provider);
    let mut heard = Vec::new();
    while let Ok(n) = hears.try_recv() {
        heard.push(n);
    }
    heard
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_down_stops_new_events_until_a_probe_succeeds() {
    let mut heard = outage(Consumer::new("mailer")).await;
    heard.sort_unstable();
    assert_eq!(heard, (0..EMITTED).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_keep_the_order_of_each_key() {
    let heard = outage(Consumer::new("mailer").ordered()).await;
    assert_eq!(heard.len() as i64, EMITTED);
    for key in 0..KEYS {
        let of_key: Vec<_> = heard.iter().filter(|n| *n % KEYS == key).collect();
        assert!(of_key.is_sorted(), "key {key}: {of_key:?}");
    }
}

/// Goal: what ran beside the tenth failure is no probe, and does not double the pause before the first one. Method: sixteen
/// handlers wait for each other and fail together; the next try of any event is the first probe.
#[tokio::test(flavor = "multi_thread")]
async fn what_fails_beside_the_tenth_does_not_put_off_the_first_probe() {
    const CROWD: usize = 16;
    #[derive(Clone)]
    struct Crowd {
        tries: Arc<AtomicI64>,
        all: Arc<Barrier>,
        told: Told,
    }
    async fn call(crowd: Crowd, ping: Attempt<Ping>) -> Result<(), Failure> {
        if crowd.tries.fetch_add(1, Ordering::SeqCst) < CROWD as i64 {
            crowd.all.wait().await;
        }
        let _ = crowd.told.send(ping.n);
        Err(Failure::retry("connection refused"))
    }
    let given = given().await;
    given.emit(0..40).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let crowd = Crowd {
        tries: Arc::default(),
        all: Arc::new(Barrier::new(CROWD)),
        told,
    };
    let consumer = Consumer::new("mailer").from(Start::Earliest);
    let worker = given.start(crowd, consumer.concurrency(CROWD).on(call));
    for _ in 0..CROWD {
        next(&mut hears).await;
    }
    let failed = Instant::now();
    next(&mut hears).await;
    let took = failed.elapsed();
    // A second at most, and what a busy machine needs; six doublings are 32 s at least.
    assert!(took < Duration::from_secs(8), "a probe after {took:?}");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_is_no_outage() {
    async fn refuse(_: (), ping: Attempt<Ping>) -> Result<(), Failure> {
        match ping.n {
            0..30 => Err(Failure::permanent("no such address")),
            _ => Ok(()),
        }
    }
    let given = given().await;
    given.emit(0..40).await;
    let worker = given.start((), Consumer::new("mailer").from(Start::Earliest).on(refuse));
    given.processed(10).await;
    assert_eq!(
        given.count("select count(*) from outlast.incident").await,
        30
    );
    assert_eq!(given.count("select count(*) from outlast._outage").await, 0);
    worker.stop().await.unwrap();
}
