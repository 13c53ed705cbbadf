//! When an endpoint refuses one event after the other for good, that is its fault, not theirs.
//!
//! Wrong settings would else quarantine the whole log, one incident an event. So from the tenth on it counts as a failure
//! that passes; the engine then finds the endpoint down, probes it, and nobody is charged.

use std::sync::{Mutex, PoisonError};

use outlast_core::{Failure, outage::EVENTS};
use uuid::Uuid;

/// The events that were refused since the last one that was not.
#[derive(Debug, Default)]
pub(super) struct InARow(Mutex<Vec<Uuid>>);

impl InARow {
    /// An event was not refused.
    pub(super) fn ended(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// What the refusal of this event counts as.
    pub(super) fn judge(&self, event: Uuid, failure: Failure) -> Failure {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !refused.contains(&event) {
            if refused.len() >= EVENTS {
                let reason = format_args!(
                    "{}; it has refused {EVENTS} events one after the other and counts as down",
                    failure.reason
                );
                return Failure::retry(reason);
            }
            refused.push(event);
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_core::Class;

    #[test]
    fn ten_events_are_quarantined_and_the_eleventh_is_not_until_one_goes_well() {
        let row = InARow::default();
        let class = |n: u128| {
            row.judge(Uuid::from_u128(n), Failure::permanent("404"))
                .class
        };
        for n in 0..EVENTS as u128 {
            assert_eq!((class(n), class(n)), (Class::Permanent, Class::Permanent));
        }
        assert_eq!(class(99), Class::Retry);
        row.ended();
        assert_eq!(class(99), Class::Permanent);
    }
}
