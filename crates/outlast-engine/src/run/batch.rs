//! One batch: run its events, record what became of each, end it by what the tables say.
//!
//! Never holds a transaction or a lock while a handler of outside effects runs. A handler that overruns its deadline is
//! told, given a grace, and then left to itself: its place stays taken, what it returns is not recorded.
//!
//! On an ordered consumer a batch is a lane: its events run one after the other, what is sealed of a key is always the
//! beginning of it, and after a failure what is left of its key is not started.

mod settle;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt};
use outlast_core::Failure;
use outlast_postgres::store::Claimed;
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    consumer::Consumer,
    destination::Purpose,
    flush::{Flush, How},
    leases::Lease,
    record,
    signal::Stop,
    tally::Told,
    tries::{Unit, attempt, units},
};
use crate::{
    crash::{self, Point},
    handler::Form,
};

/// What came of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    /// How many events it had.
    pub(crate) events: usize,
    /// How many this process completed.
    pub(crate) done: usize,
    /// How many failed and wait, or need a person.
    pub(crate) failed: usize,
    /// From the first start to the last return of a handler. Not to the end: when many batches wait for the database, each
    /// takes long whatever its size, and smaller ones would make it wait more.
    pub(crate) took: Duration,
}

/// What a batch run works with.
struct Run<'a, S> {
    consumer: &'a Consumer<S>,
    lease: Lease,
    flush: Flush,
    /// The last ids to be sealed: in one commit with the end.
    last: Vec<Uuid>,
    waiting: VecDeque<Unit<S>>,
    started: Vec<Uuid>,
    /// What a broker has delivered of it.
    delivered: Vec<Uuid>,
    /// Something of it never started, or nobody knows how it ended: that is nobody's failure.
    incomplete: bool,
    /// If it is a probe: one try, and what follows only if that succeeds.
    purpose: Purpose,
    /// That try has failed.
    probe_failed: bool,
    ended: Ended,
    told: Told,
}

/// Runs the events of one token to their end. `asked` is when the claim was sent: the lease counts from there.
pub(crate) async fn run<S: Clone + Send + Sync + 'static>(
    consumer: &Consumer<S>,
    slots: &Arc<Semaphore>,
    (events, purpose): (Vec<Claimed>, Purpose),
    asked: Instant,
    stop: &Stop,
) -> Ended {
    let Some(first) = events.first() else {
        return Ended::default();
    };
    let (token, reclaimed) = (first.token, first.reclaims > 0);
    // What may kill its worker is known to be done as soon as it is.
    let wait = match events.iter().any(|event| event.reclaims > 0) {
        true => Duration::ZERO,
        false => consumer.books.waits(consumer.settings.flush),
    };
    let lease = consumer.leases.hold(token, asked);
    let mut run = Run {
        consumer,
        flush: Flush::new(
            consumer.books.clone(),
            lease.clone(),
            How {
                reclaimed,
                ordered: consumer.context.ordered,
                wait,
            },
            consumer.deliveries.clone(),
        ),
        lease,
        ended: Ended {
            events: events.len(),
            ..Ended::default()
        },
        last: Vec::new(),
        delivered: delivered(consumer, &events),
        waiting: units(consumer, events),
        started: Vec::new(),
        incomplete: false,
        purpose,
        probe_failed: false,
        told: Told::to(consumer.tally.clone()),
    };
    let told = CancellationToken::new();
    let mut running = FuturesUnordered::new();
    // Some: the batch is given back, with what may still run.
    let mut handed_back: Option<Vec<Uuid>> = None;
    let mut began: Option<Instant> = None;

    while !(run.waiting.is_empty() && running.is_empty()) {
        run.told
            .tell(run.waiting.len(), running.len(), run.ended.failed);
        let down = consumer.destination.is_down();
        if down && (purpose == Purpose::Work || run.probe_failed) && !run.waiting.is_empty() {
            // Claimed and not started: given back, without a charge.
            handed_back = Some(Vec::new());
            run.waiting.clear();
            continue;
        }
        let one_by_one = consumer.context.ordered || down;
        let may_start = !run.waiting.is_empty() && (running.is_empty() || !one_by_one);
        tokio::select! {
            biased;
            Some(tried) = running.next() => {
                let last = running.is_empty();
                run.settle(tried, last).await;
            }
            () = run.lease.lost(), if !told.is_cancelled() => {
                told.cancel();
                run.incomplete |= !run.waiting.is_empty();
                run.waiting.clear();
                run.forget();
            }
            () = stop.draining(), if !run.waiting.is_empty() || !told.is_cancelled() => {
                told.cancel();
                if !run.waiting.is_empty() && !run.let_go().await {
                    handed_back = Some(Vec::new());
                }
                run.waiting.clear();
            }
            () = stop.ended() => {
                handed_back = Some(std::mem::take(&mut run.started));
                break;
            }
            () = consumer.destination.down(), if may_start && !down => {}
            permit = slots.clone().acquire_owned(), if may_start => {
                let (Ok(permit), Some(unit)) = (permit, run.waiting.pop_front()) else { continue };
                if !run.may_follow(&unit).await {
                    run.stop_here();
                    continue;
                }
                if unit.was_lost() && !run.mark(&unit).await {
                    handed_back = Some(Vec::new());
                    run.waiting.clear();
                    continue;
                }
                began.get_or_insert_with(Instant::now);
                run.started.extend(unit.events.iter().map(|event| event.event_id));
                running.push(attempt(consumer.clone(), unit, run.lease.clone(), permit, told.clone()));
            }
        }
    }
    // What is still running goes on by itself; nobody listens any more.
    drop(running);
    run.ended.took = began.map_or(Duration::ZERO, |began| began.elapsed());
    run.end(handed_back).await
}

