//! What a claim and a runner do, transaction by transaction.

use super::{Action, Bits, Case, Hand, Mark, Place, Runner, State, Twin, bit};

impl Runner {
    pub(super) fn hand(&mut self) -> Option<&mut Hand> {
        match self {
            Self::Idle { .. } => None,
            Self::Has { hand, .. }
            | Self::Read { hand, .. }
            | Self::Converged { hand }
            | Self::Kept { hand }
            | Self::Completes { hand, .. } => Some(hand),
        }
    }
}

impl Case {
    /// Between two works. Only a broken twin has a transaction open.
    pub(super) fn idle(&self, sees: Bits) -> Runner {
        let old = match self.twin {
            Twin::OldSnapshot => sees,
            _ => 0,
        };
        Runner::Idle { old }
    }

    pub(super) fn of_runners(&self, state: &State, actions: &mut Vec<Action>) {
        let free = self.twin == Twin::NoLock || !state.locked();
        let first = |runner: &Runner| matches!(runner, Runner::Idle { .. });
        let first = state.runners.iter().position(first);
        for (n, runner) in state.runners.iter().enumerate() {
            match runner {
                Runner::Idle { .. } => {
                    let alike = self.twin != Twin::OldSnapshot && first != Some(n);
                    if state.place == Place::Due && !alike && !state.locked() {
                        actions.push(Action::Claim(n));
                    }
                    continue;
                }
                Runner::Kept { .. } if !free => {}
                _ => actions.push(Action::Step(n)),
            }
            let hand = runner.clone().hand().is_some_and(|hand| hand.lapsed);
            if !hand && state.lapses < self.lapses {
                actions.push(Action::Die(n));
            }
        }
    }

    pub(super) fn claim(&self, state: &mut State, n: usize) {
        let Runner::Idle { old } = state.runners[n] else {
            return;
        };
        state.fence += 1;
        state.place = Place::Claimed;
        state.token = Some(state.fence);
        (state.lapsed, state.news) = (false, false);
        let hand = Hand {
            fence: state.fence,
            lapsed: false,
            tombstones: state.tombstones.clone(),
            refs: state.refs,
            high: state.folded,
        };
        state.runners[n] = Runner::Has { hand, old };
    }

    fn owns(&self, state: &State, hand: &Hand) -> bool {
        state.token == Some(hand.fence)
    }

    pub(super) fn step(&self, state: &mut State, n: usize) {
        let runner = state.runners[n].clone();
        state.runners[n] = match runner {
            Runner::Idle { .. } => return,
            // In a transaction begun after the claim, on the primary.
            Runner::Has { hand, old } => {
                let saw = match self.twin {
                    Twin::OldSnapshot => old,
                    _ => state.wanted,
                };
                Runner::Read { hand, saw }
            }
            Runner::Read { hand, saw } => {
                if hand.fence < state.highest && self.twin != Twin::NoFence {
                    // The provider has seen a higher number: the try is over.
                    self.idle(state.wanted)
                } else {
                    state.highest = state.highest.max(hand.fence);
                    state.has = saw;
                    let cleaned: Bits = hand.tombstones.iter().map(|mark| bit(mark.change)).sum();
                    state.cleaned |= cleaned;
                    Runner::Converged { hand }
                }
            }
            Runner::Converged { hand } if hand.refs.is_some() => Runner::Kept { hand },
            Runner::Converged { hand } => {
                if self.owns(state, &hand) || self.twin == Twin::KeepsLate {
                    state.lost |= state.refs != hand.refs;
                    state.refs = Some(hand.fence);
                } else {
                    state.late |= 1 << hand.fence.min(7);
                }
                Runner::Kept { hand }
            }
            Runner::Kept { hand } if self.owns(state, &hand) => {
                let news = state.news && self.twin != Twin::ForgetsNews;
                Runner::Completes { hand, news }
            }
            Runner::Kept { .. } => self.idle(state.wanted),
            Runner::Completes { hand, news } => {
                self.completes(state, &hand, news);
                self.idle(state.wanted)
            }
        };
    }

    fn completes(&self, state: &mut State, hand: &Hand, news: bool) {
        if !self.owns(state, hand) {
            return;
        }
        if self.twin == Twin::Below {
            state.marks.retain(|mark| mark.id > hand.high);
            state.tombstones.retain(|mark| mark.id > hand.high);
        } else {
            let done = |mark: &Mark| hand.tombstones.contains(mark);
            state.tombstones.retain(|mark| !done(mark));
        }
        state.token = None;
        state.news = false;
        state.place = match news {
            true => Place::Due,
            false => Place::Idle,
        };
    }
}
