//! Two jobs that are claimed together, one of which no process survives: claimed, started, completed, given back, charged, run alone; with
//! deaths and lapsed leases at every point.

mod tests;

use stateright::{Model, Property};

const PLACE: &str = "who completes a job has it";
const CHARGED: &str = "only a job that was running, or about to, is charged with a death";
const INNOCENT: &str = "what runs beside a killer is charged with one of its deaths at most";
const STOPS: &str = "what no process survives takes four of them, and is a person's";
const REST: &str = "at rest each job has ended or is a person's";
const DONE: &str = "one is done and the other a person's";

/// How many deaths of a job make it a person's.
const CRASHES: u8 = 3;

/// What a twin lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twin {
    /// Nothing: the product.
    None,
    /// Whoever has run it completes it, whosever it is.
    NoFence,
    /// That it starts is never written down.
    NoMarks,
    /// What was claimed is charged, started or not.
    ChargesClaims,
    /// What may have killed a process runs beside others.
    Together,
}

#[derive(Clone, Debug)]
struct Case {
    twin: Twin,
    workers: usize,
    /// How many processes die of something else, and how many leases lapse of processes that live.
    deaths: u8,
    lapses: u8,
}

impl Case {
    fn of(twin: Twin) -> Self {
        Self {
            twin,
            workers: 2,
            deaths: 1,
            lapses: 1,
        }
    }
}

