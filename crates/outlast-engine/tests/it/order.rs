//! Ordered consumers: what a key's events meet on their way through a worker, or several.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use outlast_core::{Event, Failure};
use outlast_engine::{Attempt, Consumer, Settings, Start};
use outlast_postgres::tx::ClientTx;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc};

use crate::given::{Given, Ping, Told, given, next};

/// Another type, so that neighbours differ.
#[derive(Debug, Serialize, Deserialize)]
struct Pong {
    n: i64,
}

impl Event for Pong {
    const NAME: &'static str = "pong";
}

/// Emits events, each `type key`, numbered from 0, all in one transaction.
async fn emit(given: &Given, events: impl IntoIterator<Item = (&str, String)>) {
    given.sql.batch_execute("begin").await.unwrap();
    for (n, (kind, key)) in events.into_iter().enumerate() {
        let payload = format!("{{\"n\":{n}}}");
        let sql = "select outlast.emit(type => $1, payload => $2::text, key => $3)";
        given
            .sql
            .execute(sql, &[&kind, &payload, &key])
            .await
            .unwrap();
    }
    given.sql.batch_execute("commit").await.unwrap();
}

fn ordered<S: Clone + Send + Sync + 'static>() -> Consumer<S> {
    Consumer::new("ledger").from(Start::Earliest).ordered()
}

