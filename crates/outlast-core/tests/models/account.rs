//! An account with a limit: claimers count what is in work and take what there is room for; completions and lost leases make room.

use stateright::{Model, Property};

use crate::{breaks, holds};

const LIMIT: &str = "no more of an account than its limit are in work";
const FULL: &str = "the limit is reached";
const REST: &str = "at rest nothing waits";

/// What a twin lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twin {
    /// Nothing: the product.
    None,
    /// It is counted without the account's lock.
    NoLock,
    /// The lock is taken by the statement that counts, whose snapshot is older.
    SameStatement,
    /// The lock is let go before what was taken has committed.
    LetsGoEarly,
}

#[derive(Clone, Debug)]
struct Account {
    twin: Twin,
    claimers: usize,
    limit: u8,
    waiting: u8,
}

impl Account {
    fn of(twin: Twin) -> Self {
        Self {
            twin,
            claimers: 3,
            limit: 2,
            waiting: 4,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Claimer {
    Idle,
    /// Its statement has begun: this many were in work.
    Looks {
        seen: u8,
    },
    /// Has the account's lock.
    Locked,
    /// Has taken some, and not committed.
    Took {
        n: u8,
        locked: bool,
    },
    /// Has them in work.
    Works {
        n: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    ready: u8,
    claimers: Vec<Claimer>,
}

impl State {
    /// What has committed.
    fn in_work(&self) -> u8 {
        let n = |claimer: &Claimer| match claimer {
            Claimer::Works { n } => *n,
            _ => 0,
        };
        self.claimers.iter().map(n).sum()
    }

    fn locked(&self) -> bool {
        let locked = |claimer: &Claimer| {
            matches!(
                claimer,
                Claimer::Locked | Claimer::Took { locked: true, .. }
            )
        };
        self.claimers.iter().any(locked)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The next statement of a claimer, or its COMMIT.
    Step(usize),
    Dies(usize),
    /// One of what it has in work is done.
    Done(usize),
}

impl Account {
    fn step(&self, state: &mut State, n: usize) -> Option<()> {
        let taken = state.locked();
        let room = |in_work: u8, ready: u8| self.limit.saturating_sub(in_work).min(ready);
        state.claimers[n] = match state.claimers[n] {
            Claimer::Idle => match self.twin {
                Twin::NoLock | Twin::SameStatement => Claimer::Looks {
                    seen: state.in_work(),
                },
                // It tries, and waits for nobody: his turn.
                Twin::None | Twin::LetsGoEarly if taken => return None,
                Twin::None | Twin::LetsGoEarly => Claimer::Locked,
            },
            Claimer::Looks { .. } if taken && self.twin == Twin::SameStatement => Claimer::Idle,
            Claimer::Looks { seen } => {
                let n = room(seen, state.ready);
                state.ready -= n;
                let locked = self.twin == Twin::SameStatement;
                Claimer::Took { n, locked }
            }
            Claimer::Locked => {
                let n = room(state.in_work(), state.ready);
                state.ready -= n;
                let locked = self.twin != Twin::LetsGoEarly;
                Claimer::Took { n, locked }
            }
            Claimer::Took { n: 0, .. } => Claimer::Idle,
            Claimer::Took { n, .. } => Claimer::Works { n },
            Claimer::Works { .. } => return None,
        };
        Some(())
    }
}

impl Model for Account {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            ready: self.waiting,
            claimers: vec![Claimer::Idle; self.claimers],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (n, claimer) in state.claimers.iter().enumerate() {
            match claimer {
                Claimer::Idle if state.ready == 0 => {}
                Claimer::Works { .. } => actions.extend([Action::Done(n), Action::Dies(n)]),
                Claimer::Idle => actions.push(Action::Step(n)),
                _ => actions.extend([Action::Step(n), Action::Dies(n)]),
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Step(n) => self.step(&mut state, n)?,
            Action::Dies(n) => {
                // Rolled back, or given back when its lease has lapsed.
                if let Claimer::Took { n, .. } | Claimer::Works { n } = state.claimers[n] {
                    state.ready += n;
                }
                state.claimers[n] = Claimer::Idle;
            }
            Action::Done(n) => {
                let Claimer::Works { n: works } = state.claimers[n] else {
                    return None;
                };
                state.claimers[n] = match works - 1 {
                    0 => Claimer::Idle,
                    n => Claimer::Works { n },
                };
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LIMIT, |account: &Self, state: &State| {
                state.in_work() <= account.limit
            }),
            Property::sometimes(FULL, |account: &Self, state: &State| {
                state.in_work() == account.limit
            }),
            Property::always(REST, |account: &Self, state: &State| {
                let mut actions = Vec::new();
                account.actions(state, &mut actions);
                !actions.is_empty() || state.ready == 0
            }),
        ]
    }
}

#[test]
fn no_more_of_an_account_than_its_limit_are_in_work_whoever_claims() {
    holds(Account::of(Twin::None));
}

#[test]
#[ignore = "a minute or more: ./run prove models"]
fn the_same_with_more_claimers() {
    holds(Account {
        claimers: 5,
        limit: 3,
        waiting: 9,
        ..Account::of(Twin::None)
    });
}

#[test]
fn counting_without_the_lock_in_the_statement_that_locks_or_beyond_it_is_found_out() {
    for twin in [Twin::NoLock, Twin::SameStatement, Twin::LetsGoEarly] {
        breaks(Account::of(twin), LIMIT);
    }
}
