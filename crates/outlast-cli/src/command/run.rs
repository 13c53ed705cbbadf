//! `outlast run` of the product: what a database needs when nobody's handlers are involved.

use clap::{Args, ValueEnum};
use outlast_postgres::endpoint::Endpoints;

use crate::{
    args::Global,
    engine,
    exit::Exit,
    problem::{Answer, Problem},
    push,
    settings::{Base, Effective, Set},
};

#[derive(Debug, Args)]
#[command(after_help = "\
Handlers live in your own binary: its main calls outlast::cli(state, worker), and its `run` works with
them. This one has none. It checks at the start that the schema fits and that the database is the one
it should be, then watches the log and wakes the workers, until SIGTERM or Ctrl-C. Workers do that
themselves, too: none of them needs this command.

It pushes events to the endpoints of the cluster ([cluster.endpoint.NAME], outlast apply), and goes
on with the new ones when those change. What an endpoint calls the key `shop` is in the variable
OUTLAST_SECRET_SHOP: whsec_…, while it is replaced the old one and the new one. Networks of your own
that may be reached are listed in OUTLAST_EGRESS_ALLOW, ports besides 443 in OUTLAST_EGRESS_PORTS.

It publishes events to the brokers of the configuration file ([broker.NAME]) as the routes of the
cluster say ([cluster.route.NAME], outlast apply): docs/brokers.md.

Examples:
  outlast run --set deployment=production --log json
  outlast run --only relay
  outlast run --only push
  outlast run --only maintenance")]
pub(crate) struct Run {
    /// Nothing but this; workers do it too, one at a time over all of them
    #[arg(long)]
    only: Option<Only>,
    #[command(flatten)]
    set: Set,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Only {
    /// Fold completions, empty the slots that nobody needs, forget old keys
    Maintenance,
    /// Push events to the endpoints of the cluster
    Push,
    /// Publish events to the brokers of the file, as the routes of the cluster say
    Relay,
}

impl Run {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let effective = Effective::load(global, &self.set, &Base::default())?;
        let target = effective.target()?;
        if let Some(Only::Maintenance) = self.only {
            let worker = engine::watchman(&effective).only_maintenance();
            return engine::work(worker, effective.settings.drain).await;
        }
        let brokers = match self.only {
            Some(Only::Push) => Vec::new(),
            _ => effective.brokers().connect().await?,
        };
        if brokers.is_empty() && matches!(self.only, Some(Only::Relay)) {
            let next = "name one in the configuration file: [broker.NAME] with kind = \"nats\" or \"pubsub\" (docs/brokers.md)";
            return Err(Problem::new(Exit::Usage, "relay", "no broker is configured").next(next));
        }
        if self.only.is_none() {
            tracing::info!(
                "no handlers here: this only watches the log, wakes workers, relays to brokers and pushes to endpoints; handlers live in your own binary"
            );
        }
        loop {
            let endpoints = match self.only {
                Some(Only::Relay) => Endpoints::default(),
                _ => push::endpoints(&target).await?,
            };
            let mut worker = engine::watchman(&effective);
            for (name, broker) in &brokers {
                worker = worker.relay(name, broker.clone());
            }
            if let Some(Only::Relay) = self.only {
                return engine::work(worker, effective.settings.drain).await;
            }
            for consumer in push::consumers(&endpoints)? {
                worker = worker.consumer(consumer);
            }
            let changed = push::changed(&target, &endpoints);
            let ended = engine::work_until(worker, effective.settings.drain, changed).await?;
            if let Some(exit) = ended {
                return Ok(exit);
            }
        }
    }
}
