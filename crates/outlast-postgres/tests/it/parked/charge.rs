//! Classes, charges, waiting times, budgets.

use super::{Yard, ids, parked};
use crate::sql;

#[tokio::test]
async fn each_class_has_its_charge_and_its_state() {
    let yard = Yard::new().await;
    let classes = [
        ("retry", parked("retry", "retry", 1, 0)),
        ("unknown", parked("retry", "unknown", 1, 0)),
        ("unclassified", parked("retry", "unclassified", 1, 0)),
        ("throttled", parked("retry", "throttled", 0, 0)),
        ("permanent", parked("quarantined", "permanent", 1, 0)),
    ];
    yard.emit(classes.len()).await;
    let events = yard.claim().await;
    for (event, (class, expected)) in events.iter().zip(&classes) {
        let became = sql::fail(&yard.client, event.token, event.id, class)
            .await
            .expect("fails");
        assert_eq!(became, expected.state, "{class}");
        assert_eq!(
            yard.look(event.id).await.as_ref(),
            Some(expected),
            "{class}"
        );
        let again = sql::state(sql::fail(&yard.client, event.token, event.id, class).await);
        assert_eq!(again, "OL003", "{class}: a later try owns it");
    }
    assert_eq!(
        yard.incidents().await,
        [events[4].id],
        "a permanent failure needs a person"
    );
    assert_eq!(
        sql::finish(&yard.client, &[events[0].token])
            .await
            .expect("finishes"),
        [0]
    );

    // In the second try the classes are what they are in the first.
    let mut again = yard.claim_parked(10).await;
    again.sort_by_key(|event| event.log_id);
    assert_eq!(
        again.iter().map(|event| event.attempt).collect::<Vec<_>>(),
        [2, 2, 2, 1]
    );
    for (event, class) in again
        .iter()
        .zip(["throttled", "permanent", "retry", "retry"])
    {
        sql::fail(&yard.client, event.token, event.id, class)
            .await
            .expect("fails");
    }
    let failures = ["select failures from outlast._parked order by log_id limit 1 offset "];
    for (n, expected) in [1, 2, 2, 1].into_iter().enumerate() {
        assert_eq!(
            sql::one::<i32>(&yard.client, &format!("{}{n}", failures[0]), &[]).await,
            expected
        );
    }
    yard.must_be_sound().await;
    let nonsense = sql::state(sql::fail(&yard.client, again[0].token, again[0].id, "sad").await);
    assert_eq!(nonsense, "OL005");
}

#[tokio::test]
async fn the_waiting_time_is_jittered_bounded_and_only_lengthened_by_what_it_is_told() {
    let yard = Yard::new().await;
    let bounds = "select min(b) >= '0' and max(b) <= make_interval(secs => $2) and max(b) > make_interval(secs => $2 * 0.8)
         from (select outlast._backoff($1) b from generate_series(1, 500)) s";
    for (failures, seconds) in [
        (1, 1.0),
        (2, 2.0),
        (3, 4.0),
        (8, 128.0),
        (11, 600.0),
        (12, 600.0),
        (1_000_000, 600.0),
        (0, 1.0),
    ] {
        assert!(
            sql::one::<bool>(&yard.client, bounds, &[&failures, &seconds]).await,
            "after {failures} failures"
        );
    }

    let hour = 3600.0;
    let told: [(&str, Option<i64>, f64, f64); 12] = [
        ("retry", None, 0.0, 1.0),
        ("retry", Some(-5), 0.0, 1.0),
        ("retry", Some(0), 0.0, 1.0),
        ("retry", Some(120_000), 120.0, 120.0),
        ("retry", Some(86_400_000), 24.0 * hour, 24.0 * hour),
        (
            "retry",
            Some(i64::MAX),
            7.0 * 24.0 * hour,
            7.0 * 24.0 * hour,
        ),
        ("throttled", None, 1.0, 1.0),
        ("throttled", Some(-5), 1.0, 1.0),
        ("throttled", Some(120_000), 120.0, 120.0),
        ("throttled", Some(86_400_000), hour, hour),
        ("throttled", Some(i64::MAX), hour, hour),
        ("unknown", Some(2000), 2.0, 2.0),
    ];
    yard.emit(told.len()).await;
    let events = yard.claim().await;
    for (event, (class, after, least, most)) in events.iter().zip(told) {
        let sql = "select outlast.fail($1, $2, $3, 'why', $4)";
        let failed = yard
            .client
            .execute(sql, &[&event.token, &event.id, &class, &after])
            .await;
        failed.unwrap_or_else(|error| panic!("{class} after {after:?}: {error:?}"));
        let waits = "select extract(epoch from next_at - changed_at)::float8 from outlast.parked where id = $1";
        let waits: f64 = sql::one(&yard.client, waits, &[&event.id]).await;
        assert!(
            (least..=most).contains(&waits),
            "{class} after {after:?} waits {waits}"
        );
    }
}

