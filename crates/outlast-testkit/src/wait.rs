//! The only place where a test may poll.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// Calls `check` until it answers `Some`, and gives the answer. For a plain condition: `.then_some(())`.
///
/// # Panics
/// After the deadline, with `what` was waited for. A check that hangs counts as not fulfilled.
pub async fn wait_for<T>(
    what: &str,
    deadline: Duration,
    check: impl AsyncFnMut() -> Option<T>,
) -> T {
    let answer = until(deadline, check).await;
    answer.unwrap_or_else(|| panic!("waited {deadline:?} for {what}"))
}

/// As [`wait_for`], for whom the end of the deadline is an answer too: `None`.
pub async fn until<T>(deadline: Duration, mut check: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    let mut pause = Duration::from_millis(2);
    loop {
        if let Ok(Some(answer)) = timeout_at(end, check()).await {
            return Some(answer);
        }
        if Instant::now() + pause >= end {
            return None;
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
