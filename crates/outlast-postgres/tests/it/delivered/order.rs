//! Of a key one event at a time, in its order, whoever gets it delivered and however often.

use std::time::Duration;

use outlast_core::Failure;
use outlast_postgres::store::{Claimed, Judged, Store, Verdict};
use uuid::Uuid;

use super::{Dock, event, verdicts};
use crate::sql;

fn token(judged: &[Judged], e: &Claimed) -> Uuid {
    let one = judged.iter().find(|one| one.event_id == e.event_id);
    match one.map(|one| one.verdict) {
        Some(Verdict::Run(token)) => token,
        _ => panic!("it does not run: {judged:?}"),
    }
}

fn ids(events: &[Claimed]) -> Vec<Uuid> {
    events.iter().map(|event| event.event_id).collect()
}

#[tokio::test]
async fn each_key_of_a_call_has_a_token_of_its_own_and_runs_in_its_order() {
    let dock = Dock::ordered().await;
    let (a1, a2) = (event(Some("a"), 1), event(Some("a"), 3));
    let (b1, free, other) = (event(Some("b"), 2), event(None, 4), event(None, 5));
    // As they came: the second of a key before the first.
    let judged = dock
        .deliver(&dock.one, &[&a2, &b1, &a1, &free, &other])
        .await;
    assert_eq!(token(&judged, &a1), token(&judged, &a2));
    let mut tokens: Vec<_> = [&a1, &b1, &free, &other].map(|e| token(&judged, e)).into();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 4);
    let of_a = judged
        .iter()
        .filter(|one| one.verdict == Verdict::Run(token(&judged, &a1)));
    let of_a: Vec<_> = of_a.map(|one| one.event_id).collect();
    assert_eq!(of_a, [a1.event_id, a2.event_id]);
    dock.must_be_sound().await;
}

#[tokio::test]
async fn what_comes_while_its_key_is_in_work_waits_behind_it_and_follows_at_once() {
    let dock = Dock::ordered().await;
    let (first, second, third) = (
        event(Some("k"), 1),
        event(Some("k"), 2),
        event(Some("k"), 3),
    );
    let running = dock.run(&dock.one, &first).await;
    // To another process, and in the wrong order.
    for e in [&third, &second] {
        let judged = dock.deliver(&dock.two, &[e]).await;
        assert_eq!((judged[0].verdict, judged[0].kept), (Verdict::Parked, true));
    }
    assert_eq!(dock.retry().await.len(), 0);
    dock.must_be_sound().await;
    dock.seal(running, &[&first]).await;
    dock.finish(running).await;
    for e in [&second, &third] {
        let next = dock.retry().await;
        assert_eq!(ids(&next), [e.event_id]);
        dock.seal(next[0].token, &[e]).await;
        dock.finish(next[0].token).await;
    }
    assert_eq!(dock.done().await, 3);
    dock.must_be_empty().await;
}

#[tokio::test]
async fn a_failed_event_stops_its_key_and_no_other() {
    let dock = Dock::ordered().await;
    let (a1, a2, a3) = (
        event(Some("a"), 1),
        event(Some("a"), 2),
        event(Some("a"), 3),
    );
    let b1 = event(Some("b"), 4);
    let judged = dock.deliver(&dock.one, &[&a1, &a2, &a3, &b1]).await;
    let (a, b) = (token(&judged, &a1), token(&judged, &b1));
    dock.seal(a, &[&a1]).await;
    // The second fails: what is left of its key in this claim goes along.
    let failure = Failure::retry("no");
    let failed = dock
        .one
        .fail_delivered(a, &[&a2, &a3], &failure, true)
        .await;
    assert_eq!(failed.expect("hands over"), "retry");
    assert_eq!(dock.finish(a).await, 0);
    let a4 = event(Some("a"), 5);
    let judged = dock.deliver(&dock.two, &[&a4]).await;
    assert_eq!(verdicts(&judged), [Verdict::Parked]);
    dock.seal(b, &[&b1]).await;
    dock.finish(b).await;
    assert_eq!(dock.done().await, 2);
    dock.must_be_sound().await;
    for e in [&a2, &a3, &a4] {
        let next = dock.retry().await;
        assert_eq!(ids(&next), [e.event_id]);
        dock.seal(next[0].token, &[e]).await;
        dock.finish(next[0].token).await;
    }
    dock.must_be_empty().await;
}

