//! What a reconciler is told, what it keeps, and what its `Ok` completes.

use std::sync::Arc;

use outlast_core::Failure;
use outlast_engine::{Attempt, Outlast, Sealed, testing::TestWorker};
use outlast_postgres::tx::{OwnedTx, Pool};
use tokio::sync::{Semaphore, mpsc};

use super::{App, Ref, Thing, sync};
use crate::given::{Given, Told, given, next};

/// What one run was told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    refs: Option<Ref>,
    is_deletion: bool,
    number: u32,
    fence: u64,
}

impl Run {
    fn of(thing: &Attempt<Thing>) -> Self {
        Self {
            refs: thing.refs().cloned(),
            is_deletion: thing.is_deletion(),
            number: thing.number(),
            fence: thing.fence_number(),
        }
    }

    /// Of what, and whether that is a deletion.
    fn about(self) -> (Option<String>, bool) {
        (self.refs.map(|refs| refs.0), self.is_deletion)
    }
}

type Runs = mpsc::UnboundedSender<Run>;

/// The usual reconciler, which tells how it was called.
async fn telling((app, told): (App, Runs), thing: Attempt<Thing>) -> Result<(), Failure> {
    let _ = told.send(Run::of(&thing));
    sync(app, thing).await
}

fn runs(hears: &mut mpsc::UnboundedReceiver<Run>) -> Vec<(Option<String>, bool)> {
    let mut runs = Vec::new();
    while let Ok(run) = hears.try_recv() {
        runs.push(run.about());
    }
    runs
}

fn kept(name: &str) -> (Option<String>, bool) {
    (Some(name.to_owned()), false)
}

