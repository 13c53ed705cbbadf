//! Endpoints: handlers that are not functions of this process, such as a service behind HTTPS.
//!
//! An endpoint makes one attempt and says honestly what came of it. When it runs, how often, under which lease and what is
//! recorded is the engine's, the same as for a handler in Rust. `outlast-http` has the one for HTTPS.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use uuid::Uuid;

use crate::{
    Failure, Outcome,
    broker::{BoxFuture, Envelope},
};

/// Somebody outside who handles events.
///
/// ```
/// use outlast_core::{Failure, Outcome, broker::BoxFuture, endpoint::{Answer, Endpoint, Pushed}};
/// use std::time::Duration;
///
/// struct Printer;
///
/// impl Endpoint for Printer {
///     fn push<'a>(&'a self, event: &'a Pushed, _within: Duration) -> BoxFuture<'a, Result<Answer, Failure>> {
///         Box::pin(async move {
///             println!("{} {}: {} bytes", event.envelope.name, event.envelope.id, event.body.len());
///             Ok(Answer::Ended(Outcome::Done))
///         })
///     }
/// }
/// ```
pub trait Endpoint: Send + Sync + 'static {
    /// Hands one event over, once, and answers within this time.
    ///
    /// The same event may come again, with the same id and bytes, and another token and attempt: after a failure, and when
    /// this process died before it could record the answer.
    ///
    /// # Errors
    /// Why it was not handled. [`Failure::retry`] only when it certainly was not; what was sent and not answered is
    /// [`Failure::unknown`]. The reason is stored and shown to people: no secrets, no payloads.
    fn push<'a>(
        &'a self,
        event: &'a Pushed,
        within: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failure>>;
}

/// One attempt to hand one event over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pushed {
    /// The consumer that it is handed over for.
    pub consumer: Arc<str>,
    /// What the event is. Its id is the same at every attempt.
    pub envelope: Envelope,
    /// The payload, byte for byte; encoded if the envelope has a codec key.
    pub body: Bytes,
    /// The lease of this attempt: who knows it may complete the event.
    pub token: Uuid,
    /// Which attempt it is, from 1.
    pub attempt: u32,
}

impl Pushed {
    /// The first attempt to hand this event over.
    pub fn new(
        consumer: impl Into<Arc<str>>,
        envelope: Envelope,
        body: Bytes,
        token: Uuid,
    ) -> Self {
        let consumer = consumer.into();
        Self {
            consumer,
            envelope,
            body,
            token,
            attempt: 1,
        }
    }
}

/// What an endpoint said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// It is over; recorded by the engine.
    Ended(Outcome),
    /// It is accepted, and the endpoint completes it by itself, with the token. Until then the engine keeps the lease.
    Accepted,
}

impl<T: Endpoint + ?Sized> Endpoint for Arc<T> {
    fn push<'a>(
        &'a self,
        event: &'a Pushed,
        within: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        (**self).push(event, within)
    }
}

// Invariant: an endpoint is behind a pointer everywhere, so that it is no type parameter of anything.
const _: fn(&dyn Endpoint) = |_| ();