#[tokio::test]
async fn a_lost_owner_keeps_its_key_until_the_broker_delivers_again() {
    let dock = Dock::ordered().await;
    let (first, second) = (event(Some("k"), 1), event(Some("k"), 2));
    let judged = dock.deliver(&dock.one, &[&first, &second]).await;
    let lost = token(&judged, &first);
    dock.seal(lost, &[&first]).await;
    dock.lapse().await;
    // The first was sealed, the second not: a third must not overtake it.
    let third = event(Some("k"), 3);
    let judged = dock.deliver(&dock.two, &[&third]).await;
    assert_eq!(verdicts(&judged), [Verdict::Parked]);
    dock.two
        .reclaim(dock.consumer, 1, super::LEASE)
        .await
        .expect("sweeps");
    assert_eq!(dock.retry().await.len(), 0);
    dock.must_be_sound().await;
    let judged = dock.deliver(&dock.two, &[&first, &second]).await;
    assert_eq!(
        judged
            .iter()
            .find(|one| one.event_id == first.event_id)
            .map(|one| one.verdict),
        Some(Verdict::Done)
    );
    let again = token(&judged, &second);
    assert_eq!(dock.retry().await.len(), 0);
    dock.seal(again, &[&second]).await;
    dock.finish(again).await;
    let next = dock.retry().await;
    assert_eq!(ids(&next), [third.event_id]);
    dock.seal(next[0].token, &[&third]).await;
    dock.finish(next[0].token).await;
    dock.must_be_empty().await;
}

#[tokio::test]
async fn beyond_the_bound_of_a_key_its_events_stay_at_the_broker() {
    let dock = Dock::ordered().await;
    sql::run(&dock.client, "update outlast._consumer set behind_most = 2").await;
    let first = event(Some("k"), 1);
    let running = dock.run(&dock.one, &first).await;
    for n in 2..=3 {
        let judged = dock.deliver(&dock.two, &[&event(Some("k"), n)]).await;
        assert_eq!(verdicts(&judged), [Verdict::Parked]);
    }
    let judged = dock
        .deliver(&dock.two, &[&event(Some("k"), 4), &event(Some("other"), 5)])
        .await;
    let put_off = verdicts(&judged);
    assert!(
        put_off.contains(&Verdict::Defer(Duration::from_secs(30))),
        "{put_off:?}"
    );
    assert!(
        put_off.iter().any(|one| matches!(one, Verdict::Run(_))),
        "{put_off:?}"
    );
    let incident = "select count(*) from outlast.incident where kind = 'paused lane'";
    assert_eq!(dock.count(incident).await, 1);
    dock.seal(running, &[&first]).await;
    dock.finish(running).await;
    assert_eq!(dock.count(incident).await, 0);
    dock.must_be_sound().await;
}

/// Without a place in the log: as they came.
#[tokio::test]
async fn events_that_tell_no_place_keep_the_order_in_which_they_came() {
    let dock = Dock::ordered().await;
    let plain = || {
        let mut e = super::envelope(Uuid::new_v4());
        e.key = Some("k".into());
        super::claimed(e)
    };
    let (first, second, third) = (plain(), plain(), plain());
    let running = dock.run(&dock.one, &first).await;
    for e in [&second, &third] {
        dock.deliver(&dock.two, &[e]).await;
    }
    dock.seal(running, &[&first]).await;
    dock.finish(running).await;
    for e in [&second, &third] {
        let next = dock.retry().await;
        assert_eq!(ids(&next), [e.event_id]);
        dock.seal(next[0].token, &[e]).await;
        dock.finish(next[0].token).await;
    }
    dock.must_be_empty().await;
}

/// In one call too, whatever their ids are.
#[tokio::test]
async fn events_that_tell_no_place_and_come_together_run_in_the_order_in_which_they_came() {
    let dock = Dock::ordered().await;
    let plain = |n: u128| {
        let mut e = super::envelope(Uuid::from_u128(0x4000 << 64 | 0x8000 << 48 | n));
        e.key = Some("k".into());
        super::claimed(e)
    };
    let came = [plain(3), plain(1), plain(2)];
    let judged = dock.deliver(&dock.one, &came.each_ref()).await;
    let run: Vec<_> = judged.iter().map(|one| one.event_id).collect();
    assert_eq!(run, ids(&came));
    token(&judged, &came[0]);
    dock.must_be_sound().await;
}

/// Where a broker has one message out at a time: taken over whole, acked, and then run.
async fn take_over(dock: &Dock, to: &Store, event: &Claimed) -> Judged {
    let judged = to.take_over(dock.consumer, &[event], super::LEASE).await;
    judged.expect("judges")[0]
}

