mod ends;

use super::{effect::judge, *};
use crate::{Attempt, Consumer, Outlast, Start, attempt::Shape};
use futures_util::FutureExt;
use outlast_core::{Class, Event, Unreadable};
use serde::{Deserialize, Serialize};
use std::{future::IntoFuture, time::Duration};

#[derive(Serialize, Deserialize)]
struct Paid {
    cents: i64,
    #[serde(default)]
    currency: String,
}

impl Event for Paid {
    const NAME: &'static str = "paid";
    const VERSION: u16 = 2;

    fn upcast(from: u16, old: serde_json::Value) -> Result<Self, Unreadable> {
        assert_ne!(
            old,
            serde_json::json!("panic"),
            "upcast was given what it cannot stand"
        );
        let mut paid: Self = serde_json::from_value(old)?;
        paid.currency = format!("from {from}");
        Ok(paid)
    }
}

fn received(version: u16, payload: &str) -> Received {
    Received {
        id: Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_0001),
        source: None,
        subject: None,
        name: "paid".into(),
        version,
        tenant: "acme".into(),
        key: Some("booking/7".into()),
        key_seq: None,
        command: None,
        entity: None,
        aggregate_version: None,
        actor: Some("jane".into()),
        correlation_id: None,
        causation_id: None,
        traceparent: None,
        headers: Some(r#"{"region":"eu"}"#.into()),
        content_type: "application/json".into(),
        codec_key: None,
        payload: payload.to_owned().into(),
        emitted_at: SystemTime::UNIX_EPOCH,
    }
}

fn deliver(event: Received) -> Delivery {
    let deadline = Instant::now() + Duration::from_secs(600);
    Delivery::new(
        Arc::new(event),
        Uuid::nil(),
        1,
        deadline,
        CancellationToken::new(),
    )
}

fn read(version: u16, payload: &str) -> Result<Attempt<Paid>, Failure> {
    around::catch(|| Attempt::read(deliver(received(version, payload)), &Shape::of_event()))
}

/// Runs the handler of a consumer that has one, the way the loops do.
async fn run(consumer: Consumer<()>, around: Option<Around>, delivery: Delivery) -> End {
    let context = Context {
        kind: Kind::Consumer,
        ordered: false,
        consumer: "ledger".into(),
        around,
        codec: None,
        accepted: None,
        provider: None,
    };
    let Form::Effect(one) = consumer.handlers[0].form.clone() else {
        panic!("an effect handler")
    };
    one.start(context, (), delivery)
        .await
        .expect("the task of a try never panics")
}

