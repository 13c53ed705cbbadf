//! Writers that take a transaction id, draw log ids, and end, in every order with the steps of ticks and readers.

mod tests;

use outlast_core::window::{Snapshot, Tick, in_window, is_beyond};
use stateright::{Model, Property};

const LOST: &str = "no event is passed over";
const DOUBLED: &str = "no event is delivered twice";
const ORDER: &str = "what was visible to an emit is delivered before it";
const REST: &str = "at rest, all is delivered";
const MERGE: &str = "a window over several ticks is their windows together";

/// One step of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Snap,
    Hi,
    H,
}

/// Who may own an id below a tick's `hi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stragglers {
    /// As in core.
    All,
    /// Twin: the snapshot's list and nothing above its `xmax`.
    Open,
    /// Twin: nobody.
    Nobody,
}

/// How the log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Windows(Stragglers),
    /// Twin: on behind the last id that was read.
    IdCursor,
    /// Twin: below the oldest open transaction.
    XminCursor,
}

#[derive(Clone, Debug)]
struct Log {
    sessions: usize,
    /// Transactions a session makes, and ids each of them may draw.
    transactions: usize,
    ids: usize,
    rolls_back: bool,
    ticks: usize,
    tick: [Step; 3],
    reader: Reader,
    /// How many ids a session takes from the sequence at once.
    cache: i64,
    /// Whether readers look for ended stragglers, too, when they ask if there is anything new.
    looks_for_stragglers: bool,
    /// Several readers of one consumer, with or without the lock that is taken before progress is read.
    readers: usize,
    lock: bool,
}

impl Log {
    fn product(sessions: usize, ids: usize, ticks: usize) -> Self {
        Self {
            sessions,
            transactions: 1,
            ids,
            rolls_back: true,
            ticks,
            tick: [Step::Snap, Step::Hi, Step::H],
            reader: Reader::Windows(Stragglers::All),
            cache: 1,
            looks_for_stragglers: true,
            readers: 1,
            lock: true,
        }
    }
}

/// Log ids as bits.
type Ids = u32;

fn bit(id: i64) -> Ids {
    1 << id
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Session {
    ended: usize,
    xid: Option<u64>,
    /// Drawn in this transaction, with what the emit could see.
    drawn: Vec<(i64, Ids)>,
    reserve: Vec<i64>,
}

/// A committed event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Row {
    id: i64,
    xid: u64,
    after: Ids,
}

/// A tick that is being taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Taking {
    /// Progress when it began.
    from: usize,
    steps: usize,
    snap: Snapshot,
    hi: i64,
    h: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    next_xid: u64,
    last_id: i64,
    /// The highest transaction that has ended.
    ended: u64,
    running: Vec<u64>,
    sessions: Vec<Session>,
    rows: Vec<Row>,
    ticks: Vec<Tick>,
    taking: Vec<Option<Taking>>,
    delivered: Vec<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    TakeXid(usize),
    Draw(usize),
    Commit(usize),
    RollBack(usize),
    /// The next step of a reader's tick; after the last one its window is delivered.
    Tick(usize),
}

impl State {
    fn take_xid(&mut self) -> u64 {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.running.push(xid);
        xid
    }

    fn end(&mut self, xid: u64) {
        self.running.retain(|running| *running != xid);
        self.ended = self.ended.max(xid);
    }

    fn snapshot(&self) -> Snapshot {
        let xmax = self.ended + 1;
        let xip = self.running.iter().copied().filter(|xid| *xid < xmax);
        Snapshot {
            xmax,
            xip: xip.collect(),
        }
    }

    fn committed(&self) -> Ids {
        self.rows.iter().map(|row| bit(row.id)).sum()
    }

    fn progress(&self) -> &Tick {
        self.ticks.last().expect("it begins with one")
    }
}

/// The lowest transaction that had not ended.
fn xmin(snap: &Snapshot) -> u64 {
    snap.xip.first().copied().unwrap_or(snap.xmax)
}

impl Log {
    fn contains(&self, a: &Tick, b: &Tick, row: &Row) -> bool {
        let Reader::Windows(stragglers) = self.reader else {
            unreachable!("a cursor has no windows")
        };
        let straggles = match stragglers {
            Stragglers::All => return in_window(a, b, row.id, row.xid),
            Stragglers::Open => a.open.contains(&row.xid),
            Stragglers::Nobody => false,
        };
        b.snap.sees(row.xid) && (row.id > a.hi || straggles)
    }

    fn beyond(&self, state: &State) -> bool {
        let progress = state.progress();
        let Reader::Windows(_) = self.reader else {
            return state
                .rows
                .iter()
                .any(|row| !state.delivered.contains(&row.id));
        };
        let ended = state.rows.iter().filter(|row| row.id <= progress.hi);
        let ended = ended.map(|row| row.xid);
        is_beyond(
            progress,
            state.last_id,
            ended.filter(|_| self.looks_for_stragglers),
        )
    }

