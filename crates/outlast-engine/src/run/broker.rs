//! The loop of a consumer that reads a broker: take as much as there are places, judge it in one statement, run it.
//!
//! What runs a delivered event, seals it and hands a failed one over is the same as for the log (`batch`); what was parked is
//! retried from the database, without the broker. A message is acked when that is durable, and never before: what a crash
//! leaves behind comes again, and finds in the inbox how far it was.

mod dead;
mod deliveries;
mod read;
mod stream;

use std::{sync::Arc, time::Duration};

use outlast_core::{broker::Delivered, size::Size};
use outlast_postgres::{
    Error,
    store::{Claimed, Verdict},
};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

use super::{
    AbortOnDrop,
    batch::{self, Ended},
    consumer::{Consumer, by_token, earlier, met},
    destination::Purpose,
    record::{self, told},
    signal::Stop,
    sweep::Sweep,
};
use crate::{
    crash::{self, Point},
    handler::{Form, Handler},
};

pub use dead::{Imported, import_dead};
pub(crate) use deliveries::Deliveries;
use read::Arrived;
use stream::Stream;

/// While only some places are free, more become so within this long: fewer and larger claims.
const GATHER: Duration = Duration::from_millis(2);
/// How long a message waits at the broker that could not be judged, because the database did not answer.
const PUT_OFF: Duration = Duration::from_secs(2);
/// How long the last acks may take when the worker stops.
const SETTLING: Duration = Duration::from_secs(2);

