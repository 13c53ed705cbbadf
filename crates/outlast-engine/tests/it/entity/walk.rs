//! Random walks of workers that die anywhere, against a provider whose ledger is the truth.
//!
//! Goal: in the end the provider shows what is wanted, whatever has died and whatever was changed meanwhile, and no two convergences of
//! one entity ever ran at once. Method: reconcilers that stop at any step of theirs and have their whole process die there, processes
//! that are killed from outside at any moment, failures after effects; and changes, deletions with refs and without all the time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use outlast_core::Failure;
use outlast_engine::{Attempt, Settings, Worker};
use tokio::sync::mpsc;

use super::{App, Thing, lost::Mortal};
use crate::given::{Given, given};

const THINGS: i64 = 10;
const CHANGES: usize = 120;
const WORKERS: usize = 2;

/// What all reconcilers of a walk share.
struct World {
    rng: Mutex<Rng>,
    /// Nobody dies or fails any more.
    calm: Mutex<bool>,
    /// Who is being converged, and the highest fence number of each.
    inside: Mutex<BTreeMap<i64, u64>>,
    fences: Mutex<BTreeMap<i64, u64>>,
    wrong: Mutex<Vec<String>>,
    /// What the first look has found, for reconcilers that never look again.
    first_looks: Mutex<BTreeMap<i64, Option<String>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn one_in(&self, n: u32) -> bool {
        !*lock(&self.calm) && lock(&self.rng).u32(0..n) == 0
    }

    fn is_wrong(&self, what: String) {
        lock(&self.wrong).push(what);
    }
}

#[derive(Clone)]
struct Walker {
    app: App,
    world: Arc<World>,
    /// Which process it is, for those who want to die with it.
    process: usize,
    dying: mpsc::UnboundedSender<usize>,
    trusts_its_cache: bool,
}

/// While it is there, an entity is being converged.
struct Inside {
    world: Arc<World>,
    n: i64,
    fence: u64,
}

impl Inside {
    fn of(world: &Arc<World>, thing: &Attempt<Thing>) -> Self {
        let (n, fence) = (thing.n, thing.fence_number());
        if let Some(other) = lock(&world.inside).insert(n, fence) {
            world.is_wrong(format!("{n} is converged twice at once: {other}, {fence}"));
        }
        let last = lock(&world.fences).insert(n, fence).unwrap_or_default();
        if last > fence {
            world.is_wrong(format!("the fence of {n} fell from {last} to {fence}"));
        }
        let world = world.clone();
        Self { world, n, fence }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut inside = lock(&self.world.inside);
        if inside.get(&self.n) == Some(&self.fence) {
            inside.remove(&self.n);
        }
    }
}

impl Walker {
    /// A step between two others: a process may die here.
    async fn step(&self, inside: &mut Option<Inside>) {
        if self.world.one_in(25) {
            // What is dead converges nothing.
            drop(inside.take());
            let _ = self.dying.send(self.process);
            std::future::pending::<()>().await;
        }
        tokio::task::yield_now().await;
    }

    async fn wanted(&self, n: i64) -> Result<Option<String>, Failure> {
        let wanted = self.app.wanted(n).await?;
        Ok(match self.trusts_its_cache {
            true => lock(&self.world.first_looks)
                .entry(n)
                .or_insert(wanted)
                .clone(),
            false => wanted,
        })
    }

    async fn converge(&self, thing: &Attempt<Thing>) -> Result<(), Failure> {
        let (n, ledger) = (thing.n, &self.app.ledger);
        let mut inside = Some(Inside::of(&self.world, thing));
        self.step(&mut inside).await;
        let wanted = self.wanted(n).await?;
        self.step(&mut inside).await;
        match (wanted, thing.refs()) {
            (_, Some(gone)) if thing.is_deletion() => ledger.remove(gone),
            (Some(look), known) => {
                // Absent is not what is wanted: then it is made, if it is not there by another name.
                let there = known.filter(|known| ledger.set(known, &look).is_ok());
                self.step(&mut inside).await;
                let there = match there.cloned().or_else(|| ledger.find(n).pop()) {
                    Some(there) => {
                        ledger.set(&there, &look)?;
                        there
                    }
                    None => ledger.add(n, &look),
                };
                self.step(&mut inside).await;
                thing.keep(there).await?;
            }
            (None, Some(gone)) => {
                ledger.remove(gone);
                self.step(&mut inside).await;
                thing.forget().await?;
            }
            (None, None) => ledger.find(n).iter().for_each(|gone| ledger.remove(gone)),
        }
        self.step(&mut inside).await;
        match self.world.one_in(10) {
            true => Err(Failure::retry("after the effect")),
            false => Ok(()),
        }
    }
}

async fn walk(walker: Walker, thing: Attempt<Thing>) -> Result<(), Failure> {
    tokio::select! {
        done = walker.converge(&thing) => done,
        () = thing.lost() => Err(Failure::retry("it is somebody else's")),
    }
}

/// One walk and what was wrong with it.
struct Walk {
    given: Given,
    walker: Walker,
    dying: mpsc::UnboundedReceiver<usize>,
    processes: BTreeMap<usize, Mortal>,
    rng: Rng,
}

