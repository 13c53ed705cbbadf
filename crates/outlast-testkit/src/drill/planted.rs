//! Planted faults that are no SQL: what a relay, or the client library under it, might do wrong. A broker around the real one
//! does it.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use outlast_core::broker::{
    BoxFuture, Broker, BrokerError, Delivered, Ensure, Finding, Limits, Message, NotSent,
    Published, Subscribed, Subscription, Topology, Why,
};
use uuid::Uuid;

use super::plant::Plant;

/// A broker with a fault.
pub(super) struct Planted {
    broker: Arc<dyn Broker>,
    plant: Plant,
    /// What was sent and not answered.
    doubtful: Mutex<HashSet<Uuid>>,
}

impl Planted {
    pub(super) fn new(broker: Arc<dyn Broker>, plant: Plant) -> Self {
        Self {
            broker,
            plant,
            doubtful: Mutex::default(),
        }
    }

    /// Sent is confirmed: nobody waits for the answer.
    fn believe(&self, messages: &[Message], within: Duration) -> Vec<Published> {
        let (broker, all) = (self.broker.clone(), messages.to_vec());
        tokio::spawn(async move { broker.publish(&all, within).await });
        messages.iter().map(|_| Published::Confirmed).collect()
    }

    /// What was not answered is sent as something new.
    async fn rename(&self, messages: &[Message], within: Duration) -> Vec<Published> {
        let mut all = messages.to_vec();
        for message in &mut all {
            if self.doubtful().contains(&message.envelope.id) {
                let mut envelope = (*message.envelope).clone();
                envelope.id = Uuid::now_v7();
                message.envelope = Arc::new(envelope);
            }
        }
        let said = self.broker.publish(&all, within).await;
        let unknown = messages.iter().zip(&said);
        let unknown = unknown.filter(|(_, said)| matches!(said, Published::Unknown(_)));
        self.doubtful()
            .extend(unknown.map(|(message, _)| message.envelope.id));
        said
    }

    /// One that cannot be sent fails all that were to go with it.
    async fn all_or_none(&self, messages: &[Message], within: Duration) -> Vec<Published> {
        let all = |why: String| {
            let refuse = |_| Published::not_sent(Why::Message, &why);
            messages.iter().map(refuse).collect()
        };
        let bad = messages.iter().map(|one| self.broker.validate(one));
        if let Some(why) = bad.filter_map(Result::err).next() {
            return all(why);
        }
        let said = self.broker.publish(messages, within).await;
        let refused = said.iter().find_map(|said| match said {
            Published::NotSent(NotSent {
                why: Why::Message,
                reason,
                ..
            }) => Some(reason.clone()),
            _ => None,
        });
        refused.map_or(said, all)
    }

    fn doubtful(&self) -> std::sync::MutexGuard<'_, HashSet<Uuid>> {
        self.doubtful.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Broker for Planted {
    fn kind(&self) -> &'static str {
        self.broker.kind()
    }

    fn limits(&self) -> Limits {
        self.broker.limits()
    }

    fn validate(&self, message: &Message) -> Result<(), String> {
        match self.plant {
            Plant::WholeBatch => Ok(()),
            _ => self.broker.validate(message),
        }
    }

    fn publish<'a>(
        &'a self,
        messages: &'a [Message],
        within: Duration,
    ) -> BoxFuture<'a, Vec<Published>> {
        match self.plant {
            Plant::AsSent => Box::pin(std::future::ready(self.believe(messages, within))),
            Plant::NewId => Box::pin(self.rename(messages, within)),
            Plant::WholeBatch => Box::pin(self.all_or_none(messages, within)),
            _ => self.broker.publish(messages, within),
        }
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