/// Runs until the worker drains; then waits for its batches and for their acks.
pub(crate) async fn run<S: Clone + Send + Sync + 'static>(
    consumer: Consumer<S>,
    deliveries: Deliveries,
    sweep: Arc<Sweep>,
    stop: Stop,
) -> Result<(), Error> {
    let source = deliveries.source().clone();
    let importing = dead::now_and_then(consumer.store.clone(), consumer.id, source.clone());
    let _importing = AbortOnDrop(tokio::spawn(importing).abort_handle());
    let stream = Stream::open(source, consumer.name.clone(), stop.clone());
    let mut work = Work::new(consumer, deliveries, stream, sweep, stop.clone());
    let mut failures: u32 = 0;
    while !stop.is_draining() {
        match work.step().await {
            Ok(()) => {
                failures = 0;
                tokio::select! {
                    () = stop.draining() => break,
                    () = work.wait() => {}
                }
            }
            Err(error) if error.is_transient() => {
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
    work.drain().await;
    Ok(())
}

/// What one consumer of this process has under way.
struct Work<S> {
    consumer: Consumer<S>,
    deliveries: Deliveries,
    stream: Stream,
    sweep: Arc<Sweep>,
    stop: Stop,
    /// How many handlers run at once.
    slots: Arc<Semaphore>,
    /// Where handlers take many events at once: how many.
    size: Option<Size>,
    batches: JoinSet<Ended>,
    retries: JoinSet<Ended>,
    /// What comes is taken over whole and acked before it runs, because the broker gives nothing else out meanwhile.
    takes_over: bool,
    /// What is to run is stored whole with its claim: so that it can be acked, or be failed by somebody outside.
    keeps: bool,
    /// What has come and is not judged.
    arrived: Vec<Delivered>,
    sweep_at: Instant,
    /// When something parked is due, as far as we know.
    parked_at: Option<Instant>,
    /// Whether an operator has paused it, as of the last sweep.
    paused: bool,
    /// The last claim has failed: nothing is taken from the broker before one would succeed.
    unsure: bool,
    /// How many were held at the last look.
    seen: usize,
    /// Since when there are places that nothing was asked for.
    free_since: Option<Instant>,
    /// During an outage: when to probe again, and how often it was.
    probe_at: Option<Instant>,
    probes: u32,
}

impl<S: Clone + Send + Sync + 'static> Work<S> {
    fn new(
        consumer: Consumer<S>,
        deliveries: Deliveries,
        stream: Stream,
        sweep: Arc<Sweep>,
        stop: Stop,
    ) -> Self {
        let now = Instant::now();
        let many = consumer
            .registry
            .handlers()
            .any(|handler| matches!(handler.form, Form::Batch(..)));
        let takes_over = consumer.context.ordered && deliveries.source().broker.limits().one_by_one;
        let outside = consumer.registry.handlers().any(Handler::is_outside);
        Self {
            slots: Arc::new(Semaphore::new(consumer.concurrency)),
            size: many.then(|| Size::new(consumer.settings.batch_rows)),
            batches: JoinSet::new(),
            retries: JoinSet::new(),
            takes_over,
            keeps: takes_over || outside,
            arrived: Vec::new(),
            sweep_at: now,
            parked_at: Some(now),
            paused: false,
            unsure: true,
            seen: 0,
            free_since: None,
            probe_at: None,
            probes: 0,
            consumer,
            deliveries,
            stream,
            sweep,
            stop,
        }
    }

    /// As if nothing were known.
    fn begin_anew(&mut self) {
        self.unsure = true;
        self.sweep_at = Instant::now();
        self.parked_at = Some(Instant::now());
    }

    fn is_idle(&self) -> bool {
        self.batches.is_empty() && self.retries.is_empty()
    }

    /// How many more retries may run: never more than half of the places.
    fn room_for_retries(&self) -> usize {
        (self.consumer.concurrency / 2)
            .max(1)
            .saturating_sub(self.retries.len())
    }

    /// How many more events may be taken from the broker: those that would start at once.
    fn room(&self) -> usize {
        if self.slots.available_permits() == 0 {
            return 0;
        }
        // What is acked already is not held; of an ordered consumer each key in work is a batch.
        let held = match self.takes_over {
            true => self.batches.len(),
            false => self.deliveries.held(),
        };
        match &self.size {
            Some(size) => size
                .rows()
                .max(self.consumer.concurrency)
                .saturating_sub(held),
            None => self
                .consumer
                .concurrency
                .saturating_sub(held + self.retries.len()),
        }
    }

    /// One look: what has come, what waits for another try, and whether more may come.
    async fn step(&mut self) -> Result<(), Error> {
        if !self.arrived.is_empty() {
            self.judge(Purpose::Work).await?;
        }
        let (store, id) = (self.consumer.store.clone(), self.consumer.id);
        let lease = self.consumer.leases.length();
        let now = Instant::now();
        if now >= self.sweep_at {
            let due = self.sweep.of(self.sweep_at, id).await?;
            self.sweep_at = self.sweep.after(now);
            self.parked_at = earlier(self.parked_at, due.parked.map(|after| now + after));
            if due.lapsed {
                // It has no batches: this ends what was delivered to somebody who is gone.
                store.reclaim(id, 1, lease).await?;
                // Of that what was taken over whole.
                self.parked_at = Some(now);
            }
            self.paused = store
                .paused()
                .await?
                .iter()
                .any(|(paused, _)| *paused == id);
        }
        if self.unsure {
            // Held, stopped or away: found out without taking anything from the broker.
            store.claim_delivered(id, &[], lease).await?;
            self.unsure = false;
        }
        if self.consumer.destination.is_down() {
            return self.probe().await;
        }
        if self.probe_at.take().is_some() {
            self.parked_at = Some(now);
        }
        if self.room_for_retries() > 0 && self.parked_at.is_some_and(|at| now >= at) {
            self.retry(self.room_for_retries(), Purpose::Work).await?;
        }
        self.ask(now);
        Ok(())
    }

    /// Asks for as much as may start, at once or a moment later, so that a claim is for more than one.
    fn ask(&mut self, now: Instant) {
        self.seen = self.deliveries.held();
        let room = self.room();
        if room == 0 || self.paused || self.stream.is_asked() {
            self.free_since = None;
            return;
        }
        let since = *self.free_since.get_or_insert(now);
        if room * 2 >= self.consumer.concurrency || now >= since + GATHER {
            self.stream.ask(room);
            self.free_since = None;
        }
    }

    /// Parked events that are due. Answers whether there was one.
    async fn retry(&mut self, most: usize, purpose: Purpose) -> Result<bool, Error> {
        let (store, id) = (self.consumer.store.clone(), self.consumer.id);
        let lease = self.consumer.leases.length();
        let asked = Instant::now();
        self.parked_at = None;
        let (types, versions) = self.consumer.registry.takes();
        let claim = store.claim_parked(id, most, lease, types, versions).await?;
        met(Point::ParkedClaimed, &claim);
        let found = !claim.events.is_empty();
        for events in by_token(claim.events) {
            let run = self.batch(events, asked, purpose);
            self.retries.spawn(run);
        }
        if let Some(next) = store.parked_due(id).await? {
            self.parked_at = Some(Instant::now() + next.max(Duration::from_millis(5)));
        }
        Ok(found)
    }

    /// Judges what has come, in one statement, and starts what is ours.
    async fn judge(&mut self, purpose: Purpose) -> Result<(), Error> {
        let asked = Instant::now();
        let (store, id) = (self.consumer.store.clone(), self.consumer.id);
        let (events, unreadable) = read::all(std::mem::take(&mut self.arrived));
        for message in unreadable {
            // Stored as it is, and only then out of the broker: it neither goes lost nor comes for ever.
            match message.keep(&store, id).await {
                Ok(settle) => self.deliveries.ack(settle),
                Err((settle, error)) => {
                    self.deliveries.release(settle, PUT_OFF);
                    told!(1, %error, consumer = %self.consumer.name, "an unreadable message was not stored yet");
                }
            }
        }
        // The same event twice at once: once, and the other one comes again.
        let (events, doubles) = read::distinct(events);
        for double in doubles {
            self.deliveries.release(double.settle, PUT_OFF);
        }
        if events.is_empty() {
            return Ok(());
        }
        let lease = self.consumer.leases.length();
        let all: Vec<&Claimed> = events.iter().map(|one| &one.event).collect();
        let judged = match self.keeps {
            true => store.take_over(id, &all, lease).await,
            false => store.claim_delivered(id, &all, lease).await,
        };
        let judged = match judged {
            Ok(judged) => judged,
            Err(error) => return self.not_judged(events, error).await,
        };
        let mut waiting: std::collections::HashMap<_, Arrived> = events
            .into_iter()
            .map(|one| (one.event.event_id, one))
            .collect();
        let mut ours = Vec::new();
        for one in judged {
            let Some(Arrived {
                mut event, settle, ..
            }) = waiting.remove(&one.event_id)
            else {
                continue;
            };
            match one.verdict {
                Verdict::Run(token) => {
                    match self.takes_over || self.deliveries.source().acks_first {
                        true => self.deliveries.ack(settle),
                        false => self.deliveries.hold(token, one.event_id, settle),
                    }
                    (event.token, event.attempt, event.reclaims) =
                        (token, one.attempt, one.reclaims);
                    ours.push(event);
                }
                Verdict::Done | Verdict::Parked | Verdict::Other => {
                    tracing::debug!(event.id = %one.event_id, consumer = %self.consumer.name, verdict = ?one.verdict, "not run: acked");
                    self.deliveries.ack(settle);
                }
                Verdict::Defer(after) | Verdict::Paused(after) => {
                    self.deliveries.release(settle, after);
                }
            }
        }
        if !ours.is_empty() {
            crash::at(Point::Claimed);
        }
        for events in by_token(ours) {
            let run = self.batch(events, asked, purpose);
            self.batches.spawn(run);
        }
        Ok(())
    }

    /// A claim has failed. While the database is away everything goes back to the broker. What the database refuses for good
    /// is one message's fault: found out one by one, and kept for a person.
    async fn not_judged(&mut self, events: Vec<Arrived>, error: Error) -> Result<(), Error> {
        self.unsure = true;
        let refused = matches!(&error, Error::Database(_)) && !error.is_transient();
        if !refused {
            for one in events {
                self.deliveries.release(one.settle, PUT_OFF);
            }
            return Err(error);
        }
        if events.len() > 1 {
            for one in events {
                self.arrived = vec![one.into_delivered()];
                Box::pin(self.judge(Purpose::Work)).await?;
            }
            return Ok(());
        }
        for one in events {
            let message = one.unreadable(format!("the database refuses it: {error}"));
            match message.keep(&self.consumer.store, self.consumer.id).await {
                Ok(settle) => self.deliveries.ack(settle),
                Err((settle, error)) => {
                    self.deliveries.release(settle, PUT_OFF);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn batch(
        &self,
        events: Vec<Claimed>,
        asked: Instant,
        purpose: Purpose,
    ) -> impl Future<Output = Ended> + Send + use<S> {
        let (consumer, slots, stop) =
            (self.consumer.clone(), self.slots.clone(), self.stop.clone());
        async move { batch::run(&consumer, &slots, (events, purpose), asked, &stop).await }
    }

    /// While the destination is down: one event at a time, in turns a parked one and a new one.
    async fn probe(&mut self) -> Result<(), Error> {
        if !self.is_idle() || self.stream.is_asked() {
            return Ok(());
        }
        let (now, pause) = (Instant::now(), self.consumer.destination.pause());
        let due = *self.probe_at.get_or_insert(now + pause);
        if now < due {
            return Ok(());
        }
        self.probe_at = None;
        self.probes = self.probes.wrapping_add(1);
        if self.probes.is_multiple_of(2) || !self.retry(1, Purpose::Probe).await? {
            self.probe_at = Some(now + pause);
            if !self.paused {
                self.stream.ask(1);
            }
        }
        Ok(())
    }

    /// Waits until another look can bring something.
    async fn wait(&mut self) {
        let retries_due = self.room_for_retries() > 0;
        let parked_at = self.parked_at.filter(|_| retries_due);
        let gathered = self.free_since.map(|since| since + GATHER);
        let times = [parked_at, gathered, self.probe_at];
        let until = times.into_iter().fold(self.sweep_at, |until, at| {
            at.map_or(until, |at| at.min(until))
        });
        let (room, slots) = (self.room(), self.slots.clone());
        tokio::select! {
            arrived = self.stream.arrived() => self.arrived = arrived,
            Some(ended) = self.batches.join_next() => self.learn(ended),
            Some(ended) = self.retries.join_next() => {
                // What waits behind an event is due as soon as that is done.
                if self.consumer.context.ordered {
                    self.parked_at = Some(Instant::now());
                }
                self.tried(ended);
            }
            () = self.deliveries.fewer_than(self.seen) => {}
            Ok(_) = slots.acquire(), if room == 0 && slots.available_permits() == 0 => {}
            () = tokio::time::sleep_until(until) => {}
        }
        // What has come during an outage is a probe.
        if !self.arrived.is_empty() && self.consumer.destination.is_down() {
            let purpose = Purpose::Probe;
            if let Err(error) = self.judge(purpose).await {
                tracing::debug!(%error, "a probe was not claimed");
            }
        }
    }

    /// Learns from a batch that ended.
    fn learn(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        if let (Ok(ended), Some(size)) = (&ended, &mut self.size) {
            size.learn(ended.events, ended.took);
        }
        // Of an ordered consumer something may have waited behind it.
        if self.consumer.context.ordered {
            self.parked_at = Some(Instant::now());
        }
        self.tried(ended);
    }

    fn tried(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        match ended {
            Ok(ended) if ended.failed > 0 => self.parked_at = Some(Instant::now()),
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "a batch ended without a report"),
        }
    }

    /// Takes nothing more; what has come and did not start goes back, what runs ends, and the last acks are sent.
    async fn drain(mut self) {
        let late = self.stream.close().await;
        for one in self.arrived.drain(..).chain(late) {
            self.deliveries.release(one.settle, Duration::ZERO);
        }
        while self.batches.join_next().await.is_some() {}
        while self.retries.join_next().await.is_some() {}
        self.deliveries.settled(SETTLING).await;
        self.stream.drained().await;
        if self.consumer.destination.is_down() {
            let consumer = &self.consumer;
            record::logged(consumer.store.outage_over(consumer.id).await);
        }
    }
}
