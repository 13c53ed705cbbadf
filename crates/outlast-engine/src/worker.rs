//! The worker: everything that one process does, on one page.
//!
//! Here it is only written down; `plan` checks it, and `run` makes it move.

use crate::{
    attempt::Attempt,
    consumer::Consumer,
    handler::{About, CommandHandler, Commands, EntityHandler, Form, Handler, JobHandler, Running},
    if_unknown::IfUnknown,
    settings::Settings,
};
use outlast_core::{Broker, Codec, Command, Entity, Failure, Found, Job, Outcome, Sent};
use outlast_postgres::{
    Error,
    schema::Schema,
    store::{command_queue, entity_queue},
    tx::BoxFuture,
};
use std::{fmt, future::Future, sync::Arc, time::Duration};

mod plan;

pub use plan::{Described, DescribedConsumer, DescribedJob};
pub(crate) use plan::{Plan, PlannedJob};

/// Everything that one process does: its consumers, jobs, commands and entities, what runs around them, how much of it at once.
///
/// ```no_run
/// # use outlast_engine::{Attempt, Consumer, Outlast};
/// # use outlast_core::{Event, Failure};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)] struct BookingConfirmed { booking: i64 }
/// # impl Event for BookingConfirmed { const NAME: &'static str = "booking.confirmed"; }
/// # #[derive(Clone)] struct App;
/// # async fn send_mail(_: App, e: Attempt<BookingConfirmed>) -> Result<(), Failure> { Ok(()) }
/// # async fn f() -> Result<(), outlast_postgres::Error> {
/// Outlast::new()
///     .worker(App)
///     .consumer(Consumer::new("mailer").on(send_mail))
///     .run()
///     .await
/// # }
/// ```
#[must_use = "nothing happens until it is run"]
pub struct Worker<S> {
    plan: Plan<S>,
}

impl<S> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("consumers", &self.plan.consumers)
            .finish_non_exhaustive()
    }
}

