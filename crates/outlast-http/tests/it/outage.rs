//! An endpoint that is down, or refuses everything: nothing is lost, little is parked, others are not affected.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use outlast_core::outage::EVENTS;
use outlast_engine::{Consumer, Start};
use tokio::net::TcpListener;

use crate::{
    given::{endpoint, given, shop},
    server::{answer, serve, serve_on},
};

const EMITTED: i64 = 60;
const CONCURRENCY: usize = 4;
const DOWN: &str = "select count(*) from outlast.outage";

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_down_pauses_and_goes_on_when_it_is_back() {
    let given = given().await;
    let kept = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = kept.local_addr().unwrap();
    drop(kept);
    let url = format!("http://{address}/events");
    let fine = serve(|_| async { answer(200, &[]) }).await;
    given.emit(0..EMITTED).await;
    let other = Consumer::new("other")
        .from(Start::Earliest)
        .push("ping", endpoint(&fine.url()));
    let worker = given.start([shop(endpoint(&url)).concurrency(CONCURRENCY), other]);
    given.until(DOWN, 1).await;
    // The other one is done meanwhile.
    given
        .until("select count(*) from outlast.processed", EMITTED)
        .await;
    let parked = given.count("select count(*) from outlast._parked").await;
    assert!(parked <= (EVENTS + CONCURRENCY + 2) as i64, "{parked}");
    let reasons = given
        .texts("select distinct left(reason, 30) from outlast._parked where reason is not null")
        .await;
    assert_eq!(reasons, ["no connection to 127.0.0.1: Co"]);
    let charged = given
        .count("select coalesce(max(failures), 0)::bigint from outlast._parked")
        .await;
    assert!(charged <= 2, "{charged}");

    let server = serve_on(TcpListener::bind(address).await.unwrap(), |_| async {
        answer(204, &[])
    });
    given.processed(2 * EMITTED).await;
    given.until(DOWN, 0).await;
    worker.stop().await;
    drop(server);
}

/// Goal: wrong settings at the endpoint quarantine ten events, not the log. Method: it says 404 to everything, then is mended.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_refuses_everything_quarantines_ten_events_and_counts_as_down() {
    let given = given().await;
    let (wrong, asked) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (seen, count) = (wrong.clone(), asked.clone());
    let server = serve(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        let status = if seen.load(Ordering::SeqCst) {
            404
        } else {
            200
        };
        async move { answer(status, &[]) }
    })
    .await;
    given.emit(0..EMITTED).await;
    let worker = given.start([shop(endpoint(&server.url())).concurrency(CONCURRENCY)]);
    given.until(DOWN, 1).await;
    given
        .until("select count(*) from outlast.outage where probes >= 1", 1)
        .await;
    let quarantined = "select count(*) from outlast._parked where state = 'quarantined'";
    assert_eq!(given.count(quarantined).await, EVENTS as i64);
    assert!(
        asked.load(Ordering::SeqCst) <= 2 * EVENTS + CONCURRENCY + 4,
        "{asked:?}"
    );
    wrong.store(false, Ordering::SeqCst);
    given
        .until(
            "select count(*) from outlast.processed",
            EMITTED - EVENTS as i64,
        )
        .await;
    given.until(DOWN, 0).await;
    assert_eq!(
        given.count(quarantined).await,
        EVENTS as i64,
        "they wait for a person"
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_are_at_the_endpoint_than_may_be_and_no_faster_than_its_rate() {
    let given = given().await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (at_once, seen) = (now.clone(), most.clone());
    let server = serve(move |_| {
        let (at_once, seen) = (at_once.clone(), seen.clone());
        async move {
            seen.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            at_once.fetch_sub(1, Ordering::SeqCst);
            answer(200, &[])
        }
    })
    .await;
    given.emit(0..40).await;
    let begun = std::time::Instant::now();
    let worker = given.start([shop(endpoint(&server.url()).rate(40)).concurrency(3)]);
    given.processed(40).await;
    assert!(
        begun.elapsed() >= Duration::from_millis(850),
        "{:?}",
        begun.elapsed()
    );
    assert!(most.load(Ordering::SeqCst) <= 3, "{most:?}");
    worker.stop().await;
}
