//! Tenants of one worker, and what a consumer takes: filters, raw handlers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use outlast_core::{Failure, Outcome};
use outlast_engine::{Attempt, Consumer, Raw, Start};
use outlast_postgres::Error;
use outlast_testkit::wait_for;
use tokio::sync::{Semaphore, mpsc};
use uuid::Uuid;

use crate::given::{Given, Ping, SOON, given, next};

/// A backlog of one tenant, by one statement. Answers the ids.
async fn backlog(given: &Given, tenant: &str, n: usize) -> Vec<Uuid> {
    let sql = "select id from outlast.emit_all('ping', array(select '{\"n\":1}' from generate_series(1, $2::int)),
        array(select 'k' || i % 500 from generate_series(1, $2::int) i), $1)";
    let n = i32::try_from(n).unwrap();
    let rows = given.sql.query(sql, &[&tenant, &n]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// How many of these are done.
async fn done_of(given: &Given, events: &[Uuid]) -> i64 {
    let sql = "select count(*) from outlast._processed_event where event_id = any ($1)";
    let row = given.sql.query_one(sql, &[&events]).await.unwrap();
    row.get(0)
}

/// Work of ten milliseconds.
async fn works(_: (), _: Attempt<Ping>) -> Result<(), Failure> {
    tokio::time::sleep(Duration::from_millis(10)).await;
    Ok(())
}

/// Tenants with a backlog of so many events, together, and then ten events of another one: with one worker and, if asked,
/// then with two. The ten wait no second, counted in what the workers do in one: on a machine that has other things to do
/// everything takes longer, the ten too, but how much of somebody else's work comes before them stays the same.
async fn ten_wait_no_second_behind(
    backlogs: &[&str],
    events: usize,
    ordered: bool,
    most_workers: usize,
) {
    const ALL: &str = "select count(*) from outlast._processed_event";
    let given = given().await;
    let consumer = || {
        let consumer = Consumer::new("c").from(Start::Earliest).concurrency(8);
        let consumer = if ordered {
            consumer.ordered()
        } else {
            consumer
        };
        consumer.on(works)
    };
    for tenant in backlogs {
        backlog(&given, tenant, events / backlogs.len()).await;
    }
    let reaches = async |most| {
        wait_for("the backlog to be worked on", SOON * 3, async || {
            let done = given.count(ALL).await;
            (done >= most).then_some(done)
        })
        .await
    };
    let mut running = Vec::new();
    for workers in 1..=most_workers {
        running.push(given.start_with((), consumer(), Default::default()));
        let first = reaches(given.count(ALL).await + 300).await;
        let began = Instant::now();
        let before = reaches(first + 300).await;
        let a_second = ((before - first) as f64 / began.elapsed().as_secs_f64()) as i64;
        let light = backlog(&given, &format!("light {workers}"), 10).await;
        wait_for("ten events", SOON * 3, async || {
            (done_of(&given, &light).await == 10).then_some(())
        })
        .await;
        let done = given.count(ALL).await - before;
        let meanwhile = format!("{done} of the backlog meanwhile, {a_second} in a second");
        println!("ordered {ordered}, {workers} workers: {meanwhile}");
        assert!(done <= a_second, "{workers} workers: {meanwhile}");
    }
    for worker in running {
        worker.stop().await.unwrap();
    }
    given.verified().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_events_of_one_tenant_wait_no_second_behind_a_hundred_thousand_of_another() {
    ten_wait_no_second_behind(&["heavy"], 100_000, false, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_ordered_events_of_one_tenant_wait_no_second_behind_a_hundred_thousand_of_another() {
    ten_wait_no_second_behind(&["heavy"], 100_000, true, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_events_of_one_tenant_wait_no_second_behind_the_backlogs_of_four_others() {
    // With two workers only where a claim takes no tenth of a second (`./run prove fairness`, with nothing else on the machine):
    // see the test below for what makes the difference.
    let workers = if std::env::var_os("OUTLAST_ALONE").is_some() {
        2
    } else {
        1
    };
    for ordered in [false, true] {
        ten_wait_no_second_behind(&["one", "two", "three", "four"], 20_000, ordered, workers).await;
    }
}

/// Goal: what a tenant emits beside the backlog of another one is claimed at once, in however many lanes it lies, although no place is
/// free: lane after lane it would wait for as many turns. Method: every place is taken and stays so.
#[tokio::test(flavor = "multi_thread")]
async fn events_in_many_lanes_are_claimed_together_while_a_backlog_takes_all_places() {
    const PLACES: usize = 4;
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    async fn waits(
        (told, gate): (mpsc::UnboundedSender<i64>, Arc<Semaphore>),
        ping: Attempt<Ping>,
    ) -> Result<(), Failure> {
        let _ = told.send(ping.n);
        let _open = gate.acquire().await;
        Ok(())
    }
    backlog(&given, "heavy", 600).await;
    let consumer = Consumer::new("c").from(Start::Earliest).ordered();
    let consumer = consumer.concurrency(PLACES).on(waits);
    let state = (told, gate.clone());
    let worker = given.start_with(state, consumer, Default::default());
    for _ in 0..PLACES {
        next(&mut hears).await;
    }
    let light = backlog(&given, "light", 10).await;
    let lanes = "select count(distinct l.lane) from outlast._lease l where l.room = 'batch' and l.lane < 1024";
    given.until(lanes, PLACES as i64).await;
    assert_eq!(done_of(&given, &light).await, 0, "no place is free");
    gate.add_permits(PLACES);
    given.processed(610).await;
    worker.stop().await.unwrap();
    given.verified().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_handler_takes_every_type_of_its_pattern_as_it_was_emitted() {
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    async fn raw(told: mpsc::UnboundedSender<String>, e: Attempt<Raw>) -> Result<Outcome, Failure> {
        let text = String::from_utf8_lossy(&e.bytes).into_owned();
        let _ = told.send(format!(
            "{} {} {} {text}",
            e.name, e.version, e.content_type
        ));
        Ok(Outcome::Done)
    }
    async fn typed(told: mpsc::UnboundedSender<String>, e: Attempt<Ping>) -> Result<(), Failure> {
        let _ = told.send(format!("typed {}", e.n));
        Ok(())
    }
    let consumer = Consumer::new("mirror")
        .tenant("acme")
        .source("shop")
        .on_raw("p*", raw)
        .on(typed);
    let worker = given.start(told, consumer);
    worker.registered(&given).await;
    let emit = |kind: &str, payload: &str, tenant: &str, source: &str, version: i32| {
        let sql = format!(
            "select outlast.emit('{kind}', '{payload}', tenant => '{tenant}', source => '{source}', version => {version})"
        );
        async { given.sql.batch_execute(&{ sql }).await.unwrap() }
    };
    emit("ping", r#"{"n":7}"#, "acme", "shop", 1).await;
    emit("paid.twice", r#"{"a": 1}"#, "acme", "shop", 9).await;
    emit("paid", r#"{}"#, "other", "shop", 1).await;
    emit("paid", r#"{}"#, "acme", "web", 1).await;
    emit("lost", r#"{}"#, "acme", "shop", 1).await;
    emit("pong", r#"[1]"#, "acme", "shop", 1).await;
    let mut heard = Vec::new();
    for _ in 0..3 {
        heard.push(
            tokio::time::timeout(SOON, hears.recv())
                .await
                .unwrap()
                .unwrap(),
        );
    }
    heard.sort();
    assert_eq!(
        heard,
        [
            r#"paid.twice 9 application/json {"a": 1}"#,
            "pong 1 application/json [1]",
            "typed 7"
        ]
    );
    given.processed(3).await;
    worker.stop().await.unwrap();
}

/// What waited, because nobody had a handler for it, is taken by one who has a pattern.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_worker_wakes_for_a_pattern_but_not_past_a_handler_of_its_own() {
    async fn raw(told: mpsc::UnboundedSender<i64>, _: Attempt<Raw>) -> Result<(), Failure> {
        let _ = told.send(1);
        Ok(())
    }
    async fn typed(_: mpsc::UnboundedSender<i64>, _: Attempt<Ping>) -> Result<(), Failure> {
        Ok(())
    }
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    given
        .sql
        .batch_execute("select outlast.register('c', array['ping', 'pong', 'p*'])")
        .await
        .unwrap();
    given
        .sql
        .batch_execute(
            "select outlast.emit('ping', '{}', version => 2), outlast.emit('pong', '{}')",
        )
        .await
        .unwrap();
    let narrow = given.start(told.clone(), Consumer::new("c").on(typed));
    given
        .until(
            "select count(*) from outlast.parked where state = 'waiting-version'",
            2,
        )
        .await;
    narrow.stop().await.unwrap();
    let wide = given.start(told, Consumer::new("c").on_raw("p*", raw).on(typed));
    next(&mut hears).await;
    given
        .until("select count(*) from outlast.processed", 1)
        .await;
    given
        .until(
            "select count(*) from outlast.parked where type = 'ping' and state = 'waiting-version'",
            1,
        )
        .await;
    wide.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_has_the_name_of_a_renamed_or_retired_consumer_is_refused() {
    let given = given().await;
    let (told, _hears) = mpsc::unbounded_channel::<i64>();
    async fn ok(_: mpsc::UnboundedSender<i64>, _: Attempt<Ping>) -> Result<(), Failure> {
        Ok(())
    }
    for sql in [
        "select outlast.register('old', array['ping'])",
        "select outlast.register('gone', array['ping'])",
        "select outlast.rename_consumer('old', 'new')",
        "select outlast.retire_consumer('gone', 'no more')",
    ] {
        given.sql.batch_execute(sql).await.unwrap();
    }
    for (name, says) in [("old", "new"), ("gone", "no more")] {
        let mut worker = given.start(told.clone(), Consumer::new(name).on(ok));
        let ended = tokio::time::timeout(SOON, &mut worker.worker)
            .await
            .unwrap()
            .unwrap();
        match ended {
            Err(Error::ConsumerGone(why)) => assert!(why.contains(says), "{why}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}
