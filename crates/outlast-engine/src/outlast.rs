//! The handle an application emits with. No connection, no I/O: it only knows whose and who.
//!
//! The statement behind it is `outlast_postgres::event`; what handles the events is `consumer` and `worker`. Jobs by the
//! same handle: `enqueue`.

use crate::{
    attempt::Attempt,
    crash::{self, Point},
    handler::Received,
    run::wake,
    worker::Worker,
};
use outlast_core::{Codec, Event, codec};
use outlast_postgres::{
    Error,
    connect::{self, Target},
    event::{self, Accepted, Body, Envelope, Envelopes, Landed},
    migrate::{self, Migrated},
    schema::Schema,
    tx::{BoxFuture, Pool, Tx},
};
use std::{borrow::Cow, collections::BTreeMap, fmt, future::IntoFuture, sync::Arc};
use uuid::Uuid;

/// Writes intents in your transaction. Cheap to clone, no connection, no I/O: a constant will do.
///
/// ```no_run
/// # use outlast_engine::Outlast;
/// # use outlast_core::Event;
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)] struct BookingConfirmed { booking: i64 }
/// # impl Event for BookingConfirmed { const NAME: &'static str = "booking.confirmed"; }
/// const OUTLAST: Outlast = Outlast::new();
///
/// # async fn f(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tx = client.transaction().await?;
/// tx.execute("update booking set confirmed = true where id = 7", &[]).await?;
/// OUTLAST.emit(&mut tx, &BookingConfirmed { booking: 7 }).await?;
/// tx.commit().await?;                       // both are there now, or neither
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Outlast {
    /// Or what is wrong with the name.
    schema: Result<Schema, Arc<str>>,
    pub(crate) tenant: Cow<'static, str>,
    pub(crate) actor: Option<Arc<str>>,
    correlation: Option<Uuid>,
    causation: Option<Uuid>,
    traceparent: Option<Arc<str>>,
    pub(crate) codec: Option<Arc<dyn Codec>>,
}

impl fmt::Debug for Outlast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlast")
            .field("tenant", &self.tenant)
            .field("actor", &self.actor)
            .field("correlation", &self.correlation)
            .field("causation", &self.causation)
            .field("traceparent", &self.traceparent)
            .field("codec", &self.codec.is_some())
            .finish()
    }
}

impl PartialEq for Outlast {
    fn eq(&self, other: &Self) -> bool {
        let codec = |one: &Self| one.codec.as_ref().map(Arc::as_ptr);
        let words = |one: &Self| {
            (
                one.tenant.clone(),
                one.actor.clone(),
                one.traceparent.clone(),
            )
        };
        let ids = |one: &Self| (one.correlation, one.causation);
        let same = match (codec(self), codec(other)) {
            (Some(one), Some(another)) => std::ptr::addr_eq(one, another),
            (None, None) => true,
            _ => false,
        };
        same && words(self) == words(other) && ids(self) == ids(other)
    }
}

impl Eq for Outlast {}

impl Default for Outlast {
    fn default() -> Self {
        Self::new()
    }
}

impl Outlast {
    /// A handle for an application with one tenant, no known actor and no cause.
    pub const fn new() -> Self {
        Self {
            schema: Ok(Schema::DEFAULT),
            tenant: Cow::Borrowed(""),
            actor: None,
            correlation: None,
            causation: None,
            traceparent: None,
            codec: None,
        }
    }

    /// The handle inside a handler: its tenant, actor and trace, and itself as the cause.
    pub(crate) fn caused_by(event: &Received, codec: Option<Arc<dyn Codec>>) -> Self {
        Self {
            schema: Ok(Schema::DEFAULT),
            tenant: event.tenant.clone().into(),
            actor: event.actor.as_deref().map(Into::into),
            correlation: event.correlation_id.or(Some(event.id)),
            causation: Some(event.id),
            traceparent: event.traceparent.as_deref().map(Into::into),
            codec,
        }
    }

    /// The same, with payloads encoded before they are stored; a worker made from it decodes them.
    ///
    /// ```
    /// # use outlast_core::{Codec, CodecError, codec::{About, Decoding, Encoded}};
    /// # use outlast_engine::Outlast;
    /// # use std::sync::Arc;
    /// # struct PerTenant;
    /// # impl Codec for PerTenant {
    /// #     fn encode(&self, about: &About<'_>, plain: &[u8]) -> Result<Option<Encoded>, CodecError> { Ok(None) }
    /// #     fn decode<'a>(&'a self, _: &'a About<'a>, _: &'a str, _: &'a [u8]) -> Decoding<'a> {
    /// #         Box::pin(std::future::ready(Err(CodecError::Erased)))
    /// #     }
    /// # }
    /// let outlast = Outlast::new().codec(Arc::new(PerTenant));
    /// let worker = outlast.worker(());          // what it hands to handlers is plain
    /// ```
    pub fn codec(&self, codec: Arc<dyn Codec>) -> Self {
        Self {
            codec: Some(codec),
            ..self.clone()
        }
    }

