//! The consumers of a plan, registered in the database that they are meant for.

use std::sync::Arc;

use outlast_core::{Broker, Codec, Start};
use outlast_postgres::{
    Error,
    store::{Reads, Registration, Store},
};

use super::{
    accepted, books::Books, broker, consumer, destination, leases::Leases, registry::Registry,
};
use crate::{
    consumer::{Consumer as Planned, Source},
    handler::{Around, Context, Kind, Probe},
    settings::Settings,
    worker::{Plan, PlannedJob},
};

/// What all consumers of this process share.
#[derive(Clone)]
pub(crate) struct Common<S> {
    pub(super) state: S,
    pub(super) around: Option<Around>,
    pub(super) codec: Option<Arc<dyn Codec>>,
    pub(super) settings: Arc<Settings>,
    pub(super) store: Store,
    pub(super) leases: Leases,
}

/// Brokers by the name that routes use.
type Relays = Vec<(String, Arc<dyn Broker>)>;

impl<S> Common<S> {
    /// What is shared, the consumers and jobs of the plan, and its brokers.
    pub(crate) fn of(
        plan: Plan<S>,
        store: &Store,
        leases: &Leases,
    ) -> (Self, Vec<Planned<S>>, Vec<PlannedJob<S>>, Relays) {
        let common = Self {
            state: plan.state,
            around: plan.around,
            codec: plan.codec,
            settings: Arc::new(plan.settings),
            store: store.clone(),
            leases: leases.clone(),
        };
        (common, plan.consumers, plan.jobs, plan.relays)
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

pub(super) async fn register_one<S>(
    common: &Common<S>,
    planned: Planned<S>,
) -> Result<consumer::Consumer<S>, Error>
where
    S: Clone + Send + Sync + 'static,
{
    register_reading(common, planned, None).await
}

/// The same; `reads`: what it reads instead of the log, where that is no broker's subscription.
pub(super) async fn register_reading<S>(
    common: &Common<S>,
    planned: Planned<S>,
    reads: Option<Reads>,
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
        lanes: planned.lanes,
        tenants: planned.tenants.clone(),
        sources: planned.sources.clone(),
        owner: planned.owner.clone(),
        attempts: settings.attempts,
        local: registry.handlers().all(|handler| handler.probe().is_some()),
    };
    let source = planned.source.map(|source| source.of(planned.ordered));
    let registered = match reads.or_else(|| source.as_ref().map(Source::reads)) {
        None => store.register(&registration).await?,
        Some(reads) => store.register_delivered(&registration, &reads).await?,
    };
    if let Some(reason) = &registered.paused {
        tracing::warn!(consumer = %planned.name, reason, "paused by an operator: it claims nothing until it is resumed");
    }
    let name: Arc<str> = planned.name.into();
    Ok(consumer::Consumer {
        id: registered.id,
        context: Context {
            kind: Kind::Consumer,
            consumer: name.clone(),
            ordered: planned.ordered,
            around: common.around.clone(),
            codec: common.codec.clone(),
            provider: None,
            accepted: Some(accepted::Accepted::new(store.clone(), registered.id)),
        },
        name,
        state: common.state.clone(),
        registry: Arc::new(registry),
        store: store.clone(),
        books: Books::of_events(store.clone(), registered.id),
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
        tally: None,
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
