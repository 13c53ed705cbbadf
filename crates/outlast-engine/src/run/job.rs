//! The loop of all jobs, commands and entities of this process: give back what lapsed, make ready what is due, claim what may run, wait for news.
//!
//! What was claimed of a name is a batch like those of consumers, under a lease of its own: `batch` runs it and records what
//! became of it. No transaction is open while a handler runs.

use std::{sync::Arc, time::Duration};

use outlast_postgres::{
    Error,
    store::{Rooms, Store, Taken},
};
use tokio::{sync::Notify, task::JoinSet, time::Instant};

mod floors;
mod name;

use super::{
    batch::{self, Ended},
    consumer::{by_token, earlier},
    destination::Purpose,
    record::{self, told},
    register::Common,
    signal::Stop,
    wake::Bell,
};
use crate::{
    crash::{self, Point},
    worker::PlannedJob,
};
pub(crate) use name::Name;

/// Without any news, everything is looked at this often at least: a bell that never rings loses nothing.
const EVERY: Duration = Duration::from_secs(5);
/// How many lapsed claims are given back at once.
const CLAIMS: usize = 16;
/// How many of a name are claimed at once.
const AT_ONCE: usize = 1000;
/// How many jobs are made ready at once.
const DUE: usize = 1000;
/// After a failure, or news, the next time that something is due is asked for this often at most.
const ASK: Duration = Duration::from_millis(25);
/// While news bring nothing for us, as where many events are emitted, each look in vain makes the next come this much later..
const IN_VAIN: Duration = Duration::from_millis(2);
/// .. up to this.
const IN_VAIN_MOST: Duration = Duration::from_millis(24);

/// The jobs of this process.
pub(crate) struct Jobs<S> {
    pub(crate) store: Store,
    pub(crate) names: Vec<Name<S>>,
    lease: Duration,
    bytes: u64,
    changed: Arc<Notify>,
}

impl<S: Clone + Send + Sync + 'static> Jobs<S> {
    /// Nothing is registered: a name is known to the database by its jobs.
    pub(crate) fn new(common: &Common<S>, planned: Vec<PlannedJob<S>>) -> Self {
        let changed = Arc::new(Notify::new());
        let name = |planned| Name::new(common, planned, changed.clone());
        Self {
            names: planned.into_iter().map(name).collect(),
            store: common.store.clone(),
            lease: common.leases.length(),
            bytes: common.settings.batch_bytes as u64,
            changed,
        }
    }

    /// Claims so many of each name. Committed, and durable, when it returns; its crash point is behind it.
    pub(crate) async fn claim(&self, rooms: &Rooms) -> Result<Vec<Taken>, Error> {
        let taken = self.store.claim_jobs(rooms, self.bytes, self.lease).await?;
        if !taken.is_empty() {
            crash::at(Point::Claimed);
        }
        Ok(taken)
    }
}

/// Runs until the worker drains; then waits for what it has claimed.
pub(crate) async fn run<S: Clone + Send + Sync + 'static>(
    jobs: Jobs<S>,
    bell: Bell,
    stop: Stop,
) -> Result<(), Error> {
    let mut work = Work::new(jobs, stop.clone());
    let mut failures: u32 = 0;
    while !stop.is_draining() {
        let seen = bell.rings();
        // Never dropped half-way: what a claim has taken would wait for its lease to lapse.
        match work.step(seen).await {
            Ok(at_once) => {
                failures = 0;
                if at_once {
                    continue;
                }
                tokio::select! {
                    () = stop.draining() => break,
                    () = work.wait(&bell, seen) => {}
                }
            }
            Err(error) if error.is_transient() => {
                // What it has learned, and not done, is asked for again.
                work.begin_anew();
                failures = failures.saturating_add(1);
                let pause = record::pause(failures);
                told!(failures, %error, retry_ms = pause.as_millis() as u64, "no jobs were claimed");
                tokio::select! {
                    () = stop.draining() => break,
                    () = tokio::time::sleep(pause) => {}
                }
            }
            Err(error) => return Err(error),
        }
    }
    while work.batches.join_next().await.is_some() {}
    Ok(())
}