impl<S: Clone + Send + Sync + 'static> Worker<S> {
    pub(crate) fn new(schema: Result<Schema, Arc<str>>, state: S) -> Self {
        Self {
            plan: Plan::new(schema, state),
        }
    }

    /// Adds a consumer. Its name may appear once in a process.
    pub fn consumer(mut self, consumer: Consumer<S>) -> Self {
        self.plan.consumers.push(consumer);
        self
    }

    /// Runs jobs: every committed job of this type, until it has succeeded. The type of the argument says which. It may run
    /// twice for one job.
    ///
    /// When the function has returned `Ok`, the job is completed within some milliseconds. If the process dies before that,
    /// another one runs it again after [`Settings::lease`], with the same [`Attempt::id`]. For effects in your own database
    /// end with [`Attempt::seal`]: your rows and the completion are one commit. How many run at once, how long a try may take
    /// and how many there are is [`Job::options`], over which `outlast.toml` has the last word.
    ///
    /// ```
    /// # use outlast_engine::{Attempt, Outlast};
    /// # use outlast_core::{Failure, Job};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Clone)] struct App;
    /// #[derive(Serialize, Deserialize)]
    /// struct SendReceipt { order: i64 }
    /// impl Job for SendReceipt { const NAME: &'static str = "send_receipt"; }
    ///
    /// async fn send_receipt(app: App, job: Attempt<SendReceipt>) -> Result<(), Failure> {
    ///     println!("order {}, try {}, the same id every time: {}", job.order, job.number(), job.id());
    ///     Ok(())
    /// }
    ///
    /// let worker = Outlast::new().worker(App).job(send_receipt);
    /// ```
    pub fn job<J, F, Fut, R>(mut self, handle: F) -> Self
    where
        J: Job,
        F: Fn(S, Attempt<J>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Outcome>,
    {
        self.plan.jobs.push(PlannedJob {
            handler: Handler {
                name: J::NAME.into(),
                version: J::VERSION,
                form: Form::Effect(Arc::new(JobHandler::<J, F>::new(handle))),
            },
            options: J::options(),
        });
        self
    }

    /// Sends commands: every committed command of this type, once; and says what is to be done if nobody knows whether that had
    /// an effect.
    ///
    /// That the command leaves is committed before the function is called. What it answers is recorded within milliseconds, also
    /// after its deadline. An error whose class nobody knows, a panic, a deadline and a death of the process after that all mean
    /// *unknown*: see [`IfUnknown`]. Switch off the retries of the provider's SDK: one deadline and one budget are enough.
    ///
    /// ```
    /// # use outlast_core::{Command, Failure, Sent};
    /// # use outlast_engine::{Attempt, IfUnknown, Outlast};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Clone)] struct App;
    /// #[derive(Serialize, Deserialize)]
    /// struct SendContract { booking: i64, document: String }
    /// impl Command for SendContract {
    ///     const NAME: &'static str = "send_contract";
    ///     type Answer = String;
    ///     fn key(&self) -> String { format!("booking/{}/contract", self.booking) }
    /// }
    ///
    /// async fn send_contract(app: App, c: Attempt<SendContract>) -> Result<Sent<String>, Failure> {
    ///     println!("{} to the provider, with {}", c.document, c.provider_key());
    ///     Ok(Sent::Pending { reference: "env_1".into() })
    /// }
    ///
    /// let worker = Outlast::new().worker(App).command(send_contract, IfUnknown::ask_a_person());
    /// ```
    pub fn command<C, F, Fut>(mut self, handle: F, if_unknown: IfUnknown<S, C>) -> Self
    where
        C: Command,
        F: Fn(S, Attempt<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Sent<C::Answer>, Failure>> + Send + 'static,
    {
        self.plan.jobs.push(PlannedJob {
            handler: Handler {
                name: command_queue(C::NAME).into(),
                version: C::VERSION,
                form: Form::Command(Arc::new(Commands {
                    send: Arc::new(CommandHandler::<C, F, Sent<C::Answer>>::new(handle)),
                    look: if_unknown.look,
                    poll: None,
                    every: None,
                    policy: if_unknown.policy,
                    replays: if_unknown.replays,
                })),
            },
            options: C::options(),
        });
        self
    }

    /// Asks for what is pending, this often; after seven days without a settlement a person must look. Where a webhook settles a
    /// command this is its safety net. Say it after [`Worker::command`].
    pub fn poll<C, F, Fut>(mut self, every: Duration, handle: F) -> Self
    where
        C: Command,
        F: Fn(S, Attempt<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Found<C::Answer>, Failure>> + Send + 'static,
    {
        let name = command_queue(C::NAME);
        let planned = self
            .plan
            .jobs
            .iter_mut()
            .find(|job| job.handler.name == name);
        match planned.map(|job| &mut job.handler.form) {
            Some(Form::Command(commands)) => {
                let was = commands.clone();
                *commands = Arc::new(Commands {
                    send: was.send.clone(),
                    look: was.look.clone(),
                    poll: Some(Arc::new(CommandHandler::<C, F, Found<C::Answer>>::new(
                        handle,
                    ))),
                    every: Some(every),
                    policy: was.policy,
                    replays: was.replays,
                });
            }
            _ => self.plan.polls_nobody.push(C::NAME),
        }
        self
    }

    /// Converges entities of this type: makes what is elsewhere look like what is in your database, whenever that was marked as
    /// [`changed`](crate::Outlast::changed) or [`deleted`](crate::Outlast::deleted).
    ///
    /// The function **rereads** how the entity should look, on the primary, in a transaction that it begins itself: what the mark
    /// knew is old by now. A replica, a cache, or a snapshot from before may not show the change that is being completed. Then it
    /// makes the provider look so. When it has returned `Ok`, exactly the marks are complete that were there when it was claimed;
    /// a change that was committed since brings about another run. It may run twice: each step must be such that twice is as good
    /// as once.
    ///
    /// - *Already there*, *already absent* are success only where that is what is wanted. That your row is missing proves nothing
    ///   about the provider: it still has to be told, by [`refs`](Attempt::refs) or by what it can be searched by.
    /// - What the provider calls a thing that was just made goes into [`keep`](Attempt::keep) before anything else happens; what was
    ///   taken away is [forgotten](Attempt::forget).
    /// - What [`deleted`](crate::Outlast::deleted) was told is a run of its own ([`is_deletion`](Attempt::is_deletion)), before the
    ///   one for the entity itself.
    /// - One worker at a time converges one entity. Whoever has lost it ([`Attempt::lost`]) should stop: what it keeps or returns is
    ///   not recorded. A provider that can tell an older writer from a newer one is given [`Attempt::fence_number`].
    ///
    /// [`Attempt::id`] is that of the entity, for ever: no idempotency key of one convergence.
    ///
    /// Failures are tried again with backoff; after eight, or one that no other try can help, a person must look, and new marks wait
    /// with it. Deadline, tries, pauses and concurrency are [`Entity::options`], over which
    /// `[job.NAME]` of `outlast.toml` has the last word. A try that overruns its deadline is told, given a grace, and left to
    /// itself: it is never dropped inside of a driver.
    ///
    /// ```
    /// # use outlast_core::{Entity, Failure};
    /// # use outlast_engine::{Attempt, Outlast};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)] struct Membership { chat: i64, user: i64 }
    /// # #[derive(Serialize, Deserialize)] struct Participant { sid: String }
    /// # impl Entity for Membership {
    /// #     const NAME: &'static str = "chat_membership";
    /// #     type Refs = Participant;
    /// #     fn key(&self) -> String { format!("{}/{}", self.chat, self.user) }
    /// # }
    /// # #[derive(Clone)] struct App;
    /// # impl App {
    /// #     async fn role(&self, _: &Membership) -> Result<Option<String>, Failure> { Ok(None) }
    /// #     async fn add(&self, _: &Membership, _: &str) -> Result<Participant, Failure> { Ok(Participant { sid: "MB1".into() }) }
    /// #     async fn set_role(&self, _: &Participant, _: &str) -> Result<(), Failure> { Ok(()) }
    /// #     async fn remove(&self, _: &Participant) -> Result<(), Failure> { Ok(()) }
    /// #     async fn remove_by_identity(&self, _: &Membership) -> Result<(), Failure> { Ok(()) }
    /// # }
    /// async fn sync(app: App, m: Attempt<Membership>) -> Result<(), Failure> {
    ///     let role = app.role(&m).await?;                               // reread: never trust the hint
    ///     match (role, m.refs()) {
    ///         (Some(role), Some(p)) if !m.is_deletion() => app.set_role(p, &role).await?,
    ///         (Some(role), None) => m.keep(app.add(&m, &role).await?).await?,
    ///         (_, Some(p)) => {
    ///             app.remove(p).await?;                                 // 404 is success: absent is the aim
    ///             m.forget().await?;
    ///         }
    ///         (None, None) => app.remove_by_identity(&m).await?,        // no row is no proof of removal
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let worker = Outlast::new().worker(App).reconcile(sync);
    /// ```
    pub fn reconcile<E, F, Fut, R>(mut self, handle: F) -> Self
    where
        E: Entity,
        F: Fn(S, Attempt<E>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Outcome>,
    {
        self.plan.jobs.push(PlannedJob {
            handler: Handler {
                name: entity_queue(E::NAME).into(),
                version: E::VERSION,
                form: Form::Effect(Arc::new(EntityHandler::<E, F>::new(handle))),
            },
            options: E::options(),
        });
        self
    }

    /// Publishes events to a broker, as the routes for this name say, which are settings of the cluster (`outlast apply`).
    ///
    /// Each route has its own progress, in a consumer `relay/ROUTE`: what was committed is published at least once, always
    /// with the same id, and is done when the broker has confirmed it. Several processes may relay to the same broker; they
    /// share the work. New routes are taken up within [`Settings::heartbeat`].
    ///
    /// So are the outbox tables of other systems whose rows go to this broker (`[cluster.outbox.NAME]`): a row is deleted, or
    /// marked, when the broker has confirmed it. This login needs the right to do that.
    ///
    /// ```no_run
    /// # use outlast_engine::{Outlast, Worker};
    /// # fn f(worker: Worker<()>, nats: impl outlast_core::Broker) -> Worker<()> {
    /// worker.relay("nats", nats)
    /// # }
    /// ```
    pub fn relay(mut self, name: &str, broker: impl Broker) -> Self {
        self.plan.relays.push((name.to_owned(), Arc::new(broker)));
        self
    }

    /// Runs around every handler: error reporting, feature flags, tenant context. `run.await` runs the handler.
    ///
    /// It sees the handler's result before the commit and may change it. To return `Ok(Outcome::skipped(..))` without
    /// running the handler completes the event; to drop a handler half-way makes the try fail.
    ///
    /// ```
    /// # use outlast_engine::{Outlast, Worker};
    /// # fn f(worker: Worker<()>) -> Worker<()> {
    /// worker.around(|about, run| Box::pin(async move {
    ///     let result = run.await;
    ///     if let Err(failure) = &result {
    ///         eprintln!("{} {}: {}", about.kind, about.name, failure.reason);
    ///     }
    ///     result
    /// }))
    /// # }
    /// ```
    pub fn around<F>(mut self, around: F) -> Self
    where
        F: for<'a> Fn(&'a About, Running<'a>) -> BoxFuture<'a, Result<Outcome, Failure>>
            + Send
            + Sync
            + 'static,
    {
        self.plan.around = Some(Arc::new(around));
        self
    }

    /// Which database to work for. The default is `OUTLAST_DATABASE_URL`, else `DATABASE_URL`, else the `PG…` variables.
    pub fn database(mut self, url: impl Into<String>) -> Self {
        self.plan.database = Some(url.into());
        self
    }

    /// What decodes payloads before a handler gets them, and encodes what handlers emit. A worker made by
    /// [`Outlast::worker`](crate::Outlast::worker) has the codec of that handle.
    pub fn codec(mut self, codec: Arc<dyn Codec>) -> Self {
        self.plan.codec = Some(codec);
        self
    }

    /// Times and bounds; what is not set has the default of [`Settings`].
    pub fn settings(mut self, settings: Settings) -> Self {
        self.plan.settings = settings;
        self
    }

    /// Checks everything that can be checked without a database: names, doubles, settings, the URL.
    ///
    /// # Errors
    /// [`Error::Config`] with every problem, not only the first.
    pub fn check(&self) -> Result<(), Error> {
        self.plan.target().map(drop)
    }

    /// What was written down so far, for a command line that shows or changes it.
    pub fn described(&self) -> Described<'_> {
        self.plan.described()
    }

    /// Does nothing but maintenance: neither looks for news nor wakes others. For a process of its own, without consumers.
    #[doc(hidden)]
    pub fn only_maintenance(mut self) -> Self {
        self.plan.maintenance_only = true;
        self
    }

    /// Works until SIGTERM or Ctrl-C; then claims nothing more, finishes what runs, and returns.
    ///
    /// What could not be finished within the drain time is handed back without a charge. A second signal stops at once.
    ///
    /// # Errors
    /// At the start: what [`Worker::check`] finds, commands without a `deployment` ([`Error::NoDeployment`]), no connection, an older or newer schema, another database behind a
    /// handler's pool. Later connection losses are waited out, not returned.
    pub async fn run(self) -> Result<(), Error> {
        crate::run::until_signal(self.plan).await
    }

    /// Works until `stop` resolves, and drains until `hurry` does: for who hears the signals himself.
    #[doc(hidden)]
    pub async fn run_between(
        self,
        stop: impl Future<Output = ()> + Send,
        hurry: impl Future<Output = ()> + Send,
    ) -> Result<(), Error> {
        crate::run::run_with(self.plan, stop, hurry).await
    }

    /// Works until `stop` resolves; else as [`Worker::run`].
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> Result<(), Error> {
        crate::run::run(self.plan, stop).await
    }

    /// What was written down, for the test worker.
    #[cfg(feature = "testing")]
    pub(crate) fn into_plan(self) -> Plan<S> {
        self.plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attempt, Outlast};
    use outlast_core::Event;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Paid;
    impl Event for Paid {
        const NAME: &'static str = "paid";
    }

    #[derive(Serialize, Deserialize)]
    struct Badly;
    impl Event for Badly {
        const NAME: &'static str = "Badly named";
    }

    async fn paid(_: (), _: Attempt<Paid>) -> Result<(), Failure> {
        Ok(())
    }

    async fn badly(_: (), _: Attempt<Badly>) -> Result<(), Failure> {
        Ok(())
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let worker = Outlast::new()
            .worker(())
            .database("mysql://h")
            .settings(Settings {
                attempts: 0,
                ..Settings::default()
            })
            .consumer(Consumer::new("a").on(paid).on(paid))
            .consumer(Consumer::new("a").concurrency(0))
            .consumer(Consumer::new("B c").on(badly));
        let why = worker.check().unwrap_err().to_string();
        for expected in [
            "attempts",
            "consumer a has two handlers for paid",
            "consumer a is there twice",
            "consumer a has no handler",
            "consumer a: concurrency is 0",
            "consumer `B c` cannot be a name",
            "event type `Badly named` cannot be a name",
            "`mysql://` is not a PostgreSQL URL",
        ] {
            assert!(why.contains(expected), "{expected} is missing in: {why}");
        }
    }

    #[test]
    fn a_worker_with_nothing_wrong_passes() {
        let worker = Outlast::new()
            .worker(())
            .database("postgres://u@h/d")
            .consumer(Consumer::new("a").on(paid));
        worker.check().unwrap();
    }

    #[test]
    fn running_can_be_spawned() {
        fn spawnable<T: Send + 'static>(_: T) {}
        let worker = || {
            Outlast::new()
                .worker(())
                .consumer(Consumer::new("a").on(paid))
        };
        spawnable(worker().run());
        spawnable(worker().run_until(std::future::ready(())));
    }
}
