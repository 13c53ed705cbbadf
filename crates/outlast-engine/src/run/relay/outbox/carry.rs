//! One claim of an outbox: read, published, and recorded under its lease. What is not recorded is found by the next owner.

use std::sync::Arc;

use outlast_core::Class;
use outlast_postgres::{Error, store::Claimed};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    crash::{self, Point},
    handler::{BatchEnd, End, Left},
    run::{
        batch::Ended,
        consumer::Consumer,
        destination::Purpose,
        leases::Lease,
        record,
        signal::Stop,
        tries::{Unit, attempt, units},
    },
};

/// What is needed to carry a claim to its end.
pub(super) struct Claim<S> {
    pub(super) consumer: Consumer<S>,
    pub(super) outbox: Arc<str>,
    pub(super) slots: Arc<Semaphore>,
    pub(super) stop: Stop,
    pub(super) purpose: Purpose,
}

/// What is left of a claim when everything else is recorded.
#[derive(Default)]
struct Rest {
    /// It may have been sent.
    kept: Vec<Uuid>,
    /// The try has broken: one of them may be why.
    broke: bool,
}

impl<S: Clone + Send + Sync + 'static> Claim<S> {
    /// Publishes what was claimed at `asked`.
    pub(super) async fn carry(self, token: Uuid, asked: Instant) -> Ended {
        let lease = self.consumer.leases.hold(token, asked);
        let mut ended = Ended::default();
        let rest = self.publish(&lease, &mut ended).await;
        // Under a lost lease the next owner has ended it already.
        if !lease.is_lost() {
            let end = || {
                let store = &self.consumer.store;
                store.end_outbox(token, &rest.kept, rest.broke)
            };
            record::logged(record::until_lost(&lease, "the end of a claim", end).await);
        }
        self.consumer.leases.drop(token);
        ended
    }

    async fn publish(&self, lease: &Lease, ended: &mut Ended) -> Rest {
        let consumer = &self.consumer;
        let read = || consumer.store.read_outbox(&self.outbox, lease.token);
        let events = match record::until_lost(lease, "what was claimed", read).await {
            Ok(events) => events,
            Err(error) => {
                tracing::warn!(%error, outbox = %self.outbox, "what was claimed could not be read; it is left to the next look");
                return Rest::default();
            }
        };
        ended.events = events.len();
        let ids: Vec<Uuid> = events.iter().map(|event| event.event_id).collect();
        let began = Instant::now();
        let Some((unit, end)) = self.try_all(events, lease).await else {
            // Stopped, with a call under way.
            return Rest {
                kept: ids,
                broke: false,
            };
        };
        ended.took = began.elapsed();
        self.settle(&unit, end, lease, ended).await
    }

    /// One try of all of them. None: it was cut off.
    async fn try_all(&self, events: Vec<Claimed>, lease: &Lease) -> Option<(Unit<S>, BatchEnd)> {
        // A broker takes all of them at once.
        let unit = units(&self.consumer, events).pop_front()?;
        let permit = self.slots.clone().acquire_owned().await.ok()?;
        let told = CancellationToken::new();
        let trying = attempt(
            self.consumer.clone(),
            unit,
            lease.clone(),
            permit,
            told.clone(),
        );
        let mut trying = std::pin::pin!(trying);
        loop {
            tokio::select! {
                tried = &mut trying => return Some((tried.unit, tried.end)),
                () = lease.lost(), if !told.is_cancelled() => told.cancel(),
                // The call that is under way ends; no other one begins.
                () = self.stop.draining(), if !told.is_cancelled() => told.cancel(),
                () = self.stop.ended() => return None,
            }
        }
    }

    async fn settle(
        &self,
        unit: &Unit<S>,
        tried: BatchEnd,
        lease: &Lease,
        ended: &mut Ended,
    ) -> Rest {
        let consumer = &self.consumer;
        let whose = (&consumer.store, consumer.id, &*consumer.name);
        let mut rest = Rest::default();
        match tried.end {
            End::Done(_) => {
                crash::at(Point::Flushing);
                if !tried.ids.is_empty() {
                    consumer.destination.succeeded(whose).await;
                    match self.done(lease, &tried.ids).await {
                        Ok(()) => ended.done = tried.ids.len(),
                        Err(()) => rest.kept.extend(&tried.ids),
                    }
                }
            }
            End::NotStarted => {}
            End::Failed(failure) => {
                // The adapter has broken, or stood still: all of them may have been sent.
                tracing::error!(outbox = %self.outbox, reason = %failure.reason, "a call to the broker has broken; its rows are published again");
                for id in &tried.ids {
                    let what = (*id, self.purpose);
                    consumer.destination.failed(whose, what, &failure).await;
                }
                rest.kept.extend(&tried.ids);
                rest.broke = true;
            }
            // A publisher ends in no other way.
            _ => rest.kept.extend(&tried.ids),
        }
        for (id, failure) in &tried.failed {
            let down = consumer.destination.is_down();
            let what = (*id, self.purpose);
            consumer.destination.failed(whose, what, failure).await;
            let permanent = failure.class == Class::Permanent;
            let charged = failure.is_charged() && (!down || permanent);
            ended.failed += 1;
            let fail = || {
                let store = &consumer.store;
                store.outbox_failed(&self.outbox, (lease.token, *id), failure, charged)
            };
            let attempt = unit.events.iter().find(|event| event.event_id == *id);
            let attempt = attempt.map_or(1, |event| event.attempt);
            match record::until_lost(lease, "a failure", fail).await {
                Ok(state) if state == "quarantined" => {
                    tracing::error!(event.id = %id, consumer = %consumer.name, attempt, class = %failure.class, reason = %failure.reason, "quarantined: a person must look");
                }
                Ok(state) if state == "locked" || state == "gone" => rest.kept.push(*id),
                Ok(_) => {
                    tracing::warn!(event.id = %id, consumer = %consumer.name, attempt, class = %failure.class, reason = %failure.reason, "failed, will be tried again");
                }
                Err(error) => {
                    record::logged::<()>(Err(error));
                    rest.kept.push(*id);
                }
            }
            crash::at(Point::Failed);
        }
        if let Some(Left {
            tried,
            refused,
            unreached,
        }) = tried.left
        {
            if let (true, Some((_, why))) = (unreached, tried.first()) {
                consumer.destination.unreached(whose, why).await;
            }
            if let (true, Some((_, why))) = (refused, tried.first()) {
                consumer.destination.refused(whose, why).await;
            }
            for (nth, (id, failure)) in tried.iter().enumerate() {
                // A probe counts once, however many events it has.
                let purpose = if nth == 0 {
                    self.purpose
                } else {
                    Purpose::Work
                };
                consumer
                    .destination
                    .failed(whose, (*id, purpose), failure)
                    .await;
                rest.kept.push(*id);
            }
        }
        rest
    }

    /// The broker has confirmed these: their rows go. Not before, and only under our lease.
    async fn done(&self, lease: &Lease, ids: &[Uuid]) -> Result<(), ()> {
        let done = || {
            let store = &self.consumer.store;
            store.outbox_done(&self.outbox, lease.token, ids)
        };
        match record::until_lost(lease, "what was confirmed", done).await {
            Ok(rows) => {
                crash::at(Point::Flushed);
                if rows < ids.len() {
                    tracing::warn!(outbox = %self.outbox, published = ids.len(), rows, "not all rows that were published could be deleted: somebody else has deleted them, or has them locked");
                }
                Ok(())
            }
            Err(Error::LeaseLost) => {
                tracing::info!(outbox = %self.outbox, rows = ids.len(), "published, and somebody newer owns it by now: it is published once more");
                Err(())
            }
            Err(error) => {
                record::logged::<()>(Err(error));
                Err(())
            }
        }
    }
}
