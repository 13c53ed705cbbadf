//! What fails: retried with its charge, quarantined when no try can help, never in the way of others.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use outlast_core::{Event, Failure};
use outlast_engine::{Attempt, Consumer, Settings, Start};
use outlast_postgres::tx::ClientTx;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::sync::mpsc;

use crate::given::{Given, Ping, Told, given, next};

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_try_is_repeated_with_the_same_id_and_its_number() {
    async fn second_time(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
        let _ = told.send(i64::from(ping.number()));
        if ping.number() == 1 {
            Err(Failure::retry("not yet"))
        } else {
            Ok(())
        }
    }
    let given = given().await;
    given.emit(0..1).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = given.start(
        told,
        Consumer::new("mailer")
            .from(Start::Earliest)
            .on(second_time),
    );
    assert_eq!([next(&mut hears).await, next(&mut hears).await], [1, 2]);
    given.processed(1).await;
    assert_eq!(given.count("select count(*) from outlast.parked").await, 0);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_failure_waits_for_a_person_and_the_others_flow() {
    async fn thirteen(_: (), ping: Attempt<Ping>) -> Result<(), Failure> {
        if ping.n == 13 {
            Err(Failure::permanent("no such booking: 13"))
        } else {
            Ok(())
        }
    }
    let given = given().await;
    given.emit(0..30).await;
    let worker = given.start(
        (),
        Consumer::new("mailer")
            .owner("support")
            .from(Start::Earliest)
            .on(thirteen),
    );
    given.processed(29).await;
    let row = given
        .sql
        .query_one(
            "select kind, owner, class, reason, failures from outlast.incident",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, &str>(0), "quarantined event");
    assert_eq!(row.get::<_, &str>(1), "support");
    assert_eq!(row.get::<_, &str>(2), "permanent");
    assert_eq!(row.get::<_, &str>(3), "no such booking: 13");
    assert_eq!(row.get::<_, i32>(4), 1);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn spent_attempts_quarantine_an_event() {
    async fn never(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
        let _ = told.send(i64::from(ping.number()));
        Err(Failure::retry("never"))
    }
    let given = given().await;
    given.emit(0..1).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let settings = Settings {
        attempts: 3,
        ..Given::settings()
    };
    let worker = given.start_with(
        told,
        Consumer::new("mailer").from(Start::Earliest).on(never),
        settings,
    );
    for n in 1..=3 {
        assert_eq!(next(&mut hears).await, n);
    }
    given
        .until(
            "select count(*) from outlast.incident where failures = 3",
            1,
        )
        .await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_a_failure_with_its_text_and_a_hostile_text_is_stored_harmlessly() {
    async fn panics(_: (), ping: Attempt<Ping>) -> Result<(), Failure> {
        match ping.n {
            0 => panic!("handler gave up on {}", ping.n),
            _ => Err(Failure::permanent("a\0b\u{1b}[31m\u{fffd}")),
        }
    }
    let given = given().await;
    given.emit(0..2).await;
    let settings = Settings {
        attempts: 1,
        ..Given::settings()
    };
    let worker = given.start_with(
        (),
        Consumer::new("mailer").from(Start::Earliest).on(panics),
        settings,
    );
    given
        .until("select count(*) from outlast.incident", 2)
        .await;
    assert_eq!(
        given
            .count(
                "select count(*) from outlast.incident where reason like '%handler gave up on 0%'"
            )
            .await,
        1
    );
    assert_eq!(
        given
            .count("select count(*) from outlast.incident where reason ~ '[\\x01-\\x08\\x1b]'")
            .await,
        0
    );
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_fails_is_run_again_event_by_event() {
    async fn no_seven(_: (), tx: &mut ClientTx, pings: Vec<Attempt<Ping>>) -> Result<(), Failure> {
        for ping in pings {
            tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
                .await?;
            if ping.n == 7 {
                return Err(Failure::permanent("seven"));
            }
        }
        Ok(())
    }
    let given = given().await;
    given.emit(0..20).await;
    let worker = given.start(
        (),
        Consumer::new("archive")
            .from(Start::Earliest)
            .on_batch(&given.pool, no_seven),
    );
    given.processed(19).await;
    assert_eq!(given.count("select count(*) from effect").await, 19);
    assert_eq!(
        given.count("select count(*) from effect where n = 7").await,
        0
    );
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swallowed_database_error_does_not_become_a_completion() {
    async fn swallows(told: Told, tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
        tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
            .await?;
        if ping.number() == 1 {
            let _ = tx.execute("select 1 / 0", &[]).await;
        }
        let _ = told.send(i64::from(ping.number()));
        Ok(())
    }
    let given = given().await;
    given.emit(0..1).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = given.start(
        told,
        Consumer::new("ledger")
            .from(Start::Earliest)
            .on_tx(&given.pool, swallows),
    );
    assert_eq!([next(&mut hears).await, next(&mut hears).await], [1, 2]);
    given.processed(1).await;
    assert_eq!(given.count("select count(*) from effect").await, 1);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_serialization_failure_is_run_again_at_once_without_a_charge() {
    async fn conflicts(
        tries: Arc<AtomicI64>,
        tx: &mut ClientTx,
        _: Attempt<Ping>,
    ) -> Result<(), Failure> {
        if tries.fetch_add(1, Ordering::SeqCst) < 3 {
            tx.execute(
                "do $$ begin raise exception 'conflict' using errcode = '40001'; end $$",
                &[],
            )
            .await?;
        }
        Ok(())
    }
    let given = given().await;
    given.emit(0..1).await;
    let tries = Arc::new(AtomicI64::new(0));
    let worker = given.start(
        tries.clone(),
        Consumer::new("ledger")
            .from(Start::Earliest)
            .on_tx(&given.pool, conflicts),
    );
    given.processed(1).await;
    assert_eq!(tries.load(Ordering::SeqCst), 4);
    worker.stop().await.unwrap();
}

#[derive(Serialize, Deserialize)]
struct Newer {
    n: i64,
}
impl Event for Newer {
    const NAME: &'static str = "ping";
    const VERSION: u16 = 2;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_version_waits_for_a_worker_that_can_read_it() {
    async fn old(_: (), _: Attempt<Ping>) -> Result<(), Failure> {
        Ok(())
    }
    async fn new(_: (), _: Attempt<Newer>) -> Result<(), Failure> {
        Ok(())
    }
    let given = given().await;
    let worker = given.start((), Consumer::new("mailer").on(old));
    worker.registered(&given).await;
    given
        .sql
        .execute(
            "select outlast.emit('ping', '{\"n\":1}', version => 2)",
            &[],
        )
        .await
        .unwrap();
    given
        .until(
            "select count(*) from outlast.parked where state = 'waiting-version' and failures = 0",
            1,
        )
        .await;
    worker.stop().await.unwrap();
    let worker = given.start((), Consumer::new("mailer").on(new));
    given.processed(1).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_cannot_be_read_is_quarantined_with_its_bytes() {
    async fn effect(_: (), _: Attempt<Ping>) -> Result<(), Failure> {
        Ok(())
    }
    let given = given().await;
    let worker = given.start((), Consumer::new("mailer").on(effect));
    worker.registered(&given).await;
    given
        .sql
        .execute("select outlast.emit('ping', '{\"m\": 1.10}')", &[])
        .await
        .unwrap();
    given.emit(0..3).await;
    given.processed(3).await;
    let row = given
        .sql
        .query_one(
            "select reason, convert_from(payload, 'UTF8') from outlast.parked",
            &[],
        )
        .await
        .unwrap();
    assert!(
        row.get::<_, &str>(0)
            .starts_with("unreadable: ping version 1"),
        "{}",
        row.get::<_, &str>(0)
    );
    assert_eq!(row.get::<_, &str>(1), "{\"m\": 1.10}");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_overruns_its_deadline_is_charged_and_cannot_seal_later() {
    async fn slow(gate: Arc<tokio::sync::Semaphore>, ping: Attempt<Ping>) -> Result<(), Failure> {
        if ping.number() == 1 {
            ping.lost().await;
            // Told, and still it goes on.
            let _ = gate.acquire().await;
        }
        Ok(())
    }
    let given = given().await;
    given.emit(0..1).await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let short = Duration::from_millis(200);
    let settings = Settings {
        deadline: short,
        grace: short,
        ..Given::settings()
    };
    let worker = given.start_with(
        gate.clone(),
        Consumer::new("mailer").from(Start::Earliest).on(slow),
        settings,
    );
    given.processed(1).await;
    gate.add_permits(1);
    worker.stop().await.unwrap();
    given.processed(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_that_hang_do_not_hold_up_what_is_new() {
    type State = (Told, Arc<tokio::sync::Semaphore>);
    async fn hangs_again((told, gate): State, ping: Attempt<Ping>) -> Result<(), Failure> {
        match (ping.n < 8, ping.number()) {
            (true, 1) => return Err(Failure::retry("first")),
            (true, _) => drop(gate.acquire().await),
            _ => {}
        }
        let _ = told.send(ping.n);
        Ok(())
    }
    let given = given().await;
    given.emit(0..8).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let consumer = Consumer::new("mailer")
        .concurrency(4)
        .from(Start::Earliest)
        .on(hangs_again);
    let worker = given.start((told, gate.clone()), consumer);
    // Two of four places hang in retries; the others are for what is new.
    given
        .until(
            "select count(*) from outlast.lease where room = 'parked'",
            2,
        )
        .await;
    given.emit(100..120).await;
    for _ in 0..20 {
        assert!(next(&mut hears).await >= 100);
    }
    gate.add_permits(100);
    given.processed(28).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_try_waits_as_it_was_told_and_is_not_repeated_at_once() {
    async fn throttled(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
        let _ = told.send(ping.n);
        Err(Failure::throttled(Duration::from_secs(60)))
    }
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let running = given.start(told, Consumer::new("mailer").on(throttled));
    running.registered(&given).await;
    given.emit(7..8).await;
    assert_eq!(next(&mut hears).await, 7);
    let waits = "select count(*) from outlast.parked where class = 'throttled' and failures = 0 and next_at > now() + interval '30 seconds'";
    given.until(waits, 1).await;
    assert!(hears.try_recv().is_err(), "once is enough to be told");
    running.stop().await.unwrap();
}
