//! What a handler gets: one try of one event or job, under a lease.

mod entity;
mod resolved;

pub(crate) use entity::Told;

use crate::{
    crash::{self, Point},
    handler::{Delivery, End, Received, SealState, around, seal},
    outlast::Outlast,
};
use bytes::Bytes;
use outlast_core::{
    Codec, CodecError, Command, Consumable, Entity, Failure, Job, Outcome, Payload, Unreadable,
    codec::{self, Decoding},
};
use outlast_postgres::{Error, tx::OwnedTx};
use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
    time::SystemTime,
};
use tokio::time::Instant;
use uuid::Uuid;

/// One try of one event or one job, under a lease. Derefs to the payload.
///
/// ```
/// # use outlast_engine::Attempt;
/// # use outlast_core::{Event, Failure};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)] struct BookingConfirmed { booking: i64 }
/// # impl Event for BookingConfirmed { const NAME: &'static str = "booking.confirmed"; }
/// # #[derive(Clone)] struct App;
/// async fn send_mail(_: App, e: Attempt<BookingConfirmed>) -> Result<(), Failure> {
///     println!("booking {}, try {}, the same id every time: {}", e.booking, e.number(), e.id());
///     Ok(())
/// }
/// ```
pub struct Attempt<T> {
    payload: T,
    delivery: Delivery,
    outlast: OnceLock<Outlast>,
    /// Of an entity, what its provider calls it.
    known: Option<entity::Known>,
}

impl<T> Deref for Attempt<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.payload
    }
}

impl<T> fmt::Debug for Attempt<T> {
    /// Ids only: payloads do not belong into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("id", &self.id())
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}

/// The reason in the inbox of an event whose key was destroyed.
pub(crate) const ERASED: &str = "erased";

/// Why there is no attempt.
#[derive(Debug)]
pub(crate) enum Unread {
    /// A failure like any other.
    Failed(Failure),
    /// Its key was destroyed, on purpose.
    Erased,
}

impl From<Unread> for End {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Failed(failure) => Self::Failed(failure),
            Unread::Erased => Self::Done(Outcome::skipped(ERASED)),
        }
    }
}

/// An event of any type, as it was emitted: for [`Consumer::on_raw`](crate::Consumer::on_raw).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Raw {
    /// Its type.
    pub name: String,
    /// The version that it was written as.
    pub version: u16,
    /// Of the bytes, such as `application/json`.
    pub content_type: String,
    /// The payload, byte for byte; encoded if there is a codec key.
    pub bytes: Bytes,
    /// The key that the payload is encoded with.
    pub codec_key: Option<String>,
}

impl Attempt<Raw> {
    /// Reads nothing.
    pub(crate) fn raw(delivery: Delivery) -> Self {
        let event = &delivery.event;
        Self {
            payload: Raw {
                name: event.name.clone(),
                version: event.version,
                content_type: event.content_type.clone(),
                bytes: event.payload.clone(),
                codec_key: event.codec_key.clone(),
            },
            delivery,
            outlast: OnceLock::new(),
            known: None,
        }
    }
}

/// How a payload is read: the newest version there is, and what makes it of older ones.
pub(crate) struct Shape<T> {
    newest: u16,
    upcast: fn(u16, serde_json::Value) -> Result<T, Unreadable>,
}

impl<T: Consumable> Shape<T> {
    pub(crate) fn of_event() -> Self {
        Self {
            newest: T::version(),
            upcast: T::upcast,
        }
    }
}

impl<T: Job> Shape<T> {
    pub(crate) fn of_job() -> Self {
        Self {
            newest: T::VERSION,
            upcast: <T as Job>::upcast,
        }
    }
}

impl<T: Command> Shape<T> {
    pub(crate) fn of_command() -> Self {
        Self {
            newest: T::VERSION,
            upcast: <T as Command>::upcast,
        }
    }
}

impl<T: Entity> Shape<T> {
    pub(crate) fn of_entity() -> Self {
        Self {
            newest: T::VERSION,
            upcast: <T as Entity>::upcast,
        }
    }
}

impl<C: Command> Attempt<C> {
    /// What to tell the provider, so that it knows the command again: a UUID out of tenant, name and key, the same in every try,
    /// after a replay, and when the command is given again after a restore.
    pub fn provider_key(&self) -> &str {
        let command = self.delivery.event.command.as_ref();
        command.map_or("", |command| &command.provider_key)
    }

    /// What the provider calls it, if it has said.
    pub fn reference(&self) -> Option<&str> {
        self.delivery.event.command.as_ref()?.reference.as_deref()
    }
}

