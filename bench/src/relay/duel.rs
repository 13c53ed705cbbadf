//! A relay and bare clients of one broker take turns.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::{StreamExt as _, stream};
use outlast::broker::{Broker, Ensure, Message, Published, Severity, Topology};

use super::{
    load,
    way::{self, Route},
};
use crate::{
    cost::{Cost, Meter},
    report::{Report, Row, ratio, spread},
    server::Server,
};

/// Messages of a batch: what the relay claims at once.
pub const BATCH: usize = 1_000;
/// So many batches are on their way at once, whoever publishes: the relay has as many.
pub const AT_ONCE: usize = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// What a bare client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The same message as the relay: with its envelope.
    Whole,
    /// Its payload alone.
    Body,
}

/// A broker, where bare clients of it can publish too.
pub trait Place {
    type Broker: Broker + Clone;

    /// Its name, for tables.
    const NAME: &'static str;

    /// Server and clients with their versions, and what is set.
    fn describe(&self) -> String;

    /// Ours.
    fn broker(&self) -> Self::Broker;

    /// Publishes by the broker's own client, and returns when all is confirmed. How long that took: getting ready does not
    /// count.
    async fn bare(&self, messages: &[Message], what: What) -> Result<Duration>;

    /// Removes a topic, which must have so many messages, where they are counted.
    async fn remove(&self, topic: &str, messages: u64) -> Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Bare(What),
    /// Ours, without a relay.
    Adapter,
    Relay,
}

const ALL: [Who; 4] = [
    Who::Bare(What::Whole),
    Who::Bare(What::Body),
    Who::Adapter,
    Who::Relay,
];

/// So many events in each turn.
pub struct Duel {
    pub events: u64,
    /// None: without an order.
    pub keys: u64,
    pub rounds: usize,
}

impl Duel {
    pub async fn fight<P: Place>(
        &self,
        server: &Server,
        place: &P,
        report: &mut Report,
    ) -> Result<()> {
        let mut turns: Vec<(Who, Vec<Cost>)> =
            ALL.into_iter().map(|who| (who, Vec::new())).collect();
        for round in 0..self.rounds {
            // There and back: drift hits all alike.
            if round > 0 {
                turns.reverse();
            }
            for (who, costs) in &mut turns {
                let topic = format!("bench-{round}-{}", who.word());
                costs.push(self.turn(server, place, *who, &topic).await?);
            }
        }
        self.report::<P>(&turns, report);
        Ok(())
    }

    async fn turn<P: Place>(
        &self,
        server: &Server,
        place: &P,
        who: Who,
        topic: &str,
    ) -> Result<Cost> {
        let broker = place.broker();
        let ordered = self.keys > 0;
        make(&broker, topic, ordered).await?;
        let cost = match who {
            Who::Relay => {
                let database = server.database("bench_relay").await?;
                let (events, keys) = (self.events as i64, self.keys as i64);
                database.backlog(events, keys).await?;
                let meter = Meter::start(server, &database).await?;
                let route = Route::to(topic, ordered);
                way::drain(&database, broker, route, self.events).await?;
                let cost = meter.stop(server, &database).await?;
                database.must_be_sound().await?;
                cost
            }
            Who::Adapter => {
                let messages = load::messages(topic, self.events, self.keys);
                seconds(straight(&broker, &messages).await?)
            }
            Who::Bare(what) => {
                let messages = load::messages(topic, self.events, self.keys);
                seconds(place.bare(&messages, what).await?)
            }
        };
        place.remove(topic, self.events).await?;
        Ok(cost)
    }

    fn report<P: Place>(&self, turns: &[(Who, Vec<Cost>)], report: &mut Report) {
        let of = |who: Who| {
            let found = turns.iter().find(|turn| turn.0 == who);
            found.map_or(&[][..], |turn| &turn.1)
        };
        let rate = |cost: &Cost| self.events as f64 / cost.seconds;
        let median = |who| spread(of(who).iter().map(rate).collect()).0;
        let order = match self.keys {
            0 => String::new(),
            keys => format!(", ordered by {keys} keys"),
        };
        let bare = Who::Bare(What::Whole);
        for (who, than, words) in [
            (
                Who::Relay,
                bare,
                "a bare client that sends the same messages",
            ),
            (
                Who::Relay,
                Who::Bare(What::Body),
                "a bare client that sends the payloads alone",
            ),
            (Who::Adapter, bare, "the bare client with the same messages"),
        ] {
            let whose = match who {
                Who::Relay => "relay to",
                _ => "without a relay, our adapter to",
            };
            let pairs = of(who).iter().zip(of(than));
            let per_unit = |get: fn(&Cost) -> f64| {
                let costs = of(who).iter();
                let each = costs.map(|cost| get(cost) / self.events as f64);
                (who == Who::Relay).then(|| spread(each.collect()).0)
            };
            report.push(Row {
                workload: format!("{whose} {}: {} events{order}", P::NAME, self.events),
                result: format!("{:.0}/s", median(who)),
                ratio: format!(
                    "{} of {words} ({:.0}/s)",
                    ratio(pairs.map(|(a, b)| rate(a) / rate(b)).collect()),
                    median(than)
                ),
                wal_bytes_per_unit: per_unit(|cost| cost.wal_bytes),
                server_cpu_us_per_unit: per_unit(|cost| cost.server_cpu * 1e6),
                client_cpu_us_per_unit: per_unit(|cost| cost.client_cpu * 1e6),
            });
        }
    }
}

impl Who {
    fn word(self) -> &'static str {
        match self {
            Self::Bare(What::Whole) => "bare",
            Self::Bare(What::Body) => "body",
            Self::Adapter => "adapter",
            Self::Relay => "relay",
        }
    }
}

fn seconds(took: Duration) -> Cost {
    Cost {
        seconds: took.as_secs_f64(),
        ..Cost::default()
    }
}

/// Makes a topic, with the settings that the product gives it.
pub async fn make(broker: &impl Broker, topic: &str, ordered: bool) -> Result<()> {
    let topology = Topology::topic(topic, ordered);
    let made = broker.ensure(&topology, Ensure::Create, PATIENCE).await?;
    let bad = made.iter().find(|one| one.severity >= Severity::Bad);
    ensure!(bad.is_none(), "{bad:?}");
    Ok(())
}

/// By our adapter, without a relay.
async fn straight(broker: &impl Broker, messages: &[Message]) -> Result<Duration> {
    let begun = Instant::now();
    let batches = stream::iter(messages.chunks(BATCH));
    let mut said = batches
        .map(|batch| broker.publish(batch, PATIENCE))
        .buffered(AT_ONCE);
    while let Some(said) = said.next().await {
        let other = said.iter().find(|one| !Published::is_confirmed(one));
        ensure!(other.is_none(), "{other:?}");
    }
    Ok(begun.elapsed())
}