/// What was claimed of one name, and has ended.
struct Done {
    /// Which name.
    name: usize,
    /// Workers were lost while they had some of it.
    suspect: bool,
    ended: Ended,
}

/// What this process has under way.
struct Work<S> {
    jobs: Jobs<S>,
    stop: Stop,
    batches: JoinSet<Done>,
    every: Duration,
    /// When everything is looked at that nobody has told of.
    sweep_at: Instant,
    /// Somebody's lease has lapsed.
    lapsed: bool,
    /// When something is due, or when to ask for that.
    due_at: Option<Instant>,
    /// When that was asked for.
    asked_at: Instant,
    /// How often the bell had rung at the last look.
    rings: Option<u64>,
    /// How many looks in a row have found nothing.
    in_vain: u32,
    looked_at: Instant,
    /// Which name is asked for first.
    turn: usize,
}

impl<S: Clone + Send + Sync + 'static> Work<S> {
    fn new(jobs: Jobs<S>, stop: Stop) -> Self {
        let now = Instant::now();
        let every = EVERY.min(jobs.lease / 3);
        Self {
            jobs,
            stop,
            batches: JoinSet::new(),
            every,
            sweep_at: now + every,
            lapsed: true,
            due_at: Some(now),
            asked_at: now,
            rings: None,
            in_vain: 0,
            looked_at: now,
            turn: 0,
        }
    }

    /// As if nothing were known.
    fn begin_anew(&mut self) {
        self.lapsed = true;
        self.rings = None;
        self.due_at = Some(Instant::now());
    }

    fn look_everywhere(&mut self) {
        for name in &mut self.jobs.names {
            name.more = true;
        }
    }

    /// One look: what lapsed, what is due, what may run. `rings`: how often the bell had rung before. Answers whether the next
    /// look should come at once.
    async fn step(&mut self, rings: u64) -> Result<bool, Error> {
        while let Some(ended) = self.batches.try_join_next() {
            self.learn(ended);
        }
        let store = self.jobs.store.clone();
        let now = Instant::now();
        let news = self.rings.replace(rings) != Some(rings);
        if news {
            self.look_everywhere();
            self.due_at = earlier(self.due_at, Some(now.max(self.asked_at + ASK)));
        }
        if now >= self.sweep_at {
            self.sweep_at = now + self.every;
            let names = self.jobs.names.iter().map(|name| name.text().to_owned());
            let names: Vec<String> = names.collect();
            let due = store.due_jobs(&names).await?;
            self.lapsed |= due.lapsed;
            self.due_at = earlier(self.due_at, due.next.map(|after| now + after));
            if due.ready {
                self.look_everywhere();
            }
        }
        if self.lapsed {
            self.lapsed = false;
            let given_back = store.reclaim_jobs(CLAIMS).await?;
            if given_back > 0 {
                tracing::info!(jobs = given_back, "given back: their worker was lost");
                crash::at(Point::Reclaimed);
                self.look_everywhere();
                self.lapsed = true;
            }
        }
        let found = self.claim().await?;
        if self.due_at.is_some_and(|at| now >= at) {
            self.due_at = None;
            self.asked_at = Instant::now();
            let (moved, next) = store.promote(DUE).await?;
            self.due_at = next.map(|after| Instant::now() + after.max(Duration::from_millis(1)));
            if moved > 0 {
                self.look_everywhere();
                return Ok(true);
            }
        }
        self.looked_at = Instant::now();
        self.in_vain = match found || !news {
            true => 0,
            false => self.in_vain.saturating_add(1),
        };
        Ok(self.lapsed || self.wants_more())
    }

    /// Claims for every name that has room and of which there may be more; answers whether there was anything.
    async fn claim(&mut self) -> Result<bool, Error> {
        let now = Instant::now();
        let mut rooms = Rooms::default();
        let mut asked = Vec::new();
        // All names share the bytes of a claim: each is the first in turn.
        let (count, turn) = (self.jobs.names.len(), self.turn);
        self.turn = (turn + 1) % count.max(1);
        for nth in (0..count).map(|nth| (turn + nth) % count) {
            let name = &mut self.jobs.names[nth];
            let room = name.room().min(AT_ONCE);
            if name.more && room > 0 {
                name.ask(room, &mut rooms, now);
                asked.push((nth, room));
            }
        }
        if asked.is_empty() {
            return Ok(false);
        }
        let taken = self.jobs.claim(&rooms).await?;
        // One that runs alone comes instead of all others.
        let suspect = taken.iter().any(|one| one.work.reclaims > 0);
        let found = !taken.is_empty();
        // What was left out for its size is there.
        let size: usize = taken.iter().map(|one| one.work.payload.len()).sum();
        let large = size as u64 >= self.jobs.bytes / 2;
        for (nth, room) in asked {
            let name = &mut self.jobs.names[nth];
            let of_name = || taken.iter().filter(|one| one.work.kind == name.text());
            let full = of_name().count() >= room;
            let groups = of_name().map(name::Group::of).collect();
            name.more = full || large || suspect;
            name.took(groups, room, now);
        }
        self.start(taken, now);
        Ok(found)
    }

    /// Starts what a claim, sent at `asked`, has brought, each token by itself.
    fn start(&mut self, taken: Vec<Taken>, asked: Instant) {
        for work in by_token(taken.into_iter().map(|one| one.work).collect()) {
            let names = &self.jobs.names;
            let Some(nth) = names.iter().position(|name| name.text() == work[0].kind) else {
                continue;
            };
            let suspect = work.iter().any(|one| one.reclaims > 0);
            let (consumer, slots) = names[nth].runs();
            let stop = self.stop.clone();
            self.batches.spawn(async move {
                let batch = (work, Purpose::Work);
                let ended = batch::run(&consumer, &slots, batch, asked, &stop).await;
                Done {
                    name: nth,
                    suspect,
                    ended,
                }
            });
        }
    }

    /// Whether a claim would be sent.
    fn wants_more(&self) -> bool {
        let mut names = self.jobs.names.iter();
        names.any(|name| name.more && name.room() > 0)
    }

    /// Waits until another look can bring something.
    async fn wait(&mut self, bell: &Bell, seen: u64) {
        let pause = IN_VAIN_MOST.min(IN_VAIN.saturating_mul(self.in_vain));
        let not_before = self.looked_at + pause;
        let changed = self.jobs.changed.clone();
        loop {
            let until = earlier(self.due_at, Some(self.sweep_at)).unwrap_or(self.sweep_at);
            let listens = self.jobs.names.iter().any(|name| name.room() > 0);
            tokio::select! {
                () = news(bell, seen, not_before), if listens => return,
                () = tokio::time::sleep_until(until) => return,
                () = changed.notified() => {}
                Some(ended) = self.batches.join_next() => self.learn(ended),
            }
            if self.jobs.names.iter().any(Name::has_failed) {
                self.due_at = earlier(self.due_at, Some(Instant::now() + ASK));
            }
            if self.wants_more() {
                return;
            }
        }
    }

    /// Learns from a batch that ended.
    fn learn(&mut self, ended: Result<Done, tokio::task::JoinError>) {
        match ended {
            Ok(done) => {
                let (name, ended) = (&mut self.jobs.names[done.name], done.ended);
                name.learn(ended);
                // What it gave back, anybody may have.
                name.more |= ended.done + ended.failed < ended.events;
                if done.suspect {
                    // The next one that is to run alone may.
                    self.look_everywhere();
                }
            }
            Err(error) => {
                tracing::error!(%error, "a batch of jobs ended without a report");
                self.begin_anew();
            }
        }
    }
}

/// Resolves when the bell has rung since, but not before.
async fn news(bell: &Bell, seen: u64, not_before: Instant) {
    bell.rung_since(seen).await;
    tokio::time::sleep_until(not_before).await;
}
