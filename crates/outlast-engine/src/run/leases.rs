//! The leases this process holds, and the one task that renews them on a connection of its own.
//!
//! A renewal that finds a token gone, or that cannot be made until the lease has lapsed by our own clock, marks it as
//! lost: whoever works under it is told, and what he returns is not recorded.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use outlast_postgres::{
    Error,
    connect::{Target, connect},
    schema::Schema,
};
use tokio::{
    sync::watch,
    time::{Instant, Interval, MissedTickBehavior},
};
use tokio_postgres::{Client, types::Type};
use uuid::Uuid;

use crate::crash::{self, Point};

/// One lease as this process sees it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) token: Uuid,
    state: Arc<watch::Sender<State>>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    until: Instant,
    lost: bool,
}

impl Lease {
    /// Whether somebody newer may own its work.
    pub(crate) fn is_lost(&self) -> bool {
        let state = *self.state.borrow();
        state.lost || state.until <= Instant::now()
    }

    /// How much of it is left.
    pub(crate) fn left(&self) -> Duration {
        self.state
            .borrow()
            .until
            .saturating_duration_since(Instant::now())
    }

    /// Resolves when it is lost. Never before.
    pub(crate) async fn lost(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as this lease, so an error cannot come.
        let _ = state.wait_for(|state| state.lost).await;
    }
}

/// All leases of this process.
#[derive(Clone, Debug)]
pub(crate) struct Leases {
    length: Duration,
    held: Arc<Mutex<HashMap<Uuid, Lease>>>,
}

impl Leases {
    pub(crate) fn new(length: Duration) -> Self {
        Self {
            length,
            held: Arc::default(),
        }
    }

    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Takes note of a lease that a claim, sent at `asked`, has brought.
    pub(crate) fn hold(&self, token: Uuid, asked: Instant) -> Lease {
        let state = State {
            until: asked + self.length,
            lost: false,
        };
        let lease = Lease {
            token,
            state: Arc::new(watch::Sender::new(state)),
        };
        self.lock().insert(token, lease.clone());
        lease
    }

    /// Forgets a lease that was ended.
    pub(crate) fn drop(&self, token: Uuid) {
        self.lock().remove(&token);
    }

    fn tokens(&self) -> Vec<Uuid> {
        self.lock().keys().copied().collect()
    }

    /// What one renewal, sent at `asked`, has brought: those of `asked_for` that are not in `renewed` are lost.
    fn renewed(&self, asked_for: &[Uuid], renewed: &[Uuid], asked: Instant) {
        let held = self.lock();
        for lease in asked_for.iter().filter_map(|token| held.get(token)) {
            if renewed.contains(&lease.token) {
                lease
                    .state
                    .send_modify(|state| state.until = asked + self.length);
            } else {
                tracing::warn!(lease = %lease.token, "lease lost: somebody newer owns its work");
                lease.state.send_modify(|state| state.lost = true);
            }
        }
    }

    /// Marks what has lapsed by our own clock: without the database we cannot know whether it was taken.
    fn lapse(&self) {
        for lease in self.lock().values() {
            if lease.is_lost() {
                lease
                    .state
                    .send_if_modified(|state| !std::mem::replace(&mut state.lost, true));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Lease>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Renews all leases every third of their length, until the process ends. Connects again when the connection breaks.
pub(crate) async fn renew(leases: Leases, target: Target) {
    let length = leases.length();
    let mut every = tokio::time::interval(length / 3);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut client: Option<Client> = None;
    loop {
        every.tick().await;
        leases.lapse();
        // Before there is a lease: the first renewal should not have to wait for a connection. However long one takes,
        // it is not begun anew each time, or a slow server would cost every lease.
        if client.as_ref().is_none_or(Client::is_closed) {
            match meanwhile(&leases, &mut every, connect(&target)).await {
                Ok((connected, _driver)) => client = Some(connected),
                Err(error) => {
                    let held = leases.tokens().len();
                    tracing::warn!(%error, leases = held, "no connection for renewals");
                    continue;
                }
            }
        }
        let (Some(connected), tokens) = (&client, leases.tokens()) else {
            continue;
        };
        if tokens.is_empty() {
            continue;
        }
        let asked = Instant::now();
        let renewal =
            tokio::time::timeout(length, once(connected, target.in_schema(), &tokens, length));
        match meanwhile(&leases, &mut every, renewal).await {
            Ok(Ok(renewed)) => {
                crash::at(Point::Renewed);
                leases.renewed(&tokens, &renewed, asked);
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, leases = tokens.len(), "leases were not renewed");
                client = None;
            }
            Err(_) => {
                tracing::warn!(
                    leases = tokens.len(),
                    "leases were not renewed: the database does not answer"
                );
                client = None;
            }
        }
        leases.lapse();
    }
}

/// Waits for work with the database. What lapses meanwhile by our own clock is lost, whether that answers or not.
async fn meanwhile<T>(leases: &Leases, every: &mut Interval, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = every.tick() => leases.lapse(),
        }
    }
}

async fn once(
    client: &Client,
    schema: Schema,
    tokens: &[Uuid],
    length: Duration,
) -> Result<Vec<Uuid>, Error> {
    let ms = i32::try_from(length.as_millis()).unwrap_or(i32::MAX);
    let rows = client
        .query_typed(
            &schema.text("select * from outlast._renew_all($1, $2)"),
            &[(&tokens, Type::UUID_ARRAY), (&ms, Type::INT4)],
        )
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
