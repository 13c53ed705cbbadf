//! Each statement of those who park and release, with the lock that it waits for.

use outlast_core::parked::{self, Cause};

use super::{Action, Events, Lane, Lanes, Level, Release, Releasing, State, Twin, Worker, bit};

fn first(events: Events) -> Option<usize> {
    (events != 0).then(|| events.trailing_zeros() as usize)
}

impl Lanes {
    /// Does anybody hold the key's row? Only one ever does.
    fn locked(&self, state: &State) -> bool {
        let parks = matches!(state.lane, Lane::Parking { found: true, .. });
        let parks = parks && self.twin != Twin::PlainRead;
        parks || state.workers.iter().any(|worker| matches!(worker, Worker::Releasing(release) if release.at >= Releasing::Locked))
    }

    /// What somebody who is free may begin.
    pub(super) fn begins(&self, state: &State, n: usize, actions: &mut Vec<Action>) {
        let person = n == self.workers;
        for (event, parked) in state.parked.iter().enumerate() {
            let taken = state.workers.iter().any(|worker| match worker {
                Worker::Idle => false,
                Worker::Running { event: theirs } => *theirs == event,
                Worker::Releasing(release) => release.event == event,
            });
            match parked {
                Some(parked::State::Retry) if !person && !taken => {
                    actions.push(Action::Claim(n, event));
                }
                Some(parked::State::Behind) if person && !taken => {
                    actions.push(Action::Skip(event));
                }
                Some(parked::State::Quarantined) if person && !taken => {
                    actions.push(Action::Skip(event));
                    actions.push(Action::Retry(event));
                }
                _ => {}
            }
        }
    }

    pub(super) fn act(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Lane => self.lane(state)?,
            Action::Seal | Action::Fail => {
                let Lane::Running { event } = state.lane else {
                    return None;
                };
                state.lane = Lane::Turn;
                if action == Action::Seal {
                    state.complete |= bit(event);
                } else {
                    // It leads its key from now on: nobody else can have made the row.
                    let mut key = state.key();
                    state.failures += 1;
                    state.moves(event, Cause::Failed);
                    state.row.get_or_insert(0);
                    state.unruly |= Some(key.park(id(event))) != state.parked[event];
                }
            }
            Action::LaneDies => {
                state.deaths += 1;
                state.died = true;
                state.lane = Lane::Turn;
            }
            Action::Claim(n, event) => {
                state.starts(event);
                state.workers[n] = Worker::Running { event };
            }
            Action::Retry(event) => state.moves(event, Cause::Retried),
            Action::FailAgain(n) | Action::Spend(n) => {
                let Worker::Running { event } = state.workers[n] else {
                    return None;
                };
                if action == Action::Spend(n) {
                    state.spent += 1;
                    state.moves(event, Cause::Spent);
                } else {
                    state.failures += 1;
                    state.moves(event, Cause::Failed);
                }
                state.workers[n] = Worker::Idle;
            }
            Action::Release(n) => {
                let Worker::Running { event } = state.workers[n] else {
                    return None;
                };
                state.workers[n] = self.release(state, event, false);
            }
            Action::Skip(event) => state.workers[self.workers] = self.release(state, event, true),
            Action::Step(n) => self.step(state, n)?,
            Action::Die(n) => {
                state.deaths += 1;
                state.workers[n] = Worker::Idle;
            }
        }
        Some(())
    }

    /// The lane: its next event is parked if its key is, else it starts.
    pub(super) fn lane(&self, state: &mut State) -> Option<()> {
        state.lane = match state.lane {
            Lane::Turn => {
                let event = state.turn()?;
                let blind =
                    self.twin == Twin::Blind || (self.twin == Twin::BlindAfterDeath && state.died);
                if blind {
                    state.starts(event);
                    Lane::Running { event }
                } else if self.twin != Twin::PlainRead && state.row.is_some() && self.locked(state)
                {
                    return None;
                } else {
                    let found = state.row.is_some();
                    Lane::Parking { event, found }
                }
            }
            Lane::Parking { event, found } if found || self.twin == Twin::ParksAnyway => {
                let mut key = state.key();
                state.moves(event, Cause::Blocked);
                if self.twin != Twin::LocksOnly && self.twin != Twin::PlainRead {
                    state.row = state.row.map(|written| written + 1);
                }
                state.unruly |= Some(key.park(id(event))) != state.parked[event];
                Lane::Turn
            }
            // No row: nobody would let it go.
            Lane::Parking { event, .. } => {
                state.starts(event);
                Lane::Running { event }
            }
            Lane::Running { .. } => return None,
        };
        Some(())
    }

    fn release(&self, state: &State, event: usize, skips: bool) -> Worker {
        Worker::Releasing(Release {
            event,
            skips,
            view: state.view(),
            at: Releasing::Begun,
        })
    }

    /// The next statement of somebody who releases, or his COMMIT; none if he has to wait.
    pub(super) fn step(&self, state: &mut State, n: usize) -> Option<()> {
        let Worker::Releasing(release) = state.workers[n] else {
            return None;
        };
        // Above READ COMMITTED there is one view, else each statement has its own. A person's are short.
        let repeatable = self.level == Level::Repeatable && !release.skips;
        let with = |at, view| {
            Worker::Releasing(Release {
                at,
                view,
                ..release
            })
        };
        state.workers[n] = match release.at {
            Releasing::Begun if repeatable => with(Releasing::Asked, release.view),
            Releasing::Begun => with(Releasing::Asked, state.view()),
            Releasing::Asked if self.locked(state) => return None,
            // Written since the snapshot: 40001, to be tried again.
            Releasing::Asked if repeatable && release.view.row != state.row => {
                if release.skips {
                    Worker::Idle
                } else {
                    Worker::Running {
                        event: release.event,
                    }
                }
            }
            Releasing::Asked => with(Releasing::Locked, release.view),
            Releasing::Locked => {
                let behind = match self.twin {
                    Twin::SameStatement => release.view.behind,
                    _ if repeatable => release.view.behind,
                    _ => state.behind(),
                };
                with(Releasing::Looked { behind }, release.view)
            }
            Releasing::Looked { behind } => {
                self.commit(state, release, behind);
                Worker::Idle
            }
        };
        Some(())
    }

    fn commit(&self, state: &mut State, release: Release, behind: Events) {
        let Release { event, skips, .. } = release;
        let mut key = state.key();
        let led = state.parked[event].is_some_and(parked::State::leads);
        state.skipped |= skips;
        state.moves(event, if skips { Cause::Skipped } else { Cause::Sealed });
        let before = state.behind();
        if led && !(skips && self.twin == Twin::SkipForgets) {
            match first(behind & !bit(event)) {
                Some(next) if self.twin == Twin::ReleasesAll => {
                    for next in (next..self.events).filter(|next| behind & bit(*next) != 0) {
                        state.moves(next, Cause::Released);
                    }
                }
                Some(next) => state.moves(next, Cause::Released),
                None => state.row = None,
            }
        }
        state.row = state.row.map(|written| written + 1);
        let released = first(before & !state.behind());
        state.unruly |= key.release(id(event)) != released.map(id);
    }
}

fn id(event: usize) -> i64 {
    i64::try_from(event).expect("a few events")
}
