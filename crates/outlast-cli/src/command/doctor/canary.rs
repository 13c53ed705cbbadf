//! The canary: one message through a broker and back, timed.
//!
//! It has a topic and a subscription of its own. On the topic of a route every subscription would get it, those of others too,
//! who do not know what it is. A consumer that reads everything (`>` at NATS) gets it all the same: it is an event of the type
//! `outlast.canary`, which is nobody's, so a consumer of Outlast acks it and runs nothing.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use outlast_core::broker::{
    Broker, BrokerError, Ensure, Envelope, Message, Published, Severity, Subscribed, Subscription,
    Topology,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::{Found, brokers::ASK};

/// The topic, and the type of the event.
const TOPIC: &str = "outlast.canary";
const SUBSCRIPTION: &str = "outlast-canary";
/// Another run's, if it is younger; else one that nobody waits for any more.
const YOUNG: Duration = Duration::from_secs(60);

/// Sends one, waits for it, takes it away.
pub(super) async fn send(name: &str, broker: &dyn Broker) -> Vec<Found> {
    let of = format!("broker {name}");
    let found =
        |severity, says: String, mend: &str| vec![Found::new(severity, &of, "canary", says, mend)];
    match round(broker).await {
        Ok(times) => {
            let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
            let says = format!(
                "confirmed after {}, back after {}, acked after {}",
                ms(times.confirmed),
                ms(times.back),
                ms(times.acked)
            );
            found(Severity::Good, says, "")
        }
        Err(Failed::Making(why)) => {
            let mend = format!(
                "make the topic {TOPIC} and its subscription {SUBSCRIPTION}, or let this account make them"
            );
            found(
                Severity::Unverified,
                format!("cannot be sent: {why}"),
                &mend,
            )
        }
        Err(Failed::On(why)) => {
            let mend = "what goes through this broker does not arrive: see what else is said of it";
            found(Severity::Bad, why, mend)
        }
    }
}

struct Times {
    confirmed: Duration,
    back: Duration,
    acked: Duration,
}

enum Failed {
    /// It could not be prepared.
    Making(BrokerError),
    /// It was lost on its way.
    On(String),
}

async fn round(broker: &dyn Broker) -> Result<Times, Failed> {
    let subscription = Subscription::new(SUBSCRIPTION, TOPIC);
    for topology in [
        Topology::topic(TOPIC, false),
        Topology::Subscription(subscription.clone()),
    ] {
        let made = broker.ensure(&topology, Ensure::Create, ASK).await;
        made.map_err(Failed::Making)?;
    }
    let reading = broker.subscribe(&subscription, ASK).await;
    let mut reading = reading.map_err(Failed::Making)?;
    let envelope = Envelope::new(Uuid::new_v4(), TOPIC, SystemTime::now());
    let id = envelope.id;
    let message = Message::new(TOPIC, Arc::new(envelope), Bytes::from_static(b"{}"));
    let began = Instant::now();
    match broker
        .publish(std::slice::from_ref(&message), ASK)
        .await
        .into_iter()
        .next()
    {
        Some(Published::Confirmed) => {}
        Some(Published::NotSent(refused)) => {
            let why = format!("not sent: {}: {}", refused.why, refused.reason);
            return Err(Failed::On(why));
        }
        Some(Published::Unknown(why)) => {
            return Err(Failed::On(format!("sent, and not confirmed: {why}")));
        }
        None => {
            return Err(Failed::On(
                "the adapter has not said what came of it".into(),
            ));
        }
    }
    let confirmed = began.elapsed();
    let arrived = wait(reading.as_mut(), id, began + ASK).await;
    let back = began.elapsed();
    let acked = match arrived {
        Ok(settle) => {
            let acked = settle.ack(ASK).await;
            tracing::debug!(?acked, "the canary is back");
            Ok(began.elapsed())
        }
        Err(why) => Err(Failed::On(why)),
    };
    reading.drain(Duration::from_secs(1)).await;
    Ok(Times {
        confirmed,
        back,
        acked: acked?,
    })
}

async fn wait(
    reading: &mut dyn Subscribed,
    id: Uuid,
    until: Instant,
) -> Result<Box<dyn outlast_core::broker::Settle>, String> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!(
                "confirmed, and not delivered within {} s",
                ASK.as_secs()
            ));
        }
        let some = reading.next(1, left.min(Duration::from_secs(1))).await;
        for one in some.map_err(|why| format!("confirmed, and cannot be read: {why}"))? {
            let theirs = Envelope::from_attributes(&one.attributes).ok();
            let age = |envelope: &Envelope| envelope.emitted_at.elapsed().unwrap_or_default();
            match theirs {
                Some(envelope) if envelope.id == id => return Ok(one.settle),
                // Another doctor waits for it.
                Some(envelope) if age(&envelope) < YOUNG => {
                    one.settle.release(Duration::from_millis(100)).await;
                }
                _ => _ = one.settle.ack(ASK).await,
            }
        }
    }
}
