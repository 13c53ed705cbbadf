//! Tries: what of a batch runs at once, and one run of it, from the check of its lease to its report.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use outlast_core::{Class, Failure};
use outlast_postgres::{
    Error,
    store::{Claimed, CommandDue},
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{consumer::Consumer, keep::Keeper, leases::Lease, registry};
use crate::{
    crash::{self, Point},
    handler::{BatchEnd, Commands, Delivery, End, Form, Handler, Kind},
};

/// What is tried at once: one event, or a run of events for a handler that takes many.
pub(super) struct Unit<S> {
    pub(super) events: Vec<Arc<Claimed>>,
    pub(super) handler: Option<Arc<Handler<S>>>,
    /// How often it has met a conflict between transactions.
    pub(super) conflicts: u32,
}

impl<S> Unit<S> {
    /// Whether a process was lost that had it: then its start is written down before.
    pub(super) fn was_lost(&self) -> bool {
        self.events.iter().any(|event| event.reclaims > 0)
    }
}

/// A try that has ended, or has been given up.
pub(super) struct Tried<S> {
    pub(super) unit: Unit<S>,
    pub(super) end: BatchEnd,
}

/// All events of a type for a handler that takes many; everything else one by one. Within a type the order of the log
/// stays; between types none is promised, so that events of other types in between do not make small commits of it. Where
/// the order of each key counts, only neighbours are gathered. A broker takes all of them, and keeps the order of keys itself.
pub(super) fn units<S>(consumer: &Consumer<S>, events: Vec<Claimed>) -> VecDeque<Unit<S>> {
    let mut units: VecDeque<Unit<S>> = VecDeque::new();
    let mut gathering: HashMap<String, usize> = HashMap::new();
    for event in events {
        let handler = consumer.registry.find(&event.kind, event.version);
        let gathered = match handler.as_ref().map(|handler| &handler.form) {
            Some(Form::Batch(..)) => Some(event.kind.clone()),
            // No event has this type.
            Some(Form::Publish(_)) => Some(String::new()),
            _ => None,
        };
        if let Some(gathered) = gathered {
            if let Some(&unit) = gathering.get(&gathered)
                && (!consumer.context.ordered || unit + 1 == units.len())
            {
                units[unit].events.push(Arc::new(event));
                continue;
            }
            gathering.insert(gathered, units.len());
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
pub(super) async fn attempt<S: Clone + Send + Sync + 'static>(
    consumer: Consumer<S>,
    unit: Unit<S>,
    lease: Lease,
    permit: OwnedSemaphorePermit,
    told: CancellationToken,
) -> Tried<S> {
    let ids = |unit: &Unit<S>| unit.events.iter().map(|event| event.event_id).collect();
    let whole = |unit: Unit<S>, end| Tried {
        end: BatchEnd::all(ids(&unit), end),
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
    let keeper = (consumer.context.kind == Kind::Entity)
        .then(|| Keeper::new(consumer.store.clone(), lease.clone()));
    let mut deliveries = unit.events.iter().map(|event| {
        let number = u32::try_from(event.attempt).unwrap_or(1);
        Delivery::new(
            registry::received(event),
            event.token,
            number,
            deadline,
            told.clone(),
        )
        .in_schema(consumer.store.place().in_schema())
        .of(consumer.context.kind)
        .decoded_by(consumer.context.codec.clone())
        .kept_by(keeper.clone())
    });
    let (context, state) = (consumer.context.clone(), consumer.state.clone());
    let work = match &handler.form {
        Form::Command(commands) => {
            let Some((event, delivery)) = unit.events.first().zip(deliveries.next()) else {
                return whole(unit, End::NotStarted);
            };
            let due = event.command.as_ref().map_or(CommandDue::Send, |c| c.due);
            let Some(one) = commands.of(due).cloned() else {
                let nobody = Failure::retry("no function of this worker asks the provider");
                return whole(unit, End::Failed(nobody));
            };
            if due == CommandDue::Send {
                // In a task of its own: nobody polls this while the batch records something, which needs a connection, too.
                let leaving = leave(
                    consumer.clone(),
                    lease.clone(),
                    event.clone(),
                    commands.clone(),
                );
                let left = tokio::spawn(leaving).await;
                if let Err(end) = left.unwrap_or(Err(End::NotStarted)) {
                    return whole(unit, end);
                }
            }
            one.start(context, state, delivery)
        }
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
        Form::Publish(publisher) => {
            // One call is never renewed: it has to fit into what is left, with a margin.
            let margin = consumer.leases.length() / 4;
            let left = move || match lease.is_lost() || told.is_cancelled() {
                true => Duration::ZERO,
                false => {
                    let until = deadline.saturating_duration_since(Instant::now());
                    lease.left().saturating_sub(margin).min(until)
                }
            };
            let work = publisher.clone().start(unit.events.clone(), left);
            return match in_time(&consumer, work, permit, deadline).await {
                Ok(end) => Tried { unit, end },
                Err(failure) => whole(unit, End::Failed(failure)),
            };
        }
    };
    let end = in_time(&consumer, work, permit, deadline)
        .await
        .unwrap_or_else(|mut failure| {
            if matches!(handler.form, Form::Command(_)) {
                // It has left, and may have had its effect.
                failure.class = Class::Unknown;
            }
            End::Failed(failure)
        });
    whole(unit, end)
}

/// Writes down that a command leaves, and looks once more whether it may: nobody else can have it, and what is left of the lease
/// is enough. Only then is it known that whatever happens from here on may have had an effect.
async fn leave<S>(
    consumer: Consumer<S>,
    lease: Lease,
    event: Arc<Claimed>,
    commands: Arc<Commands<S>>,
) -> Result<(), End> {
    let (token, id, length) = (lease.token, event.event_id, consumer.leases.length());
    let store = &consumer.store;
    let written = store
        .sent(token, id, length, commands.policy, commands.replays)
        .await;
    let why = match written {
        // Settled, cancelled, or in somebody else's hand by now.
        Ok(false) => return Err(End::NotStarted),
        Ok(true) if !lease.is_lost() && lease.left() >= length / 4 => {
            crash::at(Point::Marked);
            return Ok(());
        }
        Ok(true) => "nothing was sent: its lease had nearly lapsed".to_owned(),
        Err(Error::LeaseLost) => return Err(End::NotStarted),
        Err(error) => format!("nothing was sent: it could not be written down before: {error}"),
    };
    // Whether that is written or not, nothing has left.
    Err(End::Failed(Failure::retry(why).uncharged()))
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
            let tally = consumer.tally.clone();
            if let Some(tally) = &tally {
                tally.leave();
            }
            tokio::spawn(async move {
                let _ = work.await;
                drop(permit);
                if let Some(tally) = tally {
                    tally.freed();
                }
            });
            Err(Failure::retry(format_args!(
                "the deadline of {:?} has passed",
                consumer.settings.deadline
            )))
        }
    }
}
