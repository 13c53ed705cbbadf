//! A running worker: check where we are, register, then one loop a consumer until told to stop.
//!
//! Connections: two for claims and records, one for renewals, one for wake-up; the handlers' own pools are theirs.

use std::{future::Future, sync::Arc, time::Duration};

use deadpool_postgres::{Hook, HookError, Pool};
use outlast_postgres::{
    Error,
    connect::{self, Target},
    migrate,
    store::{Place, Registration, Store},
};
use tokio::task::JoinSet;

use crate::{plan::Plan, settings::Settings};
use leases::Leases;
use signal::{Stop, Stopper};
use wake::Bell;

pub(crate) mod batch;
pub(crate) mod consumer;
mod flush;
pub(crate) mod leases;
mod record;
pub(crate) mod signal;
pub(crate) mod wake;

/// Connections for claims and records. Two consumers' statements can overlap; more would only queue in the server.
const CONNECTIONS: usize = 2;

/// Runs until `stop` resolves, then drains. Returns when everything that was started has ended or been given back.
///
/// # Errors
/// What makes working on pointless: a configuration that cannot work, a schema that does not fit, a database that is not
/// the one it should be ([`Error::Stopped`]). A database that is away is waited for.
pub(crate) async fn run<S>(plan: Plan<S>, stop: impl Future<Output = ()> + Send) -> Result<(), Error>
where
    S: Clone + Send + Sync + 'static,
{
    let target = match &plan.target {
        Some(target) => target.clone(),
        None => Target::from_env()?,
    };
    plan.settings.validate()?;
    let place = Place::new(plan.settings.deployment.clone());
    let store = Store::new(pool(&target, &place)?, place.clone());
    check(&target, &place).await?;
    let leases = Leases::new(plan.settings.lease);
    let consumers = register(&plan, &store, &leases).await?;
    tracing::info!(process = %place.process(), database = %target, consumers = consumers.len(), "worker is running");

    let bell = Bell::default();
    let mut helpers = JoinSet::new();
    helpers.spawn(leases::renew(leases, target.clone()));
    helpers.spawn(wake::watch(bell.clone(), target, place.process()));
    let (stopper, stopped) = Stopper::new();
    let mut loops = JoinSet::new();
    for consumer in consumers {
        loops.spawn(consumer::run(consumer, bell.clone(), stopped.clone()));
    }
    let ended = supervise(loops, stop, &stopper, &plan.settings).await;
    if let Some(why) = place.stopped() {
        return Err(Error::Stopped(why));
    }
    ended
}

/// Waits for the stop signal, or for the first loop that gives up; then drains them all.
async fn supervise(
    mut loops: JoinSet<Result<(), Error>>,
    stop: impl Future<Output = ()> + Send,
    stopper: &Stopper,
    settings: &Settings,
) -> Result<(), Error> {
    let mut first = Ok(());
    tokio::select! {
        () = stop => tracing::info!("draining: nothing more is claimed"),
        Some(ended) = loops.join_next() => first = flatten(ended),
    }
    stopper.drain();
    let drained = tokio::time::timeout(settings.drain, async {
        while let Some(ended) = loops.join_next().await {
            if first.is_ok() {
                first = flatten(ended);
            }
        }
    });
    if drained.await.is_err() {
        tracing::warn!(after = ?settings.drain, "the drain has run out: what still runs is given back");
        stopper.end();
        // Giving back is a statement each; handlers that still run are left to themselves.
        let given_back = async { while loops.join_next().await.is_some() {} };
        if tokio::time::timeout(Duration::from_secs(5), given_back).await.is_err() {
            tracing::warn!("not everything could be given back; its leases will lapse");
        }
    }
    first
}

fn flatten(ended: Result<Result<(), Error>, tokio::task::JoinError>) -> Result<(), Error> {
    ended.unwrap_or_else(|error| Err(Error::Unexpected(format!("a loop of the worker died: {error}"))))
}

/// The pool whose every new connection is asked where it leads.
fn pool(target: &Target, place: &Place) -> Result<Pool, Error> {
    let place = place.clone();
    let hook = Hook::async_fn(move |client, _| {
        let place = place.clone();
        Box::pin(async move {
            match place.check(client).await {
                Ok(_) => Ok(()),
                Err(error) => Err(HookError::message(error.to_string())),
            }
        })
    });
    connect::pool_with(target, CONNECTIONS, Some(hook))
}

/// The start-up checks, on a connection of their own, so that their errors come typed.
async fn check(target: &Target, place: &Place) -> Result<(), Error> {
    let (client, _driver) = connect::connect(&target.clone()).await?;
    migrate::check(&client).await?;
    place.check(&client).await?;
    Ok(())
}

/// Registers every consumer of the plan; each is committed when it is there.
pub(crate) async fn register<S>(plan: &Plan<S>, store: &Store, leases: &Leases) -> Result<Vec<consumer::Consumer<S>>, Error>
where
    S: Clone + Send + Sync + 'static,
{
    let mut consumers = Vec::new();
    for planned in &plan.consumers {
        let registered = store
            .register(&Registration {
                name: planned.name.clone(),
                types: planned.registry.types().to_vec(),
                earliest: planned.earliest,
                owner: planned.owner.clone(),
                attempts: plan.settings.attempts,
            })
            .await?;
        if let Some(reason) = &registered.paused {
            tracing::warn!(consumer = %planned.name, reason, "paused by an operator: it claims nothing until it is resumed");
        }
        consumers.push(consumer::Consumer {
            id: registered.id,
            name: planned.name.as_str().into(),
            state: plan.state.clone(),
            outlast: plan.outlast.clone(),
            registry: planned.registry.clone(),
            store: store.clone(),
            leases: leases.clone(),
            settings: Arc::clone(&plan.settings),
            concurrency: planned.concurrency.unwrap_or(plan.settings.concurrency),
        });
    }
    Ok(consumers)
}

/// Resolves at SIGTERM or Ctrl-C.
pub(crate) async fn signalled() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut term) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = term.recv() => return,
                answer = tokio::signal::ctrl_c() => if answer.is_ok() { return },
            }
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// A stop signal that never comes, for runs that end by themselves.
#[cfg(feature = "testing")]
pub(crate) fn never() -> Stop {
    Stopper::new().1
}
