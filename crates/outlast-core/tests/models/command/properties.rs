//! What must hold in every state, and what must be possible.

use outlast_core::command::State as Stands;
use stateright::Property;

use super::{Case, Kind, State, Twin};

pub(super) const ONCE: &str = "who honours keys, or can be asked, has the effect once";
pub(super) const ONE_SEND: &str =
    "to who does neither it is sent once, or again after a person's word";
pub(super) const TRUE_END: &str =
    "settled had its effect; rejected, obsolete and cancelled had none";
pub(super) const WAITING: &str = "what waits certainly had no effect";
pub(super) const UNKNOWN: &str = "unknown is only what was about to leave, or has left";
pub(super) const PLACE: &str = "it is in one place: due, in a claim, with a person, or ended";
pub(super) const ENDS: &str = "an end never changes";
pub(super) const RULE: &str = "it moves only as core says";
pub(super) const FRESH: &str = "what an owner records is about the version that he has";
pub(super) const TOLD: &str = "its end is told once, in the words of its state";
pub(super) const EARLY: &str =
    "what was told before it was there is not sent, unless a person says so";
pub(super) const HEALED: &str =
    "it is settled although something went wrong, and nobody was asked or told";
pub(super) const ASKED: &str = "a person ends it";
pub(super) const WITHDRAWN: &str = "it was sent, and is withdrawn all the same";

impl Case {
    /// What holds whoever tells what.
    pub(super) fn always(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(PLACE, |_: &Self, state: &State| {
                state.row.as_ref().is_none_or(|row| {
                    let places = [
                        row.ready,
                        row.claimed.is_some(),
                        row.person,
                        row.stands.is_end(),
                    ];
                    places.into_iter().filter(|place| *place).count() == 1
                })
            }),
            Property::always(ENDS, |_: &Self, state: &State| !state.changed),
            Property::always(RULE, |_: &Self, state: &State| !state.unruly),
            Property::always(FRESH, |_: &Self, state: &State| !state.stale),
            Property::always(UNKNOWN, |_: &Self, state: &State| {
                let unknown = state.stands() == Some(Stands::Unknown);
                !unknown || state.marked
            }),
            Property::always(TOLD, |_: &Self, state: &State| {
                state.row.as_ref().is_none_or(|row| {
                    let expected = row.stands.is_end().then(|| row.stands.as_str());
                    row.told.iter().copied().eq(expected)
                })
            }),
            Property::always(EARLY, |_: &Self, state: &State| {
                !state.was_early || state.left == 0 || state.persons > 0
            }),
        ]
    }

    /// What holds when nobody tells lies.
    pub(super) fn truths(&self) -> Vec<Property<Self>> {
        let mut truths = vec![
            Property::always(ONCE, |_: &Self, state: &State| state.provider.effects <= 1),
            Property::always(ONE_SEND, |case: &Self, state: &State| {
                case.kind != Kind::Keyless || state.left <= 1 + state.proofs
            }),
            Property::always(TRUE_END, |_: &Self, state: &State| {
                let stands = state.stands();
                match stands {
                    Some(Stands::Settled) => state.provider.effects > 0,
                    Some(Stands::Rejected | Stands::Obsolete | Stands::Cancelled) => {
                        state.provider.effects == 0
                    }
                    _ => true,
                }
            }),
            Property::always(WAITING, |_: &Self, state: &State| {
                let waits = state.stands() == Some(Stands::Waiting);
                !waits || state.provider.effects == 0 && !state.provider.taken
            }),
        ];
        if self.kind == Kind::Keyless {
            truths.push(Property::sometimes(ASKED, |_: &Self, state: &State| {
                state.persons > 0 && state.stands() == Some(Stands::Abandoned)
            }));
        } else {
            truths.push(Property::sometimes(HEALED, |_: &Self, state: &State| {
                state.faults > 0
                    && state.persons == 0
                    && state.webhooks == 0
                    && state.stands() == Some(Stands::Settled)
            }));
        }
        if self.cancels > 0 && self.twin == Twin::None {
            truths.push(Property::sometimes(WITHDRAWN, |_: &Self, state: &State| {
                state.left > 0 && state.stands() == Some(Stands::Cancelled)
            }));
        }
        truths
    }
}
