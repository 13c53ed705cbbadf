//! How tries end that do not converge: failed and tried again, stopped for a person, panicked, overrun, unreadable.

use std::{sync::Arc, time::Duration};

use outlast_core::{Entity, Failure, Outcome, Unreadable};
use outlast_engine::{Attempt, JobSettings, Outlast, Settings};
use outlast_postgres::tx::{OwnedTx, Pool};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc};

use super::{App, Ref, Thing, sync};
use crate::given::{Given, Told, given, next};

const INCIDENTS: &str = "select count(*) from outlast.incident where kind = 'stopped entity'";

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_convergence_is_tried_again_with_its_number_and_begins_anew_after_a_success() {
    async fn third_time((app, told): (App, Told), thing: Attempt<Thing>) -> Result<(), Failure> {
        let _ = told.send(i64::from(thing.number()));
        match thing.number() {
            1 => Err(Failure::retry("not yet")),
            2 => panic!("a bug in the reconciler"),
            _ => sync(app, thing).await,
        }
    }
    let given = given().await;
    let app = given.app().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker((app.clone(), told)).reconcile(third_time));
    for look in ["red", "blue"] {
        given.change(1, look).await;
        for n in 1..=3 {
            assert_eq!(next(&mut hears).await, n);
        }
        given.converged().await;
        assert_eq!(app.ledger.shows(), [(1, look.to_owned())]);
    }
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_no_try_can_help_is_a_persons_and_delays_nothing_else() {
    type State = (App, Arc<Semaphore>);
    async fn mended((app, gate): State, thing: Attempt<Thing>) -> Result<(), Failure> {
        match (thing.n, gate.available_permits()) {
            (13, 0) => Err(Failure::permanent("no such thing: 13")),
            (14, 0) => Err(Failure::retry("again and again")),
            _ => sync(app, thing).await,
        }
    }
    let given = given().await;
    let app = given.app().await;
    let gate = Arc::new(Semaphore::new(0));
    let mut settings = Given::settings();
    let few = JobSettings {
        attempts: Some(2),
        ..JobSettings::default()
    };
    settings.job.insert("thing".into(), few);
    let worker = given.worker_with((app.clone(), gate.clone()), settings);
    let worker = Given::run(worker.reconcile(mended));
    for n in 12..=15 {
        given.change(n, "red").await;
    }
    given.until(INCIDENTS, 2).await;
    given
        .until(
            "select count(*) from outlast.entity where state = 'converged'",
            2,
        )
        .await;
    given.verified().await;
    // A mark does not decide what a person has to.
    given.change(13, "blue").await;
    given
        .until("select count(*) from outlast._entity_mark", 0)
        .await;
    assert_eq!(given.count(INCIDENTS).await, 2);
    gate.add_permits(1);
    let retry = "select count(outlast.retry_entity('thing', n)) from unnest(array['13', '14']) n";
    assert_eq!(given.count(retry).await, 2);
    given.converged().await;
    assert_eq!(given.count(INCIDENTS).await, 0);
    let all: Vec<_> = app.ledger.shows().into_iter().map(|(n, _)| n).collect();
    assert_eq!(all, [12, 13, 14, 15]);
    assert!(app.ledger.shows().contains(&(13, "blue".to_owned())));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_overruns_its_deadline_is_told_and_left_and_what_it_keeps_later_is_a_persons() {
    type State = (App, mpsc::UnboundedSender<String>, Arc<Semaphore>);
    async fn never((app, told, gate): State, thing: Attempt<Thing>) -> Result<(), Failure> {
        if thing.number() > 1 {
            return sync(app, thing).await;
        }
        thing.lost().await;
        let _ = told.send("lost".into());
        // Deaf to that: it goes on.
        let _permit = gate.acquire().await;
        let made = app.ledger.add(thing.n, "late");
        let refused = thing.keep(made).await.unwrap_err();
        let _ = told.send(refused.reason);
        std::future::pending().await
    }
    let given = given().await;
    let app = given.app().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let mut settings = Settings {
        grace: Duration::from_millis(100),
        drain: Duration::from_millis(300),
        ..Given::settings()
    };
    let quick = JobSettings {
        deadline: Some(Duration::from_millis(300)),
        ..JobSettings::default()
    };
    settings.job.insert("thing".into(), quick);
    let worker = given.worker_with((app.clone(), told, gate.clone()), settings);
    let worker = Given::run(worker.reconcile(never));
    given.change(1, "red").await;
    assert_eq!(hears.recv().await.unwrap(), "lost");
    given.converged().await;
    gate.add_permits(1);
    let refused = hears.recv().await.unwrap();
    assert!(
        refused.contains("\"r2\"") && refused.contains("lost"),
        "{refused}"
    );
    let late = "select count(*) from outlast.incident where kind = 'late refs'";
    given.until(late, 1).await;
    // It still keeps its place, and the worker does not wait for it.
    worker.stop().await.unwrap();
    assert_eq!(
        given
            .count("select count(*) from outlast.entity where state = 'converged'")
            .await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn to_be_told_to_come_later_spends_no_try_and_around_may_decide() {
    async fn throttled((app, told): (App, Told), thing: Attempt<Thing>) -> Result<(), Failure> {
        let _ = told.send(i64::from(thing.number()));
        match app.ledger.shows().len() {
            0 => {
                app.ledger.add(-1, "seen");
                Err(Failure::throttled(Duration::from_millis(50)))
            }
            _ => sync(app, thing).await,
        }
    }
    let given = given().await;
    let app = given.app().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = given.worker((app.clone(), told)).reconcile(throttled);
    let worker = worker.around(|about, run| {
        Box::pin(async move {
            assert_eq!((about.kind, &*about.name), ("entity", "thing"));
            match &*about.tenant {
                "" => run.await,
                _ => Ok(Outcome::skipped("not ours")),
            }
        })
    });
    let worker = Given::run(worker);
    let mut tx = given.pool.begin().await.unwrap();
    let other = Outlast::new().tenant("other");
    other.changed(&mut tx, &Thing { n: 2 }).await.unwrap();
    tx.commit().await.unwrap();
    given.converged().await;
    given.change(1, "red").await;
    assert_eq!([next(&mut hears).await, next(&mut hears).await], [1, 1]);
    given.converged().await;
    assert!(hears.try_recv().is_err());
    worker.stop().await.unwrap();
}

/// The same name, one release later.
#[derive(Serialize, Deserialize)]
struct Newer {
    number: i64,
}

impl Entity for Newer {
    const NAME: &'static str = Thing::NAME;
    const VERSION: u16 = 2;
    type Refs = (i64, String);

    fn key(&self) -> String {
        self.number.to_string()
    }

    fn upcast(_: u16, old: serde_json::Value) -> Result<Self, Unreadable> {
        let old: Thing = serde_json::from_value(old)?;
        Ok(Self { number: old.n })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn older_values_are_upcast_newer_ones_wait_and_refs_that_cannot_be_read_are_a_persons() {
    async fn newer(told: Told, thing: Attempt<Newer>) -> Result<(), Failure> {
        let _ = told.send(thing.number);
        Ok(())
    }
    let given = given().await;
    let app = given.app().await;
    let mut tx = given.pool.begin().await.unwrap();
    let outlast = Outlast::new();
    let two = Newer { number: 2 };
    outlast.changed(&mut tx, &two).await.unwrap();
    outlast.changed(&mut tx, &Thing { n: 1 }).await.unwrap();
    let odd = Ref("not a pair".into());
    outlast
        .deleted(&mut tx, &Thing { n: 3 }, &odd)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let worker = Given::run(given.worker(app).reconcile(sync));
    let done = "select count(*) from outlast.entity where state = 'converged'";
    given.until(done, 2).await;
    let waits = "select count(*) from outlast.entity where state = 'waiting'";
    given.until(waits, 1).await;
    worker.stop().await.unwrap();

    let mut tx = given.pool.begin().await.unwrap();
    outlast.changed(&mut tx, &Thing { n: 1 }).await.unwrap();
    outlast
        .deleted(&mut tx, &Thing { n: 3 }, &odd)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker(told).reconcile(newer));
    let unreadable = "select count(*) from outlast.incident where kind = 'stopped entity' and class = 'permanent' \
        and reason like 'unreadable: refs of thing: %'";
    given.until(unreadable, 1).await;
    // The run for the entity itself was there all the same.
    let mut heard = [next(&mut hears).await, next(&mut hears).await];
    heard.sort_unstable();
    assert_eq!(heard, [1, 3]);
    given.verified().await;
    worker.stop().await.unwrap();
}

#[test]
fn what_is_wrong_with_an_entity_is_told_with_all_other_problems() {
    #[derive(Serialize, Deserialize)]
    struct Odd;
    impl Entity for Odd {
        const NAME: &'static str = "Badly named";
        type Refs = ();
        fn key(&self) -> String {
            String::new()
        }
        fn options() -> outlast_core::job::Options {
            outlast_core::job::Options::new().attempts(0)
        }
    }
    async fn odd(_: (), _: Attempt<Odd>) -> Result<(), Failure> {
        Ok(())
    }
    async fn thing(_: (), _: Attempt<Thing>) -> Result<(), Failure> {
        Ok(())
    }
    let worker = Outlast::new()
        .worker(())
        .database("postgres://u@h/d")
        .reconcile(odd)
        .reconcile(thing)
        .reconcile(thing);
    let why = worker.check().unwrap_err().to_string();
    for expected in [
        "entity `Badly named` cannot be a name",
        "entity Badly named: attempts is 0",
        "entity thing has two handlers",
    ] {
        assert!(why.contains(expected), "{expected} is missing in: {why}");
    }
    let described = worker.described();
    assert_eq!(described.jobs[1].name, "thing");
    assert_eq!(described.jobs[1].queue, "entity:thing");
}
