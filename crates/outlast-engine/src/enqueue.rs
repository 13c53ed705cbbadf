//! Jobs by the handle: enqueued, withdrawn, asked about, in the caller's transaction.
//!
//! The statements are `outlast_postgres::job`; what runs the jobs is `worker` and `run/job`.

use crate::{
    attempt::Attempt,
    crash::{self, Point},
    outlast::{Cause, Encoded, Outlast, to_json},
    run::wake,
};
use outlast_core::{Job, codec, name};
use outlast_postgres::{
    Error,
    event::{Accepted, Body},
    job::{self, Asking, Cancel, Intent, Status, When},
    tx::{BoxFuture, Tx},
};
use std::{
    fmt,
    future::IntoFuture,
    time::{Duration, SystemTime},
};
use uuid::Uuid;

impl Outlast {
    /// Enqueues a job in your transaction.
    ///
    /// Nothing is written before `.await`. When that returns, the job is a row of your transaction: durable when it commits,
    /// gone when it does not, also if this process dies in between. From then on it is run until it has succeeded, at least
    /// once, always with the same id and the same bytes; after eight failed tries, or one that says that no other can help,
    /// it waits for a person.
    ///
    /// ```no_run
    /// # use outlast_core::Job;
    /// # use outlast_engine::Outlast;
    /// # use serde::{Deserialize, Serialize};
    /// # use std::time::Duration;
    /// # #[derive(Serialize, Deserialize)] struct SendReceipt { order: i64 }
    /// # impl Job for SendReceipt { const NAME: &'static str = "send_receipt"; }
    /// # async fn f(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let outlast = Outlast::new();
    /// let mut tx = client.transaction().await?;
    /// tx.execute("update \"order\" set paid = true where id = 7", &[]).await?;
    /// outlast.enqueue(&mut tx, &SendReceipt { order: 7 }).after(Duration::from_secs(60)).await?;
    /// tx.commit().await?;                       // both are there now, or neither
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Bad input, [`Error::Conflict`] and [`Error::Expired`] of its key leave your transaction usable, with nothing written.
    /// After [`Error::Database`] PostgreSQL takes only a rollback.
    pub fn enqueue<'a, J: Job>(&'a self, tx: &'a mut dyn Tx, job: &'a J) -> Enqueue<'a, J> {
        Enqueue::new(self, tx, job, |enqueue| Box::pin(write(enqueue)))
    }

    /// Withdraws a job of this tenant in your transaction: it is so when that commits.
    ///
    /// What runs is not stopped: [`Cancel::Requested`] means that there is no other try if this one fails.
    ///
    /// # Errors
    /// [`Error::BadName`] without a reason. After [`Error::Database`] PostgreSQL takes only a rollback.
    pub async fn cancel(&self, tx: &mut dyn Tx, id: Uuid, why: &str) -> Result<Cancel, Error> {
        job::cancel(tx, self.asking()?, id, why).await
    }

    /// Withdraws the job of a key; else as [`Outlast::cancel`].
    ///
    /// # Errors
    /// As [`Outlast::cancel`].
    pub async fn cancel_key<J: Job>(
        &self,
        tx: &mut dyn Tx,
        key: &str,
        why: &str,
    ) -> Result<Cancel, Error> {
        check_name(J::NAME)?;
        job::cancel_key(tx, self.asking()?, (J::NAME, key), why).await
    }

    /// How a job of this tenant stands, as your transaction sees it: what a `GET /operations/:id` answers. None if there is
    /// none of this id, or it ended longer ago than `retention.job`.
    ///
    /// # Errors
    /// [`Error::Database`]; then PostgreSQL takes only a rollback.
    pub async fn status(&self, tx: &mut dyn Tx, id: Uuid) -> Result<Option<Status>, Error> {
        job::status(tx, self.asking()?, id).await
    }

    pub(crate) fn asking(&self) -> Result<Asking<'_>, Error> {
        Ok(Asking {
            schema: self.in_schema()?,
            tenant: &self.tenant,
            actor: self.actor.as_deref(),
        })
    }
}

