//! One batch: run its events, record what became of each, end it by what the tables say.
//!
//! Never holds a transaction or a lock while a handler of outside effects runs. A handler that overruns its deadline is
//! told, given a grace, and then left to itself: its place stays taken, what it returns is not recorded.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use outlast_core::{Failure, Outcome};
use outlast_postgres::store::Claimed;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{consumer::Consumer, flush::Flush, leases::Lease, record, registry, signal::Stop};
use crate::{
    crash::{self, Point},
    handler::{BatchEnd, Delivery, End, Form, Handler},
};

/// How often an event is run again at once after a conflict between transactions, before that counts as a failure.
const CONFLICTS: u32 = 10;

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
    events: Vec<Arc<Claimed>>,
    handler: Option<Arc<Handler<S>>>,
    conflicts: u32,
}

/// A try that has ended, or has been given up.
struct Tried<S> {
    unit: Unit<S>,
    end: BatchEnd,
}

/// What a batch run works with.
struct Run<'a, S> {
    consumer: &'a Consumer<S>,
    lease: Lease,
    flush: Flush,
    waiting: VecDeque<Unit<S>>,
    started: Vec<Uuid>,
    /// Something of it never started, or nobody knows how it ended: that is nobody's failure.
    incomplete: bool,
    ended: Ended,
}

/// Runs the events of one token to their end. `asked` is when the claim was sent: the lease counts from there.
pub(crate) async fn run<S: Clone + Send + Sync + 'static>(
    consumer: &Consumer<S>,
    slots: &Arc<Semaphore>,
    events: Vec<Claimed>,
    asked: Instant,
    stop: &Stop,
) -> Ended {
    let Some(first) = events.first() else {
        return Ended::default();
    };
    let (token, reclaimed) = (first.token, first.reclaims > 0);
    let lease = consumer.leases.hold(token, asked);
    let mut run = Run {
        consumer,
        flush: Flush::new(consumer.store.clone(), lease.clone(), reclaimed),
        lease,
        ended: Ended {
            events: events.len(),
            ..Ended::default()
        },
        waiting: units(consumer, events),
        started: Vec::new(),
        incomplete: false,
    };
    let told = CancellationToken::new();
    let mut running = FuturesUnordered::new();
    // Some: the batch is given back, with what may still run.
    let mut handed_back: Option<Vec<Uuid>> = None;

    while !(run.waiting.is_empty() && running.is_empty()) {
        let may_start = !run.waiting.is_empty();
        tokio::select! {
            biased;
            Some(tried) = running.next() => run.settle(tried).await,
            () = run.lease.lost(), if !told.is_cancelled() => {
                told.cancel();
                run.incomplete |= may_start;
                run.waiting.clear();
            }
            () = stop.draining(), if may_start || !told.is_cancelled() => {
                told.cancel();
                if may_start {
                    handed_back = Some(Vec::new());
                    run.waiting.clear();
                }
            }
            () = stop.ended() => {
                handed_back = Some(std::mem::take(&mut run.started));
                break;
            }
            permit = slots.clone().acquire_owned(), if may_start => {
                let (Ok(permit), Some(unit)) = (permit, run.waiting.pop_front()) else { continue };
                if reclaimed && !run.mark(&unit).await {
                    handed_back = Some(Vec::new());
                    run.waiting.clear();
                    continue;
                }
                run.started.extend(unit.events.iter().map(|event| event.event_id));
                running.push(attempt(consumer.clone(), unit, run.lease.clone(), permit, told.clone()));
            }
        }
    }
    // What is still running goes on by itself; nobody listens any more.
    drop(running);
    run.end(handed_back).await
}

/// All events of a type for a handler that takes many; everything else one by one. Within a type the order of the log
/// stays; between types none is promised, so that events of other types in between do not make small commits of it.
fn units<S>(consumer: &Consumer<S>, events: Vec<Claimed>) -> VecDeque<Unit<S>> {
    let mut units: VecDeque<Unit<S>> = VecDeque::new();
    let mut gathering: HashMap<String, usize> = HashMap::new();
    for event in events {
        let handler = consumer.registry.find(&event.kind, event.version);
        let many = handler
            .as_ref()
            .is_some_and(|handler| matches!(handler.form, Form::Batch(..)));
        if many {
            if let Some(&unit) = gathering.get(&event.kind) {
                units[unit].events.push(Arc::new(event));
                continue;
            }
            gathering.insert(event.kind.clone(), units.len());
        }
        units.push_back(Unit {
            events: vec![Arc::new(event)],
            handler,
            conflicts: 0,
        });
    }
    units
}

