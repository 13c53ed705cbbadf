//! What a try has reported, made durable: sealed, failed, skipped, looked for, or given back.

use std::time::Duration;

use outlast_core::{Class, Failure, Outcome};
use outlast_postgres::Error;
use uuid::Uuid;

use super::Run;
use crate::{
    crash::{self, Point},
    handler::{BatchEnd, End, Form, Left},
    run::{
        record::{self, Recorded},
        tries::{Tried, Unit},
    },
};

/// How often an event is run again at once after a conflict between transactions, before that counts as a failure.
const CONFLICTS: u32 = 10;

/// A conflict between transactions: the try counts as none. To be told to come later is another thing.
fn is_conflict(failure: &Failure) -> bool {
    !failure.is_charged() && failure.class != Class::Throttled
}

impl<S> Unit<S> {
    /// What has left this process is not run again as if it had not.
    fn may_run_again(&self) -> bool {
        let leaves = self
            .handler
            .as_ref()
            .is_some_and(|handler| matches!(handler.form, Form::Command(_)));
        !leaves && self.conflicts < CONFLICTS
    }
}

impl<S: Clone + Send + Sync + 'static> Run<'_, S> {
    /// Records what a try reported.
    pub(super) async fn settle(&mut self, tried: Tried<S>, last: bool) {
        let Tried {
            unit,
            end:
                BatchEnd {
                    failed,
                    erased,
                    mut ids,
                    end,
                    left,
                },
        } = tried;
        if matches!(end, End::Done(_) | End::Sealed(_)) && !ids.is_empty() {
            self.succeeded().await;
        }
        if matches!(end, End::Done(Outcome::Done)) && !(failed.is_empty() && left.is_none()) {
            // What comes of the others is recorded behind these.
            self.flush.push(std::mem::take(&mut ids).into_iter());
        }
        for (id, failure) in failed {
            self.fail(&unit, id, &failure).await;
        }
        self.skip(erased, crate::attempt::ERASED).await;
        if let Some(left) = left {
            self.give_back(left).await;
        }
        match end {
            End::Done(Outcome::Done) if last && self.waiting.is_empty() => self.last = ids,
            End::Done(Outcome::Done) => self.flush.push(ids.into_iter()),
            End::Done(Outcome::Skipped(reason)) => self.skip(ids, &reason).await,
            End::Sealed(outcome) => {
                tracing::debug!(events = ids.len(), outcome = outcome.as_str(), "sealed");
                self.consumer.durable(self.lease.token, &ids);
                self.ended.done += ids.len();
            }
            End::Failed(failure) if is_conflict(&failure) && unit.may_run_again() => {
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
                if ids.len() > 1 {
                    // All of them would be parked for what is no event's fault.
                    let failure = Failure::throttled(Duration::from_secs(1));
                    let tried = ids.into_iter().map(|id| (id, failure.clone())).collect();
                    let left = Left {
                        tried,
                        ..Left::default()
                    };
                    return self.give_back(left).await;
                }
                let mut failure = Failure::throttled(Duration::from_secs(1));
                failure.reason = error.to_string();
                for id in ids {
                    self.fail(&unit, id, &failure).await;
                }
            }
            End::NotStarted if unit.handler.is_none() => {
                let (books, store) = (&self.consumer.books, &self.consumer.store);
                let token = self.lease.token;
                for id in ids {
                    let event = &unit.events[0];
                    let copies = self.with_its_key(event);
                    let wait = || async {
                        match self.consumer.is_delivered(event) {
                            true => store.wait_delivered(token, &copies).await,
                            false => books.wait_for_version(token, id).await,
                        }
                    };
                    let waits = record::until_lost(&self.lease, "a wait", wait).await;
                    match &waits {
                        Ok(()) | Err(Error::NotInClaim) => {
                            self.handed_over(&copies);
                            self.leave_key(event);
                        }
                        Err(_) => self.stop_here(),
                    }
                    record::logged(waits);
                    self.ended.failed += 1;
                }
            }
            End::NotStarted => {
                self.incomplete = true;
                self.stop_here();
            }
            End::Refused(error) => {
                tracing::info!(%error, lease = %self.lease.token, events = ids.len(), "rolled back: somebody newer owns this work");
                if !matches!(error, Error::AlreadySealed) {
                    self.stop_here();
                }
            }
            End::Unsure { xid } => self.look(&unit, &ids, xid).await,
        }
    }

    /// The rest of the batch is given back without a charge. What was tried of it counts against the destination.
    async fn give_back(&mut self, left: Left) {
        let consumer = self.consumer;
        if let (true, Some((_, why))) = (left.refused, left.tried.first()) {
            let whose = (&consumer.store, consumer.id, &*consumer.name);
            consumer.destination.refused(whose, why).await;
        }
        if let (true, Some((_, why))) = (left.unreached, left.tried.first()) {
            let whose = (&consumer.store, consumer.id, &*consumer.name);
            consumer.destination.unreached(whose, why).await;
        }
        for (id, failure) in left.tried {
            self.failed(id, &failure).await;
            self.probe_failed = true;
        }
        self.incomplete = true;
        self.waiting.clear();
    }

    /// COMMIT was not answered: once that transaction has ended, its seal tells.
    async fn look(&mut self, unit: &Unit<S>, ids: &[Uuid], xid: Option<u64>) {
        let Some(first) = ids.first() else {
            return self.stop_here();
        };
        crash::at(Point::Unsure);
        let (books, token) = (&self.consumer.books, self.lease.token);
        let look = || books.landed(token, *first, xid);
        match record::until_lost(&self.lease, "a look for a seal", look).await {
            Ok(true) => {
                self.ended.done += ids.len();
                self.consumer.durable(self.lease.token, ids);
                self.succeeded().await;
            }
            Ok(false) => self.again(unit, ids, unit.conflicts),
            Err(error) => {
                self.stop_here();
                record::logged::<()>(Err(error));
            }
        }
    }

    async fn skip(&mut self, ids: Vec<Uuid>, reason: &str) {
        if ids.is_empty() {
            return;
        }
        let (store, token) = (&self.consumer.store, self.lease.token);
        // Seals of the events before it first.
        let mut recorded = !self.ordered() || self.flush.settled().await;
        for id in ids {
            if recorded {
                let skip = || store.skip(token, id, reason);
                let skipped = record::until_lost(&self.lease, "a skip", skip).await;
                recorded = matches!(skipped, Ok(()) | Err(Error::AlreadySealed));
                if recorded {
                    self.consumer.durable(self.lease.token, &[id]);
                }
                record::logged(skipped);
                self.ended.done += 1;
            }
        }
        if !recorded {
            self.stop_here();
        }
    }

    async fn fail(&mut self, unit: &Unit<S>, id: Uuid, failure: &Failure) {
        // Seals of the events before it first: what is unsealed of its key goes behind it.
        if self.ordered() && !self.flush.settled().await {
            return self.stop_here();
        }
        self.ended.failed += 1;
        let Some(event) = unit.events.iter().find(|event| event.event_id == id) else {
            return;
        };
        let down = self.consumer.destination.is_down();
        self.failed(id, failure).await;
        self.probe_failed |= failure.class != Class::Permanent;
        let copies = self.with_its_key(event);
        let charged = failure.is_charged() && (!down || failure.class == Class::Permanent);
        match record::failure(self.consumer, &self.lease, &copies, failure, charged).await {
            Recorded::Parked => {
                self.handed_over(&copies);
                self.leave_key(event);
            }
            Recorded::Sealed => self.consumer.durable(self.lease.token, &[id]),
            Recorded::Lost => self.stop_here(),
        }
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
}