    /// The same, in another schema than `outlast`: the one that `outlast migrate --schema` was given. Two schemas in one
    /// database are two installations that share nothing.
    ///
    /// Give it a name of your code or configuration; what is wrong with it is told by whatever is done with the handle.
    pub fn schema(&self, name: &str) -> Self {
        Self {
            schema: Schema::named(name).map_err(|error| match error {
                Error::Config(why) => why.into(),
                other => other.to_string().into(),
            }),
            ..self.clone()
        }
    }

    /// The same, in a schema that is known to be right.
    pub(crate) fn of(self, schema: Schema) -> Self {
        Self {
            schema: Ok(schema),
            ..self
        }
    }

    pub(crate) fn in_schema(&self) -> Result<Schema, Error> {
        self.schema
            .clone()
            .map_err(|why| Error::Config(why.to_string()))
    }

    /// The same, for one tenant. Tenants never see each other's keys.
    pub fn tenant(&self, tenant: &str) -> Self {
        Self {
            tenant: tenant.to_owned().into(),
            ..self.clone()
        }
    }

    /// The same, on behalf of an authenticated user or system. It is stored with the intent and shown in the audit.
    pub fn actor(&self, actor: &str) -> Self {
        Self {
            actor: Some(actor.into()),
            ..self.clone()
        }
    }

    /// The same, as part of something larger: everything with one correlation id is one story in `outlast trace`.
    pub fn correlation(&self, id: Uuid) -> Self {
        Self {
            correlation: Some(id),
            ..self.clone()
        }
    }

    /// The same, with a W3C `traceparent`, so that a trace goes on through the event and what its handlers emit.
    ///
    /// What is none is dropped, as the recommendation says: no business fails for a trace. See
    /// [`is_traceparent`](outlast_core::trace::is_traceparent).
    pub fn traceparent(&self, traceparent: &str) -> Self {
        let valid = outlast_core::trace::is_traceparent(traceparent);
        if !valid {
            tracing::debug!("what was given as a traceparent is none and was dropped");
        }
        Self {
            traceparent: valid.then(|| traceparent.into()),
            ..self.clone()
        }
    }

