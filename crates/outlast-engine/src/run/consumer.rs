//! The loop of one consumer: reclaim what lapsed, retry what is due, claim what is new, wait for news.

use std::{sync::Arc, time::Duration};

use outlast_core::size::Size;
use outlast_postgres::{
    Error,
    store::{Bounds, Claim, Claimed, Store},
};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use uuid::Uuid;

mod probe;

use super::{
    batch::{self, Ended},
    books::Books,
    broker::Deliveries,
    destination::{Destination, Purpose},
    leases::Leases,
    record::{self, told},
    registry::Registry,
    signal::Stop,
    sweep::Sweep,
    tally::Tally,
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
/// After a claim that, woken by news, has brought less than it might have: without more news, a look comes after this long.
const AFTER_ALL: Duration = Duration::from_millis(25);
/// Without news, this long: other processes take tenants apart, too.
const BESIDE_ANYWAY: Duration = Duration::from_secs(1);

/// One consumer of this process, or the jobs of one name: what a batch is run with. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Consumer<S> {
    pub(crate) id: i32,
    pub(crate) name: Arc<str>,
    pub(crate) state: S,
    pub(crate) context: Context,
    pub(crate) registry: Arc<Registry<S>>,
    pub(crate) store: Store,
    /// Where what becomes of its work is written.
    pub(crate) books: Books,
    pub(crate) leases: Leases,
    pub(crate) destination: Destination,
    pub(crate) settings: Arc<Settings>,
    pub(crate) concurrency: usize,
    /// What it was delivered, if it reads a broker.
    pub(crate) deliveries: Option<Deliveries>,
    /// Who wants to know how its batches come on.
    pub(crate) tally: Option<Arc<Tally>>,
}

impl<S> Consumer<S> {
    /// Whether a broker has delivered this event: it is not parked, and not of the log.
    pub(super) fn is_delivered(&self, event: &Claimed) -> bool {
        self.deliveries.is_some() && event.lane.is_some()
    }

    /// What became of these is committed: if a broker has delivered them under this lease, it need not again.
    pub(super) fn durable(&self, token: Uuid, ids: &[Uuid]) {
        if let Some(deliveries) = &self.deliveries {
            deliveries.durable(token, ids);
        }
    }

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
    sweep: Arc<Sweep>,
    bell: Bell,
    stop: Stop,
) -> Result<(), Error> {
    let mut work = Work::new(consumer, sweep, stop.clone());
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
                // What it has learned, and not done, is asked for again.
                work.begin_anew();
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
    /// What the bell has rung for, as far as one can tell: the next look comes after more news, or a little later.
    All,
    /// Nothing is due: wait for news or a time.
    Nothing,
    /// Enough batches are in flight: wait for the end of one, or for a retry to become due.
    Enough,
    /// No place is free: handlers that overran their deadline keep theirs, and nothing would start.
    NoPlace,
    /// The destination is down: wait for the end of what runs, then for the time of the next probe.
    Down,
}

/// What has ended a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// News.
    ByBell,
    /// A time, where nothing was there before it.
    ByTime,
    /// Anything else.
    Otherwise,
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
    sweep: Arc<Sweep>,
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
    /// What has ended the last wait.
    woken: Woken,
    /// How often the bell had rung before the last claim.
    rings: Option<u64>,
    /// Parked events that are tried again. Apart from the batches, and never more than half of the places: what fails
    /// over and over does not hold up what is new.
    retries: JoinSet<Ended>,
    /// When everything is looked at that nobody has told of.
    sweep_at: Instant,
    /// Somebody's lease has lapsed.
    lapsed: bool,
    /// When something parked is due, as far as we know.
    parked_at: Option<Instant>,
    /// During an outage: when to probe again, and how often it was.
    probe_at: Option<Instant>,
    probes: u32,
}