/// One try, from the check of its lease to its report.
async fn attempt<S: Clone + Send + Sync + 'static>(
    consumer: Consumer<S>,
    unit: Unit<S>,
    lease: Lease,
    permit: OwnedSemaphorePermit,
    told: CancellationToken,
) -> Tried<S> {
    let ids = |unit: &Unit<S>| unit.events.iter().map(|event| event.event_id).collect();
    let whole = |unit: Unit<S>, end| Tried {
        end: BatchEnd {
            unreadable: Vec::new(),
            ids: ids(&unit),
            end,
        },
        unit,
    };
    let Some(handler) = unit.handler.clone() else {
        return whole(unit, End::NotStarted);
    };
    // What cannot be renewed any more must fit into what is left.
    if lease.is_lost() || lease.left() < consumer.leases.length() / 4 {
        return whole(unit, End::NotStarted);
    }
    let deadline = Instant::now() + consumer.settings.deadline;
    let mut deliveries = unit.events.iter().map(|event| {
        let number = u32::try_from(event.attempt).unwrap_or(1);
        Delivery::new(
            registry::received(event),
            event.token,
            number,
            deadline,
            told.clone(),
        )
    });
    let (context, state) = (consumer.context.clone(), consumer.state.clone());
    let work = match &handler.form {
        Form::Effect(one) | Form::Tx(one, _) => match deliveries.next() {
            Some(delivery) => one.clone().start(context, state, delivery),
            None => return whole(unit, End::NotStarted),
        },
        Form::Batch(many, _) => {
            let work = many.clone().start(context, state, deliveries.collect());
            return match in_time(&consumer, work, permit, deadline).await {
                Ok(end) => Tried { unit, end },
                Err(failure) => whole(unit, End::Failed(failure)),
            };
        }
    };
    let end = in_time(&consumer, work, permit, deadline)
        .await
        .unwrap_or_else(End::Failed);
    whole(unit, end)
}

/// Waits for a try until its deadline and grace are over. The task itself is never dropped inside of somebody's driver:
/// it keeps its place until it returns.
async fn in_time<S, T: Send + 'static>(
    consumer: &Consumer<S>,
    mut work: tokio::task::JoinHandle<T>,
    permit: OwnedSemaphorePermit,
    deadline: Instant,
) -> Result<T, Failure> {
    match tokio::time::timeout_at(deadline + consumer.settings.grace, &mut work).await {
        Ok(Ok(end)) => Ok(end),
        Ok(Err(error)) => Err(Failure::unclassified(format_args!(
            "the try ended without a report: {error}"
        ))),
        Err(_) => {
            tokio::spawn(async move {
                let _ = work.await;
                drop(permit);
            });
            Err(Failure::retry(format_args!(
                "the deadline of {:?} has passed",
                consumer.settings.deadline
            )))
        }
    }
}

impl<S: Clone + Send + Sync + 'static> Run<'_, S> {
    /// Marks a unit of a reclaimed batch as about to start. Unmarked it must not start: it would be nobody's suspect.
    async fn mark(&self, unit: &Unit<S>) -> bool {
        let ids: Vec<Uuid> = unit.events.iter().map(|event| event.event_id).collect();
        let (store, token) = (&self.consumer.store, self.lease.token);
        let marked = record::until_lost(&self.lease, "a start", || store.start(token, &ids)).await;
        if let Err(error) = &marked {
            tracing::warn!(%error, lease = %token, "starts were not marked; left to the next owner");
        }
        marked.inspect(|()| crash::at(Point::Marked)).is_ok()
    }

