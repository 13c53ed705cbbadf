//! Consumers: named, independent readers of events, and the functions that handle them.

use crate::{
    attempt::{Attempt, Raw},
    handler::{
        BatchHandler, EffectHandler, EndpointHandler, Form, Handler, RawHandler, Through, TxHandler,
    },
};
use outlast_core::{
    Consumable, Failure, Outcome, Start,
    broker::{Broker, Subscription},
    endpoint::Endpoint,
};
use outlast_postgres::{store::Reads, tx::Pool};
use std::{fmt, future::Future, sync::Arc, time::Duration};

/// A named, independent reader of events: each consumer completes each event of its types once.
///
/// The name is its identity in the database: two processes with the same name share the work, and one that is renamed
/// in the code alone is a new one, which begins where its [`Start`] says (`outlast consumers rename` keeps it one). A handler is a plain `async fn`; the type of its argument says
/// which events it takes.
///
/// ```
/// # use outlast_engine::{Attempt, Consumer};
/// # use outlast_core::{Event, Failure};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)] struct BookingConfirmed { booking: i64 }
/// # impl Event for BookingConfirmed { const NAME: &'static str = "booking.confirmed"; }
/// # #[derive(Clone)] struct App;
/// async fn send_mail(app: App, e: Attempt<BookingConfirmed>) -> Result<(), Failure> { Ok(()) }
///
/// let mailer = Consumer::new("mailer").owner("support").concurrency(20).on(send_mail);
/// ```
#[must_use = "pass it to `Worker::consumer`"]
pub struct Consumer<S> {
    pub(crate) name: String,
    pub(crate) start: Start,
    pub(crate) owner: Option<String>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) optional: bool,
    pub(crate) ordered: bool,
    pub(crate) lanes: usize,
    pub(crate) tenants: Vec<String>,
    pub(crate) sources: Vec<String>,
    pub(crate) handlers: Vec<Handler<S>>,
    /// What it reads instead of the log.
    pub(crate) source: Option<Source>,
}

/// A broker, and whose messages of it.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) subscription: Subscription,
    /// A fault for our own proofs: acks before anything is committed.
    pub(crate) acks_first: bool,
}

impl Source {
    /// For a consumer that keeps the order of each key, or does not.
    pub(crate) fn of(mut self, ordered: bool) -> Self {
        self.subscription.ordered |= ordered;
        self
    }

    /// As it is registered.
    pub(crate) fn reads(&self) -> Reads {
        Reads {
            broker: self.broker.kind().to_owned(),
            topic: self.subscription.topic.clone(),
            subscription: self.subscription.name.clone(),
            ack_within: self.subscription.ack_within,
        }
    }
}

impl<S> fmt::Debug for Consumer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("name", &self.name)
            .field("handlers", &self.handlers)
            .finish_non_exhaustive()
    }
}

