//! A batch under a lease: its owner seals and ends it or gives it back, others take it over, in every order of their
//! statements, with PostgreSQL's locks and snapshots.

mod step;
mod tests;

use stateright::{Model, Property};

const STALE: &str = "once a lease has ended, nothing commits under it";
const LOST: &str = "of an ended batch every event is sealed or parked";
const AGAIN: &str = "who takes over gets nothing that is sealed";
const TIDY: &str = "of an ended batch nothing is sealed and parked at once";
const LOCKED: &str = "no two wait for each other";
const TAKEN: &str = "a batch was taken over and all of it sealed";
const BOTH: &str = "a seal and a parking have committed side by side";

/// The isolation level of those who seal. Whoever ends a lease is in READ COMMITTED.
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
    /// A seal reads the token and locks nothing.
    PlainRead,
    /// A seal proves the token in a transaction of its own.
    ProvesBefore,
    /// A reclaim moves the end of the lease and keeps its token.
    KeepsToken,
    /// A reclaim updates the row, of which the token is no key, instead of replacing it.
    UpdatesRow,
    /// Whoever ends a lease locks its row only.
    RowOnly,
    /// A reclaim looks first for what is left, and locks then.
    LooksFirst,
    /// The end of a batch believes that all of it was sealed.
    Believes,
    /// The last seal of a batch, and then in the same transaction the locks of its end.
    SealsFirst,
}

#[derive(Clone, Debug)]
struct Batch {
    twin: Twin,
    level: Level,
    workers: usize,
    events: u8,
    /// How often a lease lapses, and how often a worker dies.
    lapses: u8,
    deaths: u8,
    /// The last seal and the end in one commit; and that call twice, as after an answer that was lost.
    together: bool,
}

impl Batch {
    fn of(twin: Twin, level: Level) -> Self {
        Self {
            twin,
            level,
            workers: 2,
            events: 2,
            lapses: 1,
            deaths: 1,
            together: false,
        }
    }

    fn called_twice(twin: Twin) -> Self {
        Self {
            events: 1,
            together: true,
            ..Self::of(twin, Level::Committed)
        }
    }

    fn all(&self) -> Events {
        (1 << self.events) - 1
    }
}

/// Events, or claims, as bits.
type Events = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lease {
    token: u8,
    lapsed: bool,
    given_back: bool,
}

/// A claim: which one it is, and the token that proves it. Only a broken twin gives two claims one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Claim {
    number: u8,
    token: u8,
}