    /// Emits an event in your transaction.
    ///
    /// Nothing is written before `.await`. When that returns, the event is a row of your transaction: durable when it
    /// commits, gone when it does not, also if this process dies in between. It is handed to every consumer of its type
    /// at least once, always with the same id and the same bytes.
    ///
    /// # Errors
    /// Bad input and a conflict of dedup keys leave your transaction usable, with nothing written.
    /// After [`Error::Database`] PostgreSQL takes only a rollback.
    pub fn emit<'a, E: Event>(&'a self, tx: &'a mut dyn Tx, event: &'a E) -> Emit<'a, E> {
        Emit {
            outlast: self,
            tx,
            event,
            dedup: None,
            headers: BTreeMap::new(),
            cause: None,
            id: None,
        }
    }

    /// Emits many events of one type in your transaction, in this order: one statement for each thousand.
    ///
    /// What is committed, and when, is as for [`Outlast::emit`]. Bad input in any of them is found before the first is
    /// written.
    pub async fn emit_all<E: Event>(
        &self,
        tx: &mut dyn Tx,
        events: &[E],
    ) -> Result<Vec<Accepted>, Error> {
        // The statement for many has no place for it, and to leave it out silently would lose it.
        if E::STRICT_KEY
            || self.codec.is_some()
            || events
                .iter()
                .any(|event| event.aggregate_version().is_some())
        {
            let mut accepted = Vec::with_capacity(events.len());
            for event in events {
                accepted.push(self.emit(&mut *tx, event).await?);
            }
            return Ok(accepted);
        }
        check_name::<E>()?;
        let json = |event: &E| Ok((to_json(event)?, event.key()));
        let envelopes = Envelopes {
            schema: self.in_schema()?,
            name: E::NAME,
            version: E::VERSION,
            events: events.iter().map(json).collect::<Result<_, Error>>()?,
            tenant: &self.tenant,
            source: None,
            actor: self.actor.as_deref(),
            correlation_id: self.correlation,
            causation_id: self.causation,
            traceparent: self.traceparent.as_deref(),
        };
        let accepted = event::emit_all(tx, &envelopes).await;
        wake::nudge();
        accepted
    }

    /// Whether an intent is there, after your own COMMIT was not answered.
    ///
    /// Waits until the transaction that wrote it has ended, because a COMMIT may still be on its way; then the answer is
    /// final. On [`Landed::NotLanded`] do the whole business transaction again. Writes nothing; drop it to stop waiting.
    ///
    /// ```no_run
    /// # use outlast_engine::Outlast;
    /// # use outlast_postgres::{Error, event::{Accepted, Landed}};
    /// # async fn f(outlast: Outlast, pool: deadpool_postgres::Pool, accepted: Accepted) -> Result<(), Error> {
    /// match outlast.landed(&pool, &accepted).await? {
    ///     Landed::Landed => println!("it was committed"),
    ///     Landed::NotLanded => println!("it was not, and never will be: again"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the database cannot be asked; then nothing is known yet.
    pub async fn landed(&self, pool: &impl Pool, accepted: &Accepted) -> Result<Landed, Error> {
        event::landed(pool, self.in_schema()?, accepted).await
    }

    /// Starts the table of contents of a process that handles events. `state` is what every handler gets, by value.
    pub fn worker<S: Clone + Send + Sync + 'static>(&self, state: S) -> Worker<S> {
        let worker = Worker::new(self.schema.clone(), state);
        match &self.codec {
            Some(codec) => worker.codec(codec.clone()),
            None => worker,
        }
    }

    /// Brings the schema of a database up to this program: what `outlast migrate` does.
    ///
    /// Each step is durable when it is done; two at once are safe, and one that was killed goes on where it stopped. Call
    /// it from a deploy step, not from every process: the role needs the right to create a schema.
    ///
    /// ```no_run
    /// # use outlast_engine::Outlast;
    /// # async fn f() -> Result<(), outlast_postgres::Error> {
    /// let done = Outlast::new().schema("billing").migrate("postgres://app@localhost/shop").await?;
    /// println!("schema {} → {}", done.from, done.to);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Connect`]; [`Error::NewerSchema`] when a newer program was here, with nothing changed.
    pub async fn migrate(&self, url: &str) -> Result<Migrated, Error> {
        let schema = self.in_schema()?;
        let (mut client, _driver) = connect::connect(&Target::parse(url)?).await?;
        migrate::of(schema).run(&mut client, |_| {}).await
    }
}

/// An event about to be emitted: say more about it, then `.await`.
#[must_use = "nothing is written until this is awaited"]
pub struct Emit<'a, E> {
    outlast: &'a Outlast,
    tx: &'a mut dyn Tx,
    event: &'a E,
    dedup: Option<String>,
    headers: BTreeMap<String, String>,
    cause: Option<Cause>,
    id: Option<Uuid>,
}

/// What led to an intent, the story of both, and the trace.
pub(crate) struct Cause {
    id: Uuid,
    story: Uuid,
    traceparent: Option<String>,
}

impl Cause {
    pub(crate) fn of<T>(attempt: &Attempt<T>) -> Self {
        Self {
            id: attempt.id(),
            story: attempt.correlation_id(),
            traceparent: attempt.traceparent().map(str::to_owned),
        }
    }
}

/// What stands beside an intent about where it comes from.
pub(crate) struct Origin<'a> {
    pub(crate) causation: Option<Uuid>,
    pub(crate) correlation: Option<Uuid>,
    pub(crate) traceparent: Option<&'a str>,
}

impl Outlast {
    /// What the intent says of its cause, else what the handle does.
    pub(crate) fn cause<'a>(&'a self, named: Option<&'a Cause>) -> Origin<'a> {
        // The handle's own trace is the younger span.
        let ours = self.traceparent.as_deref();
        match named {
            Some(cause) => Origin {
                causation: Some(cause.id),
                correlation: Some(cause.story),
                traceparent: ours.or(cause.traceparent.as_deref()),
            },
            None => Origin {
                causation: self.causation,
                correlation: self.correlation,
                traceparent: ours,
            },
        }
    }
}

/// What is stored instead of a payload, and what tells its content from another where that is asked.
pub(crate) struct Encoded {
    pub(crate) key: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: Option<Vec<u8>>,
}

impl Encoded {
    /// What a codec makes of a payload, if it makes anything of it. `compared`: it is told from others by its content.
    pub(crate) fn of(
        codec: &dyn Codec,
        about: &codec::About<'_>,
        json: &str,
        compared: bool,
    ) -> Result<Option<Self>, Error> {
        let failed = |why| Error::Codec {
            name: about.name.to_owned(),
            why,
        };
        let Some(encoded) = codec.encode(about, json.as_bytes()).map_err(failed)? else {
            return Ok(None);
        };
        let digest = compared.then(|| codec.digest(about, json.as_bytes()));
        Ok(Some(Self {
            key: encoded.key,
            bytes: encoded.bytes,
            digest: digest.transpose().map_err(failed)?,
        }))
    }
}