impl<S: Clone + Send + Sync + 'static> Run<'_, S> {
    /// Marks a unit of a reclaimed batch as about to start. Unmarked it must not start: it would be nobody's suspect.
    async fn mark(&self, unit: &Unit<S>) -> bool {
        let ids: Vec<Uuid> = unit.events.iter().map(|event| event.event_id).collect();
        let (books, token) = (&self.consumer.books, self.lease.token);
        let marked = record::until_lost(&self.lease, "a start", || books.start(token, &ids)).await;
        if let Err(error) = &marked {
            tracing::warn!(%error, lease = %token, "starts were not marked; left to the next owner");
        }
        marked.inspect(|()| crash::at(Point::Marked)).is_ok()
    }

    /// Gives back what waits, if that can be without the rest.
    async fn let_go(&mut self) -> bool {
        let waiting = self.waiting.iter().flat_map(|unit| &unit.events);
        let ids: Vec<Uuid> = waiting.map(|event| event.event_id).collect();
        let (books, token) = (&self.consumer.books, self.lease.token);
        let gone =
            record::until_lost(&self.lease, "what waits", || books.let_go(token, &ids)).await;
        let gone = gone.unwrap_or_else(|error| {
            record::logged::<()>(Err(error));
            false
        });
        if gone {
            self.ended.events = self.ended.events.saturating_sub(ids.len());
        }
        gone
    }

    /// Whether what was done before this unit is durable enough for it. Where order counts, a commit of a handler must not
    /// overtake the seals of the events before it.
    async fn may_follow(&self, unit: &Unit<S>) -> bool {
        let commits = unit.handler.as_ref().is_none_or(|handler| {
            !matches!(
                handler.form,
                Form::Effect(_) | Form::Command(_) | Form::Publish(_)
            )
        });
        !(self.ordered() && commits) || self.flush.settled().await
    }

    fn ordered(&self) -> bool {
        self.consumer.context.ordered
    }

    /// Where order counts, nothing of this batch may follow what nobody knows the end of: the next owner finds out.
    fn stop_here(&mut self) {
        if self.ordered() {
            self.incomplete = true;
            self.waiting.clear();
        }
    }