#[tokio::test]
async fn what_was_taken_over_whole_is_retried_when_its_owner_is_gone_and_holds_its_key_until_then()
{
    for lost in [true, false] {
        let dock = Dock::ordered().await;
        let (first, second, other) = (
            event(Some("k"), 1),
            event(Some("k"), 2),
            event(Some("other"), 3),
        );
        let Verdict::Run(running) = take_over(&dock, &dock.one, &first).await.verdict else {
            panic!("it is the first")
        };
        let next = take_over(&dock, &dock.two, &second).await;
        assert_eq!((next.verdict, next.kept), (Verdict::Parked, true));
        let Verdict::Run(of_other) = take_over(&dock, &dock.two, &other).await.verdict else {
            panic!("its key is free")
        };
        // Once more, because the ack was lost: acked again, while the owner lives.
        let again = take_over(&dock, &dock.two, &first).await;
        assert_eq!((again.verdict, again.kept), (Verdict::Parked, false));
        dock.must_be_sound().await;
        dock.seal(of_other, &[&other]).await;
        dock.finish(of_other).await;
        assert_eq!(
            dock.count("select count(*) from outlast._delivered").await,
            1
        );

        match lost {
            true => {
                dock.lapse().await;
                let swept = dock.two.reclaim(dock.consumer, 1, super::LEASE).await;
                assert!(swept.expect("sweeps").events.is_empty());
            }
            false => dock
                .one
                .hand_back(running, &[first.event_id])
                .await
                .expect("gives back"),
        }
        dock.must_be_sound().await;
        assert_eq!(
            dock.count("select count(*) from outlast._delivered").await,
            0
        );
        let refused = sql::seal(&dock.client, running, &[first.event_id]).await;
        assert_eq!(sql::state(refused), "OL001");
        for e in [&first, &second] {
            let next = dock.retry().await;
            assert_eq!(ids(&next), [e.event_id]);
            assert_eq!((next[0].attempt, &next[0].payload), (1, &e.payload));
            dock.seal(next[0].token, &[e]).await;
            dock.finish(next[0].token).await;
        }
        assert_eq!(dock.done().await, 3);
        dock.must_be_empty().await;
    }
}

/// An endpoint that was pushed to has the token, and no copy.
#[tokio::test]
async fn whoever_has_only_the_token_can_fail_what_was_taken_over_whole() {
    let dock = Dock::ordered().await;
    let (first, second) = (event(Some("k"), 1), event(Some("k"), 2));
    let both = [&first, &second];
    let judged = dock.one.take_over(dock.consumer, &both, super::LEASE).await;
    let running = token(&judged.expect("judges"), &first);
    let failed = sql::fail(&dock.client, running, first.event_id, "retry").await;
    assert_eq!(failed.expect("fails"), "retry");
    // Its worker finds that it is told already.
    let failure = Failure::retry("late");
    let late = dock
        .one
        .fail_delivered(running, &both, &failure, true)
        .await;
    assert!(late.is_err(), "{late:?}");
    dock.finish(running).await;
    assert_eq!(
        dock.count("select failures::bigint from outlast.parked where state = 'retry'")
            .await,
        1
    );
    for e in both {
        let next = dock.retry().await;
        assert_eq!(
            (ids(&next), &next[0].payload),
            (vec![e.event_id], &e.payload)
        );
        dock.seal(next[0].token, &[e]).await;
        dock.finish(next[0].token).await;
    }
    dock.must_be_empty().await;

    let other = event(None, 3);
    let running = dock.run(&dock.one, &other).await;
    let refused = sql::fail(&dock.client, running, other.event_id, "retry").await;
    assert_eq!(sql::state(refused), "OL003", "only its worker has it");
}

/// Its handler returns without a word, or fails: as of any other delivery, and with nothing left behind.
#[tokio::test]
async fn what_was_taken_over_whole_ends_like_any_other_delivery() {
    let dock = Dock::ordered().await;
    let (failing, silent) = (event(Some("a"), 1), event(None, 2));
    let Verdict::Run(token) = take_over(&dock, &dock.one, &failing).await.verdict else {
        panic!("it is the first")
    };
    let failure = Failure::retry("no");
    let failed = dock
        .one
        .fail_delivered(token, &[&failing], &failure, true)
        .await;
    assert_eq!(failed.expect("hands over"), "retry");
    dock.finish(token).await;
    let Verdict::Run(token) = take_over(&dock, &dock.one, &silent).await.verdict else {
        panic!("it has no key")
    };
    dock.finish(token).await;
    let retried = dock.retry().await;
    assert_eq!(retried.len(), 2);
    for one in retried {
        sql::seal(&dock.client, one.token, &[one.event_id])
            .await
            .expect("seals");
        dock.finish(one.token).await;
    }
    assert_eq!(dock.done().await, 2);
    dock.must_be_empty().await;
}
