//! What those who mark and those who fold do, statement by statement.

use super::{Behind, Case, Change, Fold, Mark, Place, State, Twin};

impl State {
    fn take_xid(&mut self) -> u8 {
        self.next_xid += 1;
        self.next_xid - 1
    }

    fn draw(&mut self) -> u8 {
        self.last_id += 1;
        self.last_id
    }

    /// The oldest transaction that has not ended.
    fn xmin(&self) -> u8 {
        let open = self.changes.iter().filter_map(|change| match change {
            Change::Begun { xid, .. } | Change::Open { xid, .. } => {
                Some(*xid).filter(|xid| *xid > 0)
            }
            Change::ToCome | Change::Over => None,
        });
        open.min().unwrap_or(self.next_xid)
    }
}

impl Case {
    /// The transaction id is taken before the id of the mark is drawn.
    pub(super) fn writes(&self, state: &mut State, n: usize) {
        let first = self.twin == Twin::DrawsFirst;
        state.changes[n] = match state.changes[n] {
            Change::ToCome if first => Change::Begun {
                xid: 0,
                id: state.draw(),
            },
            Change::ToCome => Change::Begun {
                xid: state.take_xid(),
                id: 0,
            },
            Change::Begun { xid, id } => Change::Open {
                xid: if first { state.take_xid() } else { xid },
                id: if first { id } else { state.draw() },
                counter: state.counter,
            },
            other => other,
        };
    }

    pub(super) fn fold(&self, state: &mut State) {
        let fold = match state.fold.take() {
            None => Fold::Top { top: state.last_id },
            Some(Fold::Top { top }) => {
                let ended = state.xmin() >= state.behind.xid;
                Fold::Ended { top, ended }
            }
            Some(Fold::Ended { top, ended }) => {
                let seen = |mark: &&Mark| self.sees(state, **mark);
                let marks = state.marks.iter().filter(seen).copied().collect();
                Fold::Took {
                    top,
                    ended,
                    marks,
                    counter: state.counter,
                    place: state.place,
                    xid: state.take_xid(),
                }
            }
            Some(took) => return self.folded(state, took),
        };
        state.fold = Some(fold);
    }

    /// Marks become its being due, once, or news for whoever has it.
    fn folded(&self, state: &mut State, took: Fold) {
        let Fold::Took {
            top,
            ended,
            xid,
            marks,
            counter,
            place,
        } = took
        else {
            return;
        };
        state.marks.retain(|mark| !marks.contains(mark));
        let highest = marks.iter().map(|mark| mark.id).max();
        state.folded = match self.twin {
            Twin::Counter => counter,
            _ => state.folded.max(highest.unwrap_or_default()),
        };
        state.behind = Behind {
            xid,
            below: match self.twin {
                Twin::BehindDrawn => top,
                _ if ended => state.behind.next,
                _ => state.behind.below,
            },
            next: top,
        };
        let deletes = |mark: &Mark| mark.change < self.deletes;
        let changed = marks.iter().any(|mark| !deletes(mark));
        if self.twin == Twin::DropsTombstone && changed {
            state.tombstones.clear();
        } else {
            state
                .tombstones
                .extend(marks.iter().filter(|mark| deletes(mark)));
            state.tombstones.sort_unstable();
        }
        match place {
            Place::Idle => state.place = Place::Due,
            Place::Claimed if self.twin == Twin::DueTwice => state.place = Place::Due,
            Place::Claimed => state.news = true,
            Place::Due => {}
        }
    }
}
