//! Backoff: how long to wait before the next try.

use crate::{Class, Failure};
use std::time::Duration;

/// A throttled try waits as told, but at most this long.
pub const LONGEST_THROTTLE: Duration = Duration::from_secs(3600);

/// No try is put off further than this, whatever a handler asks for.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Exponential backoff with full jitter: anything between nothing and the doubled step, so that crowds spread out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest pause after the first failure.
    pub first: Duration,
    /// The longest pause at all.
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            most: Duration::from_secs(600),
        }
    }
}

impl Backoff {
    /// How long to wait after the try with this number (from 1). `random` is uniform in 0..1.
    pub fn pause(&self, number: u32, random: f64) -> Duration {
        let random = if random.is_nan() {
            0.0
        } else {
            random.clamp(0.0, 1.0)
        };
        self.ceiling(number).mul_f64(random)
    }

    /// How long to wait after this failure. What it asks for can only make the pause longer.
    pub fn after(&self, failure: &Failure, number: u32, random: f64) -> Duration {
        let told = failure.after.unwrap_or_default();
        match failure.class {
            Class::Throttled if failure.after.is_some() => told.min(LONGEST_THROTTLE),
            _ => self.pause(number, random).max(told).min(LONGEST_PAUSE),
        }
    }

    fn ceiling(&self, number: u32) -> Duration {
        let doubled = 2_u32
            .checked_pow(number.saturating_sub(1))
            .unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_step_doubles_up_to_ten_minutes() {
        let steps = [
            (0, 1),
            (1, 1),
            (2, 2),
            (3, 4),
            (8, 128),
            (10, 512),
            (11, 600),
            (40, 600),
            (u32::MAX, 600),
        ];
        for (number, seconds) in steps {
            assert_eq!(
                Backoff::default().pause(number, 1.0),
                S(seconds),
                "try {number}"
            );
        }
    }

    #[test]
    fn jitter_is_full() {
        let backoff = Backoff::default();
        assert_eq!(backoff.pause(4, 0.0), Duration::ZERO);
        assert_eq!(backoff.pause(4, 0.5), S(4));
        assert_eq!(
            backoff.pause(4, f64::NAN),
            Duration::ZERO,
            "a broken source of randomness must not panic"
        );
    }

    #[test]
    fn retry_after_only_lengthens() {
        let backoff = Backoff::default();
        let told = |seconds| Failure::retry("busy").after(S(seconds));
        assert_eq!(backoff.after(&told(1), 5, 1.0), S(16));
        assert_eq!(backoff.after(&told(30), 5, 1.0), S(30));
        assert_eq!(
            backoff.after(&told(7200), 5, 1.0),
            S(7200),
            "an author may wait longer than any backoff"
        );
        assert_eq!(
            backoff.after(&Failure::retry("busy").after(Duration::MAX), 1, 1.0),
            LONGEST_PAUSE
        );
    }

    #[test]
    fn throttled_waits_as_told_but_at_most_an_hour() {
        let backoff = Backoff::default();
        assert_eq!(backoff.after(&Failure::throttled(S(3)), 9, 1.0), S(3));
        assert_eq!(backoff.after(&Failure::throttled(S(7200)), 1, 1.0), S(3600));
        let mut untold = Failure::throttled(S(1));
        untold.after = None;
        assert_eq!(backoff.after(&untold, 3, 1.0), S(4));
    }
}