impl<S: Clone + Send + Sync + 'static> Consumer<S> {
    /// A consumer of this name, without handlers yet. The name is 1–100 of `a-z 0-9 . _ / -`.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            start: Start::Now,
            owner: None,
            concurrency: None,
            deadline: None,
            optional: false,
            ordered: false,
            lanes: 16,
            tenants: Vec::new(),
            sources: Vec::new(),
            handlers: Vec::new(),
            source: None,
        }
    }

    /// Reads a broker instead of the log: the same handlers, and every promise of them holds.
    ///
    /// A message is settled there only when what became of it is committed in the worker's database: its completion, or, if
    /// it failed, a whole copy, which is retried from there. So the broker's own retry policy never counts, an event
    /// that comes twice, also under another message id, is handled once, and what no worker survives becomes an incident.
    /// The events may have been emitted in another database.
    ///
    /// Where a subscription begins is the broker's: [`Consumer::from`] changes nothing. It is made if it is not there and
    /// the broker allows it. What a consumer reads is part of what it is: one that reads the log cannot become one that
    /// reads a broker under the same name; from one broker to another it can.
    ///
    /// An ordered consumer keeps the order of each key as it was emitted, where the messages tell their place in the log, else
    /// as they were delivered. No lane pauses: while an event of a key is not done, later ones wait behind it in the
    /// database, up to 10,000, and then at the broker.
    ///
    /// ```
    /// # use outlast_engine::{Attempt, Consumer};
    /// # use outlast_core::{Event, Failure, broker::{Broker, Subscription}};
    /// # use serde::{Deserialize, Serialize};
    /// # use std::sync::Arc;
    /// # #[derive(Serialize, Deserialize)] struct BookingConfirmed { booking: i64 }
    /// # impl Event for BookingConfirmed { const NAME: &'static str = "booking.confirmed"; }
    /// # #[derive(Clone)] struct App;
    /// # async fn send_mail(_: App, e: Attempt<BookingConfirmed>) -> Result<(), Failure> { Ok(()) }
    /// # fn f(nats: Arc<dyn Broker>) -> Consumer<App> {
    /// Consumer::new("mailer")
    ///     .from_broker(nats, Subscription::new("mailer", "bookings"))
    ///     .on(send_mail)
    /// # }
    /// ```
    pub fn from_broker(mut self, broker: Arc<dyn Broker>, subscription: Subscription) -> Self {
        self.source = Some(Source {
            broker,
            subscription,
            acks_first: false,
        });
        self
    }

    /// Plants a fault: every message is acked as soon as it has come. For our own proofs, which must find it out.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn acks_first(mut self) -> Self {
        if let Some(source) = &mut self.source {
            source.acks_first = true;
        }
        self
    }

    /// Where it begins to read when it is registered for the first time.
    pub fn from(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Whom its incidents name.
    pub fn owner(mut self, team: &str) -> Self {
        self.owner = Some(team.to_owned());
        self
    }

    /// Keeps the order of each key: an event is handled after every event of its tenant and key whose commit its emitter
    /// could see. Lock the thing before you emit, and the order is that of your transactions.
    ///
    /// Keys are spread over lanes (16, recorded at the first registration), and in a lane one handler runs at a time: a slow event
    /// delays what shares its lane. An event that fails delays only its own key: later events of it wait behind, through
    /// retries and quarantine, until it is done or a person skips it (`outlast parked skip`). When 10,000 are behind one
    /// key, its lane pauses, with an incident. Events without a key are spread over all lanes, in no order.
    ///
    /// What a consumer is, is decided by its first registration: to change it, give the other kind another name.
    ///
    /// ```
    /// # use outlast_engine::{Attempt, Consumer};
    /// # use outlast_core::{Event, Failure};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)] struct SeatTaken { flight: String }
    /// # impl Event for SeatTaken { const NAME: &'static str = "seat.taken"; fn key(&self) -> Option<String> { Some(self.flight.clone()) } }
    /// # #[derive(Clone)] struct App;
    /// async fn count(_: App, e: Attempt<SeatTaken>) -> Result<(), Failure> { Ok(()) }
    ///
    /// let seats = Consumer::new("seats").ordered().concurrency(4).on(count);
    /// ```
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// How many handlers of it one process runs at once. The default is 8. Of an ordered consumer, at most one a lane.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = Some(handlers);
        self
    }

    /// How long one try of it may take, instead of the worker's [`Settings::deadline`](crate::Settings::deadline).
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Where it cannot be registered, that is told and the other consumers of the worker run: for those that operators
    /// write down.
    #[doc(hidden)]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Takes events of this tenant only; called again, of these. Everybody else's are not its own: it steps over them.
    ///
    /// Recorded when it is registered for the first time. A filter is part of what a consumer is: with another one its
    /// registration is refused.
    pub fn tenant(mut self, tenant: &str) -> Self {
        self.tenants.push(tenant.to_owned());
        self
    }

    /// Takes events from this source only; called again, from these. As [`Consumer::tenant`].
    pub fn source(mut self, source: &str) -> Self {
        self.sources.push(source.to_owned());
        self
    }

    /// Handles events of every type that the pattern names, as they were emitted: for an archive, a mirror, a webhook.
    ///
    /// `booking.*` is every type that begins with `booking.`, `*` is every type. A handler of a type's own comes first, then
    /// the longest pattern. It takes every version, so nothing waits for a newer worker. As [`Consumer::on`], it may run
    /// twice for one event.
    ///
    /// ```
    /// # use outlast_engine::{Attempt, Consumer, Raw};
    /// # use outlast_core::Failure;
    /// # #[derive(Clone)] struct App;
    /// async fn mirror(_: App, e: Attempt<Raw>) -> Result<(), Failure> {
    ///     println!("{} version {}: {} bytes of {}", e.name, e.version, e.bytes.len(), e.content_type);
    ///     Ok(())
    /// }
    ///
    /// let bookings = Consumer::new("mirror").tenant("acme").on_raw("booking.*", mirror);
    /// ```
    pub fn on_raw<F, Fut, R>(mut self, types: &str, handle: F) -> Self
    where
        F: Fn(S, Attempt<Raw>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Outcome>,
    {
        self.handlers.push(Handler {
            name: types.to_owned().into(),
            version: u16::MAX,
            form: Form::Effect(Arc::new(RawHandler(handle))),
        });
        self
    }

    /// Hands events of every type that the pattern names to an endpoint outside of this process, as they were emitted: to a
    /// service behind HTTPS, in any language (the crate `outlast-http`). Patterns are those of [`Consumer::on_raw`].
    ///
    /// The endpoint answers that it is done, or that it has accepted the event and completes it by itself, in a transaction of
    /// its own. An accepted event keeps its lease and its place until it is complete, at most until its deadline; then the try
    /// has failed and another one follows. As [`Consumer::on`], it may get one event twice, with the same id.
    ///
    /// While the endpoint is down, what waits is not charged; that is looked at per consumer, so give each endpoint its own.
    ///
    /// ```
    /// # use outlast_engine::Consumer;
    /// # use outlast_core::endpoint::Endpoint;
    /// # use std::sync::Arc;
    /// # fn f(shop: Arc<dyn Endpoint>) -> Consumer<()> {
    /// Consumer::new("shop").concurrency(4).push("booking.*", shop.clone()).push("payment.*", shop)
    /// # }
    /// ```
    pub fn push(mut self, types: &str, endpoint: impl Endpoint) -> Self {
        self.handlers.push(Handler {
            name: types.to_owned().into(),
            version: u16::MAX,
            form: Form::Effect(Arc::new(EndpointHandler(Arc::new(endpoint)))),
        });
        self
    }

    /// Handles events with outside effects, such as a mail: the function may run twice for one event.
    ///
    /// When it has returned `Ok`, the event is completed within some milliseconds. If the process dies before that, it
    /// runs again, with the same [`Attempt::id`]. For effects in your own database use [`Consumer::on_tx`], or
    /// [`Attempt::seal`] if you have to call out first.
    pub fn on<E, F, Fut, R>(self, handle: F) -> Self
    where
        E: Consumable,
        F: Fn(S, Attempt<E>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Outcome>,
    {
        self.with::<E>(Form::Effect(Arc::new(EffectHandler::<E, F>::new(handle))))
    }

    /// Handles each event in a transaction of your pool: its rows and the event's completion in one commit, or nothing.
    ///
    /// Outlast begins the transaction, runs the function, seals the event and commits. On `Err`, a panic, a lost lease or
    /// a death of the process nothing of it is there, and another try follows. Do not call out from here: that would
    /// hold the transaction open, and could happen twice.
    ///
    /// ```
    /// # use outlast_engine::{Attempt, Consumer};
    /// # use outlast_core::{Event, Failure};
    /// # use outlast_postgres::tx::ClientTx;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)] struct BookingConfirmed { booking: i64 }
    /// # impl Event for BookingConfirmed { const NAME: &'static str = "booking.confirmed"; }
    /// # #[derive(Clone)] struct App;
    /// async fn post(_: App, tx: &mut ClientTx, e: Attempt<BookingConfirmed>) -> Result<(), Failure> {
    ///     tx.execute("insert into ledger (booking) values ($1)", &[&e.booking]).await?;
    ///     Ok(())
    /// }
    ///
    /// # fn f(pool: deadpool_postgres::Pool) {
    /// let ledger = Consumer::new("ledger").on_tx(&pool, post);
    /// # }
    /// ```
    pub fn on_tx<P, E, F>(self, pool: &P, handle: F) -> Self
    where
        P: Pool,
        E: Consumable,
        F: for<'t> TxFn<'t, S, P::Tx, Attempt<E>>,
    {
        let run = Arc::new(TxHandler::<P, E, F>::new(pool.clone(), handle));
        self.with::<E>(Form::Tx(run, Arc::new(Through(pool.clone()))))
    }

    /// Handles many events in one transaction of your pool: fastest where a statement can take many rows.
    ///
    /// The events come in the order of the log, at most 1,000 and 4 MB at once. One commit for all of them; a batch that
    /// fails is run again event by event, so that one bad event does not hold up the others. On an ordered consumer only
    /// events of this type that follow one another are taken together.
    pub fn on_batch<P, E, F>(self, pool: &P, handle: F) -> Self
    where
        P: Pool,
        E: Consumable,
        F: for<'t> BatchFn<'t, S, P::Tx, Vec<Attempt<E>>>,
    {
        let run = Arc::new(BatchHandler::<P, E, F>::new(pool.clone(), handle));
        self.with::<E>(Form::Batch(run, Arc::new(Through(pool.clone()))))
    }

    fn with<E: Consumable>(mut self, form: Form<S>) -> Self {
        self.handlers.push(Handler {
            name: E::name(),
            version: E::version(),
            form,
        });
        self
    }
}

/// A function for [`Consumer::on_tx`]: `async fn(S, &mut Tx, Attempt<E>) -> Result<_, Failure>`. Implemented for you.
///
/// `Tx` is the transaction of the pool: `PgTransaction<'_>` of a `sqlx::PgPool`, `ClientTx` of a deadpool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler for `on_tx`",
    label = "expected `async fn(state: {S}, tx: &mut {X}, event: {A}) -> Result<_, Failure>`",
    note = "the state comes first and by value, the transaction as `&mut`, the error is `outlast::Failure`",
    note = "a future that holds something which is not `Send` across an `.await` cannot be run by a worker"
)]
pub trait TxFn<'t, S, X: 't, A>: Send + Sync + 'static {
    /// What it returns when it worked.
    type Out: Into<Outcome>;
    /// Its future, which borrows the transaction.
    type Fut: Future<Output = Result<Self::Out, Failure>> + Send + 't;

    /// Runs it.
    fn call(&self, state: S, tx: &'t mut X, attempt: A) -> Self::Fut;
}

