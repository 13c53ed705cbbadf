//! The broker of a run: a real server, what is made in it, the way to it, and who publishes to it.
//!
//! Two routes: what clients did goes to the topic `did`, what follows from it to `child`. Of each key the order is kept.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use outlast_checker::broker::{Message, nats::Nats, pubsub::Witness};
use outlast_core::broker::{Broker, Ensure, Severity, Subscription, Topology};
use tokio::sync::Mutex;

use super::{
    source::{Kind, Source},
    spec::{Form, Spec},
    world::{PATIENCE, Program, World},
};
use crate::{
    broker::{Emulator, NatsServer, Wire, conformance::Server, emulator},
    process::Process,
    wait_for,
};

/// What routes call it.
pub(super) const BROKER: &str = "main";
/// The topics, each with the type that goes there.
pub(super) const TOPICS: [(&str, &str); 2] = [("did", "drill.did"), ("child", "drill.child")];
/// The most events of a batch of a relay: so many are on their way at most, a lane.
pub(super) const BATCH: usize = 50;
/// What the broker may take to be made, or looked at.
const WITHIN: Duration = Duration::from_secs(20);

/// Whether a run may harm its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Others may use it too.
    Shared,
    /// It is killed, frozen, wiped.
    Own,
}

#[derive(Debug)]
enum Running {
    Nats(NatsServer),
    Emulator(Emulator),
    Shared(SocketAddr),
}

/// The broker of a run.
pub(super) struct Site {
    kind: Kind,
    server: Running,
    project: String,
    /// What processes go through, if it is not straight.
    wire: Option<Wire>,
    /// Who sees what goes to the topic `did`, where that cannot be asked for afterwards, and what it has seen so far.
    witness: Mutex<(Option<Witness>, Vec<Message>)>,
}

/// A process that publishes.
pub(super) struct Relay {
    pub(super) process: Arc<Process>,
    /// What the database knows it by.
    id: String,
}

/// What a consumer of a drill reads.
pub(super) fn subscription(kind: Kind, spec: &Spec) -> Subscription {
    let [(did, _), (child, _)] = TOPICS;
    let topic = match spec.form {
        Form::Child => child,
        _ => did,
    };
    let mut subscription = Subscription::new(&spec.name, topic);
    subscription.ordered = spec.ordered;
    subscription.ack_within = match kind {
        Kind::Nats => Duration::from_secs(2),
        // Its shortest.
        Kind::PubSub => Duration::from_secs(10),
    };
    subscription
}

impl Site {
    /// Starts it, or takes the one that others use too, and makes topics and the subscriptions of these consumers.
    pub(super) async fn start(kind: Kind, whose: Whose, specs: &[Spec]) -> Result<Self> {
        let (server, project) = match (kind, whose) {
            (Kind::Nats, _) => (Running::Nats(NatsServer::start().await?), String::new()),
            (Kind::PubSub, Whose::Own) => {
                let emulator = Emulator::start().await?;
                (Running::Emulator(emulator), emulator::project())
            }
            (Kind::PubSub, Whose::Shared) => {
                let shared = emulator::shared().await;
                let (address, project) = shared.context("there is no Pub/Sub emulator")?;
                (Running::Shared(address), project)
            }
        };
        let site = Self {
            kind,
            server,
            project,
            wire: None,
            witness: Mutex::default(),
        };
        site.make(specs).await?;
        Ok(site)
    }

    /// From now on, who is started goes through a wire.
    pub(super) async fn wired(mut self) -> Self {
        self.wire = Some(Wire::before(&self.straight()).await);
        self
    }

    pub(super) fn wire(&self) -> Result<&Wire> {
        self.wire.as_ref().context("this site has no wire")
    }

    fn straight(&self) -> String {
        match &self.server {
            Running::Nats(server) => server.url(),
            Running::Emulator(emulator) => emulator.endpoint(),
            Running::Shared(address) => format!("http://{address}"),
        }
    }

    fn source(&self, url: String) -> Source {
        let (kind, project) = (self.kind, self.project.clone());
        Source { kind, url, project }
    }

    /// Where those who publish find it: by the wire, if there is one.
    pub(super) fn address(&self) -> Source {
        let scheme = match self.kind {
            Kind::Nats => "nats",
            Kind::PubSub => "http",
        };
        let wired = self.wire.as_ref();
        let wired = wired.map(|wire| format!("{scheme}://{}", wire.address()));
        self.source(wired.unwrap_or_else(|| self.straight()))
    }

    /// Makes what is missing: topics and subscriptions, and a witness where one is needed.
    pub(super) async fn make(&self, specs: &[Spec]) -> Result<()> {
        let broker: Arc<dyn Broker> = self.source(self.straight()).connect().await?;
        let topics = TOPICS.map(|(topic, _)| Topology::topic(topic, true));
        let subscriptions = specs.iter().map(|spec| subscription(self.kind, spec));
        let all = topics.into_iter();
        for topology in all.chain(subscriptions.map(Topology::Subscription)) {
            let made = broker.ensure(&topology, Ensure::Create, WITHIN).await?;
            let bad = made.iter().find(|one| one.severity == Severity::Bad);
            ensure!(bad.is_none(), "{bad:?}");
        }
        let address = match &self.server {
            Running::Nats(_) => return Ok(()),
            Running::Emulator(emulator) => emulator.address(),
            Running::Shared(address) => *address,
        };
        let [(did, _), _] = TOPICS;
        let witness = Witness::of(address, &self.project, did).await?;
        // What the last one has seen is gone, or the topic would be there.
        *self.witness.lock().await = (Some(witness), Vec::new());
        Ok(())
    }