fn gone(name: &str) -> (Option<String>, bool) {
    (Some(name.to_owned()), true)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_while_it_is_converged_is_converged_again_afterwards() {
    type State = (App, Told, Arc<Semaphore>);
    async fn held((app, told, gate): State, thing: Attempt<Thing>) -> Result<(), Failure> {
        let wanted = app.wanted(thing.n).await?;
        let _ = told.send(thing.n);
        let _permit = gate.acquire().await;
        app.converge(&thing, wanted).await
    }
    let given = given().await;
    let app = given.app().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let state = (app.clone(), told, gate.clone());
    let worker = Given::run(given.worker(state).reconcile(held));
    given.change(1, "red").await;
    assert_eq!(next(&mut hears).await, 1);
    // It has read, and has not converged: what it will show is old when it returns.
    given.change(1, "green").await;
    given.change(1, "blue").await;
    gate.add_permits(100);
    assert_eq!(next(&mut hears).await, 1);
    given.converged().await;
    assert_eq!(app.ledger.shows(), [(1, "blue".to_owned())]);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_that_wait_are_one_convergence_to_the_latest() {
    let given = given().await;
    let app = given.app().await;
    for n in 0..30 {
        given.change(1, &format!("{n}")).await;
    }
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker((app.clone(), told)).reconcile(telling));
    given.converged().await;
    assert_eq!(runs(&mut hears).len(), 1);
    assert_eq!(app.ledger.shows(), [(1, "29".to_owned())]);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_commits_late_with_a_lower_number_is_not_taken_for_done() {
    let given = given().await;
    let app = given.app().await;
    let early = given.put(1, "early").await;
    given.change(2, "later").await;
    let worker = Given::run(given.worker(app.clone()).reconcile(sync));
    given.converged().await;
    early.commit().await.unwrap();
    // It was there all the time, and nobody could see it.
    given
        .until(
            "select count(*) from outlast.entity where state = 'converged'",
            2,
        )
        .await;
    given.converged().await;
    let both = [(1, "early".to_owned()), (2, "later".to_owned())];
    assert_eq!(app.ledger.shows(), both);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_is_cleaned_up_after_the_row_is_gone_and_then_forgotten() {
    let given = given().await;
    let app = given.app().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker((app.clone(), told)).reconcile(telling));
    given.change(1, "red").await;
    given.converged().await;
    let made = app.ledger.find(1);
    assert_eq!(made.len(), 1);
    given.take_away(1, made.first()).await;
    given.converged().await;
    assert_eq!(app.ledger.shows(), []);
    // What is there again is a new one, of which nothing is known.
    given.change(1, "blue").await;
    given.converged().await;
    assert_eq!(app.ledger.shows(), [(1, "blue".to_owned())]);
    let all = [(None, false), gone("r1"), (None, false), (None, false)];
    assert_eq!(runs(&mut hears), all);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_deletion_is_handed_out_also_where_the_row_is_there_again() {
    let given = given().await;
    let app = given.app().await;
    let (one, two) = (app.ledger.add(1, "old"), app.ledger.add(1, "older"));
    // The same twice is one duty.
    for refs in [&one, &two, &one] {
        given.take_away(1, Some(refs)).await;
    }
    given.change(1, "new").await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker((app.clone(), told)).reconcile(telling));
    given.converged().await;
    assert_eq!(app.ledger.shows(), [(1, "new".to_owned())]);
    assert_eq!(runs(&mut hears), [gone("r1"), gone("r2"), (None, false)]);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_on_with_the_refs_of_a_deletion_keeps_them() {
    /// The provider would have it be the same one again.
    async fn going_on((app, told): (App, Runs), thing: Attempt<Thing>) -> Result<(), Failure> {
        let _ = told.send(Run::of(&thing));
        match (app.wanted(thing.n).await?, thing.refs()) {
            (Some(look), Some(known)) if thing.is_deletion() => {
                app.ledger.set(known, &look)?;
                thing.keep(known.clone()).await
            }
            (wanted, _) => app.converge(&thing, wanted).await,
        }
    }
    let given = given().await;
    let app = given.app().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    given.change(1, "red").await;
    let worker = Given::run(given.worker((app.clone(), told.clone())).reconcile(telling));
    given.converged().await;
    worker.stop().await.unwrap();
    given.take_away(1, app.ledger.find(1).first()).await;
    given.change(1, "blue").await;
    let worker = Given::run(given.worker((app.clone(), told)).reconcile(going_on));
    given.converged().await;
    given.change(1, "green").await;
    given.converged().await;
    assert_eq!(app.ledger.shows(), [(1, "green".to_owned())]);
    let all = [(None, false), gone("r1"), kept("r1"), kept("r1")];
    assert_eq!(runs(&mut hears), all);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_fails_keeps_neither_the_others_nor_the_entity_from_being_converged() {
    type State = (App, Runs, Arc<Semaphore>);
    async fn stubborn((app, told, gate): State, thing: Attempt<Thing>) -> Result<(), Failure> {
        let _ = told.send(Run::of(&thing));
        if thing.refs() == Some(&Ref("r1".into())) && gate.try_acquire().is_err() {
            return Err(Failure::retry("not now"));
        }
        sync(app, thing).await
    }
    let given = given().await;
    let app = given.app().await;
    for _ in 0..2 {
        let old = app.ledger.add(1, "old");
        given.take_away(1, Some(&old)).await;
    }
    given.change(1, "new").await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let state = (app.clone(), told, gate.clone());
    let worker = Given::run(given.worker(state).reconcile(stubborn));
    // Its second try has begun: what else there was is done, and recorded as done.
    let mut all = Vec::new();
    while all.iter().filter(|run| **run == gone("r1")).count() < 2 {
        all.push(hears.recv().await.unwrap().about());
    }
    assert_eq!(all, [gone("r1"), gone("r2"), (None, false), gone("r1")]);
    gate.add_permits(1);
    given.converged().await;
    assert_eq!(app.ledger.shows(), [(1, "new".to_owned())]);
    assert!(!runs(&mut hears).contains(&gone("r2")));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_kept_is_known_to_the_next_try_and_what_was_forgotten_is_not() {
    type State = (App, Runs);
    async fn second_time((app, told): State, thing: Attempt<Thing>) -> Result<(), Failure> {
        let run = Run::of(&thing);
        let number = run.number;
        let _ = told.send(run);
        sync(app, thing).await?;
        match number {
            1 => Err(Failure::retry("not yet")),
            _ => Ok(()),
        }
    }
    let given = given().await;
    let app = given.app().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker((app.clone(), told)).reconcile(second_time));
    given.change(1, "red").await;
    given.converged().await;
    let (one, two) = (hears.recv().await.unwrap(), hears.recv().await.unwrap());
    assert_eq!((one.number, two.number), (1, 2));
    assert!(0 < one.fence && one.fence < two.fence, "{one:?} {two:?}");
    assert_eq!([one.about(), two.about()], [(None, false), kept("r1")]);
    // Without refs from us: the reconciler knows them, and forgets them when it has taken it away.
    given.take_away(1, None).await;
    given.converged().await;
    assert_eq!(app.ledger.shows(), []);
    assert_eq!(runs(&mut hears), [kept("r1"), (None, false)]);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seal_commits_own_rows_with_the_completion_and_that_of_a_deletion_completes_it_only() {
    async fn sealing(app: App, thing: Attempt<Thing>) -> Result<Sealed, Failure> {
        let wanted = app.wanted(thing.n).await?;
        app.converge(&thing, wanted).await?;
        let tx = app.db.begin().await?;
        let n = if thing.is_deletion() {
            -thing.n
        } else {
            thing.n
        };
        let note = "insert into effect values ($1, $2)";
        tx.execute(note, &[&thing.id(), &n]).await?;
        thing.seal(tx).await
    }
    let given = given().await;
    let app = given.app().await;
    for _ in 0..2 {
        let old = app.ledger.add(1, "old");
        given.take_away(1, Some(&old)).await;
    }
    given.change(1, "new").await;
    let worker = Given::run(given.worker(app.clone()).reconcile(sealing));
    given.converged().await;
    assert_eq!(app.ledger.shows(), [(1, "new".to_owned())]);
    let each = "select count(*) * 10 + count(*) filter (where n < 0) from effect";
    assert_eq!(given.count(each).await, 32);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn the_test_worker_converges_and_its_clock_makes_failed_ones_due() {
    async fn once(app: App, thing: Attempt<Thing>) -> Result<(), Failure> {
        match (thing.n, thing.number()) {
            (1, _) => Err(Failure::permanent("one")),
            (2, 1) => {
                let hour = std::time::Duration::from_secs(3600);
                Err(Failure::retry("not yet").after(hour))
            }
            _ => sync(app, thing).await,
        }
    }
    let given = given().await;
    let app = given.app().await;
    let worker = Outlast::new()
        .worker(app.clone())
        .database(given.database.url())
        .reconcile(once);
    let test = TestWorker::new(&given.pool, worker).await.unwrap();
    for n in 1..=3 {
        given.change(n, "red").await;
    }
    let idle = test.run_until_idle().await;
    assert_eq!((idle.handled, idle.incidents.len()), (1, 1));
    let incident = &idle.incidents[0];
    assert_eq!(
        (&*incident.kind, &*incident.reason),
        ("stopped entity", "one")
    );
    test.advance(std::time::Duration::from_secs(3601)).await;
    assert_eq!(test.run_until_idle().await.handled, 1);
    let both = [(2, "red".to_owned()), (3, "red".to_owned())];
    assert_eq!(app.ledger.shows(), both);
}