    /// Later events of this key wait behind it now, in the database: they are not started.
    fn leave_key(&mut self, event: &Claimed) {
        if !self.ordered() || event.key.is_none() {
            return;
        }
        for unit in &mut self.waiting {
            unit.events
                .retain(|later| (&later.tenant, &later.key) != (&event.tenant, &event.key));
        }
        self.waiting.retain(|unit| !unit.events.is_empty());
    }

    /// An event, and of a delivery what is left of its key, which has to wait behind it if it is handed over.
    fn with_its_key<'e>(&'e self, event: &'e Claimed) -> Vec<&'e Claimed> {
        let mut events = vec![event];
        if self.consumer.is_delivered(event) && self.ordered() && event.key.is_some() {
            let later = self.waiting.iter().flat_map(|unit| &unit.events);
            events.extend(later.map(|later| &**later).filter(|later| {
                later.event_id != event.event_id
                    && (&later.tenant, &later.key) == (&event.tenant, &event.key)
            }));
        }
        events
    }

    /// The retry owns these now, durably.
    fn handed_over(&self, events: &[&Claimed]) {
        let ids: Vec<Uuid> = events.iter().map(|event| event.event_id).collect();
        self.consumer.durable(self.lease.token, &ids);
    }

    async fn succeeded(&self) {
        let consumer = self.consumer;
        let whose = (&consumer.store, consumer.id, &*consumer.name);
        consumer.destination.succeeded(whose).await;
    }

    async fn failed(&self, id: Uuid, failure: &Failure) {
        let consumer = self.consumer;
        let whose = (&consumer.store, consumer.id, &*consumer.name);
        // A probe counts once, however many events it has.
        let purpose = match self.probe_failed {
            true => Purpose::Work,
            false => self.purpose,
        };
        let what = (id, purpose);
        consumer.destination.failed(whose, what, failure).await;
    }

    /// Ends the batch, or gives it back.
    ///
    /// A batch whose lease has lapsed is given back too: what of it is not sealed was perhaps never started, or could not
    /// be recorded. Its end would charge the events for that.
    async fn end(mut self, handed_back: Option<Vec<Uuid>>) -> Ended {
        if self.ordered() && !self.flush.settled().await {
            self.incomplete = true;
            self.last.clear();
        }
        let incomplete = self.incomplete || self.lease.is_lost();
        let handed_back = handed_back.or_else(|| incomplete.then(Vec::new));
        let (books, lease) = (&self.consumer.books, &self.lease);
        let (done, ended) = self
            .flush
            .end(std::mem::take(&mut self.last), handed_back.is_none())
            .await;
        self.ended.done += done;
        if let Some(running) = handed_back {
            // How long the rest would have taken is not known.
            self.ended.events = self.ended.done + self.ended.failed;
            record::logged(
                record::until_lost(lease, "a hand back", || {
                    books.hand_back(lease.token, &running)
                })
                .await,
            );
            crash::at(Point::HandedBack);
        }
        match ended {
            Some(Ok(leftovers)) if leftovers > 0 => {
                tracing::warn!(consumer = %self.consumer.name, lease = %lease.token, leftovers, "{}", books.leftovers());
            }
            Some(Err(error)) => record::logged::<()>(Err(error)),
            _ => {}
        }
        if let Some(deliveries) = &self.consumer.deliveries {
            // Of what is left nothing is durable; under a lost lease somebody else may have it.
            match lease.is_lost() {
                true => deliveries.forget(lease.token, &self.delivered),
                false => deliveries.give_back(lease.token, &self.delivered),
            }
        }
        self.consumer.leases.drop(lease.token);
        self.ended
    }

    /// Somebody else may have what was delivered: it is kept from nobody any more.
    fn forget(&self) {
        if let Some(deliveries) = &self.consumer.deliveries {
            deliveries.forget(self.lease.token, &self.delivered);
        }
    }
}

/// Which of these a broker has delivered.
fn delivered<S>(consumer: &Consumer<S>, events: &[Claimed]) -> Vec<Uuid> {
    let delivered = events.iter().filter(|event| consumer.is_delivered(event));
    delivered.map(|event| event.event_id).collect()
}
