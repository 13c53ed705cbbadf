//! Commands by the handle: given, and told the end of, in the caller's transaction.
//!
//! The statements are `outlast_postgres::command`; what sends the commands is `worker`, `handler/command` and `run/job`.

use outlast_core::{Command, Resolution, codec};
use outlast_postgres::{
    Error,
    command::{self, Intent, Settlement, Told},
    event::Accepted,
    job::Cancel,
    tx::Tx,
};
use uuid::Uuid;

use crate::{
    crash::{self, Point},
    enqueue::{Enqueue, check_name},
    outlast::{Encoded, Outlast, to_json},
    run::wake,
};

impl Outlast {
    /// Gives a command in your transaction.
    ///
    /// Nothing is written before `.await`. When that returns, the command is a row of your transaction: durable when it commits,
    /// gone when it does not. From then on it is sent, and what became of it is found out and recorded; nothing that may have had
    /// an effect is repeated blindly. Its end is the event [`Resolved`](outlast_core::Resolved).
    ///
    /// ```no_run
    /// # use outlast_core::Command;
    /// # use outlast_engine::Outlast;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)] struct ChargeCard { booking: i64, amount: String }
    /// # impl Command for ChargeCard { const NAME: &'static str = "charge_card"; type Answer = String; fn key(&self) -> String { self.booking.to_string() } }
    /// # async fn f(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let outlast = Outlast::new();
    /// let mut tx = client.transaction().await?;
    /// tx.execute("update booking set state = 'charging' where id = 7", &[]).await?;
    /// outlast.command(&mut tx, &ChargeCard { booking: 7, amount: "120.00".into() }).await?;
    /// tx.commit().await?;                       // both are there now, or neither
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Bad input, [`Error::Conflict`] (the same key with other content) and [`Error::Expired`] leave your transaction usable, with
    /// nothing written. After [`Error::Database`] PostgreSQL takes only a rollback.
    pub fn command<'a, C: Command>(&'a self, tx: &'a mut dyn Tx, command: &'a C) -> Enqueue<'a, C> {
        Enqueue::new(self, tx, command, |enqueue| Box::pin(write(enqueue)))
    }

    /// Tells the end of a command by its key, in your transaction: what a provider's webhook says, or a settlement file.
    ///
    /// It may come before our own answer was recorded, and before the command itself. Nothing is true before your commit.
    ///
    /// # Errors
    /// [`Error::BadName`] for a resolution that only a person or [`Outlast::cancel`] may bring about, and for other bad input, which
    /// leaves your transaction usable. After [`Error::Database`] PostgreSQL takes only a rollback.
    pub async fn settle<C: Command>(
        &self,
        tx: &mut dyn Tx,
        key: &str,
        how: Resolution<C::Answer>,
    ) -> Result<Settlement, Error> {
        check_name(C::NAME)?;
        let answer;
        let told = match &how {
            Resolution::Settled(said) => {
                answer = to_json(said)?;
                Told::Settled(&answer)
            }
            Resolution::Rejected(why) => Told::Rejected(why),
            Resolution::Obsolete(why) => Told::Obsolete(why),
            Resolution::Cancelled(_) | Resolution::Abandoned { .. } => {
                return Err(Error::BadName(format!(
                    "settle {}: {} is no provider's word; use cancel, or let a person resolve it",
                    C::NAME,
                    how.as_str()
                )));
            }
        };
        let settled = command::settle(tx, self.asking()?, (C::NAME, key), told).await;
        wake::nudge();
        settled
    }

    /// Withdraws the command of a key; else as [`Outlast::cancel`]. [`Cancel::Requested`]: it was sent, and is withdrawn if that
    /// turns out to have had no effect.
    ///
    /// # Errors
    /// As [`Outlast::cancel`].
    pub async fn cancel_command<C: Command>(
        &self,
        tx: &mut dyn Tx,
        key: &str,
        why: &str,
    ) -> Result<Cancel, Error> {
        check_name(C::NAME)?;
        command::cancel_key(tx, self.asking()?, (C::NAME, key), why).await
    }
}

impl<C: Command> Enqueue<'_, C> {
    /// It corrects this one, of the same name and tenant, which is cancelled in the same transaction as far as that still goes.
    pub fn supersedes(mut self, id: Uuid) -> Self {
        self.supersedes = Some(id);
        self
    }
}

async fn write<C: Command>(enqueue: Enqueue<'_, C>) -> Result<Accepted, Error> {
    check_name(C::NAME)?;
    let handle = enqueue.outlast;
    let (options, json) = (C::options(), to_json(enqueue.intent)?);
    let (key, account, exclusive) = (
        enqueue.intent.key(),
        enqueue.intent.account(),
        enqueue.intent.exclusive(),
    );
    let encoded = match &handle.codec {
        Some(codec) => {
            let about = codec::About::new(C::NAME, C::VERSION, &handle.tenant, Some(&key));
            Encoded::of(codec.as_ref(), &about, &json, true)?
        }
        None => None,
    };
    let stored = encoded.as_ref().map(|encoded| command::Encoded {
        key: &encoded.key,
        bytes: &encoded.bytes,
        digest: encoded.digest.as_deref().unwrap_or_default(),
    });
    let cause = handle.cause(enqueue.cause.as_ref());
    let intent = Intent {
        schema: handle.in_schema()?,
        name: C::NAME,
        version: C::VERSION,
        payload: &json,
        encoded: stored,
        key: &key,
        tenant: &handle.tenant,
        account: account.as_deref(),
        exclusive: exclusive.as_deref(),
        when: enqueue.when,
        priority: enqueue.priority,
        attempts: enqueue.attempts.or(options.attempts),
        lifetime: options.lifetime,
        supersedes: enqueue.supersedes,
        actor: handle.actor.as_deref(),
        causation_id: cause.causation,
        correlation_id: cause.correlation,
        traceparent: cause.traceparent,
    };
    let accepted = command::command(enqueue.tx, &intent).await;
    crash::at(Point::Emitted);
    wake::nudge();
    accepted
}