/// A job or a command about to be written: say more about it, then `.await`.
#[must_use = "nothing is written until this is awaited"]
pub struct Enqueue<'a, T> {
    pub(crate) outlast: &'a Outlast,
    pub(crate) tx: &'a mut dyn Tx,
    pub(crate) intent: &'a T,
    pub(crate) when: When,
    pub(crate) priority: i16,
    pub(crate) attempts: Option<u32>,
    pub(crate) supersedes: Option<Uuid>,
    pub(crate) cause: Option<Cause>,
    write: Write<'a, T>,
}

/// How what kind of intent is written: the type alone does not say, because a type may be both.
type Write<'a, T> = fn(Enqueue<'a, T>) -> BoxFuture<'a, Result<Accepted, Error>>;

impl<T> fmt::Debug for Enqueue<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueue")
            .field("when", &self.when)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

impl<'a, T> Enqueue<'a, T> {
    pub(crate) fn new(
        outlast: &'a Outlast,
        tx: &'a mut dyn Tx,
        intent: &'a T,
        write: Write<'a, T>,
    ) -> Self {
        Self {
            outlast,
            tx,
            intent,
            when: When::Now,
            priority: 0,
            attempts: None,
            supersedes: None,
            cause: None,
            write,
        }
    }

    /// Not before so long from now, by the database's clock; at most ten years. Of this and [`Enqueue::at`] the last counts.
    pub fn after(mut self, pause: Duration) -> Self {
        self.when = When::After(pause);
        self
    }

    /// Not before this time, by the database's clock. What is past is now.
    pub fn at(mut self, time: SystemTime) -> Self {
        self.when = When::At(time);
        self
    }

    /// Among those of its name and tenant (and account) the lower runs sooner: -100 to 100, 0 is usual. It never comes before
    /// another tenant's turn.
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// How many tries this one has before a person must look, whatever its workers say of its name.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// Names the event or job that led to this one. `attempt.outlast()` does it by itself.
    pub fn caused_by<C>(mut self, attempt: &Attempt<C>) -> Self {
        self.cause = Some(Cause::of(attempt));
        self
    }
}

impl<'a, T> IntoFuture for Enqueue<'a, T> {
    type Output = Result<Accepted, Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        (self.write)(self)
    }
}

async fn write<J: Job>(enqueue: Enqueue<'_, J>) -> Result<Accepted, Error> {
    check_name(J::NAME)?;
    let (options, job) = (J::options(), enqueue.intent);
    let json = to_json(job)?;
    let key = job.key();
    let (handle, name) = (enqueue.outlast, J::NAME);
    let encoded = match &handle.codec {
        Some(codec) => {
            // What no reader could be trusted with is found before it cannot be seen any more.
            job::check_json(name, &json)?;
            let about = codec::About::new(name, J::VERSION, &handle.tenant, key.as_deref());
            Encoded::of(codec.as_ref(), &about, &json, key.is_some())?
        }
        None => None,
    };
    let body = match &encoded {
        Some(encoded) => Body::Bytes {
            bytes: &encoded.bytes,
            content_type: "application/json",
        },
        None => Body::Json(&json),
    };
    let cause = handle.cause(enqueue.cause.as_ref());
    let intent = Intent {
        schema: handle.in_schema()?,
        key: key.as_deref(),
        lifetime: options.lifetime.filter(|_| key.is_some()),
        tenant: &handle.tenant,
        when: enqueue.when,
        priority: enqueue.priority,
        attempts: enqueue.attempts,
        actor: handle.actor.as_deref(),
        causation_id: cause.causation,
        correlation_id: cause.correlation,
        traceparent: cause.traceparent,
        codec_key: encoded.as_ref().map(|encoded| encoded.key.as_str()),
        digest: encoded
            .as_ref()
            .and_then(|encoded| encoded.digest.as_deref()),
        ..Intent::new(name, J::VERSION, body)
    };
    let accepted = job::enqueue(enqueue.tx, &intent).await;
    crash::at(Point::Emitted);
    wake::nudge();
    accepted
}

pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    name::check(name).map_err(|bad| Error::BadName(bad.to_string()))
}
