//! Stopping: claims nothing more, finishes or gives back, charges nothing that it never started.

use std::{sync::Arc, time::Duration};

use outlast_core::Failure;
use outlast_engine::{Attempt, Consumer, Settings, Start};
use tokio::sync::{Semaphore, mpsc};

use crate::given::{Given, Ping, Told, given, next};

type State = (Told, Arc<Semaphore>);

async fn held((told, gate): State, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = told.send(ping.n);
    gate.acquire().await.unwrap().forget();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_finishes_what_runs_and_gives_the_rest_back_without_a_charge() {
    let given = given().await;
    given.emit(0..20).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let consumer = || {
        Consumer::new("mailer")
            .concurrency(2)
            .from(Start::Earliest)
            .on(held)
    };
    let mut worker = given.start((told, gate.clone()), consumer());
    next(&mut hears).await;
    next(&mut hears).await;
    worker.ask_to_stop();
    gate.add_permits(2);
    worker.stop().await.unwrap();
    assert_eq!(
        given.count("select count(*) from outlast.processed").await,
        2
    );
    assert_eq!(given.count("select count(*) from outlast.parked").await, 0);

    // The next process does not wait for the lease.
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(1000));
    let worker = given.start((told, gate), consumer());
    for _ in 0..18 {
        next(&mut hears).await;
    }
    given.processed(20).await;
    assert_eq!(given.count("select count(*) from outlast.parked").await, 0);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_runs_out_gives_back_what_still_runs() {
    let given = given().await;
    given.emit(0..4).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let settings = Settings {
        drain: Duration::from_millis(300),
        grace: Duration::from_millis(100),
        ..Given::settings()
    };
    let consumer = || Consumer::new("mailer").from(Start::Earliest).on(held);
    let worker = given.start_with((told, gate.clone()), consumer(), settings);
    for _ in 0..4 {
        next(&mut hears).await;
    }
    worker.stop().await.unwrap();
    // One batch or two, as the claims fell; all of them given back.
    let of_all =
        |lapsed: &str| format!("select count(*) from outlast.lease where room = 'batch' {lapsed}");
    let (all, lapsed) = (
        given.count(&of_all("")).await,
        given.count(&of_all("and lapsed")).await,
    );
    assert!(
        all >= 1 && all == lapsed,
        "{lapsed} of {all} batches were given back"
    );
    assert_eq!(given.count("select count(*) from outlast.parked").await, 0);
    let (told, _hears) = mpsc::unbounded_channel();
    gate.add_permits(1000);
    let worker = given.start((told, gate), consumer());
    given.processed(4).await;
    worker.stop().await.unwrap();
}
