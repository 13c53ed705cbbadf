//! One key of an ordered consumer: its lane hands out and parks, workers try again what is parked and let go what waits
//! behind it, a person skips; in every order of their statements.
//!
//! What becomes of an event is core's table; what becomes of the key is compared with core's `Key` at each commit.

mod step;
mod tests;

use outlast_core::parked::{self, Cause, Key};
use stateright::{Model, Property};

const ORDER: &str = "an event starts when all before it in its key are complete";
const LED: &str = "nobody is behind without somebody who leads";
const ROW: &str = "a key has its row exactly while an event of it is parked";
const RULE: &str = "a key parks and lets go as core says";
const REST: &str = "at rest, all is complete";
const DONE: &str = "all is complete although one of them failed";
const SKIPPED: &str = "all is complete because a person skipped one";

/// The isolation level of a handler's transaction, which releases. Whoever parks is in READ COMMITTED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Committed,
    Repeatable,
}

const LEVELS: [Level; 2] = [Level::Committed, Level::Repeatable];

/// What a twin lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twin {
    /// Nothing: the product.
    None,
    /// The parker reads the key's row and does not lock it.
    PlainRead,
    /// The parker locks the key's row and does not write it.
    LocksOnly,
    /// The releaser looks for those behind in the statement that waits for the key's row.
    SameStatement,
    /// The lane hands out what it has, whether its key is parked or not.
    Blind,
    /// The lane asks for parked keys, but not after a death.
    BlindAfterDeath,
    /// The parker finds no row, and parks all the same.
    ParksAnyway,
    /// A release lets go all that are behind, not the first of them.
    ReleasesAll,
    /// A person's skip completes the event and lets nobody go.
    SkipForgets,
}

#[derive(Clone, Debug)]
struct Lanes {
    twin: Twin,
    level: Level,
    events: usize,
    workers: usize,
    /// How many tries fail, how many of them for good, and how often somebody dies.
    failures: u8,
    spent: u8,
    deaths: u8,
}

impl Lanes {
    fn of(twin: Twin, level: Level) -> Self {
        Self {
            twin,
            level,
            events: 3,
            workers: 2,
            failures: 2,
            spent: 1,
            deaths: 1,
        }
    }
}

/// Events as bits.
type Events = u8;

fn bit(event: usize) -> Events {
    1 << event
}

/// The key's row: how often it was written.
type Row = Option<u8>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lane {
    /// Its next event has its turn.
    Turn,
    /// Has the key's row, in the transaction that parks.
    Parking {
        event: usize,
        found: bool,
    },
    Running {
        event: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    Running { event: usize },
    Releasing(Release),
}

/// The transaction that completes a parked event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Release {
    event: usize,
    skips: bool,
    view: View,
    at: Releasing,
}

/// What a statement sees, or above READ COMMITTED a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct View {
    row: Row,
    behind: Events,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Releasing {
    Begun,
    /// Waits for the key's row.
    Asked,
    Locked,
    Looked {
        behind: Events,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    parked: Vec<Option<parked::State>>,
    complete: Events,
    row: Row,
    lane: Lane,
    /// The last of them is a person.
    workers: Vec<Worker>,
    failures: u8,
    spent: u8,
    deaths: u8,
    died: bool,
    skipped: bool,
    disordered: bool,
    unruly: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Lane,
    /// The try that the lane has running ends.
    Seal,
    Fail,
    LaneDies,
    Claim(usize, usize),
    Skip(usize),
    /// A person gives a quarantined event another try.
    Retry(usize),
    /// A worker's try fails, or is its last.
    FailAgain(usize),
    Spend(usize),
    Release(usize),
    Step(usize),
    Die(usize),
}

impl State {
    fn behind(&self) -> Events {
        self.events(|state| state == parked::State::Behind)
    }

    fn leads(&self) -> Events {
        self.events(parked::State::leads)
    }

    fn events(&self, which: impl Fn(parked::State) -> bool) -> Events {
        let parked = self.parked.iter().enumerate();
        parked
            .filter(|(_, state)| state.is_some_and(&which))
            .map(|(event, _)| bit(event))
            .sum()
    }

    fn view(&self) -> View {
        View {
            row: self.row,
            behind: self.behind(),
        }
    }

    /// The key as core has it.
    fn key(&self) -> Key {
        let ids = |events: Events| (0..8).filter(move |id| events & (1 << id) != 0);
        Key {
            leader: ids(self.leads()).next(),
            behind: ids(self.behind()).collect(),
        }
    }

    /// An event goes where core says.
    fn moves(&mut self, event: usize, cause: Cause) {
        let next = parked::next(self.parked[event], cause);
        let next = next.unwrap_or_else(|| panic!("{:?} for {cause:?}", self.parked[event]));
        if next.is_end() {
            self.complete |= bit(event);
        }
        self.parked[event] = Some(next).filter(|state| !state.is_end());
    }

    fn starts(&mut self, event: usize) {
        self.disordered |= !self.complete & (bit(event) - 1) != 0;
    }

    /// The first event that the lane has not passed.
    fn turn(&self) -> Option<usize> {
        (0..self.parked.len())
            .find(|event| self.complete & bit(*event) == 0 && self.parked[*event].is_none())
    }
}

impl Model for Lanes {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            parked: vec![None; self.events],
            complete: 0,
            row: None,
            lane: Lane::Turn,
            workers: vec![Worker::Idle; self.workers + 1],
            failures: 0,
            spent: 0,
            deaths: 0,
            died: false,
            skipped: false,
            disordered: false,
            unruly: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let fails = state.failures < self.failures;
        let dies = state.deaths < self.deaths;
        match state.lane {
            Lane::Running { .. } => {
                actions.push(Action::Seal);
                if fails {
                    actions.push(Action::Fail);
                }
            }
            Lane::Turn | Lane::Parking { .. } => {
                if self.lane(&mut state.clone()).is_some() {
                    actions.push(Action::Lane);
                }
            }
        }
        if dies && state.lane != Lane::Turn {
            actions.push(Action::LaneDies);
        }
        for (n, worker) in state.workers.iter().enumerate() {
            if dies && *worker != Worker::Idle {
                actions.push(Action::Die(n));
            }
            match worker {
                Worker::Idle => self.begins(state, n, actions),
                Worker::Running { .. } => {
                    actions.push(Action::Release(n));
                    if fails {
                        actions.push(Action::FailAgain(n));
                    }
                    if state.spent < self.spent {
                        actions.push(Action::Spend(n));
                    }
                }
                Worker::Releasing(_) => {
                    if self.step(&mut state.clone(), n).is_some() {
                        actions.push(Action::Step(n));
                    }
                }
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        self.act(&mut state, action)?;
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ORDER, |_: &Self, state: &State| !state.disordered),
            Property::always(LED, |_: &Self, state: &State| {
                state.behind() == 0 || state.leads() != 0
            }),
            Property::always(ROW, |_: &Self, state: &State| {
                state.row.is_some() == (state.leads() != 0)
            }),
            Property::always(RULE, |_: &Self, state: &State| !state.unruly),
            Property::always(REST, |lanes: &Self, state: &State| {
                let mut actions = Vec::new();
                lanes.actions(state, &mut actions);
                !actions.is_empty() || state.complete.count_ones() as usize == lanes.events
            }),
            Property::sometimes(DONE, |lanes: &Self, state: &State| {
                state.failures > 0
                    && !state.skipped
                    && state.complete.count_ones() as usize == lanes.events
            }),
            Property::sometimes(SKIPPED, |lanes: &Self, state: &State| {
                state.skipped && state.complete.count_ones() as usize == lanes.events
            }),
        ]
    }
}
