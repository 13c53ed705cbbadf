//! Recording under a lease: try again while the database is away, stop when somebody newer owns the work.

use std::{future::Future, time::Duration};

use outlast_core::{Failure, backoff::Backoff};
use outlast_postgres::{Error, store::Claimed};

use super::{consumer::Consumer, leases::Lease};
use crate::crash::{self, Point};

/// How long to leave a database alone that does not answer, for the n-th time in a row. Never long: everything waits for
/// it, and work shall go on soon after it is back. The jitter keeps a crowd of processes apart.
pub(crate) fn pause(failures: u32) -> Duration {
    let backoff = Backoff {
        first: Duration::from_secs(1),
        most: Duration::from_secs(2),
    };
    backoff
        .pause(failures, fastrand::f64())
        .max(Duration::from_millis(20))
}

/// A warning the first time, then only for those who look closely: an outage is one piece of news.
macro_rules! told {
    ($failures:expr, $($line:tt)+) => {
        if $failures > 1 {
            tracing::debug!($($line)+);
        } else {
            tracing::warn!($($line)+);
        }
    };
}
pub(crate) use told;

/// Calls `work` until it answers, or fails for good, or the lease is lost.
pub(crate) async fn until_lost<T, F, Fut>(
    lease: &Lease,
    what: &str,
    mut work: F,
) -> Result<T, Error>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, Error>>,
{
    for tries in 1.. {
        match work().await {
            Err(error) if error.is_transient() && !lease.is_lost() => {
                let pause = pause(tries);
                told!(tries, %error, lease = %lease.token, retry_ms = pause.as_millis() as u64, "{what}: not recorded yet");
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = lease.lost() => return Err(Error::LeaseLost),
                }
            }
            answer => return answer,
        }
    }
    unreachable!("the loop returns")
}

/// What became of a failure that was to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// Its event is parked: by this, or by somebody else before.
    Parked,
    /// Its event was sealed before the failure came: the seal counts.
    Sealed,
    /// Not recorded: the next owner of the lease finds it undone.
    Lost,
}

/// Records that the handler of the first of these events failed, and says so once. What is not `charged` spends no attempt.
/// Of a delivery the copies go along: those after the first are what has to wait behind it.
pub(crate) async fn failure<S>(
    consumer: &Consumer<S>,
    lease: &Lease,
    events: &[&Claimed],
    failure: &Failure,
    charged: bool,
) -> Recorded {
    let Some((id, attempt)) = events.first().map(|event| (event.event_id, event.attempt)) else {
        return Recorded::Lost;
    };
    let delivered = consumer.is_delivered(events[0]);
    let recorded = until_lost(lease, "a failure", || async move {
        let store = &consumer.store;
        match delivered {
            true => {
                store
                    .fail_delivered(lease.token, events, failure, charged)
                    .await
            }
            false => {
                let books = &consumer.books;
                books.fail(lease.token, id, failure, charged).await
            }
        }
    })
    .await;
    let class = failure.class;
    match recorded.inspect(|_| crash::at(Point::Failed)) {
        Ok(state) if state == "quarantined" => {
            tracing::error!(event.id = %id, consumer = %consumer.name, attempt, %class, reason = %failure.reason, "quarantined: a person must look");
            Recorded::Parked
        }
        Ok(state) if state == "cancelled" => {
            tracing::info!(event.id = %id, consumer = %consumer.name, attempt, %class, reason = %failure.reason, "failed, and cancelled while it ran");
            Recorded::Parked
        }
        Ok(_) => {
            tracing::warn!(event.id = %id, consumer = %consumer.name, attempt, %class, reason = %failure.reason, "failed, will be tried again");
            Recorded::Parked
        }
        Err(Error::AlreadySealed) => Recorded::Sealed,
        Err(Error::NotInClaim) => Recorded::Parked,
        Err(error) => {
            logged::<()>(Err(error));
            Recorded::Lost
        }
    }
}

/// Says what could not be recorded. The next owner of the lease finds it undone and does it again.
pub(crate) fn logged<T>(answer: Result<T, Error>) {
    if let Err(error) = answer {
        tracing::warn!(%error, "not recorded; the next owner of this work will see to it");
    }
}