/// Fails the first try of some events, whichever process has them.
async fn row(_: (), tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
    tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
        .await?;
    match ping.n % 7 {
        3 if ping.number() == 1 => Err(Failure::retry("not yet")),
        5 if ping.number() <= 2 => Err(Failure::unclassified("never mind")),
        _ => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_workers_keep_the_order_of_each_key_through_failures() {
    let given = given().await;
    given
        .sql
        .batch_execute("alter table effect add column nth bigserial")
        .await
        .unwrap();
    let keys = 9;
    let emitted = 150;
    let workers: Vec<_> = (0..3)
        .map(|_| given.start((), ordered().concurrency(4).on_tx(&given.pool, row)))
        .collect();
    // Half of it before they look and half while they work.
    for half in [0..emitted / 2, emitted / 2..emitted] {
        for n in half {
            let sql = "select outlast.emit(type => 'ping', payload => $1::text, key => $2)";
            let (payload, key) = (format!("{{\"n\":{n}}}"), format!("k{}", n % keys));
            given.sql.execute(sql, &[&payload, &key]).await.unwrap();
        }
    }
    given.processed(emitted).await;
    let out_of_order = "select count(*) from (
        select n, lag(n) over (partition by n % 9 order by nth) as before from effect) e where before > n";
    assert_eq!(given.count(out_of_order).await, 0);
    assert_eq!(
        given.count("select count(distinct n) from effect").await,
        emitted
    );
    assert_eq!(given.count("select count(*) from outlast.parked").await, 0);
    assert_eq!(
        given.count("select count(*) from outlast.parked_key").await,
        0
    );
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(given.count(deadlocks).await, 0);
    for worker in workers {
        worker.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_needs_a_person_holds_up_no_other() {
    async fn poison(_: (), ping: Attempt<Ping>) -> Result<(), Failure> {
        match ping.n {
            0 => Err(Failure::permanent("no such account")),
            _ => Ok(()),
        }
    }
    let given = given().await;
    // Every third event is of the key whose first one fails; the rest share its lane and all others.
    let key = |n: i64| {
        if n % 3 == 0 {
            "bad".to_owned()
        } else {
            format!("k{n}")
        }
    };
    emit(&given, (0..60).map(|n| ("ping", key(n)))).await;
    let worker = given.start((), ordered().on(poison));
    given.processed(40).await;
    let behind =
        "select behind::bigint from outlast.parked_key where key = 'bad' and state = 'quarantined'";
    assert_eq!(given.count(behind).await, 19);
    let charged = "select count(*) from outlast.parked where failures > 0";
    assert_eq!(given.count(charged).await, 1, "nobody behind is charged");

    // A worker that drains with events behind charges nobody either.
    worker.stop().await.unwrap();
    assert_eq!(given.count(charged).await, 1);
    given.verified().await;

    // Skipped by a person, its key goes on, one after the other.
    let skip = "select outlast.skip('ledger', leader, 'closed by hand') from outlast.parked_key";
    given.sql.query(skip, &[]).await.unwrap();
    let worker = given.start((), ordered().on(poison));
    given.processed(60).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_lane_one_handler_runs_at_a_time_and_lanes_run_beside_each_other() {
    #[derive(Clone)]
    struct State {
        running: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
        met: Arc<Semaphore>,
        told: Told,
    }
    async fn handle(s: State, ping: Attempt<Ping>) -> Result<(), Failure> {
        if ping.key() == Some("alone") {
            let now = s.running.fetch_add(1, Ordering::SeqCst) + 1;
            s.most.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            s.running.fetch_sub(1, Ordering::SeqCst);
        } else {
            // Two of different lanes wait for each other: one after the other they never meet.
            s.met.add_permits(1);
            let both = tokio::time::timeout(Duration::from_secs(10), s.met.acquire_many(2)).await;
            both.expect("the other lane runs beside this one")
                .unwrap()
                .forget();
            s.met.add_permits(2);
        }
        let _ = s.told.send(ping.n);
        Ok(())
    }
    let given = given().await;
    let mut other = 0;
    let lane = "select outlast._lane($1, 0, 16)::bigint";
    let lane_of =
        async |key: &str| -> i64 { given.sql.query_one(lane, &[&key]).await.unwrap().get(0) };
    while lane_of("x").await == lane_of(&format!("y{other}")).await {
        other += 1;
    }
    emit(
        &given,
        [("ping", "x".to_owned()), ("ping", format!("y{other}"))],
    )
    .await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let state = State {
        running: Arc::default(),
        most: Arc::default(),
        met: Arc::new(Semaphore::new(0)),
        told,
    };
    let worker = given.start(state.clone(), ordered().concurrency(4).on(handle));
    let mut both = [next(&mut hears).await, next(&mut hears).await];
    both.sort_unstable();
    assert_eq!(both, [0, 1]);

    emit(&given, (0..40).map(|_| ("ping", "alone".to_owned()))).await;
    let mut heard = Vec::new();
    for _ in 0..40 {
        heard.push(next(&mut hears).await);
    }
    assert_eq!(
        heard,
        (0..40).collect::<Vec<_>>(),
        "in the order of the log"
    );
    assert_eq!(state.most.load(Ordering::SeqCst), 1);
    given.processed(42).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn on_batch_of_an_ordered_consumer_takes_only_neighbours_together() {
    async fn pings(told: Told, _: &mut ClientTx, all: Vec<Attempt<Ping>>) -> Result<(), Failure> {
        let _ = told.send(all.iter().fold(0, |seen, ping| seen * 100 + ping.n));
        Ok(())
    }
    async fn pong(told: Told, pong: Attempt<Pong>) -> Result<(), Failure> {
        let _ = told.send(1000 + pong.n);
        Ok(())
    }
    let kinds = ["ping", "ping", "ping", "pong", "ping", "ping", "pong"];
    for keeps_order in [true, false] {
        let given = given().await;
        emit(&given, kinds.map(|kind| (kind, "k".to_owned()))).await;
        let (told, mut hears) = mpsc::unbounded_channel();
        let consumer = Consumer::new("ledger").from(Start::Earliest).concurrency(1);
        let consumer = if keeps_order {
            consumer.ordered()
        } else {
            consumer
        };
        let worker = given.start(told, consumer.on_batch(&given.pool, pings).on(pong));
        let mut heard = Vec::new();
        for _ in 0..if keeps_order { 4 } else { 3 } {
            heard.push(next(&mut hears).await);
        }
        let expected: &[i64] = if keeps_order {
            &[102, 1003, 405, 1006]
        } else {
            &[1_020_405, 1003, 1006]
        };
        assert_eq!(heard, expected);
        given.processed(7).await;
        worker.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_event_among_many_keeps_its_key_and_the_rest_of_the_batch_is_done() {
    async fn pings(_: (), tx: &mut ClientTx, all: Vec<Attempt<Ping>>) -> Result<(), Failure> {
        for ping in all {
            if ping.n == 2 {
                return Err(Failure::permanent("refused"));
            }
            tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
                .await?;
        }
        Ok(())
    }
    let given = given().await;
    // 0..8 of two keys; 2 of key `a` is refused by the handler, 9 of key `b` cannot be read, 10 and 11 come after both.
    let key = |n: i64| {
        if n % 2 == 0 {
            "a".to_owned()
        } else {
            "b".to_owned()
        }
    };
    emit(&given, (0..8).map(|n| ("ping", key(n)))).await;
    let unreadable =
        "select outlast.emit(type => 'ping', payload => '{\"m\":9}'::text, key => 'b')";
    given.sql.execute(unreadable, &[]).await.unwrap();
    emit(&given, ["a", "b"].map(|key| ("ping", key.to_owned()))).await;
    let worker = given.start((), ordered().on_batch(&given.pool, pings));
    // Of `a` 0 is done, of `b` 1, 3, 5 and 7.
    given.processed(5).await;
    let parked = "select count(*) from outlast.parked where state = ";
    assert_eq!(given.count(&format!("{parked} 'quarantined'")).await, 2);
    assert_eq!(given.count(&format!("{parked} 'behind'")).await, 4);
    let effects = "select count(*) from effect where n in (0, 1, 3, 5, 7)";
    assert_eq!(given.count(effects).await, 5);
    assert_eq!(given.count("select count(*) from effect").await, 5);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_within_the_key_and_the_version_reach_the_handler() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Moved {
        at: i64,
    }
    impl Event for Moved {
        const NAME: &'static str = "moved";
        const STRICT_KEY: bool = true;
        fn key(&self) -> Option<String> {
            Some("piece".to_owned())
        }
        fn aggregate_version(&self) -> Option<i64> {
            Some(self.at * 10)
        }
    }
    async fn moved(told: Told, e: Attempt<Moved>) -> Result<(), Failure> {
        let _ = told.send(e.key_seq().unwrap_or(-1) * 1000 + e.aggregate_version().unwrap_or(-1));
        Ok(())
    }
    let mut given = given().await;
    let events = [Moved { at: 1 }, Moved { at: 2 }, Moved { at: 3 }];
    let mut tx = given.sql.transaction().await.unwrap();
    outlast_engine::Outlast::new()
        .emit_all(&mut tx, &events)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = given.start_with(told, ordered().on(moved), Settings::default());
    for expected in [1010, 2020, 3030] {
        assert_eq!(next(&mut hears).await, expected);
    }
    worker.stop().await.unwrap();
}
