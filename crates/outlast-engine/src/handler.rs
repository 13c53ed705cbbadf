//! Handlers without their types: what the loops drive.
//!
//! Each try runs in a task of its own, so that a panic ends only the try, a deadline only stops waiting for it, and no
//! future is ever dropped inside BEGIN or COMMIT. A try ends in an [`End`], which says what is durable; the loops decide
//! what follows. Nothing here looks at leases or due times.

pub(crate) mod around;
mod batch;
mod command;
mod effect;
mod endpoint;
mod entity;
mod job;
pub(crate) mod publish;
pub(crate) mod seal;
mod tx;

#[cfg(test)]
mod tests;

pub(crate) use around::Around;
pub use around::{About, Running};
pub(crate) use batch::BatchHandler;
pub(crate) use command::{CommandHandler, Commands};
pub(crate) use effect::{EffectHandler, RawHandler};
pub(crate) use endpoint::EndpointHandler;
pub(crate) use entity::EntityHandler;
pub(crate) use job::JobHandler;
pub(crate) use seal::{Seal, SealState};
pub(crate) use tx::{Through, TxHandler};

use crate::run::{accepted::Accepted, keep::Keeper};
use bytes::Bytes;
use outlast_core::{Codec, Failure, Outcome, broker::Envelope};
use outlast_postgres::{
    Error,
    schema::Schema,
    store::{CommandTry, EntityTry, Store, Tombstone, entity_of, of_queue},
    tx::BoxFuture,
};
use std::{
    borrow::Cow,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// An event as the log holds it.
#[derive(Clone)]
pub(crate) struct Received {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) version: u16,
    pub(crate) source: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) tenant: String,
    pub(crate) key: Option<String>,
    pub(crate) key_seq: Option<i64>,
    pub(crate) aggregate_version: Option<i64>,
    pub(crate) actor: Option<String>,
    pub(crate) correlation_id: Option<Uuid>,
    pub(crate) causation_id: Option<Uuid>,
    pub(crate) traceparent: Option<String>,
    /// A JSON object of strings.
    pub(crate) headers: Option<String>,
    pub(crate) content_type: String,
    pub(crate) codec_key: Option<String>,
    pub(crate) payload: Bytes,
    pub(crate) emitted_at: SystemTime,
    /// Of a command: what its provider knows it by.
    pub(crate) command: Option<CommandTry>,
    /// Of an entity: what is known of it at its provider.
    pub(crate) entity: Option<EntityTry>,
}

impl Received {
    /// What it is without its payload, as it leaves.
    pub(crate) fn envelope(&self) -> Envelope {
        let mut envelope = Envelope::new(self.id, self.name.as_str(), self.emitted_at);
        envelope.version = self.version;
        envelope.tenant.clone_from(&self.tenant);
        envelope.key.clone_from(&self.key);
        envelope.key_seq = self.key_seq;
        envelope.aggregate_version = self.aggregate_version;
        envelope.source.clone_from(&self.source);
        envelope.subject.clone_from(&self.subject);
        envelope.actor.clone_from(&self.actor);
        envelope.correlation_id = self.correlation_id;
        envelope.causation_id = self.causation_id;
        envelope.traceparent.clone_from(&self.traceparent);
        envelope.content_type.clone_from(&self.content_type);
        envelope.codec_key.clone_from(&self.codec_key);
        // They were checked when they were emitted: strings only.
        let headers = self.headers.as_deref().map(serde_json::from_str);
        envelope.headers = headers.and_then(Result::ok).unwrap_or_default();
        envelope
    }
}

/// One try of one event: what the log holds, and what is true of this try only. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Delivery {
    pub(crate) event: Arc<Received>,
    /// Where the event is, and its completion will be.
    pub(crate) schema: Schema,
    /// What kind of work it is.
    pub(crate) kind: Kind,
    /// The lease that it runs under.
    pub(crate) token: Uuid,
    /// Which try it is, from 1.
    pub(crate) number: u32,
    pub(crate) deadline: Instant,
    /// Cancelled when the lease is lost or the worker drains.
    pub(crate) lost: CancellationToken,
    /// How far the completion of this try got. A new one for each try.
    pub(crate) seal: Seal,
    /// What decodes its payload.
    pub(crate) codec: Option<Arc<dyn Codec>>,
    /// Keeps what a provider calls it, of an entity.
    pub(crate) keeper: Option<Keeper>,
    /// The deletion after which this run cleans up, of an entity.
    pub(crate) tombstone: Option<Tombstone>,
}

