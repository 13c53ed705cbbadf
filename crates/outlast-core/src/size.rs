//! Batch size: how many events to claim at once, so that a batch is about a second of work.
//!
//! Small batches waste statements, large ones hold a lease long and lose much when a process dies.

use std::time::Duration;

/// How long a batch should take.
pub const TARGET: Duration = Duration::from_secs(1);

/// The size of the next batch. Starts small, at most doubles or halves, and grows only when a full batch shows that it may.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    rows: f64,
    most: usize,
}

impl Size {
    const FIRST: f64 = 32.0;

    /// Starts small; never more than `most` rows.
    pub fn new(most: usize) -> Self {
        let most = most.max(1);
        Self {
            rows: Self::FIRST.min(most as f64),
            most,
        }
    }

    /// How many rows to claim next, at least one.
    pub fn rows(&self) -> usize {
        (self.rows as usize).clamp(1, self.most)
    }

    /// Learns from a batch that ended: so many rows took their handlers so long. What the database took for them is not
    /// counted: it takes less the larger the batches are.
    pub fn learn(&mut self, rows: usize, took: Duration) {
        if rows == 0 {
            return;
        }
        let per_row = took.as_secs_f64().max(1e-9) / rows as f64;
        let fits = TARGET.as_secs_f64() / per_row;
        let full = rows >= self.rows();
        // Half of the way at a time: one slow batch does not throw away what many have shown.
        let wanted = if fits < self.rows || full {
            (self.rows + fits) / 2.0
        } else {
            self.rows
        };
        self.rows = wanted
            .clamp(self.rows / 2.0, self.rows * 2.0)
            .clamp(1.0, self.most as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(size: &mut Size, per_row: Duration, batches: usize) -> usize {
        for _ in 0..batches {
            size.learn(size.rows(), per_row * u32::try_from(size.rows()).unwrap());
        }
        size.rows()
    }

    #[test]
    fn it_settles_at_about_a_second_of_work() {
        for (per_row_us, low, high) in [
            (10, 1000, 1000),
            (2_000, 480, 510),
            (50_000, 18, 22),
            (5_000_000, 1, 1),
        ] {
            let rows = settle(&mut Size::new(1000), Duration::from_micros(per_row_us), 30);
            assert!(
                (low..=high).contains(&rows),
                "{per_row_us} µs a row: {rows} rows"
            );
        }
    }

    #[test]
    fn it_grows_and_shrinks_by_at_most_a_factor_of_two() {
        let mut size = Size::new(1000);
        let mut before = size.rows();
        for per_row in [1, 1, 1, 1, 1, 1, 1_000_000, 1_000_000, 1] {
            size.learn(
                size.rows(),
                Duration::from_micros(per_row) * u32::try_from(size.rows()).unwrap(),
            );
            assert!(
                size.rows() <= before * 2 + 1 && size.rows() * 2 + 1 >= before,
                "{before} → {}",
                size.rows()
            );
            before = size.rows();
        }
    }

    #[test]
    fn a_batch_that_was_not_full_is_no_reason_to_grow() {
        let mut size = Size::new(1000);
        let before = size.rows();
        for _ in 0..50 {
            size.learn(3, Duration::from_millis(1));
        }
        assert_eq!(size.rows(), before);
        size.learn(3, Duration::from_secs(30));
        assert!(size.rows() < before, "but it may be a reason to shrink");
    }

    #[test]
    fn nothing_and_no_time_are_harmless() {
        let mut size = Size::new(0);
        size.learn(0, Duration::from_secs(1));
        size.learn(1, Duration::ZERO);
        assert_eq!(size.rows(), 1);
    }
}
