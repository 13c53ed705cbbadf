//! One batch: run its events, record what became of each, end it by what the tables say.
//!
//! Never holds a transaction or a lock while a handler of outside effects runs. A handler that overruns its deadline is
//! told, given a grace, and then left to itself: its place stays taken, what it returns is not recorded.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use outlast_core::Failure;
use outlast_postgres::store::Claimed;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::Instant,
};
use uuid::Uuid;

use super::{
    consumer::Consumer,
    flush::Flush,
    leases::Lease,
    record,
    signal::{Signal, Stop},
};
use crate::handler::{Delivery, End, Handler};

/// What came of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    /// How many events it had.
    pub(crate) events: usize,
    /// How many this process completed.
    pub(crate) done: usize,
    /// How many failed and wait, or need a person.
    pub(crate) failed: usize,
    /// From claim to end.
    pub(crate) took: Duration,
}

/// What is tried at once: one event, or a run of events for a handler that takes many.
struct Unit<S> {
    events: Vec<Claimed>,
    handler: Option<Arc<Handler<S>>>,
}

/// What a try reports, with the events that it was about.
struct Tried {
    events: Vec<Claimed>,
    end: End,
}

/// Runs the events of one token to their end. `asked` is when the claim was sent: the lease counts from there.
pub(crate) async fn run<S: Clone + Send + Sync + 'static>(
    consumer: &Consumer<S>,
    slots: &Arc<Semaphore>,
    events: Vec<Claimed>,
    asked: Instant,
    stop: &Stop,
) -> Ended {
    let Some(first) = events.first() else { return Ended::default() };
    let (token, reclaimed) = (first.token, first.reclaims > 0);
    let lease = consumer.leases.hold(token, asked);
    let flush = Flush::new(consumer.store.clone(), lease.clone(), reclaimed);
    let mut ended = Ended { events: events.len(), ..Ended::default() };
    let mut waiting = units(consumer, events);
    let mut running: JoinSet<Tried> = JoinSet::new();
    // Some: the batch is given back, with what may still run.
    let mut handed_back: Option<Vec<Uuid>> = None;
    let mut started: Vec<Uuid> = Vec::new();

    while !(waiting.is_empty() && running.is_empty()) {
        let may_start = !waiting.is_empty();
        tokio::select! {
            biased;
            Some(tried) = running.join_next() => match tried {
                Ok(tried) => settle(consumer, &lease, &flush, tried, &mut waiting, &mut ended).await,
                // The tries catch panics themselves; what is lost here is left over and parked at the end.
                Err(error) => tracing::error!(%error, lease = %token, "a try ended without a report"),
            },
            () = lease.lost(), if may_start => waiting.clear(),
            () = stop.draining(), if may_start => {
                handed_back = Some(Vec::new());
                waiting.clear();
            }
            () = stop.ended(), if !may_start => {
                handed_back = Some(started.clone());
                running.detach_all();
            }
            permit = slots.clone().acquire_owned(), if may_start => {
                let (Ok(permit), Some(unit)) = (permit, waiting.pop_front()) else { continue };
                if reclaimed && let Err(error) = mark(consumer, &lease, &unit).await {
                    // Unmarked it must not start: it would be nobody's suspect.
                    tracing::warn!(%error, lease = %token, "starts were not marked; left to the next owner");
                    waiting.clear();
                    handed_back = Some(Vec::new());
                    continue;
                }
                started.extend(unit.events.iter().map(|event| event.event_id));
                running.spawn(attempt(consumer.clone(), unit, lease.clone(), permit, stop.clone()));
            }
        }
    }
    ended.done += flush.end().await;
    end(consumer, &lease, handed_back.as_deref()).await;
    consumer.leases.drop(token);
    ended.took = asked.elapsed();
    ended
}

/// Runs of consecutive events for a handler that takes many; everything else one by one.
fn units<S>(consumer: &Consumer<S>, events: Vec<Claimed>) -> VecDeque<Unit<S>> {
    let mut units: VecDeque<Unit<S>> = VecDeque::new();
    for event in events {
        let handler = consumer.handler(&event.kind, event.version);
        let many = matches!(handler.as_deref(), Some(Handler::Batch(_)));
        match units.back_mut() {
            Some(last) if many && last.handler.is_some() && last.events[0].kind == event.kind && last.events[0].version == event.version => {
                last.events.push(event);
            }
            _ => units.push_back(Unit { events: vec![event], handler }),
        }
    }
    units
}