impl<T: Payload> Attempt<T> {
    /// Decodes the payload, if it is encoded, and reads it. The user's own code runs here: its panics are failures.
    pub(crate) async fn open(mut delivery: Delivery, shape: Shape<T>) -> Result<Self, Unread> {
        // Of the end of a command only the command is encoded, as it was when it was given.
        let part = resolved::encoded(&delivery.event).map_err(Unread::Failed)?;
        let whole = part.as_ref().map_or(&*delivery.event, |part| &part.command);
        if let (Some(key), Some(codec)) = (&whole.codec_key, &delivery.codec) {
            let decoded = around::caught(decode(codec.as_ref(), whole, key)).await;
            let plain = match decoded.map_err(Unread::Failed)? {
                Ok(plain) => plain,
                Err(CodecError::Erased) => return Err(Unread::Erased),
                Err(why @ CodecError::Unavailable(_)) => {
                    return Err(Unread::Failed(Failure::retry(why)));
                }
                Err(why) => {
                    let reason = format_args!("unreadable: decode with key {key}: {why}");
                    return Err(Unread::Failed(Failure::permanent(reason)));
                }
            };
            let plain = match &part {
                Some(part) => part.with(&plain),
                None => plain,
            };
            let mut event = Received::clone(&delivery.event);
            (event.payload, event.codec_key) = (plain.into(), None);
            delivery.event = Arc::new(event);
        } else if let Some(part) = part {
            let mut event = Received::clone(&delivery.event);
            event.codec_key = part.command.codec_key;
            delivery.event = Arc::new(event);
        }
        around::catch(|| Self::read(delivery, &shape)).map_err(Unread::Failed)
    }

    /// Reads the payload. What cannot be read is permanent: the same bytes will not read tomorrow.
    pub(crate) fn read(delivery: Delivery, shape: &Shape<T>) -> Result<Self, Failure> {
        let event = &delivery.event;
        let unreadable = |why: &dyn fmt::Display| {
            Failure::permanent(format_args!(
                "unreadable: {} version {}: {why}",
                event.name, event.version
            ))
        };
        if event.content_type != "application/json" {
            return Err(unreadable(&format_args!(
                "content type {} is not read here",
                event.content_type
            )));
        }
        if let Some(key) = &event.codec_key {
            return Err(unreadable(&format_args!(
                "it is encrypted with key {key}, and this worker has no codec: give it the one that it was emitted with"
            )));
        }
        let is_secret = delivery.codec.is_some();
        let odd = |why: serde_json::Error| unreadable(&odd(&why, is_secret));
        let newest = shape.newest;
        let payload = if event.version == newest {
            serde_json::from_slice(&event.payload).map_err(odd)?
        } else if event.version < newest {
            let old = serde_json::from_slice(&event.payload).map_err(odd)?;
            (shape.upcast)(event.version, old).map_err(|why| unreadable(&why.reason()))?
        } else {
            // The loops let such events wait for a newer worker; one that gets here is no fault of the event.
            return Err(Failure::retry(format_args!(
                "{} version {} waits for a newer worker",
                event.name, event.version
            )));
        };
        Ok(Self {
            payload,
            delivery,
            outlast: OnceLock::new(),
            known: None,
        })
    }
}

/// Why JSON is not what it should be. The reason of a failure is stored, and serde's text may quote what it has read: that of what a
/// codec has decoded says only where.
fn odd(why: &serde_json::Error, is_secret: bool) -> String {
    match is_secret {
        true => format!(
            "not of the shape that the code has, at line {} column {} of its plain text",
            why.line(),
            why.column()
        ),
        false => why.to_string(),
    }
}

impl<T> Attempt<T> {
    /// The id of the event or job: the same for every try, after replay and after restore. Send it to a provider that knows
    /// idempotency keys.
    pub fn id(&self) -> Uuid {
        self.delivery.event.id
    }

    /// Which try this is, from 1: one more than the failures charged to it and, of an event, the times its batch was taken
    /// over, also where it had not started by then.
    pub fn number(&self) -> u32 {
        self.delivery.number
    }

    /// When this try should end. After a short grace it counts as failed, whatever it still does.
    pub fn deadline(&self) -> Instant {
        self.delivery.deadline
    }

    /// Resolves when this try should stop: its lease is lost, the deadline is over, or the worker drains.
    ///
    /// What it has not sealed by then, another try will do again.
    pub async fn lost(&self) {
        self.delivery.given_up().await;
    }

    /// The handle to emit and enqueue with from here: its tenant, actor, story and trace, and itself as the cause.
    pub fn outlast(&self) -> &Outlast {
        self.outlast.get_or_init(|| {
            Outlast::caused_by(&self.delivery.event, self.delivery.codec.clone())
                .of(self.delivery.schema)
        })
    }

    /// An id that is the same in every try, for work that leaves by another road than your transaction.
    ///
    /// It is the version 5 UUID of `name` in the namespace of [`Attempt::id`], so every language can compute it.
    pub fn child_id(&self, name: &str) -> Uuid {
        Uuid::new_v5(&self.id(), name.as_bytes())
    }

    /// Whose it is; empty where there is only one tenant.
    pub fn tenant(&self) -> &str {
        &self.delivery.event.tenant
    }

