//! A running worker: check where we are, register, then one loop a consumer until told to stop.
//!
//! Connections: two for claims and records, one for renewals, one for wake-up, and in the one process that is elected for
//! maintenance another one while it does a pass; the handlers' own pools are theirs.

use std::{future::Future, sync::Arc, time::Duration};

use deadpool_postgres::{Hook, HookError, Pool};
use outlast_core::{Broker, Codec};
use outlast_postgres::{
    Error,
    connect::{self, Target},
    migrate,
    store::{Place, Registration, Store},
};
use tokio::task::JoinSet;

use crate::{
    consumer::{Consumer as Planned, Start},
    crash::{self, Point},
    handler::{Around, Context, Probe},
    settings::Settings,
    worker::Plan,
};
use leases::Leases;
use registry::Registry;
use signal::{Stop, Stopper};
use sweep::Sweep;
use wake::Bell;

pub(crate) mod accepted;
pub(crate) mod batch;
pub(crate) mod broker;
pub(crate) mod consumer;
pub(crate) mod destination;
mod flush;
pub(crate) mod leases;
mod maintenance;
mod record;
pub(crate) mod registry;
mod relay;
pub(crate) mod signal;
mod sweep;
mod tries;
pub(crate) mod wake;

/// Connections for claims and records. Two consumers' statements can overlap; more would only queue in the server.
const CONNECTIONS: usize = 2;

