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

/// Batches in flight at once: one runs while the other is claimed or ended.
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
    pub(crate) settings: Arc<Settings>,
    pub(crate) concurrency: usize,
}

impl<S> Consumer<S> {
    /// What a claim of this many events may take.
    pub(crate) fn bounds(&self, rows: usize) -> Bounds {
        let lease = self.leases.length();
        Bounds {
            rows,
            bytes: self.settings.batch_bytes as u64,
            scanned: self.settings.scanned_rows as u32,
            lease,
        }
    }
}

/// When the rarer looks are due next.
struct Due {
    reclaim: Instant,
    parked: Instant,
}

/// Runs until the worker drains; then waits for its batches.
pub(crate) async fn run<S: Clone + Send + Sync + 'static>(
    consumer: Consumer<S>,
    bell: Bell,
    stop: Stop,
) -> Result<(), Error> {
    let slots = Arc::new(Semaphore::new(consumer.concurrency));
    let mut size = Size::new(consumer.settings.batch_rows);
    let mut batches: JoinSet<Ended> = JoinSet::new();
    let now = Instant::now();
    let mut due = Due {
        reclaim: now,
        parked: now,
    };
    let mut failures: u32 = 0;
    while !stop.is_draining() {
        let seen = bell.rings();
        // Never dropped half-way: what a claim has taken would wait for its lease to lapse.
        match step(&consumer, &slots, &mut size, &mut batches, &mut due, &stop).await {
            Ok(Look::Found) => failures = 0,
            Ok(Look::Nothing) => {
                failures = 0;
                let until = due.reclaim.min(due.parked).min(Instant::now() + SWEEP);
                tokio::select! {
                    () = stop.draining() => break,
                    () = bell.rung_since(seen) => {}
                    () = tokio::time::sleep_until(until) => {}
                    Some(ended) = batches.join_next() => learn(&mut size, &mut due, ended),
                }
            }
            Ok(Look::NoRoom) => {
                let room = batches.len() < IN_FLIGHT;
                tokio::select! {
                    () = stop.draining() => break,
                    Ok(_) = slots.acquire(), if room => {}
                    Some(ended) = batches.join_next() => learn(&mut size, &mut due, ended),
                }
            }
            Err(error) if error.is_transient() => {
                failures = failures.saturating_add(1);
                let pause = record::pause(failures);
                told!(failures, %error, consumer = %consumer.name, retry_ms = pause.as_millis() as u64, "nothing was claimed");
                tokio::select! {
                    () = stop.draining() => break,
                    () = tokio::time::sleep(pause) => {}
                }
            }
            Err(error) => return Err(error),
        }
    }
    while batches.join_next().await.is_some() {}
    Ok(())
}

/// What a look has brought.
enum Look {
    /// Something: the next look comes at once.
    Found,
    /// Nothing is due: wait for news or a time.
    Nothing,
    /// Nobody looked: wait until a batch has ended or a place is free.
    NoRoom,
}

/// One look.
async fn step<S: Clone + Send + Sync + 'static>(
    consumer: &Consumer<S>,
    slots: &Arc<Semaphore>,
    size: &mut Size,
    batches: &mut JoinSet<Ended>,
    due: &mut Due,
    stop: &Stop,
) -> Result<Look, Error> {
    // Handlers that overran their deadline keep their places; without a free one nothing would start.
    if batches.len() >= IN_FLIGHT || slots.available_permits() == 0 {
        return Ok(Look::NoRoom);
    }
    let lease = consumer.leases.length();
    let asked = Instant::now();
    if asked >= due.reclaim {
        due.reclaim = asked + lease / 3;
        let claim = consumer
            .store
            .reclaim(consumer.id, IN_FLIGHT, lease)
            .await?;
        met(Point::Reclaimed, &claim);
        if start(consumer, slots, batches, claim, asked, stop) {
            return Ok(Look::Found);
        }
    }
    if asked >= due.parked {
        due.parked = asked + SWEEP;
        let (types, versions) = consumer.registry.takes();
        let claim = consumer
            .store
            .claim_parked(consumer.id, consumer.concurrency, lease, types, versions)
            .await?;
        met(Point::ParkedClaimed, &claim);
        let found = start(consumer, slots, batches, claim, asked, stop);
        if let Some(next) = consumer.store.parked_due(consumer.id).await? {
            due.parked = due
                .parked
                .min(Instant::now() + next.max(Duration::from_millis(5)));
        }
        if found {
            return Ok(Look::Found);
        }
    }
    let claim = consumer
        .store
        .claim(consumer.id, consumer.bounds(size.rows()))
        .await?;
    let more = claim.more;
    met(Point::Claimed, &claim);
    let found = start(consumer, slots, batches, claim, asked, stop);
    Ok(if found || more {
        Look::Found
    } else {
        Look::Nothing
    })
}

/// A claim that brought something has committed.
fn met(point: Point, claim: &Claim) {
    if !claim.events.is_empty() {
        crash::at(point);
    }
}

/// Starts what a claim has brought, each token by itself.
fn start<S: Clone + Send + Sync + 'static>(
    consumer: &Consumer<S>,
    slots: &Arc<Semaphore>,
    batches: &mut JoinSet<Ended>,
    claim: Claim,
    asked: Instant,
    stop: &Stop,
) -> bool {
    let found = !claim.events.is_empty();
    for events in by_token(claim.events) {
        let (consumer, slots, stop) = (consumer.clone(), slots.clone(), stop.clone());
        batches.spawn(async move { batch::run(&consumer, &slots, events, asked, &stop).await });
    }
    found
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

/// Learns from a batch that ended.
fn learn(size: &mut Size, due: &mut Due, ended: Result<Ended, tokio::task::JoinError>) {
    match ended {
        Ok(ended) => {
            size.learn(ended.events, ended.took);
            if ended.failed > 0 {
                due.parked = Instant::now();
            }
        }
        Err(error) => tracing::error!(%error, "a batch ended without a report"),
    }
}
