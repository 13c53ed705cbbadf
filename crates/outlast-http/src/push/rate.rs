//! A rate: turns, evenly spaced.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// So much may be caught up on after a pause.
const BURST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Rate {
    every: Duration,
    next: Mutex<Option<Instant>>,
}

impl Rate {
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            every: Duration::from_secs(1) / per_second.max(1),
            next: Mutex::new(None),
        }
    }

    /// How long to wait for the next turn, which is taken; or how long it would be, when that is longer than this.
    pub(super) fn turn(&self, longest: Duration) -> Result<Duration, Duration> {
        let now = Instant::now();
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let turn = next.map_or(earliest, |next| next.max(earliest));
        let wait = turn.saturating_duration_since(now);
        if wait > longest {
            return Err(wait);
        }
        *next = Some(turn + self.every);
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_are_spaced_and_one_that_comes_too_late_is_not_taken() {
        let rate = Rate::new(20);
        let ms = |wait: Duration| wait.as_millis();
        let waits: Vec<_> = (0..5)
            .map(|_| ms(rate.turn(Duration::MAX).unwrap()))
            .collect();
        assert_eq!(
            waits,
            [0, 0, 0, 50, 100],
            "a tenth of a second at once, then every 50 ms"
        );
        assert_eq!(rate.turn(Duration::from_millis(149)).map_err(ms), Err(150));
        assert_eq!(rate.turn(Duration::from_millis(150)).map(ms), Ok(150));
        tokio::time::advance(Duration::from_secs(60)).await;
        let waits: Vec<_> = (0..4)
            .map(|_| ms(rate.turn(Duration::MAX).unwrap()))
            .collect();
        assert_eq!(waits, [0, 0, 0, 50], "a pause is not saved up");
    }
}
