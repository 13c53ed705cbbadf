//! How a job stands, for whoever enqueued it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlast_core::job::State;
use uuid::Uuid;

use super::Asking;
use crate::{Error, event::parse, tx::Tx};

/// How a job stands, as the caller's transaction sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// What kind of work it is: `job`, `command`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// What makes it the same job as another.
    pub key: Option<String>,
    /// How it stands.
    pub state: State,
    /// Why: of its end, else of its last failure.
    pub reason: Option<String>,
    /// How many tries were charged to it; while it runs, with this one.
    pub attempt: u32,
    /// When it was accepted.
    pub accepted_at: SystemTime,
    /// When it may run, if that is later.
    pub due_at: Option<SystemTime>,
    /// When it ended.
    pub ended_at: Option<SystemTime>,
    /// Since when it waits for a person.
    pub incident_at: Option<SystemTime>,
}

/// How a job stands; none if this tenant has none of this id, or it ended longer ago than `retention.job`.
///
/// # Errors
/// [`Error::Database`]; then roll back.
pub async fn status(
    tx: &mut dyn Tx,
    asking: Asking<'_>,
    id: Uuid,
) -> Result<Option<Status>, Error> {
    const SQL: &str = "select kind, name, key, state, reason, attempt::text, \
        (extract(epoch from accepted_at) * 1000000)::bigint::text, (extract(epoch from due_at) * 1000000)::bigint::text, \
        (extract(epoch from ended_at) * 1000000)::bigint::text, (extract(epoch from incident_at) * 1000000)::bigint::text \
        from outlast.status($1::text::uuid, $2)";
    super::asked(super::Of::job("status"), asking)?;
    let id = id.to_string();
    let args = [id.as_str().into(), asking.tenant.into()];
    let row = tx.call(asking.schema.statement(SQL), &args).await;
    let mut row = row.map_err(|error| error.in_schema(asking.schema))?;
    if row.is_empty() {
        return Ok(None);
    }
    row.resize(10, None);
    let text = |nth: usize| row[nth].clone();
    let time = |nth: usize| row[nth].as_deref().map(instant).transpose();
    let needed = |nth: usize| row[nth].as_deref().unwrap_or_default();
    Ok(Some(Status {
        kind: needed(0).to_owned(),
        name: needed(1).to_owned(),
        key: text(2),
        state: needed(3).parse().map_err(Error::Unexpected)?,
        reason: text(4),
        attempt: parse(needed(5))?,
        accepted_at: instant(needed(6))?,
        due_at: time(7)?,
        ended_at: time(8)?,
        incident_at: time(9)?,
    }))
}

fn instant(micros: &str) -> Result<SystemTime, Error> {
    let micros: i64 = parse(micros)?;
    let span = Duration::from_micros(micros.unsigned_abs());
    Ok(match micros >= 0 {
        true => UNIX_EPOCH + span,
        false => UNIX_EPOCH - span,
    })
}