impl<S: Clone + Send + Sync + 'static> Work<S> {
    fn new(consumer: Consumer<S>, sweep: Arc<Sweep>, stop: Stop) -> Self {
        let now = Instant::now();
        Self {
            sweep_at: sweep.after(now),
            sweep,
            slots: Arc::new(Semaphore::new(consumer.concurrency)),
            size: Size::new(consumer.settings.batch_rows),
            mains: JoinSet::new(),
            sides: JoinSet::new(),
            beside_at: now,
            beside_rings: None,
            woken: Woken::Otherwise,
            rings: None,
            retries: JoinSet::new(),
            lapsed: true,
            parked_at: Some(now),
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
        // While all places are taken, one batch of a kind is enough to have its turn at the next that is free. Not where
        // tenants with a backlog are apart: what is left in the main lanes is a few events of others in many of them, and
        // lane after lane these would wait for as many claims, and as many turns, as there are lanes.
        let all_taken = self.slots.available_permits() == 0;
        let apart = self.consumer.context.ordered && !self.sides.is_empty();
        let mains = if all_taken && !apart { 1 } else { at_once };
        let sides = if all_taken { 1 } else { at_once };
        Room {
            mains: mains.saturating_sub(self.mains.len()),
            sides: sides.saturating_sub(self.sides.len()),
        }
    }

    /// As if nothing were known.
    fn begin_anew(&mut self) {
        self.woken = Woken::Otherwise;
        self.lapsed = true;
        self.parked_at = Some(Instant::now());
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
            self.begin_anew();
        }
        let (store, id) = (self.consumer.store.clone(), self.consumer.id);
        let lease = self.consumer.leases.length();
        let asked = Instant::now();
        let room = self.room();
        // Nothing was there, and nobody has told of anything since: only a time has come.
        let mut news = self.woken != Woken::ByTime || self.rings != Some(rings);
        if asked >= self.sweep_at {
            let due = self.sweep.of(self.sweep_at, id).await?;
            self.sweep_at = self.sweep.after(asked);
            self.lapsed |= due.lapsed;
            let parked_at = due.parked.map(|after| asked + after);
            self.parked_at = earlier(self.parked_at, parked_at);
            news |= due.news;
        }
        if !room.is_none() && self.lapsed {
            self.lapsed = false;
            let claim = store.reclaim(id, room.mains.max(room.sides), lease).await?;
            met(Point::Reclaimed, &claim);
            if self.start(claim, asked, Purpose::Work) {
                return Ok(Look::Found);
            }
        }
        if self.room_for_retries() > 0 && self.parked_at.is_some_and(|at| asked >= at) {
            self.parked_at = None;
            let (types, versions) = self.consumer.registry.takes();
            let claim = store
                .claim_parked(id, self.room_for_retries(), lease, types, versions)
                .await?;
            met(Point::ParkedClaimed, &claim);
            self.retry(claim, asked, Purpose::Work);
            if let Some(next) = store.parked_due(id).await? {
                self.parked_at = Some(Instant::now() + next.max(Duration::from_millis(5)));
            }
        }
        if room.is_none() || room.is_half() && !self.may_look_beside(rings, asked) {
            return Ok(Look::Enough);
        }
        if !news {
            return Ok(Look::Nothing);
        }
        self.rings = Some(rings);
        let bounds = self.consumer.bounds(self.size.rows(), room);
        let claim = store.claim(id, bounds).await?;
        met(Point::Claimed, &claim);
        let more = claim.more;
        let all = self.woken == Woken::ByBell && !room.is_half() && self.is_all(&claim, bounds);
        let found = self.start(claim, asked, Purpose::Work) || more;
        if found && all {
            return Ok(Look::All);
        }
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

    /// A claim that was not full, of a consumer without lanes of which others might have more.
    fn is_all(&self, claim: &Claim, bounds: Bounds) -> bool {
        !self.consumer.context.ordered
            && !claim.more
            && claim.events.len() < bounds.rows
            && self.sides.is_empty()
            && !claim.events.iter().any(Claimed::aside)
    }

    /// One kind has all that it may have: a look for the other alone is worth it after news, or now and then.
    fn may_look_beside(&self, rings: u64, now: Instant) -> bool {
        let news = self.beside_rings.is_none_or(|seen| seen != rings);
        now >= self.beside_at && (news || now >= self.beside_at + BESIDE_ANYWAY)
    }

    /// Waits until another look can bring something.
    async fn wait(&mut self, look: Look, bell: &Bell, seen: u64) {
        let soon = Instant::now() + AFTER_ALL;
        self.woken = Woken::Otherwise;
        loop {
            let (slots, retries_due) = (self.slots.clone(), self.room_for_retries() > 0);
            let (half, short) = (self.room().is_half(), slots.available_permits() == 0);
            let (rings, at) = (self.beside_rings, self.beside_at);
            let parked_at = self.parked_at.filter(|_| retries_due);
            let idle = parked_at.map_or(self.sweep_at, |at| at.min(self.sweep_at));
            let until = match look {
                Look::Found => return,
                Look::All => idle.min(soon),
                Look::Nothing => idle,
                Look::Enough | Look::NoPlace => idle,
                Look::Down => self.probe_at.unwrap_or(idle),
            };
            let timed = match look {
                Look::All | Look::Nothing | Look::Enough => true,
                Look::Down => self.probe_at.is_some(),
                Look::Found | Look::NoPlace => false,
            };
            let listens = matches!(look, Look::All | Look::Nothing);
            tokio::select! {
                () = bell.rung_since(seen), if listens => self.woken = Woken::ByBell,
                () = tokio::time::sleep_until(until), if timed => {
                    if matches!(look, Look::Nothing) {
                        self.woken = Woken::ByTime;
                    }
                }
                Ok(_) = slots.acquire(), if matches!(look, Look::NoPlace) || short && matches!(look, Look::Enough) => {}
                () = beside(bell, rings, at), if half && matches!(look, Look::Enough) => {}
                Some(ended) = self.mains.join_next() => {
                    self.learn(ended);
                    // Its end makes nothing new to claim, unless its lane was closed while it ran.
                    if listens && !self.consumer.context.ordered { continue }
                }
                Some(ended) = self.sides.join_next() => self.learn(ended),
                Some(ended) = self.retries.join_next() => {
                    // What waits behind an event is due as soon as that is done.
                    if self.consumer.context.ordered {
                        self.parked_at = Some(Instant::now());
                    }
                    self.tried(ended);
                }
            }
            return;
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
            Ok(ended) if ended.failed > 0 => self.parked_at = Some(Instant::now()),
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "a batch ended without a report"),
        }
    }
}

pub(super) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
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
pub(super) fn met(point: Point, claim: &Claim) {
    if !claim.events.is_empty() {
        crash::at(point);
    }
}

pub(super) fn by_token(events: Vec<Claimed>) -> Vec<Vec<Claimed>> {
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
