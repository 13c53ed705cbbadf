//! A worker under our signals: the first asks it to drain, the second gives back what still runs, the third ends at once.

use std::{
    future::Future,
    pin::pin,
    time::{Duration, Instant},
};

use outlast_engine::{Outlast, Worker};
use outlast_postgres::Error;
use tokio::sync::watch;

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

/// Runs a worker until it has stopped, and says how it did.
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
    // Heard here alone: of two listeners one may take two signals for one.
    let (heard, count) = watch::channel(0_u8);
    let reached = |n| {
        let mut count = count.clone();
        async move { _ = count.wait_for(|count| *count >= n).await }
    };
    let asked_to = reached(1);
    let stop = async move {
        tokio::select! {
            () = asked_to => {}
            () = stop => {}
        }
    };
    let mut running = pin!(worker.run_between(stop, reached(2)));
    let mut asked: Option<Instant> = None;
    let ended: Result<(), Error> = loop {
        tokio::select! {
            ended = &mut running => break ended,
            name = signals.next() => {
                asked.get_or_insert_with(Instant::now);
                heard.send_modify(|count| *count += 1);
                match *heard.borrow() {
                    1 => tracing::info!("{name}: draining for at most {} s; again to stop at once", drain.as_secs()),
                    2 => tracing::warn!("{name} again: giving back what still runs"),
                    _ => return Ok(Some(Exit::Cut)),
                }
            }
        }
    };
    ended.tried("work")?;
    let over = asked.is_some_and(|asked| asked.elapsed() >= drain);
    Ok(match asked {
        None => None,
        Some(_) if *heard.borrow() > 1 || over => Some(Exit::Cut),
        Some(_) => Some(Exit::Done),
    })
}
