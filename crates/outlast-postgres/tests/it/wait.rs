//! The only place where a test may poll.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

pub(crate) async fn wait_for<T>(what: &str, deadline: Duration, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + deadline;
    loop {
        if let Ok(Some(answer)) = timeout_at(end, check()).await {
            return answer;
        }
        assert!(Instant::now() < end, "waited {deadline:?} for {what}");
        sleep(Duration::from_millis(2)).await;
    }
}