/// Which job: the first kills whoever runs it.
const JOBS: usize = 2;
const KILLER: usize = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Ready,
    /// Waits to run by itself.
    Alone,
    Claimed {
        token: u8,
    },
    Person,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Job {
    place: Place,
    /// That it starts is on record.
    started: bool,
    lapses: u8,
    crashes: u8,
    /// The truth: how many processes were lost while they ran it, or were about to.
    lost: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Run {
    /// Not in this claim.
    Not,
    Has,
    Marked,
    Runs,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    Has {
        token: u8,
        lapsed: bool,
        runs: [Run; JOBS],
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    jobs: [Job; JOBS],
    /// Claims whose lease has lapsed, as bits.
    lapsed: u16,
    claims: u8,
    workers: Vec<Worker>,
    deaths: u8,
    lapses: u8,
    stolen: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Claim(usize),
    Start(usize, usize),
    Complete(usize, usize),
    Die(usize),
    Lapse(usize),
    Reclaim(u8),
}

impl Case {
    fn claim(&self, state: &mut State, n: usize) -> Option<()> {
        let at = |state: &State, place| {
            let jobs = state.jobs.iter().enumerate();
            let there = jobs.filter(move |(_, job)| job.place == place);
            there.map(|(job, _)| job).collect::<Vec<_>>()
        };
        let alone = at(state, Place::Alone);
        let taken = match alone.first() {
            Some(one) => vec![*one],
            None => at(state, Place::Ready),
        };
        if taken.is_empty() {
            return None;
        }
        let token = state.claims;
        state.claims += 1;
        let mut runs = [Run::Not; JOBS];
        for job in taken {
            runs[job] = Run::Has;
            state.jobs[job].place = Place::Claimed { token };
            state.jobs[job].started = !alone.is_empty() && self.twin != Twin::NoMarks;
        }
        state.workers[n] = Worker::Has {
            token,
            lapsed: false,
            runs,
        };
        Some(())
    }

    /// Gives back what a lost process had.
    fn give_back(&self, state: &mut State, token: u8) {
        for job in &mut state.jobs {
            if job.place != (Place::Claimed { token }) {
                continue;
            }
            let charged = job.started || self.twin == Twin::ChargesClaims;
            job.lapses = (job.lapses + 1).min(2);
            job.crashes += u8::from(charged);
            job.started = false;
            job.place = match job.crashes {
                CRASHES.. => Place::Person,
                1.. if self.twin != Twin::Together => Place::Alone,
                _ => Place::Ready,
            };
        }
    }

    /// A process, or its lease, is gone: what it ran, or was about to, was lost with it.
    fn lost(state: &mut State, n: usize) {
        let Worker::Has {
            token,
            lapsed,
            runs,
        } = &mut state.workers[n]
        else {
            return;
        };
        state.lapsed |= 1 << *token;
        if *lapsed {
            return;
        }
        *lapsed = true;
        for (job, run) in state.jobs.iter_mut().zip(runs) {
            let marked = job.started && job.place == (Place::Claimed { token: *token });
            if marked || matches!(run, Run::Marked | Run::Runs) {
                job.lost += 1;
            }
        }
    }
}

impl Model for Case {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let job = Job {
            place: Place::Ready,
            started: false,
            lapses: 0,
            crashes: 0,
            lost: 0,
        };
        vec![State {
            jobs: [job; JOBS],
            lapsed: 0,
            claims: 0,
            workers: vec![Worker::Idle; self.workers],
            deaths: 0,
            lapses: 0,
            stolen: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let first = state.workers.iter().position(|w| *w == Worker::Idle);
        for (n, worker) in state.workers.iter().enumerate() {
            let Worker::Has { lapsed, runs, .. } = worker else {
                if first == Some(n)
                    && state.claims < 12
                    && self.claim(&mut state.clone(), n).is_some()
                {
                    actions.push(Action::Claim(n));
                }
                continue;
            };
            for (job, run) in runs.iter().enumerate() {
                match run {
                    Run::Has | Run::Marked if !lapsed => actions.push(Action::Start(n, job)),
                    Run::Runs if job != KILLER => actions.push(Action::Complete(n, job)),
                    _ => {}
                }
            }
            let kills = runs[KILLER] == Run::Runs;
            if kills || *lapsed || state.deaths < self.deaths {
                actions.push(Action::Die(n));
            }
            if !lapsed && state.lapses < self.lapses {
                actions.push(Action::Lapse(n));
            }
        }
        for token in 0..state.claims {
            let has = |job: &Job| job.place == Place::Claimed { token };
            if state.lapsed & 1 << token != 0 && state.jobs.iter().any(has) {
                actions.push(Action::Reclaim(token));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Claim(n) => self.claim(&mut state, n)?,
            Action::Reclaim(token) => self.give_back(&mut state, token),
            Action::Lapse(n) => {
                state.lapses += 1;
                Self::lost(&mut state, n);
            }
            Action::Die(n) => {
                let Worker::Has { lapsed, runs, .. } = state.workers[n] else {
                    return None;
                };
                let free = lapsed || runs[KILLER] == Run::Runs;
                state.deaths += u8::from(!free);
                Self::lost(&mut state, n);
                state.workers[n] = Worker::Idle;
            }
            Action::Start(n, job) => {
                let Worker::Has { token, runs, .. } = &mut state.workers[n] else {
                    return None;
                };
                let row = &mut state.jobs[job];
                // What a process was lost with is marked before it starts; and not started if it is somebody else's.
                let marks = row.lapses > 0 && self.twin != Twin::NoMarks;
                runs[job] = match runs[job] {
                    Run::Has if marks && row.place != (Place::Claimed { token: *token }) => {
                        Run::Over
                    }
                    Run::Has if marks => {
                        row.started = true;
                        Run::Marked
                    }
                    _ => Run::Runs,
                };
            }
            Action::Complete(n, job) => {
                let Worker::Has { token, runs, .. } = &mut state.workers[n] else {
                    return None;
                };
                runs[job] = Run::Over;
                let row = &mut state.jobs[job];
                let owns = row.place == Place::Claimed { token: *token };
                if owns || self.twin == Twin::NoFence {
                    state.stolen |= !owns;
                    row.place = Place::Ended;
                }
            }
        }
        for worker in &mut state.workers {
            if let Worker::Has { runs, .. } = worker
                && runs.iter().all(|run| matches!(run, Run::Not | Run::Over))
            {
                *worker = Worker::Idle;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(PLACE, |_: &Self, state: &State| !state.stolen),
            Property::always(CHARGED, |_: &Self, state: &State| {
                state.jobs.iter().all(|job| job.crashes <= job.lost)
            }),
            Property::always(INNOCENT, |_: &Self, state: &State| {
                state.jobs[1].crashes <= 1 + state.deaths + state.lapses
            }),
            Property::always(STOPS, |case: &Self, state: &State| {
                // The first is not charged: nobody knew.
                state.jobs[KILLER].lost <= CRASHES + 1 + case.lapses
            }),
            Property::always(REST, |case: &Self, state: &State| {
                let mut actions = Vec::new();
                case.actions(state, &mut actions);
                let over = |job: &Job| matches!(job.place, Place::Ended | Place::Person);
                !actions.is_empty() || state.jobs.iter().all(over)
            }),
            Property::sometimes(DONE, |_: &Self, state: &State| {
                state.jobs[KILLER].place == Place::Person && state.jobs[1].place == Place::Ended
            }),
        ]
    }
}
