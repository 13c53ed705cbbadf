//! A broker that confirms everything at once and keeps nothing: what a relay costs without the broker.

use std::time::Duration;

use outlast::broker::{
    BoxFuture, Broker, BrokerError, Delivered, Ensure, Finding, Limits, Message, Published,
    Subscribed, Subscription, Topology, Why,
};

pub struct Sink;

fn none<T>() -> BoxFuture<'static, Result<T, BrokerError>> {
    Box::pin(async { Err(BrokerError::new(Why::Configuration, "a sink keeps nothing")) })
}

impl Broker for Sink {
    fn kind(&self) -> &'static str {
        "sink"
    }

    fn limits(&self) -> Limits {
        Limits::new(1000, 8 << 20, 1 << 20).with_ordered_batches()
    }

    fn validate(&self, _: &Message) -> Result<(), String> {
        Ok(())
    }

    fn publish<'a>(
        &'a self,
        messages: &'a [Message],
        _: Duration,
    ) -> BoxFuture<'a, Vec<Published>> {
        Box::pin(async move { messages.iter().map(|_| Published::Confirmed).collect() })
    }

    fn ensure<'a>(
        &'a self,
        _: &'a Topology,
        _: Ensure,
        _: Duration,
    ) -> BoxFuture<'a, Result<Vec<Finding>, BrokerError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn subscribe<'a>(
        &'a self,
        _: &'a Subscription,
        _: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Subscribed>, BrokerError>> {
        none()
    }

    fn probe(&self, _: Duration) -> BoxFuture<'_, Result<(), BrokerError>> {
        Box::pin(async { Ok(()) })
    }

    fn dead<'a>(
        &'a self,
        _: &'a Subscription,
        _: usize,
        _: Duration,
    ) -> BoxFuture<'a, Result<Vec<Delivered>, BrokerError>> {
        none()
    }
}