impl<E> fmt::Debug for Emit<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emit")
            .field("dedup", &self.dedup)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl<E> Emit<'_, E> {
    /// Makes it the same intent as any other of this tenant, type and key within 30 days: written once.
    ///
    /// The answer's `new` is false if it was there already; other content under the same key is [`Error::Conflict`].
    /// While another transaction holds the same key, this waits for its end. In REPEATABLE READ and SERIALIZABLE a key that
    /// committed meanwhile is a serialization failure (40001): run your transaction again.
    pub fn dedup(mut self, key: impl Into<String>) -> Self {
        self.dedup = Some(key.into());
        self
    }

    /// Adds a header: a string beside the payload, for those who route without reading it.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Names the event that led to this one. `attempt.outlast().emit(..)` does it by itself.
    pub fn caused_by<T>(mut self, attempt: &Attempt<T>) -> Self {
        self.cause = Some(Cause::of(attempt));
        self
    }

    /// Gives it an id of yours: a version 7 UUID of the last days. The same id again is the same event.
    pub fn id(mut self, id: Uuid) -> Self {
        self.id = Some(id);
        self
    }
}

impl<E: Event> Emit<'_, E> {
    async fn write(self) -> Result<Accepted, Error> {
        check_name::<E>()?;
        let json = to_json(self.event)?;
        let key = self.event.key();
        let headers = (!self.headers.is_empty())
            .then(|| to_json(&self.headers))
            .transpose()?;
        let cause = self.outlast.cause(self.cause.as_ref());
        let encoded = self.encode(&json, key.as_deref())?;
        let body = match &encoded {
            Some(encoded) => Body::Bytes {
                bytes: &encoded.bytes,
                content_type: "application/json",
            },
            None => Body::Json(&json),
        };
        let envelope = Envelope {
            schema: self.outlast.in_schema()?,
            codec_key: encoded.as_ref().map(|encoded| encoded.key.as_str()),
            digest: encoded
                .as_ref()
                .and_then(|encoded| encoded.digest.as_deref()),
            key: key.as_deref(),
            tenant: &self.outlast.tenant,
            dedup: self.dedup.as_deref(),
            id: self.id,
            aggregate_version: self.event.aggregate_version(),
            strict_key: E::STRICT_KEY,
            actor: self.outlast.actor.as_deref(),
            correlation_id: cause.correlation,
            causation_id: cause.causation,
            traceparent: cause.traceparent,
            headers: headers.as_deref(),
            ..Envelope::new(E::NAME, E::VERSION, body)
        };
        let accepted = event::emit(self.tx, &envelope).await;
        crash::at(Point::Emitted);
        wake::nudge();
        accepted
    }
}

impl<E: Event> Emit<'_, E> {
    /// What the codec makes of the payload, if it makes anything of it.
    fn encode(&self, json: &str, key: Option<&str>) -> Result<Option<Encoded>, Error> {
        let Some(codec) = &self.outlast.codec else {
            return Ok(None);
        };
        // What no reader could be trusted with is found before it cannot be seen any more.
        event::check_json(E::NAME, json)?;
        let about = codec::About::new(E::NAME, E::VERSION, &self.outlast.tenant, key);
        let compared = self.dedup.is_some() || self.id.is_some();
        Encoded::of(codec.as_ref(), &about, json, compared)
    }
}

impl<'a, E: Event> IntoFuture for Emit<'a, E> {
    type Output = Result<Accepted, Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.write())
    }
}

fn check_name<E: Event>() -> Result<(), Error> {
    outlast_core::name::check_event(E::NAME).map_err(|bad| Error::BadName(bad.to_string()))
}

pub(crate) fn to_json<T: serde::Serialize>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|error| Error::BadPayload(format!("this value cannot be JSON: {error}")))
}

// Invariant: what a user awaits in a handler or spawns can move between threads.
const _: fn() = || {
    fn sendable<T: Send>(_: T) {}
    fn emitting<E: Event>(outlast: &Outlast, tx: &mut dyn Tx, event: &E) {
        sendable(outlast.emit(tx, event).into_future());
    }
    fn emitting_all<E: Event>(outlast: &Outlast, tx: &mut dyn Tx, events: &[E]) {
        sendable(outlast.emit_all(tx, events));
    }
    let _ = (
        emitting::<crate::handler::Never>,
        emitting_all::<crate::handler::Never>,
    );
};
