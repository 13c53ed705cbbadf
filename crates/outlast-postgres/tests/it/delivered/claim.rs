//! Who gets what was delivered.

use std::time::Duration;

use outlast_core::Failure;
use outlast_postgres::store::Verdict;

use super::{Dock, LEASE, claim_on, claimed, envelope, event, registration, verdicts};
use crate::sql;
use uuid::Uuid;

#[tokio::test]
async fn a_second_delivery_is_put_off_while_the_first_runs_and_acked_once_that_is_sealed() {
    let dock = Dock::new().await;
    let e = event(None, 1);
    let token = dock.run(&dock.one, &e).await;
    let judged = dock.deliver(&dock.two, &[&e]).await;
    let [Verdict::Defer(after)] = verdicts(&judged)[..] else {
        panic!("{judged:?}")
    };
    assert!(
        after > Duration::from_secs(1) && after <= LEASE,
        "{after:?}"
    );

    dock.seal(token, &[&e]).await;
    // Its lease has not ended: what counts is that it is sealed.
    let again = dock.deliver(&dock.two, &[&e]).await;
    assert_eq!(verdicts(&again), [Verdict::Done]);
    assert_eq!(dock.finish(token).await, 0);
    let again = dock.deliver(&dock.one, &[&e]).await;
    assert_eq!(verdicts(&again), [Verdict::Done]);
    assert_eq!(dock.done().await, 1);
    dock.must_be_empty().await;
}

#[tokio::test]
async fn of_two_claims_at_the_same_moment_one_waits_for_the_other_and_gets_nothing() {
    let dock = Dock::new().await;
    let e = event(None, 1);
    let (first, second) = (dock.house.connect().await, dock.house.connect().await);
    sql::run(&first, "begin").await;
    assert_eq!(claim_on(&first, dock.consumer, &e).await, "run");
    let pid = sql::pid(&second).await;
    let (verdict, ()) = tokio::join!(claim_on(&second, dock.consumer, &e), async {
        sql::until_blocked(&dock.client, pid).await;
        sql::run(&first, "commit").await;
    });
    assert_eq!(verdict, "defer");
    dock.must_be_sound().await;
}

#[tokio::test]
async fn a_claim_that_is_rolled_back_leaves_its_event_to_the_one_who_waited() {
    let dock = Dock::new().await;
    let e = event(None, 1);
    let (first, second) = (dock.house.connect().await, dock.house.connect().await);
    sql::run(&first, "begin").await;
    assert_eq!(claim_on(&first, dock.consumer, &e).await, "run");
    let pid = sql::pid(&second).await;
    let (verdict, ()) = tokio::join!(claim_on(&second, dock.consumer, &e), async {
        sql::until_blocked(&dock.client, pid).await;
        sql::run(&first, "rollback").await;
    });
    assert_eq!(verdict, "run");
}

#[tokio::test]
async fn each_event_of_a_call_has_its_own_verdict_and_what_runs_shares_a_token() {
    let dock = Dock::new().await;
    let (done, parked, owned) = (event(None, 1), event(None, 2), event(None, 3));
    let (new, newer) = (event(None, 4), event(None, 5));
    let mut other = envelope(Uuid::now_v7());
    other.name = "b".into();
    let other = claimed(other);

    let token = dock.run(&dock.one, &done).await;
    dock.seal(token, &[&done]).await;
    dock.finish(token).await;
    let token = dock.run(&dock.one, &parked).await;
    let failure = Failure::retry("no");
    let these = [&parked];
    let failed = dock.one.fail_delivered(token, &these, &failure, true);
    assert_eq!(failed.await.expect("parks"), "retry");
    dock.finish(token).await;
    dock.run(&dock.one, &owned).await;

    let all = [&new, &done, &parked, &other, &owned, &newer];
    let judged = dock.deliver(&dock.two, &all).await;
    let of = |id: Uuid| {
        let found = judged.iter().find(|one| one.event_id == id);
        found.expect("each has one").verdict
    };
    assert_eq!(judged.len(), 6);
    assert_eq!(of(done.event_id), Verdict::Done);
    assert_eq!(of(parked.event_id), Verdict::Parked);
    assert_eq!(of(other.event_id), Verdict::Other);
    assert!(matches!(of(owned.event_id), Verdict::Defer(_)));
    assert!(matches!(of(new.event_id), Verdict::Run(_)));
    assert_eq!(of(new.event_id), of(newer.event_id));
    dock.must_be_sound().await;
}

#[tokio::test]
async fn only_events_of_its_tenants_and_sources_are_its_own() {
    let dock = Dock::new().await;
    let mut narrow = registration("narrow", false);
    (narrow.tenants, narrow.sources) = (vec!["acme".into()], vec!["shop".into()]);
    let reads = super::reads("memory");
    let registered = dock.one.register_delivered(&narrow, &reads).await;
    let id = registered.expect("registers").id;
    for (tenant, source, own) in [
        ("acme", Some("shop"), true),
        ("acme", None, false),
        ("acme", Some("bank"), false),
        ("", Some("shop"), false),
    ] {
        let mut e = envelope(Uuid::now_v7());
        (e.tenant, e.source) = (tenant.into(), source.map(str::to_owned));
        let judged = dock.one.claim_delivered(id, &[&claimed(e)], LEASE).await;
        let verdict = judged.expect("judges")[0].verdict;
        assert_eq!(
            matches!(verdict, Verdict::Run(_)),
            own,
            "{tenant} {source:?}: {verdict:?}"
        );
    }
}

#[tokio::test]
async fn while_it_is_paused_or_everything_is_stopped_nothing_is_taken_and_nothing_settled() {
    let dock = Dock::new().await;
    let e = event(None, 1);
    sql::run(&dock.client, "select outlast.pause('c', 'a test')").await;
    let judged = dock.deliver(&dock.one, &[&e]).await;
    assert!(matches!(verdicts(&judged)[..], [Verdict::Paused(_)]));
    sql::run(&dock.client, "select outlast.resume('c')").await;
    sql::run(&dock.client, "update outlast._house set held = 'rewound'").await;
    let held = dock.one.claim_delivered(dock.consumer, &[&e], LEASE).await;
    assert!(held.is_err());
    let nothing = dock.one.claim_delivered(dock.consumer, &[], LEASE).await;
    assert!(nothing.is_err(), "found out without an event");
    sql::run(&dock.client, "update outlast._house set held = null").await;
    dock.run(&dock.one, &e).await;
}

#[tokio::test]
async fn a_consumer_of_the_log_cannot_be_given_deliveries() {
    let dock = Dock::new().await;
    let id = sql::register(&dock.client, "log", &["a"], "now", None).await;
    let refused = dock
        .one
        .claim_delivered(id, &[&event(None, 1)], LEASE)
        .await;
    assert!(refused.is_err());
}
