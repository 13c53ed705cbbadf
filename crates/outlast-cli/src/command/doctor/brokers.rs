//! Brokers, routes, consumers on brokers: what the servers have, against what is promised.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use Severity::{Bad, Good, Unverified, Warning};
use outlast_core::{
    Broker, Start,
    broker::{Ensure, Finding, Severity},
};

use outlast_postgres::relay::LANES;

use super::{Found, Shown, unread};
use crate::{
    database::Database,
    needs::{self, Named, Need, Outbox, Reader, Route},
    out::text,
    problem::Answer,
};

/// What one question to a broker may take.
pub(super) const ASK: Duration = Duration::from_secs(10);
/// A route that has something before it and was not moved for so long is served by nobody.
const IDLE_SECONDS: i64 = 60;
/// Longer than this an ordered subscription should not be held up by a worker that is lost.
const HELD_UP: Duration = Duration::from_secs(60);
/// What is smaller than this is emitted without a look at what its routes take; the rest is for attributes.
const NOT_LOOKED_AT: usize = (16 << 10) + (4 << 10);

/// What is known of the brokers of this file.
struct World<'a> {
    brokers: &'a [Named],
    /// Why one does not answer.
    down: HashMap<&'a str, String>,
    /// What a server says of itself is said once.
    told: HashSet<(String, String, String)>,
}

pub(super) async fn look(database: &Database, brokers: &[Named], all: &mut Shown) -> Answer<()> {
    let mut world = World {
        brokers,
        down: HashMap::new(),
        told: HashSet::new(),
    };
    for (name, broker) in brokers {
        all.show(world.broker(name, broker.as_ref()).await)?;
    }
    let routes = match unread(needs::routes(database, None).await, "routes", "routes") {
        Ok(routes) => routes,
        Err(one) => {
            all.show([one])?;
            Vec::new()
        }
    };
    let mut seen = Vec::new();
    if routes.iter().any(|route| route.topic.contains("{type}")) {
        match unread(
            needs::types_seen(database).await,
            "routes",
            "types of the log",
        ) {
            Ok(types) => seen = types,
            Err(one) => all.show([one])?,
        }
    }
    for route in &routes {
        all.show(world.route(route, &seen).await)?;
    }
    match unread(needs::outboxes(database).await, "outboxes", "outboxes") {
        Ok(outboxes) => {
            for outbox in &outboxes {
                all.show(world.outbox(outbox).await)?;
            }
        }
        Err(one) => all.show([one])?,
    }
    match unread(
        needs::readers(database, None).await,
        "consumers",
        "consumers on brokers",
    ) {
        Ok(readers) => {
            for reader in &readers {
                all.show(world.reader(reader).await)?;
            }
        }
        Err(one) => all.show([one])?,
    }
    Ok(())
}

impl<'a> World<'a> {
    async fn broker(&mut self, name: &'a str, broker: &dyn Broker) -> Vec<Found> {
        let of = format!("broker {name}");
        if let Err(why) = broker.probe(ASK).await {
            self.down.insert(name, why.to_string());
            let mend = "nothing is published to it or read from it: see whether it runs, and whether address and credentials in [broker] are right";
            return vec![Found::new(
                Bad,
                of,
                broker.kind(),
                format!("does not answer: {why}"),
                mend,
            )];
        }
        let limits = broker.limits();
        let most = limits.message_bytes;
        let mut all = vec![Found::new(Good, &of, broker.kind(), "answers", "")];
        all.push(match most < NOT_LOOKED_AT {
            false => Found::new(Good, of, "largest message", format!("{most} bytes"), ""),
            true => Found::new(
                Warning,
                of,
                "largest message",
                format!("{most} bytes"),
                "events of up to 16 KiB are emitted without a look at their routes, and quarantined if they do not fit: raise the broker's limit",
            ),
        });
        all
    }