fn good() -> Delivery {
    deliver(received(2, r#"{"cents":5,"currency":"CHF"}"#))
}

async fn ok(_: (), e: Attempt<Paid>) -> Result<(), Failure> {
    assert_eq!((e.cents, e.currency.as_str()), (5, "CHF"));
    Ok(())
}

async fn panics(_: (), _: Attempt<Paid>) -> Result<(), Failure> {
    tokio::task::yield_now().await;
    panic!("no such account: {}", 7);
}

fn panics_at_once(_: (), _: Attempt<Paid>) -> std::future::Ready<Result<(), Failure>> {
    panic!("at once");
}

#[tokio::test]
async fn a_handler_that_returns_is_done() {
    let end = run(Consumer::new("a").on(ok), None, good()).await;
    assert!(matches!(end, End::Done(Outcome::Done)), "{end:?}");
}

#[tokio::test]
async fn a_panic_is_a_failure_with_its_text() {
    for (consumer, text) in [
        (
            Consumer::new("a").on(panics),
            "panicked: no such account: 7",
        ),
        (Consumer::new("a").on(panics_at_once), "panicked: at once"),
    ] {
        match run(consumer, None, good()).await {
            End::Failed(failure) => assert_eq!(
                (failure.class, failure.reason.as_str()),
                (Class::Unclassified, text)
            ),
            end => panic!("{end:?}"),
        }
    }
    let failure = read(1, "\"panic\"").unwrap_err();
    assert!(failure.reason.starts_with("panicked: "), "{failure}");
}

#[tokio::test]
async fn around_sees_panics_as_failures_and_may_change_the_result() {
    let around: Around = Arc::new(|about, run| {
        Box::pin(async move {
            assert_eq!(
                (about.kind, about.name.as_str(), about.event.as_str()),
                ("consumer", "ledger", "paid")
            );
            assert_eq!(
                (about.tenant.as_str(), about.attempt, about.events),
                ("acme", 1, 1)
            );
            match run.await {
                Err(failure) => Err(Failure::permanent(format!("seen: {}", failure.reason))),
                Ok(_) => Ok(Outcome::skipped("changed")),
            }
        })
    });
    let end = run(
        Consumer::new("a").on(panics_at_once),
        Some(around.clone()),
        good(),
    )
    .await;
    assert!(
        matches!(&end, End::Failed(failure) if failure.to_string() == "permanent: seen: panicked: at once"),
        "{end:?}"
    );
    let end = run(Consumer::new("a").on(ok), Some(around), good()).await;
    assert!(
        matches!(&end, End::Done(outcome) if outcome.reason() == Some("changed")),
        "{end:?}"
    );
}

#[tokio::test]
async fn around_may_skip_a_handler_but_not_call_half_of_it_done() {
    let skip: Around = Arc::new(|_, _| Box::pin(async { Ok(Outcome::skipped("flag is off")) }));
    let end = run(Consumer::new("a").on(panics), Some(skip), good()).await;
    assert!(
        matches!(&end, End::Done(Outcome::Skipped(why)) if why == "flag is off"),
        "{end:?}"
    );

    async fn never_ends(_: (), _: Attempt<Paid>) -> Result<(), Failure> {
        std::future::pending().await
    }
    let half: Around = Arc::new(|_, run| {
        Box::pin(async move {
            let mut work = run.into_future();
            assert!((&mut work).now_or_never().is_none());
            Ok(Outcome::Done)
        })
    });
    let end = run(Consumer::new("a").on(never_ends), Some(half), good()).await;
    assert!(
        matches!(&end, End::Failed(failure) if failure.reason.contains("before the handler had ended")),
        "{end:?}"
    );

    let broken: Around = Arc::new(|_, _| Box::pin(async { panic!("in around") }));
    let end = run(Consumer::new("a").on(ok), Some(broken), good()).await;
    assert!(
        matches!(&end, End::Failed(failure) if failure.reason == "panicked: in around"),
        "{end:?}"
    );
}

#[test]
fn what_cannot_be_read_is_permanent_and_says_why() {
    let odd = |change: fn(&mut Received)| {
        let mut event = received(2, r#"{"cents":5}"#);
        change(&mut event);
        Attempt::<Paid>::read(deliver(event), &Shape::of_event()).unwrap_err()
    };
    let failures = [
        (
            read(2, "{").unwrap_err(),
            "unreadable: paid version 2: EOF while parsing",
        ),
        (
            read(2, "{\"cents\":1e400}").unwrap_err(),
            "unreadable: paid version 2: number out of range",
        ),
        (
            read(2, &"[".repeat(10_000)).unwrap_err(),
            "unreadable: paid version 2: ",
        ),
        (
            read(1, "7").unwrap_err(),
            "unreadable: paid version 1: invalid type: integer",
        ),
        (
            odd(|e| e.content_type = "application/cbor".into()),
            "unreadable: paid version 2: content type application/cbor",
        ),
        (
            odd(|e| e.codec_key = Some("k1".into())),
            "unreadable: paid version 2: it is encrypted with key k1",
        ),
    ];
    for (failure, expected) in failures {
        assert_eq!(failure.class, Class::Permanent);
        assert!(failure.reason.starts_with(expected), "{failure}");
    }
}

#[test]
fn older_versions_are_upcast_and_newer_ones_wait() {
    let attempt = read(1, r#"{"cents":5}"#).unwrap();
    assert_eq!(
        (attempt.cents, attempt.currency.as_str(), attempt.version()),
        (5, "from 1", 1)
    );
    assert_eq!(read(3, "{}").unwrap_err().class, Class::Retry);
}

#[test]
fn the_payload_is_there_as_it_was_emitted_too() {
    let odd = "{ \"cents\" : 5,\"cents_\":1,\n\"currency\":\"\\u20ac\" } ";
    let attempt = read(1, odd).unwrap();
    assert_eq!(attempt.payload_bytes(), odd.as_bytes());
}

#[test]
fn an_attempt_tells_what_it_is_about() {
    let attempt = read(2, r#"{"cents":5}"#).unwrap();
    assert_eq!(
        (attempt.tenant(), attempt.key(), attempt.actor()),
        ("acme", Some("booking/7"), Some("jane"))
    );
    assert_eq!(attempt.header("region").as_deref(), Some("eu"));
    assert_eq!(attempt.header("other"), None);
    assert_eq!(
        attempt.correlation_id(),
        attempt.id(),
        "it began its own story"
    );
    assert!(
        !format!("{attempt:?}").contains('5'),
        "no payload in a log: {attempt:?}"
    );
    let expected = Outlast::new()
        .tenant("acme")
        .actor("jane")
        .correlation(attempt.id());
    assert_ne!(
        attempt.outlast(),
        &expected,
        "the event is the cause of what its handler emits"
    );
    assert_eq!(
        attempt.outlast(),
        &Outlast::caused_by(&received(2, ""), None)
    );
}

#[test]
fn a_child_id_is_the_uuid_v5_that_any_language_computes() {
    let attempt = read(2, r#"{"cents":5}"#).unwrap();
    // python3 -c "import uuid; print(uuid.uuid5(uuid.UUID('01930000-0000-7000-8000-000000000001'), 'mail'))"
    assert_eq!(
        attempt.child_id("mail").to_string(),
        "ce0b5ba8-7f94-53de-8e03-ef677a94aa2a"
    );
    assert_ne!(attempt.child_id("mail"), attempt.child_id("sms"));
}

#[tokio::test]
async fn a_try_is_told_to_stop_when_its_lease_is_lost_or_its_deadline_is_over() {
    let delivery = good();
    let attempt = Attempt::<Paid>::read(delivery.clone(), &Shape::of_event()).unwrap();
    assert!(attempt.lost().now_or_never().is_none());
    delivery.lost.cancel();
    attempt.lost().await;

    let late = Delivery {
        deadline: Instant::now(),
        lost: CancellationToken::new(),
        ..good()
    };
    Attempt::<Paid>::read(late, &Shape::of_event())
        .unwrap()
        .lost()
        .await;
}

#[test]
fn what_a_handler_did_to_the_seal_counts_more_than_what_it_returned() {
    let failed = || Err(Failure::retry("after"));
    assert!(matches!(judge(SealState::Sealed, failed()), End::Sealed(_)));
    assert!(matches!(
        judge(SealState::Unsure(Some(7)), Ok(Outcome::Done)),
        End::Unsure { xid: Some(7) }
    ));
    assert!(matches!(
        judge(SealState::Refused(Error::LeaseLost), failed()),
        End::Refused(Error::LeaseLost)
    ));
    assert!(matches!(judge(SealState::Open, failed()), End::Failed(_)));
    assert!(matches!(
        judge(SealState::Open, Ok(Outcome::Done)),
        End::Done(_)
    ));
}

#[test]
fn a_consumer_begins_with_what_is_emitted_from_now_on() {
    assert_eq!(Consumer::<()>::new("a").start, Start::Now);
    assert_eq!(
        Consumer::<()>::new("a").from(Start::Earliest).start,
        Start::Earliest
    );
}
