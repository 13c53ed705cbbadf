//! Each statement of a worker, with the locks that it waits for.

use super::{
    Batch, Claim, End, Ending, Events, Lease, Level, Seal, Sealing, State, Take, Taking, Twin,
    Worker,
};

impl Batch {
    /// Holds the advisory lock shared.
    fn shares(&self, worker: &Worker, of: u8) -> bool {
        match worker {
            Worker::Sealing(seal) if self.level == Level::Committed => {
                let until = match self.twin {
                    Twin::PlainRead => return false,
                    Twin::ProvesBefore => Sealing::Fenced,
                    _ => Sealing::Written,
                };
                seal.claim.token == of && (Sealing::Fenced..=until).contains(&seal.at)
            }
            Worker::Ending(end) => {
                end.claim.token == of && end.seals != 0 && self.twin == Twin::SealsFirst
            }
            _ => false,
        }
    }

    /// Holds the advisory lock exclusively.
    pub(super) fn excludes(&self, worker: &Worker, of: u8) -> bool {
        self.twin != Twin::RowOnly
            && match worker {
                Worker::Ending(end) => end.claim.token == of && end.at >= Ending::Both,
                Worker::Taking(take) => take.token == of && take.at >= Taking::Advisory,
                _ => false,
            }
    }

    /// Holds the lease's row for key share.
    fn shares_row(&self, worker: &Worker, of: u8) -> bool {
        let keeps = self.level == Level::Repeatable && self.twin != Twin::ProvesBefore;
        matches!(worker, Worker::Sealing(seal)
            if keeps && seal.claim.token == of && seal.at >= Sealing::Proved)
    }

    /// Holds the lease's row for update.
    pub(super) fn locks_row(&self, worker: &Worker, of: u8) -> bool {
        match worker {
            Worker::Ending(end) => end.claim.token == of && end.at >= Ending::Row,
            Worker::Taking(take) => take.token == of && take.at >= Taking::Both,
            _ => false,
        }
    }

    /// Has written a completion of this event and not committed it: whoever writes another waits.
    fn has_written(&self, worker: &Worker, event: Events) -> bool {
        match worker {
            Worker::Sealing(seal) => seal.at == Sealing::Written && seal.event == event,
            Worker::Ending(end) => {
                end.seals == event && (self.twin == Twin::SealsFirst || end.at > Ending::Both)
            }
            _ => false,
        }
    }

    pub(super) fn left(&self, state: &State) -> Events {
        self.all() & !state.sealed & !state.parked
    }

    pub(super) fn can_step(&self, state: &State, n: usize) -> bool {
        self.step(&mut state.clone(), n).is_some()
    }

    /// A worker's next statement, or its COMMIT; none if it has to wait.
    pub(super) fn step(&self, state: &mut State, n: usize) -> Option<()> {
        state.workers[n] = match state.workers[n] {
            Worker::Idle | Worker::Owner { .. } => return None,
            Worker::Sealing(seal) => self.seal(state, n, seal)?,
            Worker::Ending(end) => self.end(state, n, end)?,
            Worker::Taking(take) => self.take(state, n, take),
        };
        Some(())
    }

    fn seal(&self, state: &mut State, n: usize, seal: Seal) -> Option<Worker> {
        let Seal {
            claim,
            todo,
            event,
            view,
            at,
        } = seal;
        let of = claim.token;
        let go_on = |at| Worker::Sealing(Seal { at, ..seal });
        let over = Worker::Owner {
            claim,
            todo: todo & !event,
        };
        Some(match (at, self.level) {
            (Sealing::Begun, Level::Committed) => {
                let locks = self.twin != Twin::PlainRead;
                if locks && state.held(n, |other| self.excludes(other, of)) {
                    return None;
                }
                go_on(Sealing::Fenced)
            }
            // A new statement: it reads what has committed by now.
            (Sealing::Fenced, _) if state.token() == Some(of) => go_on(Sealing::Proved),
            (Sealing::Fenced, _) => Worker::Idle,
            (Sealing::Begun, Level::Repeatable) => {
                // An update of other columns is no conflict with `for key share`.
                let in_place = self.twin == Twin::UpdatesRow;
                if !in_place && state.held(n, |other| self.locks_row(other, of)) {
                    return None;
                }
                let there = state.token() == Some(of) || (in_place && state.lease.is_some());
                if view.token == Some(of) && there {
                    go_on(Sealing::Proved)
                } else {
                    Worker::Idle
                }
            }
            (Sealing::Proved, level) => {
                if state.held(n, |other| self.has_written(other, event)) {
                    return None;
                }
                let parked = match level {
                    Level::Committed => state.parked,
                    Level::Repeatable => view.parked,
                };
                // The primary key knows no snapshots.
                if (parked | state.sealed) & event == 0 {
                    go_on(Sealing::Written)
                } else {
                    over
                }
            }
            (Sealing::Written, _) if self.together && todo == event => Worker::Ending(End {
                claim,
                seals: event,
                back: false,
                at: Ending::Begun,
            }),
            (Sealing::Written, _) => {
                state.stale |= state.ended & (1 << claim.number) != 0;
                state.sealed |= event;
                over
            }
        })
    }

