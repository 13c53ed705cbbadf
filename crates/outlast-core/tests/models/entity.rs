//! One entity: transactions change and delete it and leave marks, which commit out of the order of their ids; a fold makes it due, a
//! runner rereads it and converges its provider, its lease lapses, it dies, it wakes; in every order.
//!
//! What is wanted is the set of changes that have committed: whoever rereads sees all of them or not.

mod fold;
mod runner;
mod tests;

use stateright::{Model, Property};

const REST: &str = "at rest the provider has what was wanted last";
const CLEANED: &str = "at rest everything that was deleted is cleaned up";
const ONE: &str = "no two run at once under leases that have not lapsed";
const KEPT: &str = "no refs are replaced by who does not know them";
const TAKEN: &str = "somebody lapsed, and all the same it came to rest";
const OUT_OF_ORDER: &str = "a mark came after one with a higher id, and it came to rest";

/// What a twin lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twin {
    /// Nothing: the product.
    None,
    /// A completion removes everything up to the highest id that it has seen.
    Below,
    /// A fold goes on behind the last id that it has taken.
    Cursor,
    /// .. behind the last id that was drawn, whoever may still commit one below.
    BehindDrawn,
    /// A mark draws its id before its transaction has one: nobody knows when to look for it no more.
    DrawsFirst,
    /// A change reads a counter and writes it one higher, and inserts nothing.
    Counter,
    /// A completion makes it idle, whatever was folded since its claim.
    ForgetsNews,
    /// A fold and a completion do not wait for each other.
    NoLock,
    /// A fold makes it due while somebody has it.
    DueTwice,
    /// What is deleted and then changed is not cleaned up.
    DropsTombstone,
    /// Whoever has lost his lease keeps refs.
    KeepsLate,
    /// The runner reads in a transaction that was open before its claim.
    OldSnapshot,
    /// The provider takes what comes last, whatever its number.
    NoFence,
}

#[derive(Clone, Debug)]
struct Case {
    twin: Twin,
    changes: usize,
    /// Of these, the first so many delete it.
    deletes: usize,
    runners: usize,
    /// How often a lease lapses.
    lapses: u8,
}

impl Case {
    fn of(twin: Twin) -> Self {
        Self {
            twin,
            changes: 2,
            deletes: 1,
            runners: 2,
            lapses: 1,
        }
    }
}

/// Changes, or refs, as bits.
type Bits = u8;

fn bit(n: usize) -> Bits {
    1 << n
}

/// A transaction of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Change {
    ToCome,
    /// Has its transaction id; or with a twin the id of its mark.
    Begun {
        xid: u8,
        id: u8,
    },
    /// Has its mark's id, too; and what the counter was.
    Open {
        xid: u8,
        id: u8,
        counter: u8,
    },
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Mark {
    id: u8,
    change: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Idle,
    Due,
    Claimed,
}

/// A transaction that folds, statement by statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Fold {
    /// Has read what was drawn by then.
    Top { top: u8 },
    /// Has looked whether those have ended who drew ids up to the last look's `next`.
    Ended { top: u8, ended: bool },
    /// Has taken the marks that it saw, and has the entity's row.
    Took {
        top: u8,
        ended: bool,
        xid: u8,
        marks: Vec<Mark>,
        counter: u8,
        place: Place,
    },
}

/// Up to where all marks were taken; `next` is so, too, once every transaction before `xid` has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Behind {
    xid: u8,
    below: u8,
    next: u8,
}

