//! A running worker: check where we are, register, then one loop a consumer, and one for all jobs, commands and
//! entities, until told to stop.
//!
//! Connections: two for claims and records, one for renewals, one for wake-up, and in the one process that is elected for
//! maintenance another one while it does a pass; the handlers' own pools are theirs.

use std::{future::Future, sync::Arc, time::Duration};

use deadpool_postgres::{Hook, HookError, Pool};
use outlast_postgres::{
    Error,
    connect::{self, Target},
    migrate,
    store::{Place, Store},
};
use tokio::task::JoinSet;

use crate::{
    crash::{self, Point},
    worker::Plan,
};
use leases::Leases;
use register::{Common, register};
use signal::{Signals, Stop, Stopper};
use sweep::Sweep;
use wake::Bell;

pub(crate) mod accepted;
pub(crate) mod batch;
mod books;
pub(crate) mod broker;
pub(crate) mod consumer;
pub(crate) mod destination;
mod flush;
pub(crate) mod job;
pub(crate) mod keep;
pub(crate) mod leases;
mod maintenance;
pub(crate) mod record;
pub(crate) mod register;
pub(crate) mod registry;
mod relay;
pub(crate) mod signal;
mod sweep;
pub(crate) mod tally;
mod tries;
pub(crate) mod wake;

/// Connections for claims and records. Two consumers' statements can overlap; more would only queue in the server.
const CONNECTIONS: usize = 2;

/// Runs until SIGTERM or Ctrl-C; a second signal ends the drain at once.
pub(crate) async fn until_signal<S>(plan: Plan<S>) -> Result<(), Error>
where
    S: Clone + Send + Sync + 'static,
{
    let mut signals = Signals::new()?;
    let (heard, count) = tokio::sync::watch::channel(0_u8);
    // They are counted as they come: two that wait for one look are one to the operating system.
    let counting = async move {
        loop {
            signals.next().await;
            heard.send_modify(|count| *count = count.saturating_add(1));
        }
    };
    let reached = |n| {
        let mut count = count.clone();
        async move { _ = count.wait_for(|count| *count >= n).await }
    };
    tokio::select! {
        ended = run_with(plan, reached(1), reached(2)) => ended,
        () = counting => unreachable!("it counts for ever"),
    }
}

/// Runs until `stop` resolves, then drains. Returns when everything that was started has ended or been given back.
///
/// # Errors
/// What makes working on pointless: a configuration that cannot work, a schema that does not fit, a database that is not
/// the one it should be ([`Error::Stopped`]). A database that is away is waited for.
pub(crate) async fn run<S>(
    plan: Plan<S>,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), Error>
where
    S: Clone + Send + Sync + 'static,
{
    run_with(plan, stop, std::future::pending()).await
}

/// The same; `hurry` ends the drain at once.
pub(crate) async fn run_with<S>(
    plan: Plan<S>,
    stop: impl Future<Output = ()> + Send,
    hurry: impl Future<Output = ()> + Send,
) -> Result<(), Error>
where
    S: Clone + Send + Sync + 'static,
{
    let target = plan.target()?.application_name_or("outlast worker");
    plan.is_named()?;
    let (drain, heartbeat) = (plan.settings.drain, plan.settings.heartbeat);
    let maintenance_only = plan.maintenance_only;
    let place = Place::new(plan.settings.deployment.clone()).schema(target.in_schema());
    let connections = pool(&target, &place)?;
    let pooled = check(&target, &place).await?;
    let store = Store::new(connections.clone(), place.clone()).prepares(!pooled);
    let leases = Leases::new(plan.settings.lease);
    let (common, planned, jobs, relays) = Common::of(plan, &store, &leases);
    let consumers = register(&common, planned).await?;
    let ids = consumers.iter().map(|consumer| consumer.id).collect();
    let sweep = Arc::new(Sweep::new(store.clone(), ids, leases.length()));
    crash::at(Point::Registered);
    tracing::info!(process = %place.process(), database = %target, consumers = consumers.len(), jobs = jobs.len(), "worker is running");

    let bell = Bell::default();
    let mut helpers = JoinSet::new();
    helpers.spawn(maintenance::keep(store, target.clone()));
    if !maintenance_only {
        helpers.spawn(leases::renew(leases, target.clone()));
    }
    let (stopper, stopped) = Stopper::new();
    let process = place.process();
    let watching = (!maintenance_only).then(|| {
        let watch = wake::watch(bell.clone(), target, pooled, process, stopped.clone());
        let watching = tokio::spawn(watch);
        (AbortOnDrop(watching.abort_handle()), watching)
    });
    let mut loops = JoinSet::new();
    for consumer in consumers {
        let (sweep, stopped) = (sweep.clone(), stopped.clone());
        match consumer.deliveries.clone() {
            None => loops.spawn(consumer::run(consumer, sweep, bell.clone(), stopped)),
            Some(deliveries) => loops.spawn(broker::run(consumer, deliveries, sweep, stopped)),
        };
    }
    if !jobs.is_empty() {
        let jobs = job::Jobs::new(&common, jobs);
        loops.spawn(job::run(jobs, bell.clone(), stopped.clone()));
    }
    for (name, broker) in relays {
        let relay = relay::Relay::new(common.clone(), name, broker, bell.clone());
        loops.spawn(relay.run(stopped.clone()));
    }
    if pooled && !loops.is_empty() {
        loops.spawn(ask_again(connections, place.clone(), heartbeat, stopped));
    }
    let ended = supervise(loops, stop, hurry, &stopper, drain).await;
    // Whoever looked for all says that he goes.
    stopper.drain();
    if let Some((_aborted, watching)) = watching {
        let _ = tokio::time::timeout(Duration::from_secs(1), watching).await;
    }
    place
        .stopped()
        .map_or(ended, |why| Err(Error::Stopped(why)))
}