#[tokio::test]
async fn a_spent_budget_is_an_incident_and_throttling_spends_none() {
    let yard = Yard::new().await;
    yard.budget(3).await;
    let id = yard.emit(1).await[0];
    let mut event = yard.claim().await.remove(0);
    for (class, became, failures) in [
        ("retry", "retry", 1),
        ("throttled", "retry", 1),
        ("unclassified", "retry", 2),
        ("throttled", "retry", 2),
        ("unknown", "quarantined", 3),
    ] {
        assert_eq!(
            sql::fail(&yard.client, event.token, event.id, class)
                .await
                .expect("fails"),
            became,
            "{class}"
        );
        assert_eq!(
            yard.look(id).await.map(|parked| parked.failures),
            Some(failures),
            "{class}"
        );
        if became == "retry" {
            assert!(yard.incidents().await.is_empty());
            event = yard.claim_parked(1).await.remove(0);
            assert_eq!(event.attempt, failures + 1);
        }
    }
    assert_eq!(yard.incidents().await, [id]);
    assert!(
        yard.claim_parked(1).await.is_empty(),
        "until a person says so"
    );
    yard.must_be_sound().await;
}

/// The seal that nobody set is counted like a failure, whatever the handler said.
#[tokio::test]
async fn an_unsealed_event_is_charged_each_time_and_ends_as_an_incident() {
    let yard = Yard::new().await;
    yard.budget(3).await;
    let id = yard.emit(1).await[0];
    let first = yard.claim().await.remove(0);
    assert_eq!(
        sql::finish(&yard.client, &[first.token])
            .await
            .expect("finishes"),
        [1]
    );
    for failures in 1..3 {
        assert_eq!(
            yard.look(id).await,
            Some(parked("retry", "unsealed", failures, 0))
        );
        let event = yard.claim_parked(1).await.remove(0);
        assert_eq!(event.attempt, failures + 1);
        assert_eq!(
            sql::finish(&yard.client, &[event.token])
                .await
                .expect("finishes"),
            [1]
        );
    }
    assert_eq!(
        yard.look(id).await,
        Some(parked("quarantined", "unsealed", 3, 0))
    );
    assert_eq!(yard.incidents().await, [id]);

    yard.budget(1).await;
    let id = yard.emit(1).await[0];
    let only = yard.claim().await.remove(0);
    assert_eq!(
        sql::finish(&yard.client, &[only.token])
            .await
            .expect("finishes"),
        [1]
    );
    assert_eq!(
        yard.look(id).await,
        Some(parked("quarantined", "unsealed", 1, 0)),
        "one try was all it had"
    );
    yard.must_be_sound().await;
}

/// A try that was recorded keeps its lease until somebody ends it; the next try does not stumble over it.
#[tokio::test]
async fn the_lease_of_a_recorded_try_is_in_nobodys_way_and_goes() {
    let yard = Yard::new().await;
    let id = yard.emit(1).await[0];
    let mut event = yard.claim().await.remove(0);
    for _ in 0..3 {
        sql::fail(&yard.client, event.token, id, "retry")
            .await
            .expect("fails");
        let old = event.token;
        event = yard.claim_parked(1).await.remove(0);
        assert_ne!(event.token, old);
        let late = sql::complete(&yard.client, old, id).await;
        assert!(
            ["OL001", "OL003"].contains(&sql::state(late).as_str()),
            "a detached handler seals nothing"
        );
    }
    sql::complete(&yard.client, event.token, id)
        .await
        .expect("completes");
    assert_eq!(yard.look(id).await, None);
    assert!(yard.count("select count(*) from outlast._lease").await > 0);
    assert!(yard.reclaim().await.is_empty());
    assert_eq!(yard.count("select count(*) from outlast._lease").await, 0);
    yard.must_be_sound().await;
}

