//! Receiving from the broker in memory.

use std::time::Duration;

use outlast_core::broker::{
    Acked, BoxFuture, BrokerError, Delivered, Settle, Subscribed, Subscription,
};
use tokio::time::{Instant, timeout_at};

use super::{
    Memory,
    store::{Given, Link},
};

struct Reading {
    broker: Memory,
    subscription: Subscription,
}

pub(super) fn subscribed(broker: Memory, subscription: Subscription) -> Box<dyn Subscribed> {
    Box::new(Reading {
        broker,
        subscription,
    })
}

impl Subscribed for Reading {
    fn next(
        &mut self,
        most: usize,
        within: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivered>, BrokerError>> {
        Box::pin(async move {
            let end = Instant::now() + within;
            loop {
                let news = self.broker.inner.news.notified();
                tokio::pin!(news);
                // From here on nothing that happens is missed.
                news.as_mut().enable();
                self.broker.reachable(end - Instant::now()).await?;
                let (given, due) = self.broker.lock().give(&self.subscription, most)?;
                if !given.is_empty() {
                    return Ok(given.iter().map(|one| self.delivered(one)).collect());
                }
                let wake = due.map_or(end, |due| due.min(end));
                if timeout_at(wake, news).await.is_err() && Instant::now() >= end {
                    return Ok(Vec::new());
                }
            }
        })
    }

    fn health(&mut self, within: Duration) -> BoxFuture<'_, Result<(), BrokerError>> {
        Box::pin(async move {
            self.broker.reachable(within).await?;
            self.broker.lock().readable(&self.subscription)
        })
    }

    fn drain(self: Box<Self>, _within: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl Reading {
    fn delivered(&self, given: &Given) -> Delivered {
        let settle = Settling {
            broker: self.broker.clone(),
            subscription: self.subscription.clone(),
            place: given.place,
            tag: given.tag,
        };
        Delivered {
            attributes: given.message.all_attributes(),
            body: given.message.body.clone(),
            broker_id: given.place.to_string(),
            number: Some(given.number),
            settle: Box::new(settle),
        }
    }
}

struct Settling {
    broker: Memory,
    subscription: Subscription,
    place: u64,
    tag: u64,
}

impl Settle for Settling {
    fn ack(self: Box<Self>, within: Duration) -> BoxFuture<'static, Acked> {
        Box::pin(async move {
            if self.broker.reachable(within).await.is_err() {
                return Acked::Unknown;
            }
            let mut store = self.broker.lock();
            match store.out(&self.subscription, self.place, self.tag) {
                Some((reader, delivery)) => reader.done(&delivery),
                None => return Acked::Lost,
            }
            drop(store);
            // The next one of its key may be due now.
            self.broker.inner.news.notify_waiters();
            Acked::Confirmed
        })
    }

    fn release(self: Box<Self>, after: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut store = self.broker.lock();
            let up = store.link == Link::Up;
            if let Some((reader, delivery)) = store.out(&self.subscription, self.place, self.tag)
                && up
            {
                reader.release(&delivery, after);
            }
            drop(store);
            self.broker.inner.news.notify_waiters();
        })
    }

    fn extend(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut store = self.broker.lock();
            let up = store.link == Link::Up;
            if let Some((reader, delivery)) = store.out(&self.subscription, self.place, self.tag)
                && up
            {
                reader.extend(&delivery, by);
            }
        })
    }
}

/// Takes one off the dead list, or leaves it there.
struct Burial {
    broker: Memory,
    subscription: Subscription,
    place: u64,
}

pub(super) fn dead(
    broker: &Memory,
    subscription: &Subscription,
    most: usize,
) -> Result<Vec<Delivered>, BrokerError> {
    let mut store = broker.lock();
    store.bury(subscription)?;
    let limit = store.max_deliveries;
    let dead = store.reader(subscription)?.dead.iter().take(most);
    let delivered = dead.map(|(&place, message)| Delivered {
        attributes: message.all_attributes(),
        body: message.body.clone(),
        broker_id: place.to_string(),
        number: Some(limit),
        settle: Box::new(Burial {
            broker: broker.clone(),
            subscription: subscription.clone(),
            place,
        }),
    });
    Ok(delivered.collect())
}

impl Settle for Burial {
    fn ack(self: Box<Self>, _within: Duration) -> BoxFuture<'static, Acked> {
        Box::pin(async move {
            let mut store = self.broker.lock();
            let Ok(reader) = store.reader(&self.subscription) else {
                return Acked::Unknown;
            };
            match reader.dead.remove(&self.place) {
                Some(_) => Acked::Confirmed,
                None => Acked::Lost,
            }
        })
    }

    fn release(self: Box<Self>, _after: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn extend(&self, _by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
