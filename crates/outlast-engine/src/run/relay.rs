//! The relay: for each route of a broker a consumer whose handler is that broker; and so for each outbox of another system.
//!
//! Routes and outboxes are settings of the cluster, so they come and go while this runs: they are read again with each heartbeat. A route
//! that cannot be served (it was changed to what it cannot be, its consumer was retired) holds up no other.

mod outbox;
mod rewind;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use outlast_core::broker::{Broker, Ensure, Severity, Topology};
use outlast_postgres::{
    Error,
    outbox::{CONSUMER as OUTBOX, Outbox},
    relay::{LANES, Route},
    store::Store,
};
use tokio::task::JoinHandle;

use super::{
    AbortOnDrop, consumer,
    record::{self, told},
    register::{Common, register_one},
    signal::{Stop, Stopper},
    sweep::Sweep,
    wake::Bell,
};
use crate::{
    consumer::Consumer as Planned,
    handler::{Form, Handler, publish::Publisher},
};

/// What the consumer of a route is called: this and the route's name.
const ROUTE: &str = "relay/";
/// How long a broker may take to say what is there.
const ASK: Duration = Duration::from_secs(5);

/// One broker of this process.
pub(crate) struct Relay<S> {
    common: Common<S>,
    name: String,
    broker: Arc<dyn Broker>,
    bell: Bell,
}

/// What there is to serve.
#[derive(PartialEq)]
enum Wanted {
    Route(Route),
    Outbox(Box<Outbox>),
}

/// A route or an outbox that is served.
struct Served {
    wanted: Wanted,
    stopper: Stopper,
    task: JoinHandle<Result<(), Error>>,
}

