//! The hand-over of the retry: a whole copy, durable before anything is acked.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use outlast_core::{Failure, broker::Envelope};
use outlast_postgres::{
    Error,
    store::{Claimed, Verdict},
};
use uuid::Uuid;

use super::{Dock, event, verdicts};
use crate::sql;

/// An event with everything that an envelope can have, and a payload that is no text.
fn whole() -> Claimed {
    let at = UNIX_EPOCH + Duration::from_micros(1_790_000_000_123_457);
    let mut e = Envelope::new(Uuid::new_v4(), "a", at);
    (e.version, e.tenant, e.key) = (3, "Zürich".into(), Some("k 1".into()));
    (e.key_seq, e.aggregate_version) = (Some(9), Some(-1));
    (e.source, e.subject, e.actor) = (
        Some("shop".into()),
        Some(String::new()),
        Some("usr:1".into()),
    );
    (e.correlation_id, e.causation_id) = (Some(Uuid::from_u128(8)), Some(Uuid::from_u128(9)));
    e.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
    e.headers.insert("x".into(), "ü".into());
    (e.content_type, e.codec_key) = ("application/octet-stream".into(), Some("k/1".into()));
    Claimed::delivered(e, &Bytes::from_static(b"\x00\xff{}\x00")).expect("a good envelope")
}

/// Everything of it but what is of one try.
fn same(one: &Claimed) -> String {
    let mut one = one.clone();
    (one.token, one.attempt, one.lane, one.log_id) = (Uuid::nil(), 0, None, 0);
    format!("{one:?}")
}

/// Fails an event and forgets all about it, as after an ack. What the retry runs.
async fn retried(dock: &Dock, e: &Claimed) -> Claimed {
    let token = dock.run(&dock.one, e).await;
    let failure = Failure::retry("not now");
    let failed = dock.one.fail_delivered(token, &[e], &failure, true).await;
    assert_eq!(failed.expect("hands over"), "retry");
    assert_eq!(dock.finish(token).await, 0);
    let mut retried = dock.retry().await;
    assert_eq!(retried.len(), 1);
    retried.remove(0)
}

#[tokio::test]
async fn the_retry_runs_what_was_delivered_to_the_last_byte_without_the_broker() {
    let dock = Dock::new().await;
    let e = whole();
    let retried = retried(&dock, &e).await;
    assert_eq!(same(&retried), same(&e));
    assert_eq!(retried.attempt, 2);
    // It came again because the ack was lost: while it is tried, and after it.
    let again = dock.deliver(&dock.two, &[&e]).await;
    assert_eq!(verdicts(&again), [Verdict::Parked]);
    dock.seal(retried.token, &[&e]).await;
    dock.finish(retried.token).await;
    let again = dock.deliver(&dock.two, &[&e]).await;
    assert_eq!(verdicts(&again), [Verdict::Done]);
    dock.must_be_empty().await;
}

#[tokio::test]
async fn a_hand_over_without_the_payload_is_found_out() {
    let dock = Dock::new().await;
    let copied = "e.codec_key, e.headers, e.payload, d.foreign_at is not null";
    let lost = "e.codec_key, e.headers, ''::bytea, d.foreign_at is not null";
    dock.house.plant("_hand_over", &[(copied, lost)]).await;
    let e = whole();
    assert_ne!(same(&retried(&dock, &e).await), same(&e));
}

#[tokio::test]
async fn what_cannot_be_helped_is_a_persons_and_others_are_charged() {
    let dock = Dock::new().await;
    let (poison, slow) = (event(None, 1), event(None, 2));
    let judged = dock.deliver(&dock.one, &[&poison, &slow]).await;
    let Verdict::Run(token) = judged[0].verdict else {
        panic!("{judged:?}")
    };
    let fail = async |e: &Claimed, failure: Failure| {
        dock.one.fail_delivered(token, &[e], &failure, true).await
    };
    let state = fail(&poison, Failure::permanent("no such booking")).await;
    assert_eq!(state.expect("hands over"), "quarantined");
    let state = fail(&slow, Failure::throttled(Duration::from_secs(60))).await;
    assert_eq!(state.expect("hands over"), "retry");
    // Twice, because the first answer was lost.
    let twice = fail(&slow, Failure::retry("again")).await;
    assert!(matches!(twice, Err(Error::NotInClaim)), "{twice:?}");
    // A detached handler cannot seal what the retry owns.
    let late = sql::complete(&dock.client, token, slow.event_id).await;
    assert_eq!(sql::state(late), "OL003");
    dock.finish(token).await;
    let incidents =
        "select count(*) from outlast.incident where reason = 'no such booking' and owner = 'team'";
    assert_eq!(dock.count(incidents).await, 1);
    dock.must_be_sound().await;
}

#[tokio::test]
async fn without_its_copy_a_delivery_cannot_be_failed_and_a_sealed_one_not_at_all() {
    let dock = Dock::new().await;
    let e = event(None, 1);
    let token = dock.run(&dock.one, &e).await;
    let bare = sql::fail(&dock.client, token, e.event_id, "retry").await;
    assert_eq!(sql::state(bare), "OL003");
    dock.seal(token, &[&e]).await;
    let sealed = dock
        .one
        .fail_delivered(token, &[&e], &Failure::retry("late"), true)
        .await;
    assert!(matches!(sealed, Err(Error::AlreadySealed)), "{sealed:?}");
    dock.finish(token).await;
    dock.must_be_empty().await;
}

#[tokio::test]
async fn what_is_too_new_for_a_process_waits_with_its_copy_for_one_that_can() {
    let dock = Dock::new().await;
    let e = whole();
    let token = dock.run(&dock.one, &e).await;
    dock.one.wait_delivered(token, &[&e]).await.expect("waits");
    dock.finish(token).await;
    let types = ["a".to_owned()];
    let old = dock
        .one
        .claim_parked(dock.consumer, 9, super::LEASE, &types, &[2])
        .await;
    assert!(old.expect("claims").events.is_empty());
    let new = dock
        .one
        .claim_parked(dock.consumer, 9, super::LEASE, &types, &[3])
        .await;
    let new = new.expect("claims").events;
    assert_eq!(new.len(), 1);
    assert_eq!((same(&new[0]), new[0].attempt), (same(&e), 1));
}

#[tokio::test]
async fn sealed_and_handed_over_side_by_side_is_done() {
    let dock = Dock::new().await;
    let e = event(None, 1);
    let token = dock.run(&dock.one, &e).await;
    let runner = dock.house.connect().await;
    sql::run(&runner, "begin").await;
    sql::complete(&runner, token, e.event_id)
        .await
        .expect("seals");
    let failure = Failure::retry("the deadline has passed");
    let failed = dock.one.fail_delivered(token, &[&e], &failure, true).await;
    assert_eq!(failed.expect("hands over"), "retry");
    sql::run(&runner, "commit").await;
    assert_eq!(dock.finish(token).await, 0);
    assert_eq!(dock.done().await, 1);
    dock.must_be_empty().await;
}
