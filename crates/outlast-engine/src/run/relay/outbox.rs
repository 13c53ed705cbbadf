//! An outbox table of another system: its rows are claimed, published, and deleted (or marked) when the broker has confirmed them.
//!
//! It has no windows, because its rows do not say which transaction wrote them: a look goes over the table piece by piece, again and
//! again. What fails becomes an event that is parked, and is from then on like that of any route. Nothing of theirs is locked, and
//! no transaction is open, while the broker is spoken to.

mod carry;

use std::{sync::Arc, time::Duration};

use outlast_core::{Broker, size::Size};
use outlast_postgres::{
    Error,
    outbox::{CONSUMER, Outbox, State},
    store::Reads,
};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

use crate::{
    consumer::Consumer as Planned,
    crash::{self, Point},
    handler::{Form, Handler, publish::Publisher},
    run::{
        batch::{self, Ended},
        consumer::{Consumer, by_token, earlier, met},
        destination::Purpose,
        record::{self, told},
        register::{Common, register_reading},
        signal::Stop,
        sweep::Sweep,
    },
};

/// Claims in flight at once: one is published while the other is claimed or recorded.
const IN_FLIGHT: usize = 2;
/// Another relay is claiming: its statement is short.
const BUSY: Duration = Duration::from_millis(10);
/// While a large table is gone over and nothing is found, this many times as long as a look took passes before the next.
const REST: u32 = 3;

/// Serves one outbox until it has to stop.
///
/// # Errors
/// What makes it pointless for now: the outbox has to be registered anew, or the whole process has to stop.
pub(super) fn serve<S: Clone + Send + Sync + 'static>(
    common: Common<S>,
    broker: Arc<dyn Broker>,
    name: &str,
    outbox: &Outbox,
    stop: Stop,
) -> impl Future<Output = Result<(), Error>> + Send + 'static {
    let (name, outbox) = (name.to_owned(), outbox.clone());
    let publisher = Arc::new(Publisher {
        broker,
        topic: outbox.topic.as_str().into(),
        attributes: outbox.attributes.clone().into_iter().collect(),
        ordered: outbox.ordered,
        // Their rows have no place in a log of ours.
        log: None,
    });
    async move {
        let mut planned = Planned::new(&format!("{CONSUMER}{name}"));
        planned.ordered = outbox.ordered;
        planned.handlers = vec![Handler {
            name: "*".into(),
            version: u16::MAX,
            form: Form::Publish(publisher.clone()),
        }];
        let reads = Reads {
            broker: "outbox".into(),
            topic: outbox.shown_table(),
            subscription: name.clone(),
            // Nobody delivers: a claim is a lease.
            ack_within: common.settings.lease,
        };
        let consumer = register_reading(&common, planned, Some(reads)).await?;
        let ids = vec![consumer.id];
        let sweep = Sweep::new(common.store.clone(), ids, common.leases.length());
        tracing::info!(outbox = %name, table = %outbox.shown_table(), broker = publisher.broker.kind(), topic = %publisher.topic, "relaying an outbox");
        Work::new(consumer, publisher, (name, outbox), sweep, stop)
            .run()
            .await
    }
}

/// What one outbox has under way in this process.
struct Work<S> {
    consumer: Consumer<S>,
    publisher: Arc<Publisher>,
    name: Arc<str>,
    outbox: Outbox,
    sweep: Sweep,
    stop: Stop,
    slots: Arc<Semaphore>,
    size: Size,
    claims: JoinSet<Ended>,
    retries: JoinSet<Ended>,
    /// Where the next look begins: a block of the table.
    block: i64,
    /// Since when it could not be read: it is asked why, before it is looked at.
    trouble: bool,
    told: Option<String>,
    sweep_at: Instant,
    /// When something parked is due, as far as we know.
    parked_at: Option<Instant>,
    /// During an outage: when to probe again, and how often it was.
    probe_at: Option<Instant>,
    probes: u32,
}