    fn end(&self, state: &mut State, n: usize, end: End) -> Option<Worker> {
        let of = end.claim.token;
        let go_on = |at| Worker::Ending(End { at, ..end });
        Some(match end.at {
            Ending::Begun => {
                let taken = |other: &_| self.locks_row(other, of) || self.shares_row(other, of);
                if state.held(n, taken) {
                    return None;
                }
                if state.token() == Some(of) {
                    go_on(Ending::Row)
                } else {
                    Worker::Idle
                }
            }
            Ending::Row => {
                let taken = |other: &_| self.shares(other, of) || self.excludes(other, of);
                if self.twin != Twin::RowOnly && state.held(n, taken) {
                    return None;
                }
                go_on(Ending::Both)
            }
            Ending::Both if end.back => {
                state.lease = Some(Lease {
                    token: of,
                    lapsed: true,
                    given_back: true,
                });
                Worker::Idle
            }
            Ending::Both => {
                let left = self.left(state) & !end.seals;
                go_on(Ending::Looked { left })
            }
            Ending::Looked { left } => {
                state.sealed |= end.seals;
                if self.twin != Twin::Believes {
                    state.parked |= left;
                }
                self.over(state, of);
                Worker::Idle
            }
        })
    }

    /// Tries each lock, and waits for none.
    fn take(&self, state: &mut State, n: usize, take: Take) -> Worker {
        let Take { token, left, at } = take;
        let go_on = |at| Worker::Taking(Take { at, ..take });
        match at {
            Taking::Listed => {
                let taken = |other: &_| self.shares(other, token) || self.excludes(other, token);
                if self.twin != Twin::RowOnly && state.held(n, taken) {
                    return Worker::Idle;
                }
                go_on(Taking::Advisory)
            }
            Taking::Advisory => {
                let in_place = self.twin == Twin::UpdatesRow;
                let taken = state.held(n, |other| {
                    self.locks_row(other, token) || (!in_place && self.shares_row(other, token))
                });
                let lapsed = |lease: &Lease| lease.token == token && lease.lapsed;
                if taken || !state.lease.as_ref().is_some_and(lapsed) {
                    return Worker::Idle;
                }
                go_on(Taking::Both)
            }
            Taking::Both => {
                let left = match self.twin {
                    Twin::LooksFirst => left,
                    _ => self.left(state),
                };
                let at = Taking::Looked;
                Worker::Taking(Take { token, left, at })
            }
            Taking::Looked if left == 0 => {
                self.over(state, token);
                Worker::Idle
            }
            Taking::Looked => {
                state.again |= left & state.sealed != 0;
                self.ended(state, token);
                let number = state.claims;
                state.claims += 1;
                let token = match self.twin {
                    Twin::KeepsToken => token,
                    _ => number,
                };
                state.lease = Some(Lease {
                    token,
                    lapsed: false,
                    given_back: false,
                });
                let claim = Claim { number, token };
                Worker::Owner { claim, todo: left }
            }
        }
    }

    /// The batch is over, and so is its lease.
    fn over(&self, state: &mut State, token: u8) {
        // Sealed and parked may have committed side by side: then it is done.
        state.parked &= !state.sealed;
        self.ended(state, token);
        state.lease = None;
    }

    /// All claims so far that this token has proved have ended.
    fn ended(&self, state: &mut State, token: u8) {
        state.ended |= match self.twin {
            Twin::KeepsToken => (1 << state.claims) - 1,
            _ => 1 << token,
        };
    }
}
