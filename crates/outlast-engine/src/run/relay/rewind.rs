//! Rewinds: what of a route is published once more, page by page, under a lease. A page is passed when everything in it was
//! confirmed, or can never be taken.

use std::{sync::Arc, time::Duration};

use outlast_core::backoff::Backoff;
use outlast_postgres::{
    Error,
    relay::{Page, Rewinding},
};
use tokio::time::Instant;

use crate::{
    handler::publish::Publisher,
    run::{
        consumer::Consumer,
        leases::Lease,
        record::{self, until_lost},
        signal::Stop,
    },
};

/// How many events are published between two marks of the place.
const PAGE: usize = 500;

/// Looks for rewinds of a route with each heartbeat, and does them.
pub(super) async fn run<S: Clone + Send + Sync + 'static>(
    consumer: Consumer<S>,
    publisher: Arc<Publisher>,
    stop: Stop,
) -> Result<(), Error> {
    while !stop.is_draining() {
        let asked = Instant::now();
        let length = consumer.leases.length();
        let done = match consumer.store.claim_rewind(consumer.id, length).await {
            Ok(Some(rewinding)) => {
                let lease = consumer.leases.hold(rewinding.token, asked);
                let done = all(&consumer, &publisher, (rewinding, &lease), &stop).await;
                consumer.leases.drop(rewinding.token);
                done
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        match done {
            Err(stopped @ Error::Stopped(_)) => return Err(stopped),
            Err(error) => {
                tracing::warn!(%error, consumer = %consumer.name, "a rewind is interrupted; whoever takes its lease goes on");
            }
            Ok(()) => {}
        }
        tokio::select! {
            () = stop.draining() => {}
            () = tokio::time::sleep(consumer.settings.heartbeat) => {}
        }
    }
    Ok(())
}

async fn all<S: Clone + Send + Sync + 'static>(
    consumer: &Consumer<S>,
    publisher: &Publisher,
    (rewinding, lease): (Rewinding, &Lease),
    stop: &Stop,
) -> Result<(), Error> {
    let (store, settings) = (&consumer.store, &consumer.settings);
    let (token, route) = (rewinding.token, &*consumer.name);
    tracing::info!(route, round = rewinding.round, "publishing once more");
    loop {
        let ask = || {
            store.page_of_rewind(
                token,
                PAGE,
                settings.batch_bytes as u64,
                settings.scanned_rows as u32,
            )
        };
        let page = until_lost(lease, "a page of a rewind", ask).await?;
        let Some(done) = publish(publisher, (&page, rewinding), lease, consumer, stop).await else {
            // Interrupted: the page is published again from its beginning, by whoever takes the lease.
            let give_back = || store.hand_back(token, &[]);
            return until_lost(lease, "a hand back", give_back).await;
        };
        let moved = || store.move_rewind(token, &page, done);
        until_lost(lease, "the place of a rewind", moved).await?;
        if page.over {
            tracing::info!(
                route,
                round = rewinding.round,
                "published once more to its end"
            );
            return Ok(());
        }
        if page.events.is_empty() {
            // Nothing in what was looked at, or its route is paused.
            tokio::select! {
                () = stop.draining() => {}
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
            }
        }
    }
}

/// Publishes a page until nothing of it is left; answers how many were confirmed and refused. None when we have to stop.
async fn publish<S>(
    publisher: &Publisher,
    (page, rewinding): (&Page, Rewinding),
    lease: &Lease,
    consumer: &Consumer<S>,
    stop: &Stop,
) -> Option<(usize, usize)> {
    const AGAIN: Backoff = Backoff {
        first: Duration::from_millis(500),
        most: Duration::from_secs(30),
    };
    let margin = consumer.leases.length() / 4;
    let left = || match lease.is_lost() || stop.is_draining() {
        true => Duration::ZERO,
        false => lease.left().saturating_sub(margin),
    };
    let mut messages: Vec<_> = page
        .events
        .iter()
        .map(|event| publisher.message(event, rewinding.round))
        .collect();
    let (mut sent, mut refused, mut failures) = (0, 0, 0_u32);
    loop {
        let (confirmed, never, rest, why) = publisher.send(messages, left).await.rest();
        sent += confirmed;
        refused += never;
        if rest.is_empty() {
            return Some((sent, refused));
        }
        if lease.is_lost() || stop.is_draining() {
            return None;
        }
        failures = if confirmed > 0 {
            1
        } else {
            failures.saturating_add(1)
        };
        let pause = AGAIN
            .pause(failures, 0.5 + fastrand::f64() / 2.0)
            .max(Duration::from_millis(20));
        record::told!(failures, why = why.as_deref().unwrap_or("no time"), route = %consumer.name, left = rest.len(), "not published once more yet");
        messages = rest;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = lease.lost() => return None,
            () = stop.draining() => return None,
        }
    }
}