impl<'t, S, X: 't, A, F, Fut, R> TxFn<'t, S, X, A> for F
where
    F: Fn(S, &'t mut X, A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 't,
    R: Into<Outcome>,
{
    type Out = R;
    type Fut = Fut;

    fn call(&self, state: S, tx: &'t mut X, attempt: A) -> Fut {
        self(state, tx, attempt)
    }
}

/// A function for [`Consumer::on_batch`]: `async fn(S, &mut Tx, Vec<Attempt<E>>) -> Result<(), Failure>`. Implemented for you.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler for `on_batch`",
    label = "expected `async fn(state: {S}, tx: &mut {X}, events: {A}) -> Result<(), Failure>`",
    note = "the state comes first and by value, the transaction as `&mut`, the error is `outlast::Failure`"
)]
pub trait BatchFn<'t, S, X: 't, A>: Send + Sync + 'static {
    /// Its future, which borrows the transaction.
    type Fut: Future<Output = Result<(), Failure>> + Send + 't;

    /// Runs it.
    fn call(&self, state: S, tx: &'t mut X, attempts: A) -> Self::Fut;
}

impl<'t, S, X: 't, A, F, Fut> BatchFn<'t, S, X, A> for F
where
    F: Fn(S, &'t mut X, A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 't,
{
    type Fut = Fut;

    fn call(&self, state: S, tx: &'t mut X, attempts: A) -> Fut {
        self(state, tx, attempts)
    }
}