impl Delivery {
    pub(crate) fn new(
        event: Arc<Received>,
        token: Uuid,
        number: u32,
        deadline: Instant,
        lost: CancellationToken,
    ) -> Self {
        Self {
            event,
            schema: Schema::DEFAULT,
            kind: Kind::Consumer,
            token,
            number,
            deadline,
            lost,
            seal: Seal::default(),
            codec: None,
            keeper: None,
            tombstone: None,
        }
    }

    /// The same, in another schema.
    pub(crate) fn in_schema(mut self, schema: Schema) -> Self {
        self.schema = schema;
        self
    }

    /// The same, of this kind.
    pub(crate) fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// With what decodes its payload.
    pub(crate) fn decoded_by(self, codec: Option<Arc<dyn Codec>>) -> Self {
        Self { codec, ..self }
    }

    /// With what keeps what a provider calls it.
    pub(crate) fn kept_by(self, keeper: Option<Keeper>) -> Self {
        Self { keeper, ..self }
    }

    /// Resolves when the try should stop: lease lost, deadline over, or draining.
    pub(crate) async fn given_up(&self) {
        tokio::select! {
            () = self.lost.cancelled() => {}
            () = tokio::time::sleep_until(self.deadline) => {}
        }
    }
}

/// How a try ended, and what is durable.
#[derive(Debug)]
#[must_use]
pub(crate) enum End {
    /// The handler returned; its event is to be sealed by the next flush.
    Done(Outcome),
    /// Sealed by a commit that was answered.
    Sealed(Outcome),
    /// Nothing was committed by this try.
    Failed(Failure),
    /// The seal was refused (lease lost, sealed or given to a later try, stopped): rolled back, somebody newer owns it.
    Refused(Error),
    /// COMMIT was not answered. Look for the seal once this transaction has ended.
    Unsure { xid: Option<u64> },
    /// It did not start, because no transaction could be begun. Not an attempt.
    NoTransaction(Error),
    /// It did not start before its lease was lost, its deadline over, or the worker drained. Not an attempt.
    NotStarted,
}

/// How a batch ended. Some events fail one by one; the others share one end.
#[derive(Debug)]
pub(crate) struct BatchEnd {
    /// What could not be read, or was refused.
    pub(crate) failed: Vec<(Uuid, Failure)>,
    /// Their keys were destroyed: nothing is left to handle.
    pub(crate) erased: Vec<Uuid>,
    pub(crate) ids: Vec<Uuid>,
    pub(crate) end: End,
    /// What nothing is recorded of: it is given back.
    pub(crate) left: Option<Left>,
}

/// Events of a batch that are given back without a charge.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Those that were tried: with each, the destination is that much nearer to counting as down.
    pub(crate) tried: Vec<(Uuid, Failure)>,
    /// The destination has said itself that it takes nothing: no more of them need to fail.
    pub(crate) refused: bool,
    /// The destination was not reached at all, and nothing came of the call.
    pub(crate) unreached: bool,
}

impl BatchEnd {
    /// All of these events have this end.
    pub(crate) fn all(ids: Vec<Uuid>, end: End) -> Self {
        Self {
            failed: Vec::new(),
            erased: Vec::new(),
            ids,
            end,
            left: None,
        }
    }
}

/// What runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A consumer, for its events.
    Consumer,
    /// A job.
    Job,
    /// A command.
    Command,
    /// An entity.
    Entity,
}

impl Kind {
    /// Of what is claimed under this name, and its own name.
    pub(crate) fn of_queue(queue: &str) -> (Self, &str) {
        match (entity_of(queue), of_queue(queue)) {
            (Some(name), _) => (Self::Entity, name),
            (None, (name, true)) => (Self::Command, name),
            (None, (name, false)) => (Self::Job, name),
        }
    }

    /// The word for people.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Consumer => "consumer",
            Self::Job => "job",
            Self::Command => "command",
            Self::Entity => "entity",
        }
    }
}

