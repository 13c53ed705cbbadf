//! The completion of what was delivered: under its lease, once, by its owner.

use outlast_postgres::store::Verdict;

use super::{Dock, event, verdicts};
use crate::sql;

const ISOLATIONS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

#[tokio::test]
async fn an_owner_that_stood_still_seals_nothing_once_another_has_its_event() {
    for isolation in ISOLATIONS {
        let dock = Dock::new().await;
        let (e, beside) = (event(None, 1), event(None, 2));
        let judged = dock.deliver(&dock.one, &[&e, &beside]).await;
        let Verdict::Run(stale) = judged[0].verdict else {
            panic!("{judged:?}")
        };
        let runner = dock.house.connect().await;
        // It has begun, has its snapshot, and stands still.
        sql::run(&runner, &format!("begin isolation level {isolation}")).await;
        sql::run(&runner, "create table effect (n int)").await;
        dock.lapse().await;
        let again = dock.deliver(&dock.two, &[&e]).await;
        assert!(matches!(verdicts(&again)[..], [Verdict::Run(fresh)] if fresh != stale));
        assert_eq!((again[0].attempt, again[0].reclaims), (2, 1));

        // Neither what the other one has, nor what nobody has yet.
        let refused = sql::state(sql::complete(&runner, stale, e.event_id).await);
        let expected = if isolation == "read committed" {
            "OL001"
        } else {
            "40001"
        };
        assert_eq!(refused, expected, "{isolation}");
        sql::run(&runner, "rollback").await;
        for id in [e.event_id, beside.event_id] {
            assert_eq!(sql::state(sql::complete(&runner, stale, id).await), "OL001");
        }
        assert!(
            dock.client
                .execute("select outlast.renew($1, 1000)", &[&stale])
                .await
                .is_err()
        );
        assert_eq!(dock.done().await, 0);
        dock.must_be_sound().await;
    }
}

#[tokio::test]
async fn a_lapsed_owner_that_nobody_has_replaced_still_completes() {
    let dock = Dock::new().await;
    let e = event(None, 1);
    let token = dock.run(&dock.one, &e).await;
    dock.lapse().await;
    dock.seal(token, &[&e]).await;
    assert_eq!(dock.finish(token).await, 0);
    dock.must_be_empty().await;
}

#[tokio::test]
async fn a_seal_that_is_under_way_keeps_its_lease_although_that_has_lapsed() {
    let dock = Dock::new().await;
    let e = event(None, 1);
    let token = dock.run(&dock.one, &e).await;
    let runner = dock.house.connect().await;
    sql::run(&runner, "begin").await;
    sql::complete(&runner, token, e.event_id)
        .await
        .expect("seals");
    dock.lapse().await;
    let meanwhile = dock.deliver(&dock.two, &[&e]).await;
    assert!(
        matches!(verdicts(&meanwhile)[..], [Verdict::Defer(_)]),
        "{meanwhile:?}"
    );
    sql::run(&runner, "commit").await;
    let after = dock.deliver(&dock.two, &[&e]).await;
    assert_eq!(verdicts(&after), [Verdict::Done]);
    assert_eq!(dock.done().await, 1);
}

#[tokio::test]
async fn only_events_of_the_claim_are_sealed_and_each_once() {
    let dock = Dock::new().await;
    let (e, other) = (event(None, 1), event(None, 2));
    let token = dock.run(&dock.one, &e).await;
    let others = dock.run(&dock.two, &other).await;
    let complete = async |token, id| sql::state(sql::complete(&dock.client, token, id).await);
    assert_eq!(complete(token, other.event_id).await, "OL003");
    let seal = sql::seal(&dock.client, token, &[e.event_id, other.event_id]).await;
    assert_eq!(sql::state(seal), "OL003");
    assert_eq!(dock.done().await, 0, "all or none");
    dock.seal(token, &[&e]).await;
    assert_eq!(complete(token, e.event_id).await, "OL002");
    let twice = sql::seal(&dock.client, token, &[e.event_id]).await;
    assert_eq!(sql::state(twice), "OL002");
    // Repeated, because the first answer was lost.
    let repeated = "select outlast._seal($1, $2, true)";
    let ids = [e.event_id];
    assert_eq!(
        sql::one::<i32>(&dock.client, repeated, &[&token, &&ids[..]]).await,
        0
    );
    dock.seal(others, &[&other]).await;
    dock.finish(token).await;
    dock.finish(others).await;
    dock.must_be_empty().await;
}

#[tokio::test]
async fn every_form_of_a_seal_knows_these_leases() {
    let dock = Dock::new().await;
    // One that commits in the same message.
    let e = event(None, 1);
    let token = dock.run(&dock.one, &e).await;
    let last = format!(
        "begin; set local outlast.begun = 'yes'; select outlast._seal_last('{token}', '{}'); commit",
        e.event_id
    );
    sql::run(&dock.client, &last).await;
    dock.finish(token).await;
    // The last ones, together with the end.
    let (e, beside) = (event(None, 2), event(None, 3));
    let judged = dock.deliver(&dock.one, &[&e, &beside]).await;
    let Verdict::Run(token) = judged[0].verdict else {
        panic!("{judged:?}")
    };
    let left = dock.one.seal_and_finish(token, &[e.event_id], false).await;
    assert_eq!(left.expect("ends"), 1, "one was not sealed");
    // One that the handler did without.
    let token = dock.run(&dock.one, &beside).await;
    dock.one
        .skip(token, beside.event_id, "old")
        .await
        .expect("skips");
    dock.finish(token).await;
    let skipped =
        "select count(*) from outlast.processed where outcome = 'skipped' and reason = 'old'";
    assert_eq!((dock.done().await, dock.count(skipped).await), (3, 1));
    dock.must_be_empty().await;
}

#[tokio::test]
async fn what_was_given_back_is_delivered_again_without_a_charge() {
    let dock = Dock::new().await;
    let e = event(None, 1);
    let token = dock.run(&dock.one, &e).await;
    dock.one
        .hand_back(token, &[e.event_id])
        .await
        .expect("gives back");
    assert_eq!(
        sql::state(sql::complete(&dock.client, token, e.event_id).await),
        "OL001"
    );
    let again = dock.deliver(&dock.two, &[&e]).await;
    assert!(matches!(verdicts(&again)[..], [Verdict::Run(_)]));
    assert_eq!((again[0].attempt, again[0].reclaims), (1, 0));
}
