//! 202: the endpoint completes by itself, in its own transaction, or does not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use outlast_postgres::Error;
use tokio::sync::mpsc;

use crate::{
    given::{complete, endpoint, given, ids, next, shop},
    server::{Got, Server, answer, serve},
};

const ACCEPTED: &[(&str, &str)] = &[("outlast-outcome", "accepted")];

/// Accepts everything and passes it on.
async fn accepting() -> (Server, mpsc::UnboundedReceiver<Got>) {
    let (tell, heard) = mpsc::unbounded_channel();
    let server = serve(move |got| {
        tell.send(got).unwrap();
        async { answer(202, ACCEPTED) }
    })
    .await;
    (server, heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_the_endpoint_and_the_completion_are_one_commit_before_or_after_the_answer() {
    let given = given().await;
    let pool = given.pool.clone();
    let server = serve(move |got: Got| {
        let pool = pool.clone();
        async move {
            if got.n() % 2 == 0 {
                complete(&pool, &got).await.unwrap();
            } else {
                tokio::spawn(async move { complete(&pool, &got).await.unwrap() });
            }
            answer(202, ACCEPTED)
        }
    })
    .await;
    given.emit(0..50).await;
    let worker = given.start([shop(endpoint(&server.url()))]);
    given.processed(50).await;
    let twice =
        "select count(*) from (select event from effect group by event having count(*) > 1) t";
    assert_eq!(
        (
            given.count("select count(*) from effect").await,
            given.count(twice).await
        ),
        (50, 0)
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_and_not_completed_fails_at_its_deadline_and_the_old_token_is_worth_nothing()
 {
    let given = given().await;
    let (server, mut heard) = accepting().await;
    given.emit(0..1).await;
    let worker = given.start([shop(endpoint(&server.url())).deadline(Duration::from_millis(1500))]);
    let first = next(&mut heard).await;
    assert_eq!(
        given.count("select count(*) from outlast._parked").await,
        0,
        "it is open, under its lease"
    );
    let second = next(&mut heard).await;
    let parked = given
        .texts("select class || ' ' || failures || ': ' || reason from outlast._parked")
        .await;
    assert_eq!(
        parked,
        ["retry 1: accepted by the endpoint, and not completed before the deadline"]
    );
    assert_eq!(
        (second.header("outlast-attempt"), ids(&second).1),
        ("2".into(), ids(&first).1)
    );
    let refused = given.complete(&first).await.unwrap_err();
    assert!(
        matches!(refused, Error::LeaseLost | Error::NotInClaim),
        "{refused}"
    );
    given.complete(&second).await.unwrap();
    given.processed(1).await;
    assert_eq!(given.count("select count(*) from effect").await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_event_outlasts_its_lease_and_keeps_its_place() {
    let given = given().await;
    let (server, mut heard) = accepting().await;
    given.emit(0..2).await;
    let worker = given.start([shop(endpoint(&server.url())).concurrency(1)]);
    let first = next(&mut heard).await;
    // Three leases of a second; a reclaim would bring it again.
    let renewed = "select count(*) from outlast._lease where expires_at > clock_timestamp() and room = 'batch'";
    let began = "select extract(epoch from clock_timestamp() - min(claimed_at))::bigint from outlast._batch where events > 0";
    outlast_testkit::wait_for(
        "three seconds of the database",
        crate::given::SOON,
        async || (given.count(began).await >= 3).then_some(()),
    )
    .await;
    assert_eq!(given.count(renewed).await, 1);
    assert!(
        heard.try_recv().is_err(),
        "the second waits for the place of the first"
    );
    given.complete(&first).await.unwrap();
    let second = next(&mut heard).await;
    assert_ne!(ids(&second).1, ids(&first).1);
    given.complete(&second).await.unwrap();
    given.processed(2).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoint_may_fail_what_it_has_accepted() {
    let given = given().await;
    let (server, mut heard) = accepting().await;
    given.emit(0..1).await;
    let worker = given.start([shop(endpoint(&server.url()))]);
    let fail = "select outlast.fail($1, $2, $3, $4)";
    let first = next(&mut heard).await;
    let (token, id) = ids(&first);
    given
        .sql
        .execute(fail, &[&token, &id, &"retry", &"no stock yet"])
        .await
        .unwrap();
    let second = next(&mut heard).await;
    let (token, id) = ids(&second);
    assert_eq!(second.header("outlast-attempt"), "2");
    given
        .sql
        .execute(fail, &[&token, &id, &"permanent", &"no such booking"])
        .await
        .unwrap();
    let (class, failures, reason) = given.parked("quarantined").await;
    assert_eq!(
        (class.as_str(), failures, reason.as_str()),
        ("permanent", 2, "no such booking")
    );
    given
        .until(
            "select count(*) from outlast.lease where room = any ('{batch,parked}')",
            0,
        )
        .await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_worker_dies_another_one_delivers_again_and_only_the_new_token_completes() {
    let given = given().await;
    let (server, mut heard) = accepting().await;
    given.emit(0..1).await;
    let worker = given.start([shop(endpoint(&server.url()))]);
    let first = next(&mut heard).await;
    // Killed, not stopped: its lease lapses.
    worker.worker.abort();
    drop(worker);
    let other = given.start([shop(endpoint(&server.url()))]);
    let second = next(&mut heard).await;
    assert_eq!(ids(&second).1, ids(&first).1);
    assert_ne!(ids(&second).0, ids(&first).0);
    let refused = given.complete(&first).await.unwrap_err();
    assert!(matches!(refused, Error::LeaseLost), "{refused}");
    assert_eq!(
        given.count("select count(*) from effect").await,
        0,
        "rolled back with it"
    );
    given.complete(&second).await.unwrap();
    given.processed(1).await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_key_the_next_event_waits_for_the_completion_of_the_one_before() {
    let given = given().await;
    let (server, mut heard) = accepting().await;
    for n in 0..3 {
        let payload = format!("{{\"n\":{n}}}");
        let sql = "select outlast.emit(type => 'ping', payload => $1::text, key => 'k')";
        given.sql.execute(sql, &[&payload]).await.unwrap();
    }
    let worker = given.start([shop(endpoint(&server.url())).ordered()]);
    for n in 0..3 {
        let got = next(&mut heard).await;
        assert_eq!(got.n(), n);
        assert!(heard.try_recv().is_err());
        given.complete(&got).await.unwrap();
    }
    given.processed(3).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_waits_for_what_was_accepted() {
    let given = given().await;
    let pool = given.pool.clone();
    let open = Arc::new(AtomicUsize::new(0));
    let (tell, mut heard) = mpsc::unbounded_channel();
    let count = open.clone();
    let server = serve(move |got: Got| {
        count.fetch_add(1, Ordering::SeqCst);
        tell.send(got).unwrap();
        async { answer(202, ACCEPTED) }
    })
    .await;
    given.emit(0..1).await;
    let worker = given.start([shop(endpoint(&server.url()))]);
    let got = next(&mut heard).await;
    let stopping = tokio::spawn(worker.stop());
    given
        .until(
            "select count(*) from outlast._lease where room = 'batch'",
            1,
        )
        .await;
    complete(&pool, &got).await.unwrap();
    stopping.await.unwrap();
    given.processed(1).await;
    assert_eq!(open.load(Ordering::SeqCst), 1);
}
