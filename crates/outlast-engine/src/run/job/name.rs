//! The jobs of one name in this process: how many may run, how many more to claim, and where to begin.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use outlast_postgres::store::{Rooms, Taken};
use serde_json::json;
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};

use super::floors::Floors;
use crate::{
    handler::{Context, Form, Kind, Provider},
    run::{
        batch::Ended, books::Books, consumer::Consumer, destination::Destination, register::Common,
        registry::Registry, tally::Tally,
    },
    settings::Settings,
    worker::PlannedJob,
};

/// Claimed ahead is what takes so long, so that places need not wait for the next claim. Not more: what is claimed here is
/// kept from others, and from what is more urgent.
const AHEAD: Duration = Duration::from_millis(50);
/// Held at most, however quick they are.
const HELD: usize = 1000;

/// The account, tenant and priority of a job that was taken, and where it stood.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) account: String,
    pub(super) tenant: String,
    pub(super) priority: i16,
    pub(super) seq: i64,
}

impl Group {
    pub(super) fn of(taken: &Taken) -> Self {
        Self {
            account: taken.account.clone(),
            tenant: taken.work.tenant.clone(),
            priority: taken.priority,
            seq: taken.work.log_id,
        }
    }
}

/// One name.
pub(crate) struct Name<S> {
    consumer: Consumer<S>,
    version: u16,
    slots: Arc<Semaphore>,
    tally: Arc<Tally>,
    /// There may be something to claim.
    pub(super) more: bool,
    ahead: Ahead,
    /// Behind which account and tenant the next claim begins.
    after: Option<(String, String)>,
    floors: Floors,
}

impl<S: Clone + Send + Sync + 'static> Name<S> {
    pub(super) fn new(common: &Common<S>, planned: PlannedJob<S>, changed: Arc<Notify>) -> Self {
        let settings = &common.settings;
        let name: Arc<str> = (*planned.handler.name).into();
        let (kind, called) = Kind::of_queue(&name);
        let called: Arc<str> = called.into();
        let options = settings.options_of(&called, &planned.options);
        let provider = match &planned.handler.form {
            Form::Command(commands) => Some(Provider {
                store: common.store.clone(),
                every: commands.every,
            }),
            _ => None,
        };
        let concurrency = options.concurrency.unwrap_or(settings.concurrency);
        let tally = Arc::new(Tally::new(changed));
        let version = planned.handler.version;
        let settings = match options.deadline {
            Some(deadline) => Arc::new(Settings {
                deadline,
                ..(**settings).clone()
            }),
            None => settings.clone(),
        };
        Self {
            consumer: Consumer {
                id: 0,
                name: name.clone(),
                state: common.state.clone(),
                context: Context {
                    kind,
                    consumer: called,
                    ordered: false,
                    around: common.around.clone(),
                    codec: common.codec.clone(),
                    accepted: None,
                    provider,
                },
                registry: Arc::new(Registry::new(vec![planned.handler])),
                store: common.store.clone(),
                books: match kind {
                    Kind::Entity => Books::of_entities(common.store.clone(), options),
                    _ => Books::of_jobs(common.store.clone(), options),
                },
                leases: common.leases.clone(),
                // Each job fails for itself: there is no backlog that an outage would charge in a row.
                destination: Destination::unwatched(),
                settings,
                concurrency,
                deliveries: None,
                tally: Some(tally.clone()),
            },
            version,
            slots: Arc::new(Semaphore::new(concurrency)),
            tally,
            more: true,
            ahead: Ahead::default(),
            after: None,
            floors: Floors::new(Instant::now()),
        }
    }

    /// The name itself.
    pub(crate) fn text(&self) -> &str {
        &self.consumer.name
    }

    /// Asks for one, wherever it stands.
    #[cfg(feature = "testing")]
    pub(crate) fn ask_for_one(&self, rooms: &mut Rooms) {
        rooms.ask(&self.consumer.name, self.version, 1);
    }

    /// What a batch is run with.
    pub(crate) fn runs(&self) -> (Consumer<S>, Arc<Semaphore>) {
        (self.consumer.clone(), self.slots.clone())
    }

    /// How many more may be claimed now.
    pub(super) fn room(&self) -> usize {
        let places = self.consumer.concurrency;
        // Left to themselves after their deadline, they keep their places until they return.
        let left = self.tally.left();
        let ahead = if left == 0 { self.ahead.jobs } else { 0 };
        // Not by the places that are taken: one that was freed belongs to whoever waits for it before he knows.
        room(places.saturating_sub(left), ahead, self.tally.held())
    }

    /// Writes its line of a claim.
    pub(super) fn ask(&mut self, room: usize, rooms: &mut Rooms, now: Instant) {
        let name = self.text().to_owned();
        rooms.ask(&name, self.version, room);
        if let Some((account, tenant)) = &self.after {
            rooms.after.insert(name.clone(), json!([account, tenant]));
        }
        if let Some(floors) = self.floors.at(now) {
            rooms.floors.insert(name, floors);
        }
    }

    /// Learns from what a claim has brought of it, in the order of the claim.
    pub(super) fn took(&mut self, groups: Vec<Group>, room: usize, now: Instant) {
        let whose: BTreeSet<_> = groups.iter().map(|g| (&g.account, &g.tenant)).collect();
        // One of each: there may be more of them than there was room.
        self.after = match groups.last() {
            Some(last) if whose.len() >= room => Some((last.account.clone(), last.tenant.clone())),
            _ => None,
        };
        self.floors.took(groups, now);
    }

    /// Whether a try has failed since this was last asked.
    pub(super) fn has_failed(&self) -> bool {
        self.tally.has_failed()
    }

    /// Learns from a batch that ended.
    pub(super) fn learn(&mut self, ended: Ended) {
        self.ahead.learn(ended);
    }
}