    fn named(&self, name: &str) -> Option<&'a Named> {
        self.brokers.iter().find(|(known, _)| known == name)
    }

    /// Asks a broker what it has of this.
    async fn ask(&mut self, of: &str, (name, broker): &Named, need: &Need) -> Vec<Found> {
        let what = need.what.to_string();
        if let Some(why) = self.down.get(&**name) {
            let says = format!("the broker {name} does not answer: {why}");
            return vec![Found::new(
                Unverified,
                of,
                what,
                says,
                "mend the broker first",
            )];
        }
        match broker.ensure(&need.topology, Ensure::Verify, ASK).await {
            Ok(findings) => {
                let mut all = Vec::new();
                for finding in findings {
                    if !self.is_news(name, &finding) {
                        continue;
                    }
                    let missing = finding.missing;
                    let mut one = Found::of(of, finding);
                    if missing {
                        one.mend = format!("outlast relay topics --create; {}", one.mend);
                    }
                    all.push(one);
                }
                all
            }
            Err(why) => {
                let mend =
                    "its settings could not be asked for: see whether the credentials allow it";
                vec![Found::new(Unverified, of, what, why.to_string(), mend)]
            }
        }
    }

    fn is_news(&mut self, broker: &str, finding: &Finding) -> bool {
        let said = (
            broker.to_owned(),
            finding.about.clone(),
            finding.found.clone(),
        );
        self.told.insert(said)
    }

    async fn route(&mut self, route: &Route, seen: &[String]) -> Vec<Found> {
        let of = format!("route {} ({}: {})", route.name, route.broker, route.topic);
        let mut all = standing(&of, route);
        let Some(named) = self.named(&route.broker) else {
            let says = format!("[broker.{}] is not in this file", route.broker);
            let mend = "run this where that broker is configured";
            all.push(Found::new(Unverified, of, "broker", says, mend));
            return all;
        };
        if !self.down.contains_key(&*named.0) {
            all.push(limit(&of, route, named.1.limits().message_bytes));
        }
        let topics = route.needs(seen);
        if topics.is_empty() {
            let says = "a topic for each type, and none of its types was seen yet";
            let mend = "name types instead of patterns, or look again when there are events";
            all.push(Found::new(Unverified, &of, "topics", says, mend));
        }
        for need in &topics {
            all.extend(self.ask(&of, named, need).await);
        }
        all
    }

    async fn outbox(&mut self, outbox: &Outbox) -> Vec<Found> {
        let Outbox {
            name,
            broker,
            topic,
            ..
        } = outbox;
        let of = format!("outbox {name} ({broker}: {topic})");
        let mut all = Vec::new();
        let mut add = |severity, about: &str, says: String, mend: &str| {
            all.push(Found::new(severity, &of, about, says, mend));
        };
        match outbox.state.as_deref() {
            None => {
                let mend =
                    format!("its rows wait: outlast run --only relay, with [broker.{broker}]");
                add(Warning, "state", "never served".into(), &mend);
            }
            Some("active") => {}
            Some(state) => {
                let why = outbox.reason.as_deref().unwrap_or_default();
                let mend = format!("outlast relay resume outbox/{name}");
                add(Warning, "state", format!("{state}: {why}"), &mend);
            }
        }
        if let Some(why) = &outbox.outage {
            let mend = "nothing of it is published; it goes on by itself when that is mended";
            add(Bad, "outage", why.clone(), mend);
        }
        if outbox.quarantined > 0 {
            let says = text::count(outbox.quarantined, "row", "rows");
            let mend = format!("outlast parked ls --consumer outbox/{name} --state quarantined");
            add(Warning, "quarantine", says, &mend);
        }
        let Some(named) = self.named(broker) else {
            let says = format!("[broker.{broker}] is not in this file");
            let mend = "run this where that broker is configured";
            all.push(Found::new(Unverified, of, "broker", says, mend));
            return all;
        };
        let topics = outbox.needs();
        if let Some(why) = &outbox.problem {
            let mend = "what its rows name is not known: look with a login that may read the table";
            all.push(Found::new(Unverified, &of, "topics", text::line(why), mend));
        } else if topics.is_empty() {
            let says = "named by its rows, and none waits now";
            let mend = "make those that its writers use, or look again while rows wait";
            all.push(Found::new(Unverified, &of, "topics", says, mend));
        }
        for need in &topics {
            all.extend(self.ask(&of, named, need).await);
        }
        all
    }

    async fn reader(&mut self, reader: &Reader) -> Vec<Found> {
        let of = format!("consumer {} ({})", reader.name, reader.kind);
        let mut all = Vec::new();
        let mut add = |severity, about: &str, says: String, mend: &str| {
            all.push(Found::new(severity, &of, about, says, mend));
        };
        if reader.state != "active" {
            let why = reader.reason.as_deref().unwrap_or_default();
            let mend = format!("outlast consumers resume {}", reader.name);
            add(Warning, "state", format!("{}: {why}", reader.state), &mend);
        }
        if let Some(why) = &reader.outage {
            let mend =
                "its handlers fail one after the other: mend what they call; it goes on by itself";
            add(Bad, "outage", why.clone(), mend);
        }
        if reader.quarantined > 0 {
            let mend = format!(
                "outlast parked ls --consumer {} --state quarantined",
                reader.name
            );
            add(Warning, "quarantine", reader.quarantined.to_string(), &mend);
        }
        if reader.unreadable > 0 {
            let mend = format!("outlast unreadable ls --consumer {}", reader.name);
            add(
                Warning,
                "unreadable messages",
                reader.unreadable.to_string(),
                &mend,
            );
        }
        if let (true, "nats") = (reader.subscription.ordered, &*reader.kind) {
            all.push(held_up(&of, reader.subscription.ack_within));
        }
        let need = reader.need();
        let mut best: Option<Vec<Found>> = None;
        for named in reader.brokers(self.brokers) {
            let found = self.ask(&of, named, &need).await;
            // Which of several it is the database does not know: the one that has it.
            if best.as_ref().is_none_or(|best| worst(&found) < worst(best)) {
                best = Some(found);
            }
        }
        match best {
            Some(found) => all.extend(found),
            None => {
                let says = format!("no broker of kind {} is in this file", reader.kind);
                let mend = "run this where one is configured";
                all.push(Found::new(
                    Unverified,
                    of,
                    need.what.to_string(),
                    says,
                    mend,
                ));
            }
        }
        all
    }
}

