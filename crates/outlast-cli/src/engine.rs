//! A worker under our signals: the first asks it to drain, the second gives back what still runs, the third ends at once.

use std::{
    future::Future,
    pin::pin,
    time::{Duration, Instant},
};

use outlast_engine::{Outlast, Worker};
use outlast_postgres::Error;

use crate::{
    exit::Exit,
    problem::{Answer, Tried},
    settings::Effective,
    signal::Signals,
};

/// A worker without handlers: it watches the log and wakes the workers that have some.
pub(crate) fn watchman(effective: &Effective) -> Worker<()> {
    configured(Outlast::new().worker(()), effective)
}

/// The same worker with the settings in force.
pub(crate) fn configured<S: Clone + Send + Sync + 'static>(
    worker: Worker<S>,
    effective: &Effective,
) -> Worker<S> {
    let worker = worker.settings(effective.settings.clone());
    match effective.database() {
        Some(url) => worker.database(url),
        None => worker,
    }
}

/// Runs a worker until it has stopped, and says how it did. The worker hears the same signals.
pub(crate) async fn work<S: Clone + Send + Sync + 'static>(
    worker: Worker<S>,
    drain: Duration,
) -> Answer {
    let ended = work_until(worker, drain, std::future::pending()).await?;
    Ok(ended.unwrap_or(Exit::Done))
}

/// The same, also until `stop` resolves; none when it was that.
pub(crate) async fn work_until<S: Clone + Send + Sync + 'static>(
    worker: Worker<S>,
    drain: Duration,
    stop: impl Future<Output = ()> + Send,
) -> Answer<Option<Exit>> {
    let mut signals = Signals::listen().tried("listen for signals")?;
    let mut running = pin!(worker.run_or_until(stop));
    let mut asked: Option<Instant> = None;
    let mut count = 0;
    let ended: Result<(), Error> = loop {
        tokio::select! {
            ended = &mut running => break ended,
            name = signals.next() => {
                count += 1;
                asked.get_or_insert_with(Instant::now);
                match count {
                    1 => tracing::info!("{name}: draining for at most {} s; again to stop at once", drain.as_secs()),
                    2 => tracing::warn!("{name} again: giving back what still runs"),
                    _ => return Ok(Some(Exit::Cut)),
                }
            }
        }
    };
    ended.tried("work")?;
    // The worker may have heard the last one a moment before us.
    count += u32::from(signals.pending().await);
    let over = asked.is_some_and(|asked| asked.elapsed() >= drain);
    Ok(match asked {
        None => None,
        Some(_) if count > 1 || over => Some(Exit::Cut),
        Some(_) => Some(Exit::Done),
    })
}