/// With so many places, so much ahead and so much in hand, one claims when a place would stay empty, or half of what one may
/// hold is gone: not for each that ends.
fn room(places: usize, ahead: usize, held: usize) -> usize {
    let most = places.saturating_add(ahead).min(HELD.max(places));
    if held < places || held <= most / 2 {
        most.saturating_sub(held)
    } else {
        0
    }
}

/// How many are claimed besides those that have a place.
#[derive(Debug, Default)]
struct Ahead {
    jobs: usize,
}

impl Ahead {
    fn learn(&mut self, ended: Ended) {
        if ended.done == 0 || ended.took.is_zero() {
            return;
        }
        let in_time = ended.done as f64 * AHEAD.as_secs_f64() / ended.took.as_secs_f64();
        // It grows step by step, and is gone at once when they take long.
        self.jobs = (in_time as usize).min(self.jobs * 2 + 16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_free_is_claimed_for_and_what_lies_ahead_in_halves() {
        assert_eq!(room(8, 0, 0), 8);
        assert_eq!(room(8, 0, 7), 1);
        assert_eq!(room(8, 0, 8), 0);
        assert_eq!(room(8, 92, 51), 0);
        assert_eq!(room(8, 92, 50), 50);
        // Handlers that never return have all places.
        assert_eq!(room(0, 0, 0), 0);
        assert_eq!(room(8, 1_000_000, 0), HELD);
    }

    #[test]
    fn slow_jobs_are_never_claimed_ahead() {
        let took = |done, ms| Ended {
            events: done,
            done,
            failed: 0,
            took: Duration::from_millis(ms),
        };
        let mut ahead = Ahead::default();
        ahead.learn(took(8, 1));
        assert_eq!(ahead.jobs, 16, "step by step");
        ahead.learn(took(24, 3));
        assert_eq!(ahead.jobs, 48);
        ahead.learn(took(8, 1000));
        assert_eq!(ahead.jobs, 0);
        ahead.learn(took(0, 0));
        assert_eq!(ahead.jobs, 0);
    }
}
