//! Polling: how long to sleep between two looks at the log.

use std::time::{Duration, Instant};

/// How long to sleep before the next look: 1 ms while events flow, 2 ms while there was one in the last 2 s, at most 500 ms
/// after a long quiet.
///
/// A look costs the database about 25 µs, so a busy cadence costs about 1 % of a core and an idle one nothing to speak of.
pub fn pause(now: Instant, last_traffic: Option<Instant>) -> Duration {
    /// Quiet for less than that many milliseconds; the pause in milliseconds.
    const STEPS: [(u64, u64); 5] = [
        (250, 1),
        (2_000, 2),
        (10_000, 10),
        (30_000, 50),
        (60_000, 100),
    ];
    const QUIET_MS: u64 = 500;
    let Some(last) = last_traffic else {
        return Duration::from_millis(QUIET_MS);
    };
    let quiet = now.saturating_duration_since(last);
    let step = STEPS
        .iter()
        .find(|(below, _)| quiet < Duration::from_millis(*below));
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
            (0, 1),
            (249, 1),
            (250, 2),
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
            1
        );
    }
}
