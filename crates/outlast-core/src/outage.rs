//! Outage: when one event after the other fails, the destination is down, not the events.
//!
//! A pure count of what one consumer of one process sees. While it is open, nothing new starts but one probe at a time, and
//! no failure is charged: so an outage neither moves the log into parked nor spends anybody's tries.

use crate::{Class, Failure, backoff::Backoff};
use std::time::Duration;

/// How many events must fail, one after the other and without a success in between, until it counts as an outage.
pub const EVENTS: usize = 10;

/// How many calls in which it was not reached at all, one after the other and without a success in between, count as an
/// outage, however few events they were for.
pub const CALLS: usize = 3;

/// How long to wait between probes: doubled from the first, never longer than the last, at least half of it.
const PROBES: Backoff = Backoff {
    first: Duration::from_secs(1),
    most: Duration::from_secs(60),
};

/// What a consumer of this process knows about its destination. `Id` names an event.
///
/// ```
/// use outlast_core::{Failure, outage::{EVENTS, Outage}};
///
/// let mut outage = Outage::default();
/// for event in 0..EVENTS {
///     assert!(!outage.is_open());
///     outage.failed(event, &Failure::retry("no route"));
/// }
/// assert!(outage.is_open());
/// assert!(outage.succeeded(), "one success ends it");
/// ```
#[derive(Clone, Debug)]
pub struct Outage<Id> {
    failed: Vec<Id>,
    calls: usize,
    probes: u32,
    open: bool,
}

impl<Id> Default for Outage<Id> {
    fn default() -> Self {
        Self {
            failed: Vec::new(),
            calls: 0,
            probes: 0,
            open: false,
        }
    }
}

impl<Id: PartialEq> Outage<Id> {
    /// Whether nothing but probes may start.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Learns of a failure of what was started as usual; answers whether the outage begins with it.
    ///
    /// Permanent failures say nothing about the destination: that is poison, and the next event may fare better. The
    /// same event twice is one event. What was under way when the outage began says nothing new.
    pub fn failed(&mut self, event: Id, failure: &Failure) -> bool {
        if failure.class == Class::Permanent || self.open {
            return false;
        }
        if !self.failed.contains(&event) {
            self.failed.push(event);
        }
        self.open = self.failed.len() >= EVENTS;
        self.open
    }

    /// Learns that the destination has said itself that it takes nothing: no more events have to fail. Answers whether the
    /// outage begins with it.
    pub fn refused(&mut self) -> bool {
        !std::mem::replace(&mut self.open, true)
    }

    /// Learns of a call in which the destination was not reached, and which did nothing: answers whether the outage begins
    /// with it. Where the order of keys is kept and there are few of them, hardly more events than keys can ever fail.
    pub fn unreached(&mut self) -> bool {
        if self.open {
            return false;
        }
        self.calls += 1;
        self.open = self.calls >= CALLS;
        self.open
    }

    /// Learns of the failure of a probe: the pause before the next one is longer.
    pub fn probe_failed(&mut self, failure: &Failure) {
        if self.open && failure.class != Class::Permanent {
            self.probes = self.probes.saturating_add(1);
        }
    }

    /// Learns of a success; answers whether an outage ends with it.
    pub fn succeeded(&mut self) -> bool {
        std::mem::take(self).open
    }

    /// How long to wait before the next probe. `random` is uniform in 0..1.
    pub fn pause(&self, random: f64) -> Duration {
        PROBES.pause(self.probes + 1, 0.5 + random.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_that_says_so_itself_is_down_at_once_and_back_with_one_success() {
        let mut outage = Outage::<u8>::default();
        assert!(outage.refused() && outage.is_open());
        assert!(!outage.refused(), "it is down already");
        assert!(outage.succeeded() && !outage.is_open());
    }

    fn fails(outage: &mut Outage<usize>, events: std::ops::Range<usize>) -> bool {
        let mut events = events;
        events.any(|event| outage.failed(event, &Failure::unknown("timeout")))
    }

    #[test]
    fn ten_events_in_a_row_are_an_outage_and_a_success_among_them_is_not() {
        let mut outage = Outage::default();
        assert!(!fails(&mut outage, 0..EVENTS - 1));
        assert!(!outage.succeeded(), "there was none to end");
        assert!(!fails(&mut outage, 0..EVENTS - 1));
        assert!(fails(&mut outage, EVENTS..EVENTS + 1) && outage.is_open());
        assert!(outage.succeeded() && !outage.is_open());
    }

    #[test]
    fn three_calls_that_reach_nobody_are_an_outage_and_a_success_among_them_is_not() {
        let mut outage = Outage::<u8>::default();
        for _ in 1..CALLS {
            assert!(!outage.unreached());
        }
        assert!(!outage.succeeded(), "there was none to end");
        for _ in 1..CALLS {
            assert!(!outage.unreached());
        }
        assert!(outage.unreached() && outage.is_open());
        assert!(!outage.unreached(), "it is down already");
    }

    #[test]
    fn one_event_that_fails_for_ever_is_no_outage_and_neither_is_poison() {
        let mut outage = Outage::default();
        for _ in 0..100 {
            assert!(!outage.failed(1, &Failure::retry("again")));
        }
        for event in 0..100 {
            assert!(!outage.failed(event, &Failure::permanent("no such address")));
        }
        assert!(!outage.is_open());
    }

    #[test]
    fn what_was_under_way_when_it_began_does_not_put_off_the_first_probe() {
        let mut outage = Outage::default();
        fails(&mut outage, 0..EVENTS);
        for event in EVENTS..EVENTS + 50 {
            assert!(!outage.failed(event, &Failure::retry("no route")));
        }
        assert_eq!(outage.pause(1.0), Duration::from_secs(1));
    }

    #[test]
    fn the_pause_between_probes_doubles_from_a_second_to_a_minute() {
        let mut outage = Outage::default();
        fails(&mut outage, 0..EVENTS);
        for ceiling in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(outage.pause(1.0), Duration::from_secs(ceiling));
            assert_eq!(outage.pause(0.0), Duration::from_secs(ceiling) / 2);
            outage.probe_failed(&Failure::throttled(Duration::ZERO));
        }
        outage.probe_failed(&Failure::permanent("an answer, if not the one we want"));
        assert_eq!(outage.pause(1.0), Duration::from_secs(60));
    }
}