    /// Writes the routes into the database.
    pub(super) async fn route(&self, world: &World, ordered: bool) -> Result<()> {
        let route = |(topic, event_type): (&str, &str)| {
            format!(
                r#""{topic}":{{"broker":"{BROKER}","topic":"{topic}","types":["{event_type}"],"ordered":{ordered},"attributes":{{}}}}"#
            )
        };
        let routes = TOPICS.map(route).join(",");
        let sql = format!("select from outlast._apply_routes('{{{routes}}}')");
        Ok(world.client().await?.batch_execute(&sql).await?)
    }

    /// As if no relay had found yet what the broker takes: then an emit refuses nothing. While none lives.
    pub(super) async fn forget_limits(&self, world: &World) -> Result<()> {
        let sql = "update outlast._route set limits = null";
        Ok(world.client().await?.batch_execute(sql).await?)
    }

    /// A worker whose consumers read from here.
    pub(super) fn worker<'w>(&self, world: &'w World, name: &str) -> Program<'w> {
        let straight = self.source(self.straight());
        world.worker(name).set("broker", straight)
    }

    /// A process that publishes, and does nothing else.
    pub(super) fn relays<'w>(&self, world: &'w World, name: &str) -> Program<'w> {
        let relay = world.worker(&format!("relay-{name}"));
        let relay = relay.set("broker", self.address()).flag("relay");
        relay.set("batch-rows", BATCH)
    }

    /// Starts one, and waits until it serves both routes.
    pub(super) async fn relay(&self, world: &World, name: &str) -> Result<Relay> {
        let process = self.relays(world, name).start()?;
        let up = process.line("worker is running", PATIENCE).await;
        let id = up.split("process=").nth(1).unwrap_or_default();
        let id = id.split(' ').next().unwrap_or_default().to_owned();
        ensure!(!id.is_empty(), "a relay does not say who it is: {up}");
        for _ in TOPICS {
            process.line("relaying", PATIENCE).await;
        }
        Ok(Relay { process, id })
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// The server is killed, and stays away.
    pub(super) async fn kill(&self) {
        match &self.server {
            Running::Nats(server) => Server::kill(server).await,
            Running::Emulator(emulator) => Server::kill(emulator).await,
            Running::Shared(_) => panic!("a server that others use is not killed"),
        }
    }

    /// Loses all it had: only while it is killed.
    pub(super) fn wipe(&self) {
        if let Running::Nats(server) = &self.server {
            server.wipe();
        }
    }

    /// It comes back. The emulator has lost all it had.
    pub(super) async fn back(&self) {
        match &self.server {
            Running::Nats(server) => Server::start(server).await,
            Running::Emulator(emulator) => Server::start(emulator).await,
            Running::Shared(_) => {}
        }
    }

    /// It stands still, with its connections open.
    pub(super) fn freeze(&self) {
        match &self.server {
            Running::Nats(server) => server.freeze(),
            Running::Emulator(emulator) => emulator.freeze(),
            Running::Shared(_) => panic!("a server that others use does not stand still"),
        }
    }

    /// What the topic `did` has, or has had, in its order.
    pub(super) async fn seen(&self) -> Result<Vec<Message>> {
        let [(did, _), _] = TOPICS;
        if let Running::Nats(server) = &self.server {
            return Nats::connect(&server.url()).await?.stream(did).await;
        }
        let (witness, so_far) = &mut *self.witness.lock().await;
        let witness = witness.as_ref().context("nobody has looked")?;
        so_far.extend(witness.seen().await?);
        Ok(so_far.clone())
    }

    /// Changes settings of the stream of `did`: NATS only.
    pub(super) async fn change(&self, settings: serde_json::Value) -> Result<()> {
        let [(did, _), _] = TOPICS;
        let Running::Nats(server) = &self.server else {
            bail!("only a stream of NATS has settings");
        };
        let mut nats = Nats::connect(&server.url()).await?;
        nats.change(did, &settings).await
    }

    /// Waits until nothing is left for these consumers: each message is acked. NATS only: the emulator does not tell.
    pub(super) async fn settled(&self, specs: &[Spec]) {
        let Running::Nats(server) = &self.server else {
            return;
        };
        for spec in specs {
            let topic = subscription(self.kind, spec).topic;
            let what = format!("every message of {} to be acked", spec.name);
            wait_for(&what, PATIENCE, async || {
                let mut nats = Nats::connect(&server.url()).await.ok()?;
                let left = nats.unsettled(&topic, &spec.name).await.ok()?;
                (left == 0).then_some(())
            })
            .await;
        }
    }
}

impl Relay {
    /// SIGKILL. How many events it had on their way: claimed, and not recorded.
    pub(super) async fn kill(&self, world: &World) -> Result<i64> {
        self.process.kill();
        self.process.exit(PATIENCE).await;
        let flying = self.flying(world).await?;
        world.fault(format_args!(
            "a relay was killed with {flying} on their way"
        ));
        Ok(flying)
    }

    /// How many events it has claimed and not recorded.
    pub(super) async fn flying(&self, world: &World) -> Result<i64> {
        flying(world, Some(&self.id)).await
    }
}

/// How many events relays, or one of them, have claimed and not recorded.
pub(super) async fn flying(world: &World, process: Option<&str>) -> Result<i64> {
    let whose = process.map_or(String::new(), |id| format!("and l.process = '{id}'"));
    let sql = format!(
        "select (coalesce(sum(b.events), 0) + count(*) filter (where l.room = 'parked'))::bigint from outlast._lease l
         join outlast._consumer c on c.id = l.consumer
         left join outlast._batch b on l.room = 'batch' and (b.consumer, b.lane, b.seq) = (l.consumer, l.lane, l.seq)
         where c.name like 'relay/%' {whose}"
    );
    world.number(&sql).await
}
