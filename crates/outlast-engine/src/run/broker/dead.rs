//! What a broker has given up on, because it killed its workers or nobody ever acked it: put before a person, with its
//! original identity, and only then out of the broker.

use std::{sync::Arc, time::Duration};

use outlast_core::broker::{Broker, BrokerError, Settle, Subscription};
use outlast_postgres::{
    Error,
    connect::{self, Target},
    store::{Claimed, Place, Store, Verdict},
};
use tokio::time::timeout;

use super::read;
use crate::consumer::Source;

/// Between two looks of a worker.
const EVERY: Duration = Duration::from_secs(60);
/// How many are read at once.
const AT_ONCE: usize = 100;
/// How long one question to a broker may take, and one ack.
const ANSWER: Duration = Duration::from_secs(10);
/// Nothing runs under this lease; it has to be one.
const LEASE: Duration = Duration::from_secs(15);

/// What came of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Put before a person: an incident of its consumer.
    pub incidents: usize,
    /// Completed, parked or not the consumer's: nothing was to be done.
    pub settled: usize,
    /// No event: kept as it came, an incident too.
    pub unreadable: usize,
    /// In work somewhere at this moment: left where it was.
    pub left: usize,
}

impl std::ops::AddAssign for Imported {
    fn add_assign(&mut self, more: Self) {
        self.incidents += more.incidents;
        self.settled += more.settled;
        self.unreadable += more.unreadable;
        self.left += more.left;
    }
}

/// Imports what a broker has given up on, at most so many: each becomes an incident of the consumer under the id that it was
/// emitted with, and is then taken from the broker. What the consumer has completed meanwhile is only taken away.
///
/// As often as one likes: one that is imported already changes nothing. A worker does it by itself, once a minute. If the
/// process dies, what was not acked is found again.
///
/// # Errors
/// [`Error::UnknownConsumer`]; [`Error::Unexpected`] with the broker's words when it keeps none or cannot be read.
pub async fn import_dead(
    target: &Target,
    deployment: Option<&str>,
    consumer: &str,
    broker: &dyn Broker,
    subscription: &Subscription,
    most: usize,
) -> Result<Imported, Error> {
    let place = Place::new(deployment.map(str::to_owned)).schema(target.in_schema());
    let store = Store::new(connect::pool(target, 1)?, place);
    let id = store.consumer(consumer).await?;
    let mut all = Imported::default();
    let mut read = 0;
    while read < most {
        let (n, some) = pass(&store, id, broker, subscription, AT_ONCE.min(most - read))
            .await
            .map_err(|error| match error {
                Failed::Broker(error) => Error::Unexpected(format!("dead letters: {error}")),
                Failed::Database(error) => error,
            })?;
        all += some;
        // What is in work is found again and again.
        if n == some.left {
            break;
        }
        read += n;
    }
    Ok(all)
}

/// Does it once a minute, until the worker ends.
pub(super) async fn now_and_then(store: Store, consumer: i32, source: Arc<Source>) {
    loop {
        // The jitter keeps a crowd of processes apart.
        tokio::time::sleep(EVERY.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        let pass = pass(
            &store,
            consumer,
            source.broker.as_ref(),
            &source.subscription,
            AT_ONCE,
        );
        match pass.await {
            Ok((0, _)) => {}
            Ok((_, imported)) => tracing::warn!(consumer, ?imported, "dead letters were imported"),
            Err(Failed::Broker(error)) => tracing::debug!(%error, consumer, "no dead letters"),
            Err(Failed::Database(error)) => {
                tracing::debug!(%error, consumer, "dead letters were not imported");
            }
        }
    }
}

enum Failed {
    Broker(BrokerError),
    Database(Error),
}

/// Answers how many were read, and what became of them.
async fn pass(
    store: &Store,
    consumer: i32,
    broker: &dyn Broker,
    subscription: &Subscription,
    most: usize,
) -> Result<(usize, Imported), Failed> {
    let dead = broker
        .dead(subscription, most, ANSWER)
        .await
        .map_err(Failed::Broker)?;
    let (n, mut imported) = (dead.len(), Imported::default());
    let (events, unreadable) = read::all(dead);
    for message in unreadable {
        let kept = message.keep(store, consumer).await;
        ack(kept.map_err(|(_, error)| Failed::Database(error))?).await;
        imported.unreadable += 1;
    }
    let (events, doubles) = read::distinct(events);
    imported.left += doubles.len();
    if events.is_empty() {
        return Ok((n, imported));
    }
    let why = format!(
        "{} has given up on it: it was delivered as often as the subscription {} allows",
        broker.kind(),
        subscription.name
    );
    let all: Vec<&Claimed> = events.iter().map(|one| &one.event).collect();
    let judged = store
        .import_dead(consumer, &all, LEASE, &why)
        .await
        .map_err(Failed::Database)?;
    for one in events {
        let verdict = judged
            .iter()
            .find(|judged| judged.event_id == one.event.event_id)
            .map(|judged| (judged.verdict, judged.kept));
        match verdict {
            Some((Verdict::Parked, true)) => imported.incidents += 1,
            Some((Verdict::Parked | Verdict::Done | Verdict::Other, _)) => imported.settled += 1,
            _ => {
                imported.left += 1;
                continue;
            }
        }
        ack(one.settle).await;
    }
    Ok((n, imported))
}

async fn ack(settle: Box<dyn Settle>) {
    // One that is not acked is found again, and changes nothing.
    let _ = timeout(ANSWER * 2, settle.ack(ANSWER)).await;
}