    fn tick(&self, state: &mut State, reader: usize) {
        let mut taking = state.taking[reader].take().unwrap_or_else(|| Taking {
            from: state.ticks.len() - 1,
            steps: 0,
            snap: Tick::zero().snap,
            hi: 0,
            h: 0,
        });
        match self.tick[taking.steps] {
            Step::Snap => taking.snap = state.snapshot(),
            Step::Hi => taking.hi = state.last_id,
            Step::H => taking.h = state.take_xid(),
        }
        taking.steps += 1;
        if taking.steps < self.tick.len() {
            state.taking[reader] = Some(taking);
            return;
        }
        // The claim: what the window holds is fixed by now, and goes out when its transaction has ended.
        let a = state.ticks[taking.from].clone();
        let b = Tick::after(&a, taking.snap, taking.hi, taking.h);
        let rows = state.rows.iter().filter(|row| match self.reader {
            Reader::Windows(_) => self.contains(&a, &b, row),
            Reader::IdCursor => row.id > a.hi && b.snap.sees(row.xid),
            Reader::XminCursor => (xmin(&a.snap)..xmin(&b.snap)).contains(&row.xid),
        });
        let mut ids: Vec<_> = rows.map(|row| row.id).collect();
        ids.sort_unstable();
        let hi = ids.last().copied();
        state.delivered.extend(ids);
        state.end(b.h);
        state.ticks.push(match self.reader {
            Reader::IdCursor => Tick {
                hi: hi.unwrap_or(a.hi),
                ..b
            },
            _ => b,
        });
    }
}

impl Model for Log {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            next_xid: 2,
            last_id: 0,
            ended: 1,
            running: Vec::new(),
            sessions: vec![Session::default(); self.sessions],
            rows: Vec::new(),
            ticks: vec![Tick::zero()],
            taking: vec![None; self.readers],
            delivered: Vec::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (n, session) in state.sessions.iter().enumerate() {
            if session.xid.is_some() {
                if session.drawn.len() < self.ids {
                    actions.push(Action::Draw(n));
                }
                actions.push(Action::Commit(n));
                if self.rolls_back {
                    actions.push(Action::RollBack(n));
                }
            } else if session.ended < self.transactions {
                // They are alike: the first of them begins first.
                let begun = |other: &Session| other.xid.is_some() || other.ended > 0;
                if n == 0 || begun(&state.sessions[n - 1]) {
                    actions.push(Action::TakeXid(n));
                }
            }
        }
        for (n, taking) in state.taking.iter().enumerate() {
            let free = !self.lock || state.taking.iter().all(Option::is_none);
            let begins = free && state.ticks.len() <= self.ticks && self.beyond(state);
            if taking.is_some() || begins {
                actions.push(Action::Tick(n));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::TakeXid(n) => state.sessions[n].xid = Some(state.take_xid()),
            Action::Draw(n) => {
                let visible = state.committed();
                if state.sessions[n].reserve.is_empty() {
                    let first = state.last_id + 1;
                    state.last_id += self.cache;
                    state.sessions[n].reserve = (first..=state.last_id).collect();
                }
                let session = &mut state.sessions[n];
                let id = session.reserve.remove(0);
                let own: Ids = session.drawn.iter().map(|(id, _)| bit(*id)).sum();
                session.drawn.push((id, visible | own));
            }
            Action::Commit(n) | Action::RollBack(n) => {
                let session = &mut state.sessions[n];
                let xid = session.xid.take()?;
                let drawn = std::mem::take(&mut session.drawn);
                session.ended += 1;
                if matches!(action, Action::Commit(_)) {
                    let rows = drawn.into_iter();
                    let rows = rows.map(|(id, after)| Row { id, xid, after });
                    state.rows.extend(rows);
                    state.rows.sort_unstable_by_key(|row| row.id);
                }
                state.end(xid);
            }
            Action::Tick(n) => self.tick(&mut state, n),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LOST, |log: &Self, state: &State| {
                let progress = state.progress();
                state.rows.iter().all(|row| {
                    let passed = match log.reader {
                        Reader::Windows(_) => progress.snap.sees(row.xid),
                        Reader::IdCursor => row.id <= progress.hi,
                        Reader::XminCursor => row.xid < xmin(&progress.snap),
                    };
                    !passed || state.delivered.contains(&row.id)
                })
            }),
            Property::always(DOUBLED, |_: &Self, state: &State| {
                let mut ids = state.delivered.clone();
                ids.sort_unstable();
                ids.windows(2).all(|two| two[0] != two[1])
            }),
            Property::always(ORDER, |_: &Self, state: &State| {
                let mut before: Ids = 0;
                state.delivered.iter().all(|id| {
                    let row = state.rows.iter().find(|row| row.id == *id);
                    let after = row.map_or(0, |row| row.after);
                    let held = after & !before == 0;
                    before |= bit(*id);
                    held
                })
            }),
            Property::always(REST, |log: &Self, state: &State| {
                let done =
                    |session: &Session| session.xid.is_none() && session.ended == log.transactions;
                let idle = state.taking.iter().all(Option::is_none) && !log.beyond(state);
                let rest = idle && state.sessions.iter().all(done);
                !rest || state.rows.len() == state.delivered.len()
            }),
            Property::always(MERGE, |log: &Self, state: &State| {
                let Reader::Windows(Stragglers::All) = log.reader else {
                    return true;
                };
                let last = state.progress();
                state.ticks.iter().enumerate().all(|(n, first)| {
                    state.rows.iter().all(|row| {
                        let mut steps = state.ticks[n..].windows(2);
                        let stepwise =
                            steps.any(|two| in_window(&two[0], &two[1], row.id, row.xid));
                        in_window(first, last, row.id, row.xid) == stepwise
                    })
                })
            }),
        ]
    }
}
