//! Polling: how long to sleep between two looks at the log.

use std::time::{Duration, Instant};

/// How long to sleep before the next look: 2 ms while there was traffic in the last 2 s, at most 500 ms after a long quiet.
///
/// A look costs the database about 25 µs, so a busy cadence costs about 1 % of a core and an idle one nothing to speak of.
pub fn pause(now: Instant, last_traffic: Option<Instant>) -> Duration {
    const STEPS: [(u64, u64); 4] = [(2, 2), (10, 10), (30, 50), (60, 100)];
    const QUIET_MS: u64 = 500;
    let Some(last) = last_traffic else {
        return Duration::from_millis(QUIET_MS);
    };
    let quiet = now.saturating_duration_since(last);
    let step = STEPS
        .iter()
        .find(|(seconds, _)| quiet < Duration::from_secs(*seconds));
    Duration::from_millis(step.map_or(QUIET_MS, |(_, ms)| *ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_it_is_quiet_the_longer_is_the_pause() {
        let last = Instant::now();
        let after = |ms| pause(last + Duration::from_millis(ms), Some(last)).as_millis();
        let table = [
            (0, 2),
            (1_999, 2),
            (2_000, 10),
            (9_999, 10),
            (10_000, 50),
            (30_000, 100),
            (60_000, 500),
            (9_000_000, 500),
        ];
        for (quiet, expected) in table {
            assert_eq!(after(quiet), expected, "quiet for {quiet} ms");
        }
    }

    #[test]
    fn no_traffic_yet_is_quiet_and_traffic_in_the_future_is_now() {
        let now = Instant::now();
        assert_eq!(pause(now, None).as_millis(), 500);
        assert_eq!(
            pause(now, Some(now + Duration::from_secs(9))).as_millis(),
            2
        );
    }
}
