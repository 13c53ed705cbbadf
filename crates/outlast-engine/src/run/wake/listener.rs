//! The wake-up connection: it looks, listens, tells the others, and sleeps under the inverted lock.
//!
//! What a sleeper may rely on: whoever emits finds the lock taken and notifies, or had it shared before; then it could not
//! be taken until his transaction had ended, and the look that follows it sees what he committed.

use std::time::Duration;

use outlast_postgres::{
    Error,
    connect::{self, Target},
    schema::Schema,
    watch::{News, Watch},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_postgres::{Client, Notification, Statement, types::Type};
use uuid::Uuid;

/// How long one statement may take before the connection is given up.
pub(super) const ANSWER: Duration = Duration::from_secs(3);
/// How long a notification of our own may be on its way.
pub(super) const ECHO: Duration = Duration::from_millis(1500);
/// What the poller says when it goes.
const RESIGNED: &str = "resigned";

/// What was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// There may be news.
    News,
    /// The elected process goes: another may be elected.
    Resigned,
    /// Our own voice.
    Echo,
}

/// What an election has brought.
pub(super) struct Election {
    /// Of the elected process, if that is this one.
    pub(super) token: Option<Uuid>,
    /// How long another one still is elected, if it stays silent from now on.
    pub(super) left: Option<Duration>,
    /// Whether workers shall be woken by whoever emits.
    pub(super) notify: bool,
}

/// One connection's life.
pub(super) struct Listener {
    client: Client,
    schema: Schema,
    notifications: mpsc::Receiver<Notification>,
    /// The server process of our session.
    own: i32,
    watch: Watch,
    /// The look and the one that waits, prepared: most of what they cost is to be parsed and planned. None where the session is
    /// not ours.
    prepared: Option<[Statement; 2]>,
    /// Whether we hold the lock.
    asleep: bool,
    /// Heard when nobody waited for it.
    missed: bool,
}

impl Listener {
    /// `pooled`: a transaction pooler is between us and the server, which would lose a prepared statement.
    pub(super) async fn open(target: &Target, pooled: bool) -> Result<Self, Error> {
        let schema = target.in_schema();
        let (client, notifications) = connect::listen(target).await?;
        within(client.batch_execute(schema.statement("listen outlast_wake"))).await??;
        let own = within(client.query_typed("select pg_backend_pid()", &[])).await??;
        let prepared = if pooled {
            None
        } else {
            let look = schema.statement(Watch::LOOK);
            let waits = schema.statement(Watch::AWAIT);
            Some([
                within(client.prepare_typed(look, &[Type::INT8])).await??,
                within(client.prepare_typed(waits, &[Type::INT8, Type::INT4])).await??,
            ])
        };
        Ok(Self {
            client,
            schema,
            notifications,
            own: own.first().map_or(0, |row| row.get(0)),
            watch: Watch::default(),
            prepared,
            asleep: false,
            missed: false,
        })
    }

    /// Whether claims may find something that they did not find before. Waits for that in the server, so long at most, if it can
    /// and nobody is waited for who may draw no id any more.
    pub(super) async fn look(&mut self, most: Duration) -> Result<bool, Error> {
        let last = self.watch.last();
        if let Some([_, waits]) = &self.prepared
            && self.watch.is_settled()
            && !most.is_zero()
        {
            let most = i32::try_from(most.as_millis()).unwrap_or(i32::MAX);
            let rows = within(self.client.query(waits, &[&last, &most])).await??;
            return Ok(match self.watch.news(&rows)? {
                News::None => false,
                News::Some => true,
                News::Above(_) => rows
                    .first()
                    .is_none_or(|row| row.get::<_, Option<bool>>(3).unwrap_or(true)),
            });
        }
        let rows = match &self.prepared {
            Some([look, _]) => within(self.client.query(look, &[&last])).await??,
            None => {
                let look = self.schema.statement(Watch::LOOK);
                let last = [(&last as _, Type::INT8)];
                within(self.client.query_typed(look, &last)).await??
            }
        };
        let above = match self.watch.news(&rows)? {
            News::None => return Ok(false),
            News::Some => return Ok(true),
            News::Above(above) => above,
        };
        let sql = self.schema.statement(Watch::VISIBLE);
        let rows = within(self.client.query_typed(sql, &[(&above, Type::INT8)])).await??;
        Ok(rows.first().is_none_or(|row| row.get(0)))
    }

    /// Whether a look can wait in the server.
    pub(super) fn may_wait(&self) -> bool {
        self.prepared.is_some() && self.watch.is_settled()
    }

    /// Wakes the other processes.
    pub(super) async fn tell(&self) -> Result<(), Error> {
        let sql = self.schema.statement("notify outlast_wake");
        Ok(within(self.client.batch_execute(sql)).await??)
    }