/// Ends a task that nobody waits for.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits for the stop signal, or for the first loop that gives up; then drains them all.
async fn supervise(
    mut loops: JoinSet<Result<(), Error>>,
    stop: impl Future<Output = ()> + Send,
    hurry: impl Future<Output = ()> + Send,
    stopper: &Stopper,
    drain: Duration,
) -> Result<(), Error> {
    let mut first = Ok(());
    if loops.is_empty() {
        stop.await;
        return first;
    }
    tokio::select! {
        () = stop => tracing::info!("draining: nothing more is claimed"),
        Some(ended) = loops.join_next() => first = flatten(ended),
    }
    stopper.drain();
    let all = async {
        while let Some(ended) = loops.join_next().await {
            if first.is_ok() {
                first = flatten(ended);
            }
        }
    };
    let drained = tokio::select! {
        () = all => true,
        () = tokio::time::sleep(drain) => false,
        () = hurry => false,
    };
    if !drained {
        tracing::warn!("the drain is over: what still runs is given back");
        stopper.end();
        // Giving back is a statement each; handlers that still run are left to themselves.
        let given_back = async { while loops.join_next().await.is_some() {} };
        if tokio::time::timeout(Duration::from_secs(5), given_back)
            .await
            .is_err()
        {
            tracing::warn!("not everything could be given back; its leases will lapse");
        }
    }
    first
}

fn flatten(ended: Result<Result<(), Error>, tokio::task::JoinError>) -> Result<(), Error> {
    ended.unwrap_or_else(|error| {
        Err(Error::Unexpected(format!(
            "a loop of the worker died: {error}"
        )))
    })
}

/// The pool whose every new connection is asked where it leads.
fn pool(target: &Target, place: &Place) -> Result<Pool, Error> {
    let place = place.clone();
    let hook = Hook::async_fn(move |client, _| {
        let place = place.clone();
        Box::pin(async move {
            let ready = async {
                place.check(client).await?;
                read_committed(client).await
            };
            ready
                .await
                .map_err(|error| HookError::message(error.to_string()))
        })
    });
    connect::pool_with(target, CONNECTIONS, Some(hook))
}

/// How long the database may take to say where it is.
const ANSWER: Duration = Duration::from_secs(5);

/// The default isolation level, where it is another one than claims need.
const HABIT: &str = "select s.habit from (select current_setting('default_transaction_isolation') as habit) s \
    where s.habit <> 'read committed'";

/// Claims run in READ COMMITTED whatever the database's habit. Set only where the habit is another one: behind a pooler
/// the session is not ours.
async fn read_committed(client: &tokio_postgres::Client) -> Result<(), Error> {
    if !client.query_typed(HABIT, &[]).await?.is_empty() {
        client
            .batch_execute("set default_transaction_isolation = 'read committed'")
            .await?;
    }
    Ok(())
}

/// The start-up checks, on a connection of their own, so that their errors come typed. Answers whether a transaction
/// pooler is between us and the server.
async fn check(target: &Target, place: &Place) -> Result<bool, Error> {
    let (client, _driver) = connect::connect(&target.clone()).await?;
    migrate::of(target.in_schema()).check(&client).await?;
    place.check(&client).await?;
    let pooled = connect::is_pooled(target).await?;
    if pooled {
        tracing::warn!("{}", connect::POOLED);
        let rows = client.query_typed(HABIT, &[]).await?;
        if let Some(habit) = rows.first().map(|row| row.get::<_, String>(0)) {
            return Err(Error::Config(format!(
                "this role's default isolation level in this database is {habit}, which cannot be set aside behind a transaction \
                 pooler: alter role … in database … set default_transaction_isolation = 'read committed'"
            )));
        }
    }
    Ok(pooled)
}

/// Where a pooler keeps our connections open when the server behind it changes, there is no new one to be asked: an old one
/// is, again and again.
async fn ask_again(
    connections: Pool,
    place: Place,
    every: Duration,
    stop: Stop,
) -> Result<(), Error> {
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = stop.draining() => return Ok(()),
        }
        // A server that is away is waited for by those who work, and one that does not answer is given up by them.
        let Ok(client) = connections.get().await else {
            continue;
        };
        let answer = tokio::select! {
            answer = place.check(&client) => answer,
            () = tokio::time::sleep(ANSWER) => {
                drop(deadpool_postgres::Client::take(client));
                continue;
            }
            () = stop.draining() => return Ok(()),
        };
        match answer {
            Err(stopped @ Error::Stopped(_)) => return Err(stopped),
            Err(error) => tracing::debug!(%error, "could not ask where this is"),
            Ok(_) => {}
        }
    }
}

/// A stop signal that never comes, for runs that end by themselves.
#[cfg(feature = "testing")]
pub(crate) fn never() -> signal::Stop {
    Stopper::new().1
}