async fn mark<S>(consumer: &Consumer<S>, lease: &Lease, unit: &Unit<S>) -> Result<(), outlast_postgres::Error> {
    let ids: Vec<Uuid> = unit.events.iter().map(|event| event.event_id).collect();
    record::until_lost(lease, "mark starts", || consumer.store.start(lease.token, &ids)).await
}

/// One try, from the check of its lease to its report.
async fn attempt<S: Clone + Send + Sync + 'static>(
    consumer: Consumer<S>,
    unit: Unit<S>,
    lease: Lease,
    permit: OwnedSemaphorePermit,
    stop: Stop,
) -> Tried {
    let Unit { events, handler } = unit;
    let Some(handler) = handler else { return Tried { events, end: End::NoHandler } };
    // What cannot be renewed any more must fit into what is left.
    if lease.is_lost() || lease.left() < consumer.leases.length() / 4 {
        return Tried { events, end: End::Lost };
    }
    let deadline = Instant::now() + consumer.settings.deadline;
    let signal = Signal::new(lease.clone(), deadline, stop);
    let mut deliveries = events.iter().map(|event| Delivery::new(event, deadline, signal.clone(), &consumer.outlast));
    let mut work = match &*handler {
        Handler::Effect(run) | Handler::Tx(run) => match deliveries.next() {
            Some(delivery) => run(consumer.state.clone(), delivery),
            None => return Tried { events: Vec::new(), end: End::Lost },
        },
        Handler::Batch(run) => run(consumer.state.clone(), deliveries.collect()),
    };
    let end = match tokio::time::timeout_at(deadline + consumer.settings.grace, &mut work).await {
        Ok(end) => end,
        Err(_) => {
            // Never dropped inside of somebody's driver: it keeps its place until it returns.
            tokio::spawn(async move {
                let _ = work.await;
                drop(permit);
            });
            End::Failed(Failure::retry(format_args!("the deadline of {:?} has passed", consumer.settings.deadline)))
        }
    };
    Tried { events, end }
}

/// Records what a try reported.
async fn settle<S>(
    consumer: &Consumer<S>,
    lease: &Lease,
    flush: &Flush,
    tried: Tried,
    waiting: &mut VecDeque<Unit<S>>,
    ended: &mut Ended,
) {
    let Tried { events, end } = tried;
    if events.len() > 1 && matches!(end, End::Failed(_)) {
        // A batch that fails is run again one event at a time: a failure is then its own event's.
        let kind = (events[0].kind.clone(), events[0].version);
        for event in events.into_iter().rev() {
            waiting.push_front(Unit { events: vec![event], handler: consumer.handler(&kind.0, kind.1) });
        }
        return;
    }
    match end {
        End::Done => flush.push(events.iter().map(|event| event.event_id)),
        End::Sealed => ended.done += events.len(),
        End::Skipped(reason) => {
            for event in &events {
                record::logged(record::until_lost(lease, "skip", || consumer.store.skip(lease.token, event.event_id, &reason)).await);
            }
            ended.done += events.len();
        }
        End::Failed(failure) => {
            ended.failed += events.len();
            for event in &events {
                record::failure(consumer, lease, event, &failure).await;
            }
        }
        End::NoHandler => {
            ended.failed += events.len();
            for event in &events {
                record::logged(record::until_lost(lease, "park for another version", || consumer.store.wait_for_version(lease.token, event.event_id)).await);
            }
        }
        End::Lost => tracing::info!(lease = %lease.token, events = events.len(), "not recorded: somebody newer owns this work"),
    }
}

/// Ends the batch, or gives back what was never started.
async fn end<S>(consumer: &Consumer<S>, lease: &Lease, handed_back: Option<&[Uuid]>) {
    if let Some(running) = handed_back {
        record::logged(record::until_lost(lease, "hand back", || consumer.store.hand_back(lease.token, running)).await);
        return;
    }
    match record::until_lost(lease, "finish", || consumer.store.finish(&[lease.token])).await {
        Ok(0) => {}
        Ok(leftovers) => tracing::warn!(consumer = %consumer.name, lease = %lease.token, leftovers, "parked as unsealed: a handler returned without a seal"),
        Err(error) => record::logged::<()>(Err(error)),
    }
}
