//! The loop of one consumer: reclaim what lapsed, retry what is due, claim what is new, wait for news.

use std::{sync::Arc, time::Duration};

use outlast_core::size::Size;
use outlast_postgres::{
    Error,
    store::{Bounds, Claim, Claimed, Store},
};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

use super::{
    batch::{self, Ended},
    destination::Destination,
    leases::Leases,
    record::{self, told},
    registry::Registry,
    signal::Stop,
    wake::Bell,
};
use crate::{
    crash::{self, Point},
    handler::Context,
    settings::Settings,
};

/// Batches in flight at once: one runs while the other is claimed or ended. Of an ordered consumer as many as it has
/// places, because each is a lane, in which one handler runs at a time.
const IN_FLIGHT: usize = 2;
/// Without any news, everything is looked at this often: a bell that never rings loses nothing.
const SWEEP: Duration = Duration::from_secs(5);

/// One consumer of this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Consumer<S> {
    pub(crate) id: i32,
    pub(crate) name: Arc<str>,
    pub(crate) state: S,
    pub(crate) context: Context,
    pub(crate) registry: Arc<Registry<S>>,
    pub(crate) store: Store,
    pub(crate) leases: Leases,
    pub(crate) destination: Destination,
    pub(crate) settings: Arc<Settings>,
    pub(crate) concurrency: usize,
}

impl<S> Consumer<S> {
    /// What a claim of this many events, for so many batches, may take.
    pub(crate) fn bounds(&self, rows: usize, lanes: usize) -> Bounds {
        let lease = self.leases.length();
        let lanes = if self.context.ordered {
            lanes.max(1)
        } else {
            1
        };
        Bounds {
            rows: rows.min(self.settings.batch_rows / lanes).max(1),
            lanes,
            bytes: self.settings.batch_bytes as u64,
            scanned: self.settings.scanned_rows as u32,
            lease,
        }
    }
}

/// Runs until the worker drains; then waits for its batches.
pub(crate) async fn run<S: Clone + Send + Sync + 'static>(
    consumer: Consumer<S>,
    bell: Bell,
    stop: Stop,
) -> Result<(), Error> {
    let mut work = Work::new(consumer, stop.clone());
    let mut failures: u32 = 0;
    while !stop.is_draining() {
        let seen = bell.rings();
        // Never dropped half-way: what a claim has taken would wait for its lease to lapse.
        match work.step().await {
            Ok(look) => {
                failures = 0;
                tokio::select! {
                    () = stop.draining() => break,
                    () = work.wait(look, &bell, seen) => {}
                }
            }
            Err(error) if error.is_transient() => {
                failures = failures.saturating_add(1);
                let pause = record::pause(failures);
                told!(failures, %error, consumer = %work.consumer.name, retry_ms = pause.as_millis() as u64, "nothing was claimed");
                tokio::select! {
                    () = stop.draining() => break,
                    () = tokio::time::sleep(pause) => {}
                }
            }
            Err(error) => return Err(error),
        }
    }
    while work.batches.join_next().await.is_some() {}
    while work.retries.join_next().await.is_some() {}
    if work.consumer.destination.is_down() {
        let consumer = &work.consumer;
        record::logged(consumer.store.outage_over(consumer.id).await);
    }
    Ok(())
}

/// What a look has brought.
#[derive(Clone, Copy)]
enum Look {
    /// Something: the next look comes at once.
    Found,
    /// Nothing is due: wait for news or a time.
    Nothing,
    /// Enough batches are in flight: wait for the end of one, or for a retry to become due.
    Enough,
    /// No place is free: handlers that overran their deadline keep theirs, and nothing would start.
    NoPlace,
    /// The destination is down: wait for the end of what runs, then for the time of the next probe.
    Down,
}