/// Runs until SIGTERM or Ctrl-C, or until `stop` resolves; a second signal ends the drain at once.
pub(crate) async fn until_signal<S>(
    plan: Plan<S>,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), Error>
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
    let asked = reached(1);
    let stop = async move {
        tokio::select! {
            () = asked => {}
            () = stop => {}
        }
    };
    tokio::select! {
        ended = run_with(plan, stop, reached(2)) => ended,
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

async fn run_with<S>(
    plan: Plan<S>,
    stop: impl Future<Output = ()> + Send,
    hurry: impl Future<Output = ()> + Send,
) -> Result<(), Error>
where
    S: Clone + Send + Sync + 'static,
{
    let target = plan.target()?.application_name_or("outlast worker");
    let (drain, heartbeat) = (plan.settings.drain, plan.settings.heartbeat);
    let maintenance_only = plan.maintenance_only;
    let place = Place::new(plan.settings.deployment.clone()).schema(target.in_schema());
    let connections = pool(&target, &place)?;
    let store = Store::new(connections.clone(), place.clone());
    let pooled = check(&target, &place).await?;
    let leases = Leases::new(plan.settings.lease);
    let (common, planned, relays) = Common::of(plan, &store, &leases);
    let consumers = register(&common, planned).await?;
    let ids = consumers.iter().map(|consumer| consumer.id).collect();
    let sweep = Arc::new(Sweep::new(store.clone(), ids, leases.length()));
    crash::at(Point::Registered);
    tracing::info!(process = %place.process(), database = %target, consumers = consumers.len(), "worker is running");

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

/// What all consumers of this process share.
#[derive(Clone)]
pub(crate) struct Common<S> {
    state: S,
    around: Option<Around>,
    codec: Option<Arc<dyn Codec>>,
    settings: Arc<Settings>,
    store: Store,
    leases: Leases,
}

/// Brokers by the name that routes use.
type Relays = Vec<(String, Arc<dyn Broker>)>;

impl<S> Common<S> {
    /// What is shared, the consumers of the plan, and its brokers.
    pub(crate) fn of(
        plan: Plan<S>,
        store: &Store,
        leases: &Leases,
    ) -> (Self, Vec<Planned<S>>, Relays) {
        let common = Self {
            state: plan.state,
            around: plan.around,
            codec: plan.codec,
            settings: Arc::new(plan.settings),
            store: store.clone(),
            leases: leases.clone(),
        };
        (common, plan.consumers, plan.relays)
    }
}

/// Registers every consumer of the plan; each is committed when it is there. The pools of its handlers must lead to the
/// same database.
pub(crate) async fn register<S>(
    common: &Common<S>,
    planned: Vec<Planned<S>>,
) -> Result<Vec<consumer::Consumer<S>>, Error>
where
    S: Clone + Send + Sync + 'static,
{
    let mut consumers = Vec::new();
    for planned in planned {
        let (name, optional) = (planned.name.clone(), planned.optional);
        match register_one(common, planned).await {
            Ok(consumer) => consumers.push(consumer),
            Err(error)
                if optional && !error.is_transient() && !matches!(error, Error::Stopped(_)) =>
            {
                tracing::error!(%error, consumer = %name, "not registered, so nothing of it runs here");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(consumers)
}

async fn register_one<S>(
    common: &Common<S>,
    planned: Planned<S>,
) -> Result<consumer::Consumer<S>, Error>
where
    S: Clone + Send + Sync + 'static,
{
    let (store, settings) = (&common.store, &common.settings);
    let registry = Registry::new(planned.handlers);
    for handler in registry.handlers() {
        if let Some(probe) = handler.probe() {
            same_database(store, probe.as_ref(), &planned.name).await?;
        }
    }
    let registration = Registration {
        name: planned.name.clone(),
        types: registry.types().to_vec(),
        earliest: planned.start == Start::Earliest,
        ordered: planned.ordered,
        tenants: planned.tenants.clone(),
        sources: planned.sources.clone(),
        owner: planned.owner.clone(),
        attempts: settings.attempts,
        local: registry.handlers().all(|handler| handler.probe().is_some()),
    };
    let source = planned.source.map(|source| source.of(planned.ordered));
    let registered = match &source {
        None => store.register(&registration).await?,
        Some(source) => {
            let reads = source.reads();
            store.register_delivered(&registration, &reads).await?
        }
    };
    if let Some(reason) = &registered.paused {
        tracing::warn!(consumer = %planned.name, reason, "paused by an operator: it claims nothing until it is resumed");
    }
    let name: Arc<str> = planned.name.into();
    Ok(consumer::Consumer {
        id: registered.id,
        context: Context {
            consumer: name.clone(),
            ordered: planned.ordered,
            around: common.around.clone(),
            codec: common.codec.clone(),
            accepted: Some(accepted::Accepted::new(store.clone(), registered.id)),
        },
        name,
        state: common.state.clone(),
        registry: Arc::new(registry),
        store: store.clone(),
        leases: common.leases.clone(),
        destination: destination::Destination::new(),
        settings: match planned.deadline {
            Some(deadline) => Arc::new(Settings {
                deadline,
                ..(**settings).clone()
            }),
            None => settings.clone(),
        },
        concurrency: planned.concurrency.unwrap_or(settings.concurrency),
        deliveries: source.map(broker::Deliveries::new),
    })
}

/// A handler's own pool and ours must lead to one database: else its effects and the seal would be two commits.
async fn same_database(store: &Store, probe: &dyn Probe, consumer: &str) -> Result<(), Error> {
    const ASK: &str =
        "select d.oid::text || ' ' || h.installed_at::text || ' ' || coalesce(h.deployment, '')
         from pg_catalog.pg_database d, outlast._house h where d.datname = current_database()";
    let schema = store.place().in_schema();
    let theirs = match probe
        .ask(schema.statement(ASK))
        .await
        .map_err(|error| error.in_schema(schema))
    {
        Ok(row) => row.into_iter().next().flatten(),
        Err(Error::NotMigrated { .. }) => {
            return Err(Error::Config(format!(
                "consumer {consumer}: the pool of its handler leads to a database without the schema {schema}"
            )));
        }
        Err(error) => return Err(error),
    };
    let ours = store.text(ASK).await?;
    if theirs.is_none() || theirs != ours {
        return Err(Error::Config(format!(
            "consumer {consumer}: the pool of its handler leads to another database than the worker's"
        )));
    }
    Ok(())
}

/// SIGTERM and Ctrl-C, as they come.
struct Signals {
    #[cfg(unix)]
    term: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn new() -> Result<Self, Error> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Error::Unexpected(format!("cannot listen for signals: {error}")))
        };
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    fn new() -> Result<Self, Error> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A stop signal that never comes, for runs that end by themselves.
#[cfg(feature = "testing")]
pub(crate) fn never() -> signal::Stop {
    Stopper::new().1
}