    /// What the event is about; of a job, its key.
    pub fn key(&self) -> Option<&str> {
        self.delivery.event.key.as_deref()
    }

    /// Its number within its key, from 1 and without holes, if its type has
    /// [`STRICT_KEY`](outlast_core::Event::STRICT_KEY). [`Stored`](outlast_core::Stored) compares it with what you have.
    pub fn key_seq(&self) -> Option<i64> {
        self.delivery.event.key_seq
    }

    /// The version of the thing it is about, if the application counts them.
    /// [`Stored`](outlast_core::Stored) compares it with what you have.
    pub fn aggregate_version(&self) -> Option<i64> {
        self.delivery.event.aggregate_version
    }

    /// The version that the payload was written as; older ones were read by `upcast`.
    pub fn version(&self) -> u16 {
        self.delivery.event.version
    }

    /// When it was emitted or enqueued, by the database's clock.
    pub fn emitted_at(&self) -> SystemTime {
        self.delivery.event.emitted_at
    }

    /// On whose behalf it was emitted or enqueued.
    pub fn actor(&self) -> Option<&str> {
        self.delivery.event.actor.as_deref()
    }

    /// The story that it belongs to: its correlation id, or its own id if it began one.
    pub fn correlation_id(&self) -> Uuid {
        self.delivery.event.correlation_id.unwrap_or(self.id())
    }

    /// The event that led to it, if another one did.
    pub fn causation_id(&self) -> Option<Uuid> {
        self.delivery.event.causation_id
    }

    /// The W3C trace context that it was emitted in; what [`Attempt::outlast`] emits goes on with it.
    pub fn traceparent(&self) -> Option<&str> {
        self.delivery.event.traceparent.as_deref()
    }

    /// A header that it was emitted with.
    pub fn header(&self, name: &str) -> Option<String> {
        let headers = self.delivery.event.headers.as_deref()?;
        let headers: serde_json::Value = serde_json::from_str(headers).ok()?;
        headers.get(name)?.as_str().map(str::to_owned)
    }

    /// The payload as it was emitted, byte for byte: for a digest, a signature, an archive.
    pub fn payload_bytes(&self) -> &[u8] {
        &self.delivery.event.payload
    }

    /// Completes this event or job in your own transaction and commits it: for handlers that first call out and then write.
    ///
    /// Takes the transaction, so that it can be neither forgotten nor used again. When it returns `Ok`, your rows and
    /// the completion are committed together. When it returns `Err`, nothing is, unless the class is *unknown*: then the
    /// connection broke while COMMIT was on its way, and Outlast finds out before anybody tries again.
    ///
    /// # Errors
    /// When the lease was lost meanwhile, or it was completed by another try, everything is rolled back.
    /// Return the failure as it is.
    pub async fn seal(&self, tx: impl OwnedTx) -> Result<Sealed, Failure> {
        let state = &self.delivery.seal;
        if !state.is_open() {
            rollback(tx).await;
            return Err(Failure::permanent(
                "seal: this is sealed already, or will be by on_tx or on_batch",
            ));
        }
        let mut tx = tx;
        let xid =
            match seal::one(&mut tx, &self.delivery, &outlast_core::Outcome::Done, false).await {
                Ok(xid) => xid,
                Err(error) => {
                    rollback(tx).await;
                    let failure = seal::failure(&error);
                    if seal::is_refusal(&error) {
                        state.set(SealState::Refused(error));
                    }
                    return Err(failure);
                }
            };
        // Set first: a future that is dropped inside the commit leaves the truth behind.
        state.set(SealState::Unsure(xid));
        match tx.commit().await {
            Ok(()) => {
                crash::at(Point::Committed);
                state.set(SealState::Sealed);
                Ok(Sealed(()))
            }
            Err(error) => {
                if !matches!(error, Error::CommitUnknown(_)) {
                    state.set(SealState::Open);
                }
                Err(seal::failure(&error))
            }
        }
    }
}

/// The plain bytes of an encoded event.
pub(crate) async fn decode(
    codec: &dyn Codec,
    event: &Received,
    key: &str,
) -> Result<Result<Vec<u8>, CodecError>, Failure> {
    let about = codec::About::new(
        &event.name,
        event.version,
        &event.tenant,
        event.key.as_deref(),
    );
    let decoding: Decoding<'_> = codec.decode(&about, key, &event.payload);
    Ok(decoding.await)
}

async fn rollback(tx: impl OwnedTx) {
    if let Err(error) = tx.rollback().await {
        tracing::debug!(%error, "the server undoes what could not be rolled back by hand");
    }
}

/// The proof that [`Attempt::seal`] committed. A handler returns it as its `Ok`.
#[derive(Debug)]
#[must_use = "return it: it tells that this event is complete"]
pub struct Sealed(());

impl From<Sealed> for outlast_core::Outcome {
    fn from(_: Sealed) -> Self {
        Self::Done
    }
}
