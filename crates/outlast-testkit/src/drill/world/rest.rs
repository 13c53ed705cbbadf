//! Liveness: after the last fault has healed, all eligible work ends in time.
//!
//! How long that may take follows from lease, backoff and polls, on a machine that answers. This one may be busy with
//! other things: small commits, one after the other, tell how much slower it is than it should be.

use std::{
    fmt,
    time::{Duration, Instant},
};

use tokio_postgres::Client;

use crate::wait::until;

/// What a small commit takes at most where nobody else is at work.
const COMMIT: Duration = Duration::from_millis(10);
/// However slow the machine is, a run ends.
const PATIENCE: Duration = Duration::from_secs(150);

/// How long it took.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// From the healing to the end of all work, or until it was given up.
    pub took: Duration,
    /// How long that may take on a machine that answers.
    pub allowed: Duration,
    /// How much slower this one was meanwhile; at least 1.
    pub slower: f64,
    /// Whether it came to rest in time.
    pub in_time: bool,
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            took,
            allowed,
            slower,
            in_time,
        } = self;
        let word = if *in_time { "at rest" } else { "not at rest" };
        write!(f, "{word} after {took:.1?} of {allowed:.1?}")?;
        if *slower > 1.0 {
            write!(f, " × {slower:.1} on this busy machine")?;
        }
        Ok(())
    }
}

/// `open` says how much is not done yet.
pub(super) async fn until_rest(
    client: &Client,
    allowed: Duration,
    open: impl AsyncFn(&Client) -> Option<i64>,
) -> Rest {
    let began = Instant::now();
    let (mut commits, mut n) = (Duration::ZERO, 0);
    let ended = until(PATIENCE, async || {
        let asked = Instant::now();
        // An own transaction id: a commit that waits for the disk.
        client
            .execute("select pg_current_xact_id()", &[])
            .await
            .ok()?;
        commits += asked.elapsed();
        n += 1;
        let slower = ((commits / n).as_secs_f64() / COMMIT.as_secs_f64()).max(1.0);
        let open = open(client).await?;
        let took = began.elapsed();
        let in_time = took <= allowed.mul_f64(slower);
        let rest = Rest {
            took,
            allowed,
            slower,
            in_time: in_time && open == 0,
        };
        (open == 0 || !in_time).then_some(rest)
    });
    ended.await.unwrap_or(Rest {
        took: began.elapsed(),
        allowed,
        slower: 1.0,
        in_time: false,
    })
}
