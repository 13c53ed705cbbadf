//! The loop of one consumer: reclaim what lapsed, retry what is due, claim what is new, wait for news.

use std::{sync::Arc, time::Duration};

use outlast_core::size::Size;
use outlast_postgres::{
    Error,
    store::{Bounds, Claim, Claimed, Store},
};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

mod probe;

use super::{
    batch::{self, Ended},
    destination::{Destination, Purpose},
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
/// places, because each is a lane, in which one handler runs at a time. As many again of side lanes: tenants with a
/// backlog share those, and never keep a batch of anybody else from being claimed. Handlers take turns for their places.
const IN_FLIGHT: usize = 2;
/// While one of the two kinds has all that it may have, a look for the other comes this long after the one before, and
/// only after news.
const BESIDE: Duration = Duration::from_millis(25);
/// Without news, this long: other processes take tenants apart, too.
const BESIDE_ANYWAY: Duration = Duration::from_secs(1);
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
    /// What a claim may take, with room for so many batches of so many events each. All of them together are bounded by
    /// their bytes and by what is looked at: lanes that share a thousand have batches so small that their ends cost most.
    pub(crate) fn bounds(&self, rows: usize, room: Room) -> Bounds {
        let lease = self.leases.length();
        let most = if self.context.ordered { usize::MAX } else { 1 };
        let (lanes, sides) = (room.mains.min(most), room.sides.min(most));
        let together = lanes.max(sides).max(1);
        Bounds {
            rows: rows.min(self.settings.scanned_rows / together).max(1),
            lanes,
            sides,
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
        match work.step(seen).await {
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
    while work.mains.join_next().await.is_some() {}
    while work.sides.join_next().await.is_some() {}
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

/// How many more batches may be claimed, of each kind of lane.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) mains: usize,
    pub(crate) sides: usize,
}

impl Room {
    /// One batch, whatever it is of.
    pub(crate) const ONE: Self = Self { mains: 1, sides: 1 };

    fn is_none(self) -> bool {
        self.mains == 0 && self.sides == 0
    }

    /// Only for one kind: the other one has all that it may have.
    fn is_half(self) -> bool {
        (self.mains == 0) != (self.sides == 0)
    }
}

/// What one consumer of this process has under way.
struct Work<S> {
    consumer: Consumer<S>,
    stop: Stop,
    /// How many handlers run at once.
    slots: Arc<Semaphore>,
    size: Size,
    /// Batches of main lanes, and of side lanes.
    mains: JoinSet<Ended>,
    sides: JoinSet<Ended>,
    /// When there may be a look for one kind while the other has all that it may have; and how often the bell had rung at
    /// the last one that found nothing.
    beside_at: Instant,
    beside_rings: Option<u64>,
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
            mains: JoinSet::new(),
            sides: JoinSet::new(),
            beside_at: now,
            beside_rings: None,
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

    /// How many more batches may be claimed.
    fn room(&self) -> Room {
        let at_once = if self.consumer.context.ordered {
            self.consumer.concurrency
        } else {
            IN_FLIGHT
        };
        // While all places are taken, one batch of a kind is enough to have its turn at the next that is free.
        let at_once = if self.slots.available_permits() == 0 {
            1
        } else {
            at_once
        };
        Room {
            mains: at_once.saturating_sub(self.mains.len()),
            sides: at_once.saturating_sub(self.sides.len()),
        }
    }

    fn is_idle(&self) -> bool {
        self.mains.is_empty() && self.sides.is_empty() && self.retries.is_empty()
    }

    /// One look: what lapsed, what waits for another try, what is new. `rings`: how often the bell had rung before.
    async fn step(&mut self, rings: u64) -> Result<Look, Error> {
        if self.slots.available_permits() == 0 && self.is_idle() {
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
        let room = self.room();
        if !room.is_none() && asked >= self.reclaim_at {
            self.reclaim_at = asked + lease / 3;
            let claim = store.reclaim(id, room.mains.max(room.sides), lease).await?;
            met(Point::Reclaimed, &claim);
            if self.start(claim, asked, Purpose::Work) {
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
            self.retry(claim, asked, Purpose::Work);
            if let Some(next) = store.parked_due(id).await? {
                let next = Instant::now() + next.max(Duration::from_millis(5));
                self.parked_at = self.parked_at.min(next);
            }
        }
        if room.is_none() || room.is_half() && !self.may_look_beside(rings, asked) {
            return Ok(Look::Enough);
        }
        let bounds = self.consumer.bounds(self.size.rows(), room);
        let claim = store.claim(id, bounds).await?;
        met(Point::Claimed, &claim);
        let more = claim.more;
        let found = self.start(claim, asked, Purpose::Work) || more;
        if room.is_half() {
            self.beside_at = if found { asked } else { asked + BESIDE };
            self.beside_rings = (!found).then_some(rings);
        }
        Ok(match (found, room.is_half()) {
            (true, _) => Look::Found,
            (false, true) => Look::Enough,
            (false, false) => Look::Nothing,
        })
    }

    /// One kind has all that it may have: a look for the other alone is worth it after news, or now and then.
    fn may_look_beside(&self, rings: u64, now: Instant) -> bool {
        let news = self.beside_rings.is_none_or(|seen| seen != rings);
        now >= self.beside_at && (news || now >= self.beside_at + BESIDE_ANYWAY)
    }

    /// Waits until another look can bring something.
    async fn wait(&mut self, look: Look, bell: &Bell, seen: u64) {
        let (slots, retries_due) = (self.slots.clone(), self.room_for_retries() > 0);
        let (half, short) = (self.room().is_half(), slots.available_permits() == 0);
        let (rings, at) = (self.beside_rings, self.beside_at);
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
            Ok(_) = slots.acquire(), if matches!(look, Look::NoPlace) || short && matches!(look, Look::Enough) => {}
            () = beside(bell, rings, at), if half && matches!(look, Look::Enough) => {}
            Some(ended) = self.mains.join_next() => self.learn(ended),
            Some(ended) = self.sides.join_next() => self.learn(ended),
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
    fn start(&mut self, claim: Claim, asked: Instant, purpose: Purpose) -> bool {
        let found = !claim.events.is_empty();
        for events in by_token(claim.events) {
            let (consumer, slots, stop) =
                (self.consumer.clone(), self.slots.clone(), self.stop.clone());
            let batches = if events[0].aside() {
                &mut self.sides
            } else {
                &mut self.mains
            };
            batches.spawn(async move {
                batch::run(&consumer, &slots, (events, purpose), asked, &stop).await
            });
        }
        found
    }

    fn retry(&mut self, claim: Claim, asked: Instant, purpose: Purpose) {
        for events in by_token(claim.events) {
            let (consumer, slots, stop) =
                (self.consumer.clone(), self.slots.clone(), self.stop.clone());
            self.retries.spawn(async move {
                batch::run(&consumer, &slots, (events, purpose), asked, &stop).await
            });
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

/// Resolves when a look for one kind of lanes alone may come: at `at` or, if the last one found nothing, after news.
async fn beside(bell: &Bell, rings: Option<u64>, at: Instant) {
    if let Some(seen) = rings {
        tokio::select! {
            () = bell.rung_since(seen) => {}
            () = tokio::time::sleep_until(at + BESIDE_ANYWAY) => {}
        }
    }
    tokio::time::sleep_until(at).await;
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