    /// Records what a try reported.
    async fn settle(&mut self, tried: Tried<S>) {
        let Tried {
            unit,
            end:
                BatchEnd {
                    unreadable,
                    ids,
                    end,
                },
        } = tried;
        for (id, failure) in unreadable {
            self.fail(&unit, id, &failure).await;
        }
        match end {
            End::Done(Outcome::Done) => self.flush.push(ids.into_iter()),
            End::Done(Outcome::Skipped(reason)) => {
                let (store, token) = (&self.consumer.store, self.lease.token);
                for id in ids {
                    record::logged(
                        record::until_lost(&self.lease, "a skip", || {
                            store.skip(token, id, &reason)
                        })
                        .await,
                    );
                    self.ended.done += 1;
                }
            }
            End::Sealed(outcome) => {
                tracing::debug!(events = ids.len(), outcome = outcome.as_str(), "sealed");
                self.ended.done += ids.len();
            }
            End::Failed(failure) if !failure.is_charged() && unit.conflicts < CONFLICTS => {
                self.again(&unit, &ids, unit.conflicts + 1);
            }
            // A batch that fails is run again one event at a time: a failure is then its own event's.
            End::Failed(_) if ids.len() > 1 => self.apart(&unit, &ids),
            End::Failed(failure) => {
                for id in ids {
                    self.fail(&unit, id, &failure).await;
                }
            }
            End::NoTransaction(error) => {
                tracing::warn!(%error, consumer = %self.consumer.name, "no transaction could be begun; put off without a charge");
                let mut failure = Failure::throttled(Duration::from_secs(1));
                failure.reason = error.to_string();
                for id in ids {
                    self.fail(&unit, id, &failure).await;
                }
            }
            End::NotStarted if unit.handler.is_none() => {
                let (store, token) = (&self.consumer.store, self.lease.token);
                for id in ids {
                    record::logged(
                        record::until_lost(&self.lease, "a wait", || {
                            store.wait_for_version(token, id)
                        })
                        .await,
                    );
                    self.ended.failed += 1;
                }
            }
            End::NotStarted => self.incomplete = true,
            End::Refused(error) => {
                tracing::info!(%error, lease = %self.lease.token, events = ids.len(), "rolled back: somebody newer owns this work");
            }
            End::Unsure { xid } => self.look(&unit, &ids, xid).await,
        }
    }

    /// COMMIT was not answered: once that transaction has ended, its seal tells.
    async fn look(&mut self, unit: &Unit<S>, ids: &[Uuid], xid: Option<u64>) {
        let (Some(xid), Some(first)) = (xid, ids.first()) else {
            // Without the id the end of the batch decides: it waits for every open seal.
            return;
        };
        crash::at(Point::Unsure);
        let (store, consumer) = (&self.consumer.store, self.consumer.id);
        match record::until_lost(&self.lease, "a look for a seal", || {
            store.landed(consumer, *first, xid)
        })
        .await
        {
            Ok(true) => self.ended.done += ids.len(),
            Ok(false) => self.again(unit, ids, unit.conflicts),
            Err(error) => record::logged::<()>(Err(error)),
        }
    }

    async fn fail(&mut self, unit: &Unit<S>, id: Uuid, failure: &Failure) {
        self.ended.failed += 1;
        let attempt = unit
            .events
            .iter()
            .find(|event| event.event_id == id)
            .map_or(1, |event| event.attempt);
        record::failure(self.consumer, &self.lease, id, attempt, failure).await;
    }

    fn again(&mut self, unit: &Unit<S>, ids: &[Uuid], conflicts: u32) {
        let events = unit
            .events
            .iter()
            .filter(|event| ids.contains(&event.event_id))
            .cloned()
            .collect();
        self.waiting.push_front(Unit {
            events,
            handler: unit.handler.clone(),
            conflicts,
        });
    }

    fn apart(&mut self, unit: &Unit<S>, ids: &[Uuid]) {
        for event in unit
            .events
            .iter()
            .rev()
            .filter(|event| ids.contains(&event.event_id))
        {
            self.waiting.push_front(Unit {
                events: vec![event.clone()],
                handler: unit.handler.clone(),
                conflicts: 0,
            });
        }
    }

    /// Ends the batch, or gives it back.
    ///
    /// A batch whose lease has lapsed is given back too: what of it is not sealed was perhaps never started, or could not
    /// be recorded. Its end would charge the events for that.
    async fn end(mut self, handed_back: Option<Vec<Uuid>>) -> Ended {
        let (store, lease) = (&self.consumer.store, &self.lease);
        self.ended.done += self.flush.end().await;
        let incomplete = self.incomplete || lease.is_lost();
        let handed_back = handed_back.or_else(|| incomplete.then(Vec::new));
        if let Some(running) = handed_back {
            record::logged(
                record::until_lost(lease, "a hand back", || {
                    store.hand_back(lease.token, &running)
                })
                .await,
            );
            crash::at(Point::HandedBack);
        } else {
            let tokens = [lease.token];
            crash::at(Point::Finishing);
            let finished = record::until_lost(lease, "an end", || store.finish(&tokens)).await;
            match finished.inspect(|_| crash::at(Point::Finished)) {
                Ok(0) => {}
                Ok(leftovers) => {
                    tracing::warn!(consumer = %self.consumer.name, lease = %lease.token, leftovers, "parked as unsealed: a handler returned without a seal");
                }
                Err(error) => record::logged::<()>(Err(error)),
            }
        }
        self.consumer.leases.drop(lease.token);
        self.ended.took = lease.held_since().elapsed();
        self.ended
    }
}