/// What all tries of a consumer, or of the jobs of a name, share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) kind: Kind,
    /// The name of the consumer, or of the job.
    pub(crate) consumer: Arc<str>,
    /// The order of each key is kept.
    pub(crate) ordered: bool,
    pub(crate) around: Option<Around>,
    pub(crate) codec: Option<Arc<dyn Codec>>,
    /// Looks for what endpoints complete by themselves.
    pub(crate) accepted: Option<Accepted>,
    /// Where what providers answer is recorded, of commands.
    pub(crate) provider: Option<Provider>,
}

/// Where the answers of a provider are recorded, and how often it is asked while a command is pending.
#[derive(Clone)]
pub(crate) struct Provider {
    pub(crate) store: Store,
    pub(crate) every: Option<Duration>,
}

/// Handles one event, or one job, at a time.
pub(crate) trait One<S>: Send + Sync {
    fn start(self: Arc<Self>, context: Context, state: S, delivery: Delivery) -> JoinHandle<End>;

    /// Whether somebody outside of this process may record how an event ended, also that it failed.
    fn is_outside(&self) -> bool {
        false
    }
}

/// Handles many events in one transaction; also one, when a batch failed and is run again event by event.
pub(crate) trait Many<S>: Send + Sync {
    fn start(
        self: Arc<Self>,
        context: Context,
        state: S,
        deliveries: Vec<Delivery>,
    ) -> JoinHandle<BatchEnd>;
}

/// Asks something through the user's own pool: which database it leads to.
pub(crate) trait Probe: Send + Sync {
    /// The first row's columns, in a transaction that is rolled back.
    fn ask(&self, sql: &'static str) -> BoxFuture<'static, Result<Vec<Option<String>>, Error>>;
}

/// A handler for one event type, in one of three forms.
pub(crate) enum Form<S> {
    /// Outside effects: may run twice; sealed by the engine afterwards.
    Effect(Arc<dyn One<S>>),
    /// What is done with a command; it records by itself.
    Command(Arc<Commands<S>>),
    /// One event in one transaction of the user's pool.
    Tx(Arc<dyn One<S>>, Arc<dyn Probe>),
    /// Many events in one transaction of the user's pool.
    Batch(Arc<dyn Many<S>>, Arc<dyn Probe>),
    /// Many events to a broker; sealed by the engine afterwards.
    Publish(Arc<publish::Publisher>),
}

impl<S> Clone for Form<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Effect(one) => Self::Effect(one.clone()),
            Self::Command(all) => Self::Command(all.clone()),
            Self::Tx(one, probe) => Self::Tx(one.clone(), probe.clone()),
            Self::Batch(many, probe) => Self::Batch(many.clone(), probe.clone()),
            Self::Publish(publisher) => Self::Publish(publisher.clone()),
        }
    }
}

/// A handler and what it takes.
pub(crate) struct Handler<S> {
    /// The event type.
    pub(crate) name: Cow<'static, str>,
    /// The newest version that it can read; newer ones wait for a newer worker.
    pub(crate) version: u16,
    pub(crate) form: Form<S>,
}

impl<S> Handler<S> {
    /// Whether somebody outside of this process may record how an event ended, also that it failed.
    pub(crate) fn is_outside(&self) -> bool {
        matches!(&self.form, Form::Effect(one) if one.is_outside())
    }

    /// The pool that it writes through, if it has one.
    pub(crate) fn probe(&self) -> Option<&Arc<dyn Probe>> {
        match &self.form {
            Form::Effect(_) | Form::Command(_) | Form::Publish(_) => None,
            Form::Tx(_, probe) | Form::Batch(_, probe) => Some(probe),
        }
    }
}

impl<S> fmt::Debug for Handler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self.form {
            Form::Effect(_) => "on",
            Form::Command(_) => "command",
            Form::Tx(..) => "on_tx",
            Form::Batch(..) => "on_batch",
            Form::Publish(_) => "publish",
        };
        write!(f, "{form} {} ≤ {}", self.name, self.version)
    }
}

/// An event type for checks that need one; never emitted.
#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct Never;
impl outlast_core::Event for Never {
    const NAME: &'static str = "never";
}