    /// Becomes or stays the elected poller, and reads how workers shall be woken.
    pub(super) async fn elect(
        &self,
        process: Uuid,
        token: Option<Uuid>,
        lease: Duration,
    ) -> Result<Election, Error> {
        let ms = i32::try_from(lease.as_millis()).unwrap_or(i32::MAX);
        let token = token.unwrap_or_default();
        let rows = within(self.client.query_typed(
            self.schema.statement(
                "select outlast._elect($1, $2, $3), outlast._setting('wake') = 'notify',
                        (select greatest(extract(epoch from max(l.expires_at) - outlast.clock()), 0)::float8
                         from outlast._lease l where l.room = 'poller')",
            ),
            &[
                (&process, Type::UUID),
                (&token, Type::UUID),
                (&ms, Type::INT4),
            ],
        ))
        .await??;
        let row = rows.first();
        let token = row.and_then(|row| row.get(0));
        let left = row.and_then(|row| row.get::<_, Option<f64>>(2));
        Ok(Election {
            token,
            left: left
                .filter(|_| token.is_none())
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            notify: row.is_some_and(|row| row.get(1)),
        })
    }

    /// Lets another process be elected at once.
    pub(super) async fn resign(&self, token: Uuid) -> Result<(), Error> {
        let sql = self.schema.statement("select outlast._resign($1)");
        within(self.client.query_typed(sql, &[(&token, Type::UUID)])).await??;
        Ok(())
    }

    /// Whether notifications of other sessions come here: behind a transaction pooler they do not, because this session is
    /// only ours while a statement runs.
    pub(super) async fn hears(&mut self, target: &Target) -> Result<bool, Error> {
        let word = Uuid::new_v4().to_string();
        let by = {
            let (client, _driver) = within(connect::connect(target)).await??;
            let rows = within(
                client.query_typed(
                    self.schema
                        .statement("select pg_backend_pid(), pg_notify('outlast_wake', $1)::text"),
                    &[(&word, Type::TEXT)],
                ),
            )
            .await??;
            rows.first().map(|row| row.get::<_, i32>(0))
        };
        // Through a pooler even that may have been our own session.
        let heard = self.expect(|told| told.payload() == word).await?;
        Ok(heard && by != Some(self.own))
    }

    /// Says something to itself and waits for it: a connection may be dead without an error.
    pub(super) async fn prove(&mut self) -> Result<(), Error> {
        let own = self.own;
        let sql = self.schema.statement("notify outlast_wake, 'echo'");
        within(self.client.batch_execute(sql)).await??;
        if self.expect(|told| told.process_id() == own).await? {
            return Ok(());
        }
        Err(Error::Stalled {
            what: "hear our own notification".into(),
            after: ECHO,
        })
    }

    async fn expect(&mut self, is_it: impl Fn(&Notification) -> bool) -> Result<bool, Error> {
        let until = Instant::now() + ECHO;
        loop {
            match timeout_at(until, self.notifications.recv()).await {
                Ok(Some(told)) if is_it(&told) => return Ok(true),
                Ok(Some(told)) => self.missed |= told.process_id() != self.own,
                Ok(None) => return Err(closed()),
                Err(_) => return Ok(false),
            }
        }
    }

    /// The next notification. May be dropped while it waits.
    pub(super) async fn hear(&mut self) -> Result<Heard, Error> {
        if std::mem::take(&mut self.missed) {
            return Ok(Heard::News);
        }
        let told = self.notifications.recv().await.ok_or_else(closed)?;
        Ok(match told.payload() {
            _ if told.process_id() == self.own => Heard::Echo,
            RESIGNED => Heard::Resigned,
            _ => Heard::News,
        })
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.asleep
    }

    /// Takes the lock, if nobody who emitted is still under way. Then comes a look, always.
    pub(super) async fn lie_down(&mut self) -> Result<bool, Error> {
        // Who drew an id without asking for the lock, because the setting was another one then, has none to wait for.
        if self.watch.is_settled() {
            self.asleep = self
                .lock("select pg_try_advisory_lock(outlast._wake_lock())")
                .await?;
        }
        Ok(self.asleep)
    }

    /// Gives the lock back.
    pub(super) async fn get_up(&mut self) -> Result<(), Error> {
        if self.asleep {
            self.lock("select pg_advisory_unlock(outlast._wake_lock())")
                .await?;
            self.asleep = false;
        }
        Ok(())
    }

    async fn lock(&self, sql: &'static str) -> Result<bool, Error> {
        let rows = within(self.client.query_typed(self.schema.statement(sql), &[])).await??;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}

fn closed() -> Error {
    Error::Unexpected("the wake-up connection was closed".into())
}

async fn within<T>(work: impl Future<Output = T>) -> Result<T, Error> {
    let stalled = |_| Error::Stalled {
        what: "look for news".into(),
        after: ANSWER,
    };
    tokio::time::timeout(ANSWER, work).await.map_err(stalled)
}