/// What one consumer of this process has under way.
struct Work<S> {
    consumer: Consumer<S>,
    stop: Stop,
    /// How many handlers run at once.
    slots: Arc<Semaphore>,
    size: Size,
    batches: JoinSet<Ended>,
    /// Parked events that are tried again. Apart from the batches, and never more than half of the places: what fails
    /// over and over does not hold up what is new.
    retries: JoinSet<Ended>,
    reclaim_at: Instant,
    parked_at: Instant,
    /// During an outage: when to probe again, and how often it was.
    probe_at: Option<Instant>,
    probes: u32,
}

impl<S: Clone + Send + Sync + 'static> Work<S> {
    fn new(consumer: Consumer<S>, stop: Stop) -> Self {
        let now = Instant::now();
        Self {
            slots: Arc::new(Semaphore::new(consumer.concurrency)),
            size: Size::new(consumer.settings.batch_rows),
            batches: JoinSet::new(),
            retries: JoinSet::new(),
            reclaim_at: now,
            parked_at: now,
            probe_at: None,
            probes: 0,
            consumer,
            stop,
        }
    }

    /// How many more retries may run.
    fn room_for_retries(&self) -> usize {
        (self.consumer.concurrency / 2)
            .max(1)
            .saturating_sub(self.retries.len())
    }

    /// One look: what lapsed, what waits for another try, what is new.
    async fn step(&mut self) -> Result<Look, Error> {
        if self.slots.available_permits() == 0 {
            return Ok(Look::NoPlace);
        }
        if self.consumer.destination.is_down() {
            return self.probe().await;
        }
        if self.probe_at.take().is_some() {
            // It is over: what was given back and put off goes on now.
            (self.reclaim_at, self.parked_at) = (Instant::now(), Instant::now());
        }
        let (store, id) = (self.consumer.store.clone(), self.consumer.id);
        let lease = self.consumer.leases.length();
        let asked = Instant::now();
        let at_once = if self.consumer.context.ordered {
            self.consumer.concurrency
        } else {
            IN_FLIGHT
        };
        let room = at_once.saturating_sub(self.batches.len());
        if room > 0 && asked >= self.reclaim_at {
            self.reclaim_at = asked + lease / 3;
            let claim = store.reclaim(id, room, lease).await?;
            met(Point::Reclaimed, &claim);
            if self.start(claim, asked) {
                return Ok(Look::Found);
            }
        }
        if self.room_for_retries() > 0 && asked >= self.parked_at {
            self.parked_at = asked + SWEEP;
            let (types, versions) = self.consumer.registry.takes();
            let claim = store
                .claim_parked(id, self.room_for_retries(), lease, types, versions)
                .await?;
            met(Point::ParkedClaimed, &claim);
            self.retry(claim, asked);
            if let Some(next) = store.parked_due(id).await? {
                let next = Instant::now() + next.max(Duration::from_millis(5));
                self.parked_at = self.parked_at.min(next);
            }
        }
        if room == 0 {
            return Ok(Look::Enough);
        }
        let bounds = self.consumer.bounds(self.size.rows(), room);
        let claim = store.claim(id, bounds).await?;
        met(Point::Claimed, &claim);
        let more = claim.more;
        let found = self.start(claim, asked);
        Ok(if found || more {
            Look::Found
        } else {
            Look::Nothing
        })
    }

    /// One event, to see whether the destination is back: in turns one that is parked already and a new one. Of the parked
    /// ones alone all might be poison; of new ones alone each try would park one more.
    async fn probe(&mut self) -> Result<Look, Error> {
        if !self.batches.is_empty() || !self.retries.is_empty() {
            return Ok(Look::Down);
        }
        let (asked, pause) = (Instant::now(), self.consumer.destination.pause());
        let due = *self.probe_at.get_or_insert(asked + pause);
        if asked < due {
            return Ok(Look::Down);
        }
        self.probe_at = None;
        self.probes = self.probes.wrapping_add(1);
        let new_first = self.probes.is_multiple_of(2);
        let mut found = new_first && self.probe_new(asked).await?;
        found = found || self.probe_parked(asked).await?;
        found = found || !new_first && self.probe_new(asked).await?;
        if !found {
            // There is nothing to try; the same pause again.
            self.probe_at = Some(asked + pause);
        }
        Ok(Look::Down)
    }

    async fn probe_parked(&mut self, asked: Instant) -> Result<bool, Error> {
        let consumer = &self.consumer;
        let (types, versions) = consumer.registry.takes();
        let lease = consumer.leases.length();
        let claim = consumer
            .store
            .claim_parked(consumer.id, 1, lease, types, versions)
            .await?;
        met(Point::ParkedClaimed, &claim);
        let found = !claim.events.is_empty();
        self.retry(claim, asked);
        Ok(found)
    }

    async fn probe_new(&mut self, asked: Instant) -> Result<bool, Error> {
        let (store, id) = (self.consumer.store.clone(), self.consumer.id);
        let lease = self.consumer.leases.length();
        let claim = store.reclaim(id, 1, lease).await?;
        met(Point::Reclaimed, &claim);
        if self.start(claim, asked) {
            return Ok(true);
        }
        let claim = store.claim(id, self.consumer.bounds(1, 1)).await?;
        met(Point::Claimed, &claim);
        Ok(self.start(claim, asked))
    }

    /// Waits until another look can bring something.
    async fn wait(&mut self, look: Look, bell: &Bell, seen: u64) {
        let (slots, retries_due) = (self.slots.clone(), self.room_for_retries() > 0);
        let until = match look {
            Look::Found => return,
            Look::Nothing if retries_due => self.reclaim_at.min(self.parked_at),
            Look::Nothing => self.reclaim_at,
            Look::Enough | Look::NoPlace => self.parked_at,
            Look::Down => self.probe_at.unwrap_or(self.reclaim_at),
        };
        let timed = match look {
            Look::Nothing => true,
            Look::Enough => retries_due,
            Look::Down => self.probe_at.is_some(),
            Look::Found | Look::NoPlace => false,
        };
        tokio::select! {
            () = bell.rung_since(seen), if matches!(look, Look::Nothing) => {}
            () = tokio::time::sleep_until(until), if timed => {}
            Ok(_) = slots.acquire(), if matches!(look, Look::NoPlace) => {}
            Some(ended) = self.batches.join_next() => self.learn(ended),
            Some(ended) = self.retries.join_next() => {
                // What waits behind an event is due as soon as that is done.
                if self.consumer.context.ordered {
                    self.parked_at = Instant::now();
                }
                self.tried(ended);
            }
        }
    }

    /// Starts what a claim has brought, each token by itself.
    fn start(&mut self, claim: Claim, asked: Instant) -> bool {
        let found = !claim.events.is_empty();
        for events in by_token(claim.events) {
            let (consumer, slots, stop) =
                (self.consumer.clone(), self.slots.clone(), self.stop.clone());
            self.batches
                .spawn(async move { batch::run(&consumer, &slots, events, asked, &stop).await });
        }
        found
    }

    fn retry(&mut self, claim: Claim, asked: Instant) {
        for events in by_token(claim.events) {
            let (consumer, slots, stop) =
                (self.consumer.clone(), self.slots.clone(), self.stop.clone());
            self.retries
                .spawn(async move { batch::run(&consumer, &slots, events, asked, &stop).await });
        }
    }

    /// Learns from a batch that ended.
    fn learn(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        if let Ok(ended) = &ended {
            self.size.learn(ended.events, ended.took);
        }
        self.tried(ended);
    }

    /// What has failed may be due soon.
    fn tried(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        match ended {
            Ok(ended) if ended.failed > 0 => self.parked_at = Instant::now(),
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "a batch ended without a report"),
        }
    }
}

/// A claim that brought something has committed.
fn met(point: Point, claim: &Claim) {
    if !claim.events.is_empty() {
        crash::at(point);
    }
}

fn by_token(events: Vec<Claimed>) -> Vec<Vec<Claimed>> {
    let mut groups: Vec<Vec<Claimed>> = Vec::new();
    for event in events {
        match groups
            .iter_mut()
            .find(|group| group[0].token == event.token)
        {
            Some(group) => group.push(event),
            None => groups.push(vec![event]),
        }
    }
    groups
}
