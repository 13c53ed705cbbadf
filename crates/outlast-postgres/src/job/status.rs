//! How a job stands, for whoever enqueued it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlast_core::{command, job};
use uuid::Uuid;

use super::Asking;
use crate::{Error, event::parse, tx::Tx};

/// How a job or a command stands, as the caller's transaction sees it.
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
    pub state: Stands,
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

/// How a job or a command stands.
///
/// ```
/// use outlast_core::{command, job};
/// use outlast_postgres::job::Stands;
///
/// assert!(Stands::Job(job::State::Done) == job::State::Done);
/// assert!(Stands::Command(command::State::Unknown) == command::State::Unknown);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stands {
    /// A job.
    Job(job::State),
    /// A command.
    Command(command::State),
}

impl Stands {
    /// The word that SQL, HTTP and the command line use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Job(state) => state.as_str(),
            Self::Command(state) => state.as_str(),
        }
    }

    /// Whether it never changes any more.
    pub const fn is_end(self) -> bool {
        match self {
            Self::Job(state) => state.is_end(),
            Self::Command(state) => state.is_end(),
        }
    }
}

impl PartialEq<job::State> for Stands {
    fn eq(&self, other: &job::State) -> bool {
        matches!(self, Self::Job(state) if state == other)
    }
}

impl PartialEq<command::State> for Stands {
    fn eq(&self, other: &command::State) -> bool {
        matches!(self, Self::Command(state) if state == other)
    }
}

/// How a job or a command stands; none if this tenant has none of this id, or it ended longer ago than `retention.job`.
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
    let state = match needed(0) {
        "command" => needed(3).parse().map(Stands::Command),
        _ => needed(3).parse().map(Stands::Job),
    };
    Ok(Some(Status {
        kind: needed(0).to_owned(),
        name: needed(1).to_owned(),
        key: text(2),
        state: state.map_err(Error::Unexpected)?,
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
