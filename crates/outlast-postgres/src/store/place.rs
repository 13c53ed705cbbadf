//! Where am I: is this still the database that acknowledged my last commit?
//!
//! A heartbeat would not tell: it can be present after a lossy promotion while a commit that let something out is gone.
//! So every claim and every finish writes a numbered mark, and each new connection looks for the last acknowledged one.
//!
//! Another database (deployment, copy, restarted transaction ids) stops this process. A rewound one does not: it is the
//! database now, and what this process does inside it is right. Only what leaves it has to wait, in every process, until a
//! person has confirmed; so the process that misses its mark writes that down in the database and goes on.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::{
    Client,
    types::{ToSql, Type},
};
use uuid::Uuid;

use crate::{Error, schema::Schema};

/// One numbered mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) seq: i64,
    pub(super) nonce: Uuid,
    /// Of which history it is: an answer that comes after a rewind was noticed says nothing of the new one.
    history: u64,
}

#[derive(Debug)]
struct Inner {
    next: i64,
    acked: Mark,
    history: u64,
    /// How often a person had confirmed when this process last asked.
    confirmed: i64,
    held: bool,
    stopped: Option<String>,
}

/// What this process must find again. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Place {
    process: Uuid,
    schema: Schema,
    deployment: Option<String>,
    inner: Arc<Mutex<Inner>>,
}

/// What the database says of itself to one process.
#[derive(Clone, Debug)]
pub struct Where {
    /// The name that the database was given; none in development.
    pub deployment: Option<String>,
    /// False in a copy made from a template.
    pub database_is_ours: bool,
    /// False after a dump and restore or a logical copy: transaction ids restarted.
    pub xids_are_ours: bool,
    /// False when the last acknowledged commit of this process is gone: history was rewound.
    pub remembered: bool,
    /// Why a person stopped all work, if one did.
    pub stopped: Option<String>,
    /// A standby cannot be claimed from: its snapshots leave out open writers.
    pub standby: bool,
    /// Why what leaves the database waits for a person, if it does.
    pub held: Option<String>,
    /// How often a person has let work go on.
    pub confirmed: i64,
    /// False when this run of the server is new, to everybody or to this process.
    pub greeted: bool,
}