#[tokio::test]
async fn a_lease_that_ends_further_away_than_any_lapses() {
    let yard = Yard::new().await;
    let id = yard.emit(1).await[0];
    let event = yard.claim().await.remove(0);
    sql::run(
        &yard.client,
        "update outlast._lease set expires_at = outlast.clock() + interval '1 day'",
    )
    .await;
    let again = sql::reclaim(&yard.client, yard.consumer, 1)
        .await
        .expect("reclaims");
    assert_eq!(ids(&again), [id]);
    assert_ne!(again[0].token, event.token);
    sql::fail(&yard.client, again[0].token, id, "retry")
        .await
        .expect("fails");
    yard.claim_parked(1).await;
    sql::run(
        &yard.client,
        "update outlast._lease set expires_at = outlast.clock() + interval '1 day'",
    )
    .await;
    assert_eq!(ids(&yard.claim_parked(1).await), [id]);
}

#[tokio::test]
async fn words_from_outside_are_cut_and_cleaned_and_alike_ones_are_grouped() {
    let yard = Yard::new().await;
    let reasons = [
        "order 4711 of 018f0000-0000-7000-8000-000000000001: no \u{1b}[31mstock\u{7}\r".to_owned(),
        "order 12 of 018f0000-0000-7000-8000-00000000abcd: no \u{1b}[31mstock\u{7}\r".to_owned(),
        "ä".repeat(5000),
    ];
    yard.emit(4).await;
    let events = yard.claim().await;
    for (event, reason) in events.iter().zip(&reasons) {
        let sql = "select outlast.fail($1, $2, 'retry', $3)";
        yard.client
            .execute(sql, &[&event.token, &event.id, reason])
            .await
            .expect("fails");
    }
    let none: Option<&str> = None;
    let sql = "select outlast.fail($1, $2, 'retry', $3)";
    yard.client
        .execute(sql, &[&events[3].token, &events[3].id, &none])
        .await
        .expect("without a reason");
    let rows = yard.client.query("select reason, signature from outlast.parked p order by (select log_id from outlast.event e where e.id = p.id)", &[]);
    let rows = rows.await.expect("looks");
    let said = |n: usize| rows[n].get::<_, Option<String>>(0);
    let signature = |n: usize| rows[n].get::<_, String>(1);
    assert_eq!(
        said(0).as_deref(),
        Some("order 4711 of 018f0000-0000-7000-8000-000000000001: no [31mstock")
    );
    assert_eq!(said(2).map(|reason| reason.chars().count()), Some(4096));
    assert_eq!(said(3), None);
    assert_eq!(signature(0), signature(1));
    assert_ne!(signature(0), signature(2));
}

#[tokio::test]
async fn what_is_handed_back_is_not_charged_and_due_at_once() {
    let yard = Yard::new().await;
    let emitted = yard.emit(3).await;
    let batch = yard.claim().await;
    sql::complete(&yard.client, batch[0].token, emitted[0])
        .await
        .expect("completes");
    sql::hand_back(&yard.client, batch[0].token, &[emitted[1]])
        .await
        .expect("hands back");
    let again = sql::reclaim(&yard.client, yard.consumer, 1)
        .await
        .expect("reclaims");
    assert_eq!(
        ids(&again),
        emitted[1..],
        "at once, and without what is done"
    );

    sql::fail(&yard.client, again[0].token, emitted[1], "retry")
        .await
        .expect("fails");
    let parked_try = yard.claim_parked(1).await.remove(0);
    sql::hand_back(&yard.client, parked_try.token, &[])
        .await
        .expect("hands back");
    assert_eq!(
        yard.look(emitted[1]).await,
        Some(parked("retry", "retry", 1, 0))
    );
    let other = sql::claim_parked(&yard.client, yard.consumer, 1)
        .await
        .expect("claims");
    assert_eq!((ids(&other), other[0].attempt), (vec![emitted[1]], 2));
    assert_eq!(
        sql::state(sql::complete(&yard.client, parked_try.token, emitted[1]).await),
        "OL001"
    );
    sql::hand_back(&yard.client, parked_try.token, &[])
        .await
        .expect("a second time is nothing");
    yard.must_be_sound().await;
}