impl Walk {
    async fn new(seed: u64, trusts_its_cache: bool) -> Self {
        let given = given().await;
        let app = given.app().await;
        let (dying, hears) = mpsc::unbounded_channel();
        let world = World {
            rng: Mutex::new(Rng::with_seed(seed)),
            calm: Mutex::new(trusts_its_cache),
            inside: Mutex::default(),
            fences: Mutex::default(),
            wrong: Mutex::default(),
            first_looks: Mutex::default(),
        };
        Self {
            walker: Walker {
                app,
                world: Arc::new(world),
                process: 0,
                dying,
                trusts_its_cache,
            },
            given,
            dying: hears,
            processes: BTreeMap::new(),
            rng: Rng::with_seed(seed + 1),
        }
    }

    fn worker(&self) -> Worker<Walker> {
        let mut settings = Settings {
            lease: Duration::from_secs(1),
            ..Given::settings()
        };
        let many = outlast_engine::JobSettings {
            attempts: Some(1000),
            ..outlast_engine::JobSettings::default()
        };
        settings.job.insert("thing".into(), many);
        let worker = self.given.worker_with(self.walker.clone(), settings);
        worker.reconcile(walk)
    }

    fn begin(&mut self) {
        while self.processes.len() < WORKERS {
            self.walker.process += 1;
            let mortal = Mortal::born(self.worker());
            self.processes.insert(self.walker.process, mortal);
        }
    }

    /// A process dies; often all of them, and the time of their leases has come. Others begin.
    async fn death(&mut self, process: usize) {
        let Some(mortal) = self.processes.remove(&process) else {
            return;
        };
        mortal.die().await;
        if self.rng.u32(0..4) > 0 {
            for (_, mortal) in std::mem::take(&mut self.processes) {
                mortal.die().await;
            }
            let lapse = "update outlast._lease set expires_at = 'epoch' where room = 'job'";
            self.given.sql.batch_execute(lapse).await.unwrap();
        }
        self.begin();
    }

    async fn change(&mut self) {
        let n = self.rng.i64(0..THINGS);
        match self.rng.u32(0..4) {
            0 => {
                let known = self.walker.app.ledger.find(n).pop();
                self.given.take_away(n, known.as_ref()).await;
            }
            1 => self.given.take_away(n, None).await,
            look => {
                self.given
                    .change(n, &format!("{look}{}", self.rng.u32(..)))
                    .await;
            }
        }
    }

    /// To the end; what was wrong.
    async fn run(mut self) -> Vec<String> {
        self.begin();
        for _ in 0..CHANGES {
            self.change().await;
            if self.walker.world.one_in(20) {
                let alive: Vec<usize> = self.processes.keys().copied().collect();
                let process = alive[self.rng.usize(0..alive.len())];
                self.death(process).await;
            }
            // Half of the changes come at once, the others when there was time for something.
            let time = Duration::from_millis(self.rng.u64(0..2) * 25);
            if let Ok(Some(process)) = tokio::time::timeout(time, self.dying.recv()).await {
                self.death(process).await;
            }
        }
        *lock(&self.walker.world.calm) = true;
        for (_, mortal) in std::mem::take(&mut self.processes) {
            mortal.die().await;
        }
        let worker = Given::run(self.worker());
        // What three processes have died of waits for a person: here he is.
        let decide = "select count(outlast.retry_entity(name, entity_id)) from outlast.entity where incident_at is not null";
        let all = "select (select count(*) from outlast._entity_mark) + (select count(*) from outlast.entity where state <> 'converged')";
        outlast_testkit::wait_for("all to be converged", crate::given::SOON, async || {
            self.given.count(decide).await;
            (self.given.count(all).await == 0).then_some(())
        })
        .await;
        self.given.converged().await;
        worker.stop().await.unwrap();
        let rows = self
            .given
            .sql
            .query("select n, look from thing order by n", &[])
            .await;
        let wanted: Vec<(i64, String)> =
            rows.unwrap().iter().map(|r| (r.get(0), r.get(1))).collect();
        let shown = self.walker.app.ledger.shows();
        let mut wrong = lock(&self.walker.world.wrong).clone();
        if shown != wanted {
            wrong.push(format!(
                "the provider shows {shown:?}, wanted is {wanted:?}"
            ));
        }
        if self
            .given
            .count("select count(*) from outlast.incident")
            .await
            > 0
        {
            wrong.push("there are incidents".into());
        }
        wrong
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_dies_the_provider_shows_what_is_wanted_and_nothing_is_converged_twice_at_once() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|n| n.parse().expect("a number"))
    };
    let seeds: Vec<u64> = match (number("OUTLAST_SEED"), number("OUTLAST_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, seeds) => (1..=seeds.unwrap_or(1)).collect(),
    };
    for seed in seeds {
        let wrong = Walk::new(seed, false).await.run().await;
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_that_does_not_read_again_would_be_found_out() {
    let wrong = Walk::new(7, true).await.run().await;
    let found = wrong
        .iter()
        .any(|what| what.starts_with("the provider shows"));
    assert!(found, "{wrong:#?}");
}
