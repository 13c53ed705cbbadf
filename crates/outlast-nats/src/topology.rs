//! Streams and consumers: made if asked to, never changed, and reported as the server has them.

#[cfg(test)]
use outlast_core::broker::Severity;
use outlast_core::broker::{BrokerError, Ensure, Finding, Subscription, Topology, Why};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Nats,
    api::{Refused, nanos},
    dead, findings, monitor, names,
};

pub(crate) async fn ensure(
    nats: &Nats,
    topology: &Topology,
    how: Ensure,
    by: Instant,
) -> Result<Vec<Finding>, BrokerError> {
    match topology {
        Topology::Topic { topic, .. } => topic_is(nats, topic, how, by).await,
        Topology::Subscription(wanted) => subscription_is(nats, wanted, how, by).await,
        other => {
            let what = format!("{other:?} is nothing that NATS has");
            Err(BrokerError::new(Why::Configuration, what))
        }
    }
}

async fn topic_is(
    nats: &Nats,
    topic: &str,
    how: Ensure,
    by: Instant,
) -> Result<Vec<Finding>, BrokerError> {
    if let Err(why) = names::check_subject(topic) {
        return Ok(vec![findings::no_name(topic, &why)]);
    }
    nats.link.ready(by).await?;
    let mut stream = nats.api.stream_of(&nats.link, topic, by).await?;
    if stream.is_none() && how == Ensure::Create {
        make_stream(nats, topic, by).await?;
        stream = nats.api.stream_of(&nats.link, topic, by).await?;
    }
    let mut found = vec![findings::server(&nats.link.version())];
    let Some(name) = stream else {
        found.push(findings::missing_stream(topic));
        return Ok(found);
    };
    match nats.api.stream(&nats.link, &name, by).await? {
        Some(stream) => found.extend(findings::stream(topic, &stream)),
        None => found.push(findings::missing_stream(topic)),
    }
    found.push(monitor::sync(nats.settings.monitor.as_deref(), by).await);
    Ok(found)
}

fn replicas(nats: &Nats) -> usize {
    let usual = if nats.link.is_cluster() { 3 } else { 1 };
    nats.settings.replicas.unwrap_or(usual)
}

async fn make_stream(nats: &Nats, topic: &str, by: Instant) -> Result<(), BrokerError> {
    let settings = &nats.settings;
    let name = names::encode(topic).map_err(|why| BrokerError::new(Why::Configuration, why))?;
    let most = i64::try_from(settings.max_bytes).unwrap_or(i64::MAX);
    let config = json!({
        "name": name,
        "description": "made by Outlast",
        "subjects": [topic],
        "retention": "limits",
        // Full is refused, and the relay waits. The server's own default would drop the oldest, read or not.
        "discard": "new",
        "storage": "file",
        "num_replicas": replicas(nats),
        "max_msgs": -1,
        "max_bytes": if most == 0 { -1 } else { most },
        "max_age": nanos(settings.max_age),
        "max_msg_size": -1,
        "max_consumers": -1,
        "duplicate_window": nanos(settings.duplicate_window),
        "allow_direct": true,
    });
    made(nats, &name, config, by).await.map(drop)
}

/// Makes a stream. Whether it was there already, or could not be made because somebody else has one of its subjects, is
/// told apart by what the server has afterwards.
async fn made(
    nats: &Nats,
    name: &str,
    config: Value,
    by: Instant,
) -> Result<Option<Refused>, BrokerError> {
    let what = format!("STREAM.CREATE.{name}");
    match nats.api.ask::<Value>(&nats.link, &what, config, by).await? {
        Ok(_) => Ok(None),
        Err(refused)
            if refused.is(Refused::STREAM_NAME_TAKEN) || refused.is(Refused::SUBJECTS_OVERLAP) =>
        {
            Ok(Some(refused))
        }
        Err(refused) => Err(refused.into()),
    }
}

async fn subscription_is(
    nats: &Nats,
    wanted: &Subscription,
    how: Ensure,
    by: Instant,
) -> Result<Vec<Finding>, BrokerError> {
    let name = match names::check_subject(&wanted.topic).and_then(|()| names::encode(&wanted.name))
    {
        Ok(name) => name,
        Err(why) => return Ok(vec![findings::no_name(&wanted.name, &why)]),
    };
    nats.link.ready(by).await?;
    let Some(stream) = nats.api.stream_of(&nats.link, &wanted.topic, by).await? else {
        return Ok(vec![findings::missing_stream(&wanted.topic)]);
    };
    let mut consumer = nats.api.consumer(&nats.link, &stream, &name, by).await?;
    if how == Ensure::Create {
        make_dead_stream(nats, by).await?;
        if consumer.is_none() {
            make_consumer(nats, &stream, &name, wanted, by).await?;
            consumer = nats.api.consumer(&nats.link, &stream, &name, by).await?;
        }
    }
    let mut found = match consumer {
        Some(consumer) => findings::consumer(wanted, &stream, &consumer),
        None => vec![findings::missing_consumer(wanted, &stream)],
    };
    let reads = nats.api.stream(&nats.link, &stream, by).await?;
    found.extend(reads.and_then(|stream| findings::kept(wanted, &stream)));
    let dead = &nats.settings.dead_stream;
    let there = nats.api.stream(&nats.link, dead, by).await?;
    found.push(findings::dead_stream(dead, there.as_ref()));
    Ok(found)
}

async fn make_consumer(
    nats: &Nats,
    stream: &str,
    name: &str,
    wanted: &Subscription,
    by: Instant,
) -> Result<(), BrokerError> {
    // In order means one after another: the next one is given when the last one is settled.
    let pending = if wanted.ordered {
        1
    } else {
        nats.settings.max_ack_pending
    };
    let body = json!({
        "stream_name": stream,
        // Never an update of one that is there.
        "action": "create",
        "config": {
            "durable_name": name,
            "name": name,
            "description": "made by Outlast",
            "filter_subject": wanted.topic,
            "ack_policy": "explicit",
            "ack_wait": nanos(wanted.ack_within),
            // We count ourselves: at a limit the server would only stop.
            "max_deliver": -1,
            "max_ack_pending": pending,
            "deliver_policy": "all",
            "replay_policy": "instant",
        },
    });
    let what = format!("CONSUMER.CREATE.{stream}.{name}.{}", wanted.topic);
    match nats.api.ask::<Value>(&nats.link, &what, body, by).await? {
        Ok(_) => Ok(()),
        // Another process was faster; what it has made is looked at.
        Err(refused) if Refused::CONSUMER_EXISTS.contains(&refused.err_code) => Ok(()),
        Err(refused) => Err(refused.into()),
    }
}

async fn make_dead_stream(nats: &Nats, by: Instant) -> Result<(), BrokerError> {
    let name = &nats.settings.dead_stream;
    if nats.api.stream(&nats.link, name, by).await?.is_some() {
        return Ok(());
    }
    let window = nats.settings.duplicate_window;
    for advisories in [true, false] {
        let config = dead::stream(name, replicas(nats), window, advisories);
        match made(nats, name, config, by).await? {
            // Somebody else captures the advisories: without them then.
            Some(refused) if refused.is(Refused::SUBJECTS_OVERLAP) && advisories => {}
            Some(refused) if refused.is(Refused::SUBJECTS_OVERLAP) => return Err(refused.into()),
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// The worst thing found, for tests of what is found.
#[cfg(test)]
pub(crate) fn worst(found: &[Finding]) -> Severity {
    let worst = found.iter().map(|one| one.severity).max();
    worst.unwrap_or(Severity::Good)
}