/// What a transaction above READ COMMITTED sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct View {
    token: Option<u8>,
    parked: Events,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Worker {
    /// Owns nothing.
    Idle,
    /// Between two transactions.
    Owner { claim: Claim, todo: Events },
    /// In the transaction of a handler.
    Sealing(Seal),
    /// Ends its batch, or gives it back.
    Ending(End),
    /// Takes a lapsed lease over.
    Taking(Take),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seal {
    claim: Claim,
    todo: Events,
    event: Events,
    view: View,
    at: Sealing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct End {
    claim: Claim,
    /// What it seals in the same transaction.
    seals: Events,
    back: bool,
    at: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Take {
    token: u8,
    left: Events,
    at: Taking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Sealing {
    Begun,
    /// Has the shared advisory lock.
    Fenced,
    Proved,
    /// The completion is written.
    Written,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Ending {
    Begun,
    Row,
    Both,
    Looked { left: Events },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Taking {
    /// Has it on a list of lapsed ones, and no lock.
    Listed,
    Advisory,
    Both,
    Looked,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    lease: Option<Lease>,
    sealed: Events,
    parked: Events,
    /// Claims whose end has committed.
    ended: u8,
    claims: u8,
    lapses: u8,
    deaths: u8,
    stale: bool,
    again: bool,
    workers: Vec<Worker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Lapse,
    Renew(usize),
    Die(usize),
    /// A transaction begins.
    Handle(usize),
    End(usize),
    GiveBack(usize),
    TakeOver(usize),
    /// Its next statement, or its COMMIT.
    Step(usize),
    /// The handler's transaction is gone, and nobody has noticed.
    Swallow(usize),
    /// At its deadline the engine parks what the handler still works on.
    Deadline(usize),
}

impl State {
    fn token(&self) -> Option<u8> {
        self.lease.map(|lease| lease.token)
    }

    /// Does anybody but this worker hold such a lock of this token?
    fn held(&self, me: usize, lock: impl Fn(&Worker) -> bool) -> bool {
        let others = self.workers.iter().enumerate();
        others
            .filter(|(n, _)| *n != me)
            .any(|(_, other)| lock(other))
    }
}
impl Model for Batch {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let claim = Claim {
            number: 0,
            token: 0,
        };
        let owner = Worker::Owner {
            claim,
            todo: self.all(),
        };
        let mut workers = vec![Worker::Idle; self.workers];
        workers[0] = owner;
        if self.together {
            workers[1] = owner;
        }
        vec![State {
            lease: Some(Lease {
                token: 0,
                lapsed: false,
                given_back: false,
            }),
            sealed: 0,
            parked: 0,
            ended: 0,
            claims: 1,
            lapses: 0,
            deaths: 0,
            stale: false,
            again: false,
            workers,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let lapsed = state.lease.is_some_and(|lease| lease.lapsed);
        if state.lease.is_some() && !lapsed && state.lapses < self.lapses {
            actions.push(Action::Lapse);
        }
        for (n, worker) in state.workers.iter().enumerate() {
            if *worker != Worker::Idle && state.deaths < self.deaths {
                actions.push(Action::Die(n));
            }
            if self.can_step(state, n) {
                actions.push(Action::Step(n));
            }
            match worker {
                Worker::Idle if lapsed && state.claims < 4 => actions.push(Action::TakeOver(n)),
                Worker::Owner { claim, todo } => {
                    actions.push(match todo {
                        0 => Action::End(n),
                        _ => Action::Handle(n),
                    });
                    if *todo != 0 && !self.together {
                        actions.push(Action::GiveBack(n));
                    }
                    let ours = state.lease.filter(|lease| lease.token == claim.token);
                    let lapsed = ours.is_some_and(|lease| lease.lapsed && !lease.given_back);
                    if lapsed && !state.held(n, |other| self.locks_row(other, claim.token)) {
                        actions.push(Action::Renew(n));
                    }
                }
                Worker::Sealing(seal) => {
                    if seal.at == Sealing::Written {
                        actions.push(Action::Swallow(n));
                    }
                    let token = seal.claim.token;
                    let fenced = state.held(n, |other| self.excludes(other, token));
                    let open = (state.sealed | state.parked) & seal.event == 0;
                    if open && !self.together && !fenced && state.token() == Some(token) {
                        actions.push(Action::Deadline(n));
                    }
                }
                Worker::Idle | Worker::Ending(_) | Worker::Taking(_) => {}
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match (action, state.lease.as_mut()) {
            (Action::Lapse, Some(lease)) => {
                lease.lapsed = true;
                state.lapses += 1;
            }
            (Action::Renew(_), Some(lease)) => lease.lapsed = false,
            (Action::Lapse | Action::Renew(_), None) => return None,
            (Action::Step(n), _) => self.step(&mut state, n)?,
            (Action::Die(n), _) => {
                state.deaths += 1;
                state.workers[n] = Worker::Idle;
            }
            (Action::TakeOver(n), _) => {
                let (token, at) = (state.token()?, Taking::Listed);
                let left = match self.twin {
                    Twin::LooksFirst => self.left(&state),
                    _ => 0,
                };
                state.workers[n] = Worker::Taking(Take { token, left, at });
            }
            (Action::Handle(n) | Action::End(n) | Action::GiveBack(n), _) => {
                let Worker::Owner { claim, todo } = state.workers[n] else {
                    return None;
                };
                // The lowest one.
                let event = todo & todo.wrapping_neg();
                let ends = |seals, back| {
                    let at = Ending::Begun;
                    Worker::Ending(End {
                        claim,
                        seals,
                        back,
                        at,
                    })
                };
                let last = self.together && todo == event && self.twin != Twin::SealsFirst;
                state.workers[n] = match action {
                    Action::Handle(_) if last => ends(event, false),
                    Action::Handle(_) => {
                        // Only above READ COMMITTED is the snapshot of the first statement that of all.
                        let view = match self.level {
                            Level::Committed => View::default(),
                            Level::Repeatable => View {
                                token: state.token(),
                                parked: state.parked,
                            },
                        };
                        let at = Sealing::Begun;
                        Worker::Sealing(Seal {
                            claim,
                            todo,
                            event,
                            view,
                            at,
                        })
                    }
                    action => ends(0, matches!(action, Action::GiveBack(_))),
                };
            }
            (Action::Swallow(n) | Action::Deadline(n), _) => {
                let Worker::Sealing(Seal {
                    claim, todo, event, ..
                }) = state.workers[n]
                else {
                    return None;
                };
                if let Action::Deadline(_) = action {
                    state.parked |= event;
                } else {
                    let todo = todo & !event;
                    state.workers[n] = Worker::Owner { claim, todo };
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(STALE, |_: &Self, state: &State| !state.stale),
            Property::always(AGAIN, |_: &Self, state: &State| !state.again),
            Property::always(LOST, |batch: &Self, state: &State| {
                state.lease.is_some() || batch.left(state) == 0
            }),
            Property::always(TIDY, |_: &Self, state: &State| {
                state.lease.is_some() || state.sealed & state.parked == 0
            }),
            Property::always(LOCKED, |batch: &Self, state: &State| {
                let mut busy =
                    state.workers.iter().enumerate().filter(|(_, worker)| {
                        !matches!(worker, Worker::Idle | Worker::Owner { .. })
                    });
                let idle = busy.clone().next().is_none();
                idle || busy.any(|(n, _)| batch.can_step(state, n))
            }),
        ];
        if !self.together {
            properties.push(Property::sometimes(TAKEN, |batch: &Self, state: &State| {
                state.claims > 1 && state.lease.is_none() && state.sealed == batch.all()
            }));
            properties.push(Property::sometimes(BOTH, |_: &Self, state: &State| {
                state.sealed & state.parked != 0
            }));
        }
        properties
    }
}
