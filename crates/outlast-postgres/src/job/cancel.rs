//! Withdrawing what was accepted, job or command.

use outlast_core::{command, job};
use uuid::Uuid;

use super::{Asking, asked};
use crate::{
    Error,
    event::check::{self, Of},
    tx::Tx,
};

/// What became of a request to withdraw a job or a command. True when your transaction commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub enum Cancel {
    /// It will not run, or not any more.
    Withdrawn,
    /// It is running: if this try fails, there is no other; if it succeeds, it is done. A command was sent: it is withdrawn if that
    /// turns out to have had no effect.
    Requested,
    /// It had ended before.
    Ended,
    /// This tenant has none such.
    Absent,
}

/// Withdraws a job in the caller's transaction.
///
/// # Errors
/// [`Error::BadName`] without a reason, with nothing written. After [`Error::Database`] roll back.
pub async fn cancel(
    tx: &mut dyn Tx,
    asking: Asking<'_>,
    id: Uuid,
    why: &str,
) -> Result<Cancel, Error> {
    const SQL: &str =
        "select outlast.cancel(id => $1::text::uuid, reason => $2, tenant => $3, actor => $4)";
    let of = Of::job("cancel");
    said(of, why)?;
    asked(of, asking)?;
    let id = id.to_string();
    let args = [
        id.as_str().into(),
        why.into(),
        asking.tenant.into(),
        asking.actor.into(),
    ];
    let row = tx.call(asking.schema.statement(SQL), &args).await;
    cancelled(row.map_err(|error| error.in_schema(asking.schema))?)
}

/// Withdraws the job of a key in the caller's transaction; else as [`cancel`].
///
/// # Errors
/// As [`cancel`].
pub async fn cancel_key(
    tx: &mut dyn Tx,
    asking: Asking<'_>,
    about: (&str, &str),
    why: &str,
) -> Result<Cancel, Error> {
    cancel_by_key(tx, asking, (Of::job(about.0), "job"), about, why).await
}

/// Withdraws what has this key, of this kind.
pub(crate) async fn cancel_by_key(
    tx: &mut dyn Tx,
    asking: Asking<'_>,
    (of, kind): (Of<'_>, &str),
    (name, key): (&str, &str),
    why: &str,
) -> Result<Cancel, Error> {
    const SQL: &str = "select outlast.cancel_key(name => $1, key => $2, reason => $3, tenant => $4, actor => $5, kind => $6)";
    said(of, why)?;
    check::heading(of, 1, asking.tenant)?;
    check::key(of, Some(key))?;
    asked(of, asking)?;
    let args = [
        name.into(),
        key.into(),
        why.into(),
        asking.tenant.into(),
        asking.actor.into(),
        kind.into(),
    ];
    let row = tx.call(asking.schema.statement(SQL), &args).await;
    cancelled(row.map_err(|error| error.in_schema(asking.schema))?)
}

fn said(of: Of<'_>, why: &str) -> Result<(), Error> {
    if why.is_empty() || why.contains('\0') {
        return Err(Error::BadName(format!(
            "{of}: cancel it with a reason, for whoever asks later"
        )));
    }
    Ok(())
}

fn cancelled(row: Vec<Option<String>>) -> Result<Cancel, Error> {
    match row
        .into_iter()
        .next()
        .flatten()
        .unwrap_or_default()
        .as_str()
    {
        "withdrawn" => Ok(Cancel::Withdrawn),
        "requested" => Ok(Cancel::Requested),
        "absent" => Ok(Cancel::Absent),
        state if is_end(state) => Ok(Cancel::Ended),
        other => Err(Error::Unexpected(format!("cancel answered `{other}`"))),
    }
}

fn is_end(state: &str) -> bool {
    state.parse().is_ok_and(job::State::is_end) || state.parse().is_ok_and(command::State::is_end)
}