/// What a runner was given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Hand {
    fence: u8,
    lapsed: bool,
    /// What it is to clean up.
    tombstones: Vec<Mark>,
    /// Whose refs are kept.
    refs: Option<u8>,
    /// The highest id that was folded by then.
    high: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Runner {
    /// `old`: what its open transaction sees.
    Idle {
        old: Bits,
    },
    Has {
        hand: Hand,
        old: Bits,
    },
    Read {
        hand: Hand,
        saw: Bits,
    },
    /// The provider has it; what it called it is not kept yet.
    Converged {
        hand: Hand,
    },
    Kept {
        hand: Hand,
    },
    /// In the transaction that completes.
    Completes {
        hand: Hand,
        news: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    changes: Vec<Change>,
    last_id: u8,
    next_xid: u8,
    wanted: Bits,
    out_of_order: bool,
    // The database.
    marks: Vec<Mark>,
    counter: u8,
    folded: u8,
    behind: Behind,
    place: Place,
    /// Something was folded since the claim.
    news: bool,
    token: Option<u8>,
    lapsed: bool,
    fence: u8,
    tombstones: Vec<Mark>,
    refs: Option<u8>,
    /// Refs that came too late, as evidence.
    late: Bits,
    fold: Option<Fold>,
    // The provider.
    has: Bits,
    highest: u8,
    cleaned: Bits,
    runners: Vec<Runner>,
    lapses: u8,
    lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// A transaction takes its id, and then writes its change and its mark.
    Write(usize),
    Commit(usize),
    RollBack(usize),
    /// The next statement of a fold, or its COMMIT.
    Fold,
    Claim(usize),
    Lapse,
    Reclaim,
    /// A runner's next step.
    Step(usize),
    Die(usize),
}

impl State {
    fn quiet(&self, case: &Case) -> bool {
        let over = |change: &Change| *change == Change::Over;
        let foldable = self.fold.is_some() || case.foldable(self);
        self.changes.iter().all(over) && !foldable && self.place == Place::Idle
    }

    /// Somebody is deciding about the entity's row.
    fn locked(&self) -> bool {
        let completes = |runner: &Runner| matches!(runner, Runner::Completes { .. });
        matches!(self.fold, Some(Fold::Took { .. })) || self.runners.iter().any(completes)
    }
}

impl Case {
    fn foldable(&self, state: &State) -> bool {
        match self.twin {
            Twin::Counter => state.counter > state.folded,
            _ => state.marks.iter().any(|mark| self.sees(state, *mark)),
        }
    }

    /// Whether a fold looks at it.
    fn sees(&self, state: &State, mark: Mark) -> bool {
        let above = match self.twin {
            Twin::Cursor => state.folded,
            _ => state.behind.below,
        };
        mark.id > above
    }

    fn deleted(&self, wanted: Bits) -> Bits {
        wanted & (bit(self.deletes) - 1)
    }
}

impl Model for Case {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            changes: vec![Change::ToCome; self.changes],
            last_id: 0,
            next_xid: 1,
            wanted: 0,
            out_of_order: false,
            marks: Vec::new(),
            counter: 0,
            folded: 0,
            behind: Behind {
                xid: u8::MAX,
                below: 0,
                next: 0,
            },
            place: Place::Idle,
            news: false,
            token: None,
            lapsed: false,
            fence: 0,
            tombstones: Vec::new(),
            refs: None,
            late: 0,
            fold: None,
            has: 0,
            highest: 0,
            cleaned: 0,
            runners: vec![Runner::Idle { old: 0 }; self.runners],
            lapses: 0,
            lost: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (n, change) in state.changes.iter().enumerate() {
            match change {
                Change::ToCome | Change::Begun { .. } => actions.push(Action::Write(n)),
                Change::Open { .. } => actions.extend([Action::Commit(n), Action::RollBack(n)]),
                Change::Over => {}
            }
        }
        let free = self.twin == Twin::NoLock || !state.locked();
        let folds = match state.fold {
            None => self.foldable(state),
            Some(Fold::Top { .. } | Fold::Took { .. }) => true,
            Some(Fold::Ended { .. }) => free,
        };
        if folds {
            actions.push(Action::Fold);
        }
        if state.place == Place::Claimed {
            if state.lapsed && !state.locked() {
                actions.push(Action::Reclaim);
            } else if !state.lapsed && state.lapses < self.lapses {
                actions.push(Action::Lapse);
            }
        }
        self.of_runners(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Write(n) => self.writes(&mut state, n),
            Action::Commit(n) => {
                let Change::Open { id, counter, .. } = state.changes[n] else {
                    return None;
                };
                state.changes[n] = Change::Over;
                state.wanted |= bit(n);
                state.out_of_order |= id < state.folded;
                state.counter = counter + 1;
                state.marks.push(Mark { id, change: n });
                state.marks.sort_unstable();
            }
            Action::RollBack(n) => state.changes[n] = Change::Over,
            Action::Fold => self.fold(&mut state),
            Action::Lapse => {
                state.lapses += 1;
                state.lapsed = true;
                let token = state.token;
                let hands = state.runners.iter_mut().filter_map(Runner::hand);
                for hand in hands.filter(|hand| Some(hand.fence) == token) {
                    hand.lapsed = true;
                }
            }
            Action::Reclaim => {
                state.token = None;
                state.place = Place::Due;
            }
            Action::Claim(n) => self.claim(&mut state, n),
            Action::Step(n) => self.step(&mut state, n),
            Action::Die(n) => {
                state.lapses += 1;
                let token = state.runners[n].hand().map(|hand| hand.fence);
                state.lapsed |= state.token.is_some() && state.token == token;
                state.runners[n] = self.idle(state.wanted);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(REST, |case: &Self, state: &State| {
                !state.quiet(case) || state.has == state.wanted
            }),
            Property::always(CLEANED, |case: &Self, state: &State| {
                !state.quiet(case) || case.deleted(state.wanted) & !state.cleaned == 0
            }),
            Property::always(ONE, |_: &Self, state: &State| {
                let runs =
                    |runner: &&Runner| (*runner).clone().hand().is_some_and(|hand| !hand.lapsed);
                state.runners.iter().filter(runs).count() <= 1
            }),
            Property::always(KEPT, |_: &Self, state: &State| !state.lost),
            Property::sometimes(OUT_OF_ORDER, |case: &Self, state: &State| {
                state.out_of_order && state.quiet(case)
            }),
        ];
        if self.lapses > 0 {
            properties.push(Property::sometimes(TAKEN, |case: &Self, state: &State| {
                state.lapses > 0 && state.wanted != 0 && state.quiet(case)
            }));
        }
        properties
    }
}
