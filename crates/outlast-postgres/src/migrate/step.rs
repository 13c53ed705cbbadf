//! One step of a migration: one transaction, under the lock of all runs and with patience for those who use the tables.

use std::time::Duration;

use tokio_postgres::{Client, Transaction, error::SqlState};

use super::{FUNCTIONS, MIGRATIONS, Migration, files};
use crate::{Error, schema::Schema};

/// How long one step waits for a lock. Everybody who wants the table queues behind it meanwhile: emits, too.
const LOCK_TIMEOUT: &str = "300ms";
/// How long the others may pass before it tries again.
const LOCK_PAUSE: Duration = Duration::from_secs(1);
/// How often a step tries to get its locks before the run gives up: about a minute.
const LOCK_TRIES: u32 = 45;
/// Two runs of `migrate` on one database take turns by this advisory lock, whatever their schemas.
const RUN_LOCK: i64 = 0x6f75_746c_6173_7401;

#[derive(Clone, Copy)]
pub(super) enum Step {
    Migration(&'static Migration),
    /// The texts of functions and views, and the rights of roles, which follow from what is there.
    Functions,
}

/// What became of a step.
#[derive(Default)]
pub(super) struct Done {
    /// False when it had been done already.
    pub(super) applied: bool,
    /// What this login may not do.
    pub(super) left: Vec<String>,
}

impl Step {
    /// One step in one transaction.
    pub(super) async fn apply(self, client: &mut Client, schema: Schema) -> Result<Done, Error> {
        for attempt in 1.. {
            match self.once(client, schema).await {
                Err(Error::Database(e))
                    if attempt < LOCK_TRIES && lock_not_available(e.state()) =>
                {
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                Err(error) => return Err(error.in_schema(schema)),
                Ok(done) => return Ok(done),
            }
        }
        unreachable!("the loop returns")
    }

    async fn once(self, client: &mut Client, schema: Schema) -> Result<Done, Error> {
        let tx = client.transaction().await?;
        // Waiting for another run is no reason to give up, so the timeout comes after this lock.
        tx.execute("select pg_advisory_xact_lock($1)", &[&RUN_LOCK])
            .await?;
        tx.batch_execute(&format!(
            "set local lock_timeout = '{LOCK_TIMEOUT}'; set local client_min_messages = warning"
        ))
        .await?;
        tx.batch_execute(&schema.text(files::BOOTSTRAP)).await?;
        let done = match self {
            Self::Migration(migration) => migrate(&tx, schema, migration).await?,
            Self::Functions => functions(&tx, schema).await?,
        };
        tx.commit().await?;
        Ok(done)
    }
}

async fn migrate(
    tx: &Transaction<'_>,
    schema: Schema,
    migration: &Migration,
) -> Result<Done, Error> {
    let ask = schema.text("select from outlast._migration where version = $1");
    let version = migration.version as i32;
    if tx.query_opt(&*ask, &[&version]).await?.is_some() {
        return Ok(Done::default());
    }
    tx.batch_execute(&schema.text(migration.sql)).await?;
    tx.batch_execute(&schema.text(&record(migration))).await?;
    Ok(Done {
        applied: true,
        left: Vec::new(),
    })
}

async fn functions(tx: &Transaction<'_>, schema: Schema) -> Result<Done, Error> {
    let known = MIGRATIONS[MIGRATIONS.len() - 1].version;
    let newest = schema.text("select coalesce(max(version), 0) from outlast._migration");
    let found = tx.query_one(&*newest, &[]).await?.get::<_, i32>(0);
    // A newer program may have been here since the run began: its texts stay.
    if i64::from(found) > i64::from(known) {
        let found = u32::try_from(found).unwrap_or(0);
        return Err(Error::NewerSchema { found, known });
    }
    let ask = schema.text("select from outlast._functions where digest = $1");
    let applied = tx.query_opt(&*ask, &[&digest()]).await?.is_none();
    if applied {
        // Bodies name each other; all of them are there at the end of this transaction.
        tx.batch_execute("set local check_function_bodies = off")
            .await?;
        for (_, text) in FUNCTIONS {
            tx.batch_execute(&schema.text(text)).await?;
        }
        tx.batch_execute(&schema.text(&record_functions())).await?;
    }
    // Each time: an administrator may have made a role meanwhile. And in the same commit as the texts: a function that
    // was replaced has neither its owner's rights nor its search path until then.
    let secure = schema.text("select * from outlast._secure()");
    let left = tx.query(&*secure, &[]).await?;
    Ok(Done {
        applied,
        left: left.iter().map(|row| row.get(0)).collect(),
    })
}

pub(super) fn record(m: &Migration) -> String {
    format!(
        "insert into outlast._migration (version, name, breaking, applied_by) values ({}, '{}', {}, '{}');",
        m.version,
        m.name,
        m.breaking,
        env!("CARGO_PKG_VERSION")
    )
}

pub(super) fn record_functions() -> String {
    format!(
        "delete from outlast._functions; insert into outlast._functions (digest, applied_by) values ('{}', '{}');",
        digest(),
        env!("CARGO_PKG_VERSION")
    )
}

/// Tells one set of function texts from another (FNV-1a; nobody attacks it).
pub(super) fn digest() -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for (_, text) in FUNCTIONS {
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

fn lock_not_available(state: Option<&str>) -> bool {
    [
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::T_R_DEADLOCK_DETECTED,
    ]
    .iter()
    .any(|s| Some(s.code()) == state)
}
