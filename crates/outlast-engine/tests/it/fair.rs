//! Tenants of one worker, and what a consumer takes: filters, raw handlers.

use std::time::Duration;

use outlast_core::{Failure, Outcome};
use outlast_engine::{Attempt, Consumer, Raw, Start};
use outlast_postgres::Error;
use outlast_testkit::wait_for;
use tokio::sync::mpsc;

use crate::given::{Given, Ping, given, next};

/// A backlog of one tenant, in one transaction.
async fn backlog(given: &Given, tenant: &str, n: i32) {
    let sql = "select count(*) from outlast.emit_all('ping', array(select '{\"n\":1}' from generate_series(1, $2::int)),
        array(select 'k' || i % 500 from generate_series(1, $2::int) i), $1)";
    given.sql.execute(sql, &[&tenant, &n]).await.unwrap();
}

async fn done(given: &Given, tenants: &str) -> i64 {
    given
        .count(&format!(
            "select count(*) from outlast._processed_event p join outlast._event e on e.event_id = p.event_id where e.tenant {tenants}"
        ))
        .await
}

/// Work of ten milliseconds.
async fn works(_: (), _: Attempt<Ping>) -> Result<(), Failure> {
    tokio::time::sleep(Duration::from_millis(10)).await;
    Ok(())
}

/// Ten events while tenants with a large backlog are worked for: how much of that is done until the ten are. 800 is a
/// second's work of one worker.
async fn meanwhile(ordered: bool, workers: usize, heavy: &[&str]) -> i64 {
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
    for tenant in heavy {
        backlog(&given, tenant, 20_000 / heavy.len() as i32).await;
    }
    let running: Vec<_> = (0..workers)
        .map(|_| given.start_with((), consumer(), Default::default()))
        .collect();
    wait_for(
        "the backlog to be worked on",
        Duration::from_secs(60),
        async || (done(&given, "<> 'light'").await >= 300).then_some(()),
    )
    .await;
    let before = done(&given, "<> 'light'").await;
    backlog(&given, "light", 10).await;
    wait_for("ten events", Duration::from_secs(60), async || {
        (done(&given, "= 'light'").await == 10).then_some(())
    })
    .await;
    let meanwhile = done(&given, "<> 'light'").await - before;
    for worker in running {
        worker.stop().await.unwrap();
    }
    given.verified().await;
    meanwhile
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_events_of_one_tenant_wait_no_second_behind_twenty_thousand_of_another() {
    for workers in [1, 2] {
        let meanwhile = meanwhile(false, workers, &["heavy"]).await;
        println!("{workers} workers: {meanwhile}");
        assert!(
            meanwhile <= 800 * workers as i64,
            "{workers} workers: {meanwhile}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_ordered_events_of_one_tenant_wait_no_second_behind_twenty_thousand_of_another() {
    for workers in [1, 2] {
        let meanwhile = meanwhile(true, workers, &["heavy"]).await;
        println!("{workers} workers: {meanwhile}");
        assert!(
            meanwhile <= 800 * workers as i64,
            "{workers} workers: {meanwhile}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_events_of_one_tenant_wait_no_second_behind_the_backlogs_of_four_others() {
    for ordered in [false, true] {
        let meanwhile = meanwhile(ordered, 1, &["one", "two", "three", "four"]).await;
        println!("ordered {ordered}: {meanwhile}");
        assert!(meanwhile <= 800, "ordered {ordered}: {meanwhile}");
    }
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
            tokio::time::timeout(crate::given::SOON, hears.recv())
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
        let ended = tokio::time::timeout(crate::given::SOON, &mut worker.worker)
            .await
            .unwrap()
            .unwrap();
        match ended {
            Err(Error::ConsumerGone(why)) => assert!(why.contains(says), "{why}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}