fn worst(found: &[Found]) -> Severity {
    found.iter().map(|one| one.severity).max().unwrap_or(Good)
}

/// How a route is, as the database knows it.
fn standing(of: &str, route: &Route) -> Vec<Found> {
    let mut all = Vec::new();
    let mut add = |severity, about: &str, says: String, mend: String| {
        all.push(Found::new(severity, of, about, says, mend));
    };
    let name = &route.name;
    match (route.state.as_deref(), route.start) {
        (None, Start::Earliest) => {
            let mend = format!("outlast run --only relay, with [broker.{}]", route.broker);
            let says = "never served; begins with the oldest event that is kept";
            add(Warning, "state", says.into(), mend);
        }
        (None, _) => {
            let mend = format!(
                "what is emitted until a relay serves it for the first time is not published: outlast run --only relay with [broker.{}], or start = \"earliest\" before that",
                route.broker
            );
            add(Warning, "state", "never served".into(), mend);
        }
        (Some("active"), _) => {}
        (Some(state), _) => {
            let why = route.reason.as_deref().unwrap_or_default();
            add(
                Warning,
                "state",
                format!("{state}: {why}"),
                format!("outlast relay resume {name}"),
            );
        }
    }
    if let Some(why) = &route.outage {
        let mend = "nothing of it is published; it goes on by itself when that is mended".into();
        add(Bad, "outage", why.clone(), mend);
    }
    let idle = route.moved_seconds_ago.filter(|age| *age > IDLE_SECONDS);
    if let (Some("active"), Some(age), true) = (route.state.as_deref(), idle, route.ids_behind > 0)
    {
        let says = format!(
            "{} after its place, and nobody has moved it for {}",
            text::count(route.ids_behind, "id", "ids"),
            text::duration(age)
        );
        let mend = format!(
            "is a relay with [broker.{}] running? outlast run --only relay",
            route.broker
        );
        add(Warning, "progress", says, mend);
    }
    if route.quarantined > 0 {
        let says = text::count(route.quarantined, "event", "events");
        let mend = format!("outlast parked ls --consumer relay/{name} --state quarantined");
        add(Warning, "quarantine", says, mend);
    }
    all.extend(lanes(of, route));
    all
}

/// Whether a route was registered with more lanes than a relay makes.
fn lanes(of: &str, route: &Route) -> Option<Found> {
    let has = route.lanes.filter(|lanes| *lanes > LANES)?;
    if let Some(wanted) = route.lanes_wanted {
        let says = format!("{has}, on the way to {wanted}");
        return Some(Found::new(Good, of, "lanes", says, ""));
    }
    let says =
        format!("{has}: each has batches of its own, so that they are smaller than with {LANES}");
    let mend = format!("outlast consumers lanes relay/{} {LANES}", route.name);
    Some(Found::new(Warning, of, "lanes", says, mend))
}

/// For how long a worker that is lost between the broker and its database keeps an ordered subscription from going on: one message is out
/// at a time, over all processes.
fn held_up(of: &str, ack_within: Duration) -> Found {
    let seconds = i64::try_from(ack_within.as_secs()).unwrap_or(i64::MAX);
    let says = format!(
        "one that dies before its database has a message holds up all keys for {}",
        text::duration(seconds)
    );
    let about = "a lost worker";
    match ack_within > HELD_UP {
        false => Found::new(Good, of, about, says, ""),
        true => {
            let mend = "a shorter ack_within of the consumer, and ack_wait of its subscription";
            Found::new(Warning, of, about, says, mend)
        }
    }
}

/// Whether emit refuses what this broker never takes.
fn limit(of: &str, route: &Route, takes: usize) -> Found {
    let about = "largest message";
    match route.message_bytes {
        Some(known) if usize::try_from(known) == Ok(takes) => {
            let says = format!("{takes} bytes, attributes included; emit refuses more");
            Found::new(Good, of, about, says, "")
        }
        known => {
            let known = known.map_or_else(|| "nothing".into(), |known| format!("{known} bytes"));
            let says = format!("{takes} bytes, and emit knows of {known}");
            let mend = "what is larger is quarantined: a relay writes it down within a heartbeat after it has begun to serve the route";
            Found::new(Warning, of, about, says, mend)
        }
    }
}