impl<S: Clone + Send + Sync + 'static> Work<S> {
    fn new(
        consumer: Consumer<S>,
        publisher: Arc<Publisher>,
        (name, outbox): (String, Outbox),
        sweep: Sweep,
        stop: Stop,
    ) -> Self {
        let now = Instant::now();
        Self {
            slots: Arc::new(Semaphore::new(consumer.concurrency)),
            size: Size::new(consumer.settings.batch_rows),
            claims: JoinSet::new(),
            retries: JoinSet::new(),
            block: 0,
            trouble: true,
            told: None,
            sweep_at: now,
            parked_at: Some(now),
            probe_at: None,
            probes: 0,
            name: name.into(),
            consumer,
            publisher,
            outbox,
            sweep,
            stop,
        }
    }

    async fn run(mut self) -> Result<(), Error> {
        let mut failures: u32 = 0;
        let stop = self.stop.clone();
        while !stop.is_draining() {
            let pause = match self.step().await {
                Ok(pause) => {
                    failures = 0;
                    pause
                }
                Err(error) if error.is_transient() => {
                    self.parked_at = Some(Instant::now());
                    failures = failures.saturating_add(1);
                    let pause = record::pause(failures);
                    told!(failures, %error, consumer = %self.consumer.name, retry_ms = pause.as_millis() as u64, "nothing was claimed");
                    pause
                }
                Err(error) => match self.cannot(error).await {
                    Ok(pause) => pause,
                    Err(error) => {
                        self.ended().await;
                        return Err(error);
                    }
                },
            };
            tokio::select! {
                () = stop.draining() => break,
                () = self.wait(pause) => {}
            }
        }
        self.ended().await;
        if self.consumer.destination.is_down() || self.told.is_some() {
            let consumer = &self.consumer;
            record::logged(consumer.store.outage_over(consumer.id).await);
        }
        Ok(())
    }

    async fn ended(&mut self) {
        while self.claims.join_next().await.is_some() {}
        while self.retries.join_next().await.is_some() {}
    }

    /// One look. Answers how long the next one may wait.
    async fn step(&mut self) -> Result<Duration, Error> {
        if self.trouble {
            let problems = self.consumer.store.outbox_problems(&self.name).await?;
            if !problems.is_empty() {
                return Ok(self.tell(problems.join("; ")).await);
            }
            self.trouble = false;
        }
        let now = Instant::now();
        if now >= self.sweep_at {
            let due = self.sweep.of(self.sweep_at, self.consumer.id).await?;
            self.sweep_at = self.sweep.after(now);
            self.parked_at = earlier(self.parked_at, due.parked.map(|after| now + after));
        }
        if self.consumer.destination.is_down() {
            return self.probe().await;
        }
        if self.probe_at.take().is_some() {
            self.parked_at = Some(now);
        }
        let room = (self.consumer.concurrency / 2)
            .max(1)
            .saturating_sub(self.retries.len());
        if room > 0 && self.parked_at.is_some_and(|at| now >= at) {
            self.retry(room, Purpose::Work).await?;
        }
        if self.claims.len() >= IN_FLIGHT || self.slots.available_permits() == 0 {
            return Ok(self.outbox.poll);
        }
        self.look(self.size.rows(), Purpose::Work).await
    }

    /// Claims, and lets what was claimed be published. Answers when to look again.
    async fn look(&mut self, rows: usize, purpose: Purpose) -> Result<Duration, Error> {
        let (store, id) = (self.consumer.store.clone(), self.consumer.id);
        let settings = &self.consumer.settings;
        let limits = self.publisher.broker.limits();
        let most = limits.message_bytes.min(64 * 1024 * 1024);
        let asked = Instant::now();
        let looked = store
            .claim_outbox(
                (id, &self.name),
                (rows, settings.batch_bytes, most),
                self.consumer.leases.length(),
                self.block,
            )
            .await?;
        self.readable().await;
        self.block = looked.next;
        if looked.aside > 0 {
            tracing::error!(outbox = %self.name, rows = looked.aside, "quarantined: they can never be published, and a person must look");
        }
        let found = looked.token.is_some() || looked.aside > 0;
        if let Some(token) = looked.token {
            crash::at(Point::Claimed);
            let claim = carry::Claim {
                consumer: self.consumer.clone(),
                outbox: self.name.clone(),
                slots: self.slots.clone(),
                stop: self.stop.clone(),
                purpose,
            };
            self.claims.spawn(claim.carry(token, asked));
        }
        Ok(match looked.state {
            State::Busy => BUSY.mul_f64(0.5 + fastrand::f64()),
            State::Paused => self.consumer.settings.heartbeat,
            State::Open if found => Duration::ZERO,
            State::Open if looked.round => self.outbox.poll,
            State::Open => (asked.elapsed() * REST).min(self.outbox.poll),
        })
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
            let (consumer, slots, stop) =
                (self.consumer.clone(), self.slots.clone(), self.stop.clone());
            self.retries.spawn(async move {
                batch::run(&consumer, &slots, (events, purpose), asked, &stop).await
            });
        }
        if let Some(next) = store.parked_due(id).await? {
            self.parked_at = Some(Instant::now() + next.max(Duration::from_millis(5)));
        }
        Ok(found)
    }

    /// While the destination is down: one event at a time, in turns a parked one and a new one.
    async fn probe(&mut self) -> Result<Duration, Error> {
        if !self.claims.is_empty() || !self.retries.is_empty() {
            return Ok(self.outbox.poll);
        }
        let (now, pause) = (Instant::now(), self.consumer.destination.pause());
        let due = *self.probe_at.get_or_insert(now + pause);
        if now < due {
            return Ok(due - now);
        }
        self.probe_at = None;
        self.probes = self.probes.wrapping_add(1);
        let found = self.probes.is_multiple_of(2) && self.retry(1, Purpose::Probe).await?;
        if !found {
            self.look(1, Purpose::Probe).await?;
            if self.claims.is_empty() && !self.retry(1, Purpose::Probe).await? {
                // There is nothing to try; the same pause again.
                self.probe_at = Some(now + pause);
            }
        }
        Ok(self.outbox.poll)
    }

    /// The table could not be read. Asked why, and tried again with each heartbeat; other outboxes and routes go on.
    async fn cannot(&mut self, error: Error) -> Result<Duration, Error> {
        match error {
            Error::Config(_) | Error::Database(_) | Error::NotAllowed { .. } => {
                self.trouble = true;
                let problems = self.consumer.store.outbox_problems(&self.name).await;
                let why = match problems {
                    Ok(problems) if !problems.is_empty() => problems.join("; "),
                    _ => error.to_string(),
                };
                Ok(self.tell(why).await)
            }
            error => Err(error),
        }
    }

    /// Says why nothing is read, once in the log, and where operators look.
    async fn tell(&mut self, why: String) -> Duration {
        if self.told.as_ref() != Some(&why) {
            tracing::error!(outbox = %self.name, table = %self.outbox.shown_table(), "this outbox cannot be read: {why}");
        }
        let consumer = &self.consumer;
        record::logged(consumer.store.outage(consumer.id, &why).await);
        self.told = Some(why);
        consumer.settings.heartbeat
    }

    async fn readable(&mut self) {
        if self.told.take().is_some() {
            tracing::warn!(outbox = %self.name, "this outbox can be read now");
            let consumer = &self.consumer;
            record::logged(consumer.store.outage_over(consumer.id).await);
        }
    }

    /// Waits so long, or until something that ended makes room, or something parked is due.
    async fn wait(&mut self, pause: Duration) {
        let mut until = Instant::now() + pause;
        if !self.trouble && !self.consumer.destination.is_down() {
            until = self.parked_at.map_or(until, |at| at.min(until));
        }
        let full = self.claims.len() >= IN_FLIGHT;
        tokio::select! {
            () = tokio::time::sleep_until(until), if !pause.is_zero() && !full => {}
            () = tokio::time::sleep_until(self.sweep_at.min(until.max(Instant::now() + self.outbox.poll))), if full => {}
            () = std::future::ready(()), if pause.is_zero() && !full => {}
            Some(ended) = self.claims.join_next() => {
                if let Ok(ended) = &ended {
                    self.size.learn(ended.events, ended.took);
                }
                self.tried(ended);
            }
            Some(ended) = self.retries.join_next() => {
                if self.consumer.context.ordered {
                    self.parked_at = Some(Instant::now());
                }
                self.tried(ended);
            }
        }
    }

    /// What has failed may be due soon.
    fn tried(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        match ended {
            Ok(ended) if ended.failed > 0 => self.parked_at = Some(Instant::now()),
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "a claim ended without a report"),
        }
    }
}