impl Place {
    /// A new process. `deployment` is what the configuration says; it must equal the database's.
    pub fn new(deployment: Option<String>) -> Self {
        let acked = Mark {
            seq: 0,
            nonce: Uuid::nil(),
            history: 0,
        };
        let inner = Inner {
            next: 0,
            acked,
            history: 0,
            confirmed: 0,
            held: false,
            stopped: None,
        };
        Self {
            process: Uuid::new_v4(),
            schema: Schema::DEFAULT,
            deployment,
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// The same process, in another schema.
    #[must_use]
    pub fn schema(mut self, schema: Schema) -> Self {
        self.schema = schema;
        self
    }

    /// The schema that it works in.
    pub fn in_schema(&self) -> Schema {
        self.schema
    }

    /// The random identity of this process. Host names and pids never identify an owner.
    pub fn process(&self) -> Uuid {
        self.process
    }

    /// Why this process may not work on, once a check has failed.
    pub fn stopped(&self) -> Option<String> {
        self.lock().stopped.clone()
    }

    pub(super) fn next(&self) -> Mark {
        let mut inner = self.lock();
        inner.next += 1;
        Mark {
            seq: inner.next,
            nonce: Uuid::new_v4(),
            history: inner.history,
        }
    }

    pub(super) fn acked(&self) -> Mark {
        self.lock().acked
    }

    pub(super) fn acknowledge(&self, mark: Mark) {
        let mut inner = self.lock();
        if mark.history == inner.history && mark.seq > inner.acked.seq {
            inner.acked = mark;
        }
    }

    /// Asks a new connection. A failed check is remembered: this process stops, whatever later connections say.
    ///
    /// History that was rewound is no failure: it is written down, so that what leaves the database waits (committed when
    /// this returns), and the process begins anew with nothing to miss.
    ///
    /// # Errors
    /// [`Error::Stopped`] with what was found and what to do; [`Error::Standby`] on a standby.
    pub async fn check(&self, client: &Client) -> Result<Where, Error> {
        let mut acked = self.acked();
        let found = loop {
            let found = self.ask(client, acked).await?;
            let newer = self.acked();
            // A later commit was acknowledged meanwhile and has removed the mark that we asked for.
            if found.remembered || newer.seq == acked.seq {
                break found;
            }
            acked = newer;
        };
        self.judge(&found)?;
        if !found.remembered {
            self.rewound(client, &found, acked).await?;
        } else if !found.greeted {
            let sql = "select outlast._arrive($1, $2, $3)::text";
            self.tell(client, sql, acked).await?;
        }
        self.learn(&found);
        Ok(found)
    }

    /// The last acknowledged commit is not here. Unless a person has confirmed since, everybody is told.
    async fn rewound(&self, client: &Client, found: &Where, acked: Mark) -> Result<(), Error> {
        let process = self.process;
        if found.confirmed > self.lock().confirmed {
            tracing::warn!(%process, told = acked.seq, "a commit that this process was told of is not here; a person has confirmed that");
        } else {
            self.tell(client, "select outlast._rewound($1, $2)::text", acked)
                .await?;
            tracing::error!(%process, told = acked.seq, "history was rewound: a commit that this process was told of is not here; what leaves the database waits for `outlast restore confirm` (OUT-0021)");
        }
        let mut inner = self.lock();
        // Another connection may have done it meanwhile, and have been told of new commits.
        if inner.acked.seq == acked.seq {
            inner.history += 1;
            inner.acked = Mark {
                seq: 0,
                nonce: Uuid::nil(),
                history: inner.history,
            };
        }
        Ok(())
    }

    async fn tell(&self, client: &Client, sql: &'static str, acked: Mark) -> Result<(), Error> {
        let args: [(&(dyn ToSql + Sync), Type); 3] = [
            (&self.process, Type::UUID),
            (&acked.seq, Type::INT8),
            (&acked.nonce, Type::UUID),
        ];
        // Several connections come at once after a failover, and above READ COMMITTED, which may be the database's habit,
        // all but one of them would fail.
        client
            .batch_execute("begin isolation level read committed")
            .await?;
        client
            .query_typed(self.schema.statement(sql), &args)
            .await?;
        client.batch_execute("commit").await?;
        Ok(())
    }

    fn learn(&self, found: &Where) {
        let mut inner = self.lock();
        inner.confirmed = found.confirmed;
        let held = found.held.is_some();
        if held && !inner.held {
            let why = found.held.as_deref().unwrap_or_default();
            tracing::warn!(
                why,
                "held: consumers with effects outside of the database wait for `outlast restore confirm` (OUT-0021)"
            );
        }
        inner.held = held;
    }

    async fn ask(&self, client: &Client, acked: Mark) -> Result<Where, Error> {
        let row = client
            .query_typed(
                self.schema.statement("select deployment, database_is_ours, xids_are_ours, remembered, stopped, standby, held, confirmed, greeted from outlast._where($1, $2, $3)"),
                &[(&self.process, Type::UUID), (&acked.seq, Type::INT8), (&acked.nonce, Type::UUID)],
            )
            .await?
            .into_iter()
            .next()
            .ok_or_else(|| Error::Stopped("outlast._house is empty: this schema was not installed by migrate".into()))?;
        Ok(Where {
            deployment: row.try_get(0)?,
            database_is_ours: row.try_get(1)?,
            xids_are_ours: row.try_get(2)?,
            remembered: row.try_get(3)?,
            stopped: row.try_get(4)?,
            standby: row.try_get(5)?,
            held: row.try_get(6)?,
            confirmed: row.try_get(7)?,
            greeted: row.try_get(8)?,
        })
    }

    fn judge(&self, found: &Where) -> Result<(), Error> {
        if found.standby {
            return Err(Error::Standby);
        }
        let why = if let Some(why) = &found.stopped {
            why.clone()
        } else if found.deployment != self.deployment {
            format!(
                "this database is deployment {}, this process is configured for {}",
                name(found.deployment.as_deref()),
                name(self.deployment.as_deref())
            )
        } else if !found.database_is_ours {
            "this database is a copy of the one that was migrated (its oid differs)".into()
        } else if !found.xids_are_ours {
            "this database was restored from a dump or copied logically: transaction ids restarted"
                .into()
        } else {
            return Ok(());
        };
        self.lock().stopped.get_or_insert_with(|| why.clone());
        Err(Error::Stopped(why))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(deployment: Option<&str>) -> String {
    deployment.map_or_else(|| "none".to_owned(), |name| format!("`{name}`"))
}