impl<S: Clone + Send + Sync + 'static> Relay<S> {
    pub(crate) fn new(
        common: Common<S>,
        name: String,
        broker: Arc<dyn Broker>,
        bell: Bell,
    ) -> Self {
        Self {
            common,
            name,
            broker,
            bell,
        }
    }

    /// Serves its routes until the worker drains; then waits for what they have under way.
    ///
    /// # Errors
    /// What makes working on pointless for the whole process, such as [`Error::Stopped`].
    pub(crate) async fn run(self, stop: Stop) -> Result<(), Error> {
        let mut served = BTreeMap::new();
        let mut first = Ok(());
        let mut failures = 0;
        while !stop.is_draining() && first.is_ok() {
            let pause = match self.wanted().await {
                Ok(wanted) => {
                    failures = 0;
                    first = self.serve(&mut served, wanted).await;
                    self.common.settings.heartbeat
                }
                Err(error) if error.is_transient() => {
                    failures += 1;
                    told!(failures, %error, broker = %self.name, "the routes could not be read");
                    record::pause(failures)
                }
                Err(error) => {
                    first = Err(error);
                    Duration::ZERO
                }
            };
            tokio::select! {
                () = stop.draining() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        for one in served.values() {
            one.stopper.drain();
        }
        let mut all = Box::pin(async {
            for one in served.values_mut() {
                let ended = flat((&mut one.task).await);
                if first.is_ok() {
                    first = ended;
                }
            }
            first
        });
        tokio::select! {
            first = &mut all => return first,
            () = stop.ended() => {}
        }
        drop(all);
        for one in served.values() {
            one.stopper.end();
        }
        for (_, one) in served {
            flat(one.task.await)?;
        }
        Ok(())
    }

    /// What there is to serve, by the names of the consumers.
    async fn wanted(&self) -> Result<BTreeMap<String, Wanted>, Error> {
        let store = &self.common.store;
        let routes = store.routes(&self.name).await?.into_iter();
        let routes = routes.map(|(name, route)| (format!("{ROUTE}{name}"), Wanted::Route(route)));
        let outboxes = store.outboxes(&self.name).await?.into_iter();
        let outboxes = outboxes
            .map(|(name, outbox)| (format!("{OUTBOX}{name}"), Wanted::Outbox(Box::new(outbox))));
        Ok(routes.chain(outboxes).collect())
    }

    /// Makes what is served what is wanted. A route that was changed is drained first, so that no key overtakes itself.
    async fn serve(
        &self,
        served: &mut BTreeMap<String, Served>,
        mut wanted: BTreeMap<String, Wanted>,
    ) -> Result<(), Error> {
        let mut gone = Vec::new();
        for (name, one) in &*served {
            if one.task.is_finished() || wanted.get(name) != Some(&one.wanted) {
                one.stopper.drain();
                gone.push(name.clone());
            }
        }
        for name in gone {
            let Some(one) = served.remove(&name) else {
                continue;
            };
            match flat(one.task.await) {
                Ok(()) => {
                    tracing::info!(route = %name, broker = %self.name, "not served any more as it was");
                }
                Err(stopped @ Error::Stopped(_)) => return Err(stopped),
                Err(error) => {
                    tracing::error!(%error, route = %name, broker = %self.name, "this route is not served; tried again with the next heartbeat");
                }
            }
        }
        wanted.retain(|name, _| !served.contains_key(name));
        for (name, wanted) in wanted {
            let (stopper, stop) = Stopper::new();
            let task = match &wanted {
                Wanted::Route(route) => {
                    let name = name.strip_prefix(ROUTE).unwrap_or(&name);
                    tokio::spawn(self.route(name, route, stop))
                }
                Wanted::Outbox(outbox) => {
                    let name = name.strip_prefix(OUTBOX).unwrap_or(&name);
                    let serving =
                        outbox::serve(self.common.clone(), self.broker.clone(), name, outbox, stop);
                    tokio::spawn(serving)
                }
            };
            let one = Served {
                wanted,
                stopper,
                task,
            };
            served.insert(name, one);
        }
        Ok(())
    }

    /// Serves one route: what is new of it, and what of it is to be published once more.
    fn route(
        &self,
        name: &str,
        route: &Route,
        stop: Stop,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let publisher = Arc::new(Publisher {
            broker: self.broker.clone(),
            topic: route.topic.as_str().into(),
            attributes: route.attributes.clone().into_iter().collect(),
            ordered: route.ordered,
            log: self.common.settings.deployment.as_deref().map(Arc::from),
        });
        let mut planned = Planned::new(&format!("{ROUTE}{name}"));
        planned.ordered = route.ordered;
        planned.start = route.start;
        planned.lanes = LANES.unsigned_abs() as usize;
        planned.handlers = route
            .types
            .iter()
            .map(|types| Handler {
                name: types.clone().into(),
                version: u16::MAX,
                form: Form::Publish(publisher.clone()),
            })
            .collect();
        let (common, bell, name) = (self.common.clone(), self.bell.clone(), name.to_owned());
        let topology = Topology::topic(route.topic.clone(), route.ordered);
        let broker_name = self.name.clone();
        async move {
            let consumer = register_one(&common, planned).await?;
            let sweep = Sweep::new(
                common.store.clone(),
                vec![consumer.id],
                common.leases.length(),
            );
            tracing::info!(route = %name, broker = publisher.broker.kind(), topic = %publisher.topic, "relaying");
            let rewinds = rewind::run(consumer.clone(), publisher.clone(), stop.clone());
            let rewinds = tokio::spawn(rewinds);
            let watch = Watch {
                route: name,
                name: broker_name,
                broker: publisher.broker.clone(),
                topology,
                store: common.store.clone(),
                every: common.settings.heartbeat,
            };
            let watched = AbortOnDrop(tokio::spawn(watch.run()).abort_handle());
            let ended = consumer::run(consumer, Arc::new(sweep), bell, stop).await;
            drop(watched);
            ended.and(flat(rewinds.await))
        }
    }
}

/// Beside the relaying of one route: says once what of its topic is not as it should be, and keeps written down what the broker
/// takes, so that nothing is emitted that could never leave. The relay itself depends on none of it: the first message tells,
/// too.
struct Watch {
    route: String,
    name: String,
    broker: Arc<dyn Broker>,
    topology: Topology,
    store: Store,
    every: Duration,
}

impl Watch {
    async fn run(self) {
        // Who has not answered yet does not know what he takes.
        while self.broker.probe(ASK).await.is_err() {
            tokio::time::sleep(self.every).await;
        }
        self.look().await;
        let mut written = None;
        loop {
            let limits = self.broker.limits();
            if written != Some(limits) {
                let write = self.store.route_limits(&self.route, &self.name, &limits);
                match write.await {
                    Ok(_) => written = Some(limits),
                    Err(error) => {
                        tracing::debug!(%error, route = %self.route, "what the broker takes is not written down yet");
                    }
                }
            }
            tokio::time::sleep(self.every).await;
        }
    }

    async fn look(&self) {
        if matches!(&self.topology, Topology::Topic { topic, .. } if topic.contains("{type}")) {
            return;
        }
        let answer = self.broker.ensure(&self.topology, Ensure::Verify, ASK);
        for finding in answer.await.into_iter().flatten() {
            if finding.severity >= Severity::Warning {
                tracing::warn!(route = %self.route, about = %finding.about, found = %finding.found, "{}", finding.advice);
            }
        }
    }
}

fn flat(ended: Result<Result<(), Error>, tokio::task::JoinError>) -> Result<(), Error> {
    ended.unwrap_or_else(|error| Err(Error::Unexpected(format!("a route's loop died: {error}"))))
}
