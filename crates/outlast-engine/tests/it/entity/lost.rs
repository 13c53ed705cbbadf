//! Workers that are lost while they converge, those that drain, and two at a time.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use outlast_core::Failure;
use outlast_engine::{Attempt, Settings, Worker};
use outlast_testkit::proxy::Proxy;
use tokio::{
    runtime::Runtime,
    sync::{Semaphore, mpsc},
};

use super::{App, Thing, sync};
use crate::given::{Given, Told, given, next};

/// A worker with a runtime of its own, so that all of it can die at once.
pub(super) struct Mortal(Option<Runtime>);

impl Mortal {
    pub(super) fn born<S: Clone + Send + Sync + 'static>(worker: Worker<S>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads");
        runtime.spawn(worker.run_until(std::future::pending()));
        Self(Some(runtime))
    }

    /// Everything that it does has ended where it was when this returns, and its connections are broken.
    pub(super) async fn die(mut self) {
        let runtime = self.0.take();
        let patience = Duration::from_secs(10);
        let died = tokio::task::spawn_blocking(move || {
            if let Some(runtime) = runtime {
                runtime.shutdown_timeout(patience);
            }
        });
        died.await.unwrap();
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_kept_before_the_death_of_a_worker_is_known_to_the_next() {
    async fn dies((app, told): (App, Told), thing: Attempt<Thing>) -> Result<(), Failure> {
        if let Some(look) = app.wanted(thing.n).await? {
            thing.keep(app.ledger.add(thing.n, &look)).await?;
        }
        let _ = told.send(thing.n);
        std::future::pending().await
    }
    let given = given().await;
    let app = given.app().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    given.change(1, "red").await;
    let mortal = Mortal::born(given.worker((app.clone(), told)).reconcile(dies));
    assert_eq!(next(&mut hears).await, 1);
    mortal.die().await;
    given.change(1, "blue").await;
    let worker = Given::run(given.worker(app.clone()).reconcile(sync));
    given.converged().await;
    // One, not two: the second try went on with what the first had made.
    assert_eq!(app.ledger.shows(), [(1, "blue".to_owned())]);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_went_with_a_deletion_is_not_handed_out_again_by_a_death_before_the_new_one_is_kept() {
    /// Dies after the deletion is recorded, before it has made a new one.
    async fn dies((app, told): (App, Told), thing: Attempt<Thing>) -> Result<(), Failure> {
        if thing.is_deletion() {
            return sync(app, thing).await;
        }
        assert_eq!(thing.refs(), None);
        let _ = told.send(thing.n);
        std::future::pending().await
    }
    let given = given().await;
    let app = given.app().await;
    given.change(1, "red").await;
    let worker = Given::run(given.worker(app.clone()).reconcile(sync));
    given.converged().await;
    worker.stop().await.unwrap();
    given.take_away(1, app.ledger.find(1).first()).await;
    given.change(1, "blue").await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let mortal = Mortal::born(given.worker((app.clone(), told)).reconcile(dies));
    assert_eq!(next(&mut hears).await, 1);
    mortal.die().await;
    // Were it told of what is gone at the provider, it would go on with it, in vain for ever.
    let worker = Given::run(given.worker(app.clone()).reconcile(sync));
    given.converged().await;
    assert_eq!(app.ledger.shows(), [(1, "blue".to_owned())]);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_entity_has_one_runner_at_a_time_and_keeps_it_by_renewal() {
    #[derive(Clone)]
    struct Watched {
        app: App,
        told: Told,
        inside: Arc<Mutex<BTreeSet<i64>>>,
    }
    async fn watched(state: Watched, thing: Attempt<Thing>) -> Result<(), Failure> {
        let inside = || state.inside.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(inside().insert(thing.n), "two at a time");
        let _ = state.told.send(thing.n);
        if thing.n == 0 {
            // Two leases; nothing is waited for here but time itself.
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let done = sync(state.app.clone(), thing).await;
        inside().clear();
        done
    }
    let given = given().await;
    let app = given.app().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let state = Watched {
        app: app.clone(),
        told,
        inside: Arc::default(),
    };
    let settings = Settings {
        lease: Duration::from_secs(1),
        ..Given::settings()
    };
    let worker = || {
        let worker = given.worker_with(state.clone(), settings.clone());
        Given::run(worker.reconcile(watched))
    };
    let workers = [worker(), worker()];
    given.change(0, "red").await;
    assert_eq!(next(&mut hears).await, 0);
    for n in 0..5 {
        given.change(0, &format!("{n}")).await;
    }
    given.converged().await;
    assert_eq!(app.ledger.shows(), [(0, "4".to_owned())]);
    let failed = "select count(*) from outlast._job_state where failures > 0 or lapses > 0";
    assert_eq!(given.count(failed).await, 0);
    for worker in workers {
        worker.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_loses_its_lease_is_told_and_what_it_then_keeps_fails_with_the_refs() {
    type State = (App, mpsc::UnboundedSender<String>);
    async fn until_lost((app, told): State, thing: Attempt<Thing>) -> Result<(), Failure> {
        let made = app.ledger.add(thing.n, "made");
        let _ = told.send("made".into());
        thing.lost().await;
        let _ = told.send("lost".into());
        let failure = thing.keep(made).await.unwrap_err();
        let _ = told.send(failure.reason.clone());
        Err(failure)
    }
    let given = given().await;
    let app = given.app().await;
    given.change(7, "red").await;
    let proxy = Proxy::before(given.database.url()).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let behind = given.worker((app.clone(), told)).database(proxy.url());
    let behind = Given::run(behind.reconcile(until_lost));
    assert_eq!(hears.recv().await.unwrap(), "made");
    // The database is away for longer than the lease, and somebody takes over.
    proxy.freeze();
    assert_eq!(hears.recv().await.unwrap(), "lost");
    let worker = Given::run(given.worker(app.clone()).reconcile(sync));
    given
        .until(
            "select count(*) from outlast.entity where state = 'converged'",
            1,
        )
        .await;
    proxy.thaw();
    let failed = hears.recv().await.unwrap();
    assert!(failed.contains("refs \"r1\" were not kept"), "{failed}");
    // Whoever was behind said it as soon as it could: evidence, which changes nothing else.
    let late = "select count(*) from outlast.incident where kind = 'late refs'";
    given.until(late, 1).await;
    given.converged().await;
    worker.stop().await.unwrap();
    drop(behind);
    given.verified().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_that_finds_no_database_is_written_when_it_is_back_as_long_as_the_lease_holds()
{
    type State = (App, Told, Arc<Semaphore>);
    async fn held((app, told, gate): State, thing: Attempt<Thing>) -> Result<(), Failure> {
        let _ = told.send(thing.n);
        let _permit = gate.acquire().await;
        sync(app, thing).await
    }
    let given = given().await;
    let app = given.app().await;
    given.change(1, "red").await;
    let proxy = Proxy::before(given.database.url()).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let settings = Settings {
        lease: Duration::from_secs(20),
        ..Given::settings()
    };
    let state = (app.clone(), told, gate.clone());
    let worker = given.worker_with(state, settings).database(proxy.url());
    let worker = Given::run(worker.reconcile(held));
    assert_eq!(next(&mut hears).await, 1);
    proxy.lead_to("postgres://nobody@127.0.0.1:1/nowhere");
    proxy.cut();
    let before = proxy.connections();
    gate.add_permits(1);
    // It has been asked for in vain at least twice since.
    outlast_testkit::wait_for("connections in vain", crate::given::SOON, async || {
        (proxy.connections() >= before + 4).then_some(())
    })
    .await;
    proxy.lead_to(given.database.url());
    given.converged().await;
    assert_eq!(app.ledger.shows(), [(1, "red".to_owned())]);
    assert!(hears.try_recv().is_err(), "it ran once");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_runs_out_keeps_from_others_what_still_runs_until_its_lease_has_lapsed() {
    type State = (Told, Arc<Semaphore>);
    async fn held((told, gate): State, thing: Attempt<Thing>) -> Result<(), Failure> {
        let _ = told.send(thing.n);
        let _ = gate.acquire().await;
        let _ = told.send(-thing.n);
        Ok(())
    }
    let given = given().await;
    let app = given.app().await;
    for n in 1..=3 {
        given.change(n, "red").await;
    }
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let settings = Settings {
        concurrency: 1,
        drain: Duration::from_millis(300),
        grace: Duration::from_millis(100),
        lease: Duration::from_secs(3),
        ..Given::settings()
    };
    let worker = given.worker_with((told, gate.clone()), settings.clone());
    let worker = Given::run(worker.reconcile(held));
    let first = next(&mut hears).await;
    worker.stop().await.unwrap();
    let (told, mut others) = mpsc::unbounded_channel();
    async fn telling((app, told): (App, Told), thing: Attempt<Thing>) -> Result<(), Failure> {
        let _ = told.send(thing.n);
        sync(app, thing).await
    }
    let worker = given.worker_with((app.clone(), told), settings);
    let worker = Given::run(worker.reconcile(telling));
    for _ in 0..2 {
        assert_ne!(next(&mut others).await, first);
    }
    // Nobody waits for it any more, and it is not done: it runs again when its lease has lapsed.
    gate.add_permits(1);
    assert_eq!(next(&mut hears).await, -first);
    assert_eq!(next(&mut others).await, first);
    given.converged().await;
    worker.stop().await.unwrap();
}
