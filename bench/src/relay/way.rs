//! A relay in this process, from a database to a broker, watched on its way.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use outlast::{
    Outlast, Worker,
    broker::{
        BoxFuture, Broker, BrokerError, Delivered, Ensure, Finding, Limits, Message, Published,
        Subscribed, Subscription, Topology,
    },
};
use serde::Deserialize;

use crate::server::Database;

/// Where the events of a database go.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    topic: &'a str,
    ordered: bool,
}

impl<'a> Route<'a> {
    pub fn to(topic: &'a str, ordered: bool) -> Self {
        Self { topic, ordered }
    }

    /// Makes it the database's only one, which begins with what is there already.
    pub async fn set(&self, database: &Database) -> Result<()> {
        let Self { topic, ordered } = self;
        let routes = serde_json::json!({
            "load": {"broker": "b", "topic": topic, "types": ["load"], "ordered": ordered, "start": "earliest", "attributes": {}}
        });
        let sql = "select count(*) from outlast._apply_routes($1::text::jsonb)";
        database.sql.query(sql, &[&routes.to_string()]).await?;
        Ok(())
    }
}

/// Relays all that waits, and ends when the database says that it is done.
pub async fn drain(
    database: &Database,
    broker: impl Broker,
    route: Route<'_>,
    events: u64,
) -> Result<()> {
    route.set(database).await?;
    let seen = Arc::new(Seen::default());
    let confirmed = || seen.confirmed();
    worker(&database.url, Watched::new(broker, seen.clone()))
        .run_until(all(database, confirmed, events))
        .await?;
    Ok(())
}

/// A process that relays the route.
pub fn worker(url: &str, broker: impl Broker) -> Worker<()> {
    Outlast::new().worker(()).database(url).relay("b", broker)
}

/// Resolves when the database says that so many are done; `hint` says when to look.
pub async fn all(database: &Database, hint: impl Fn() -> u64, wanted: u64) {
    loop {
        tokio::time::sleep(Duration::from_millis(2)).await;
        if hint() >= wanted
            && let Ok(n) = database
                .number("select count(*) from outlast._processed_event")
                .await
            && n as u64 >= wanted
        {
            return;
        }
    }
}

/// What a broker has confirmed.
#[derive(Debug, Default)]
pub struct Seen {
    confirmed: AtomicU64,
    /// When, by the number in the payload; only if it is asked for.
    at: Option<Mutex<HashMap<u64, Instant>>>,
}

impl Seen {
    pub fn with_times() -> Self {
        Self {
            at: Some(Mutex::default()),
            ..Self::default()
        }
    }

    pub fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Relaxed)
    }

    /// Empty unless they were asked for.
    pub fn times(&self) -> HashMap<u64, Instant> {
        let times = self.at.as_ref().map(|at| lock(at).clone());
        times.unwrap_or_default()
    }

    fn note(&self, messages: &[Message], outcomes: &[Published]) {
        let both = messages.iter().zip(outcomes);
        let confirmed = both.filter(|(_, outcome)| outcome.is_confirmed());
        let Some(at) = &self.at else {
            self.confirmed
                .fetch_add(confirmed.count() as u64, Ordering::Relaxed);
            return;
        };
        let (now, mut at) = (Instant::now(), lock(at));
        for (message, _) in confirmed {
            if let Ok(Load { n }) = serde_json::from_slice(&message.body) {
                at.entry(n).or_insert(now);
            }
        }
        self.confirmed.store(at.len() as u64, Ordering::Relaxed);
    }
}

#[derive(Deserialize)]
struct Load {
    n: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A broker, and a look at what it confirms.
#[derive(Debug)]
pub struct Watched<B> {
    broker: B,
    seen: Arc<Seen>,
}

impl<B> Watched<B> {
    pub fn new(broker: B, seen: Arc<Seen>) -> Self {
        Self { broker, seen }
    }
}

impl<B: Broker> Broker for Watched<B> {
    fn kind(&self) -> &'static str {
        self.broker.kind()
    }

    fn limits(&self) -> Limits {
        self.broker.limits()
    }

    fn validate(&self, message: &Message) -> Result<(), String> {
        self.broker.validate(message)
    }

    fn publish<'a>(
        &'a self,
        messages: &'a [Message],
        within: Duration,
    ) -> BoxFuture<'a, Vec<Published>> {
        Box::pin(async move {
            let outcomes = self.broker.publish(messages, within).await;
            self.seen.note(messages, &outcomes);
            outcomes
        })
    }

    fn ensure<'a>(
        &'a self,
        topology: &'a Topology,
        how: Ensure,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Finding>, BrokerError>> {
        self.broker.ensure(topology, how, within)
    }

    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
        within: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Subscribed>, BrokerError>> {
        self.broker.subscribe(subscription, within)
    }

    fn probe(&self, within: Duration) -> BoxFuture<'_, Result<(), BrokerError>> {
        self.broker.probe(within)
    }

    fn dead<'a>(
        &'a self,
        subscription: &'a Subscription,
        most: usize,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Delivered>, BrokerError>> {
        self.broker.dead(subscription, most, within)
    }
}
