//! The seal: the completion of an event, written as the last statement of the transaction that holds its effects.

use super::{Delivery, Kind};
use crate::crash::{self, Point};
use outlast_core::{Failure, Outcome};
use outlast_postgres::{
    Error,
    event::array,
    schema::Schema,
    tx::{Tx, Value},
};
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// How far the completion of one try got.
#[derive(Debug, Default)]
pub(crate) enum SealState {
    /// Nothing yet.
    #[default]
    Open,
    /// `on_tx` and `on_batch` seal by themselves.
    Engine,
    /// The handler tried and was refused: somebody newer owns the event.
    Refused(Error),
    /// The handler's COMMIT was sent and not answered.
    Unsure(Option<u64>),
    /// The handler committed it.
    Sealed,
}

/// Shared by the attempt that a handler holds and the task that judges how it ended.
#[derive(Clone, Default)]
pub(crate) struct Seal(Arc<Mutex<SealState>>);

impl Seal {
    pub(crate) fn is_open(&self) -> bool {
        matches!(*self.lock(), SealState::Open)
    }

    pub(crate) fn set(&self, state: SealState) {
        *self.lock() = state;
    }

    pub(super) fn take(&self) -> SealState {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SealState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refused by `outlast.complete`: the transaction that was begun for the handler is not there any more.
const ENDED: &str = "without the transaction that was begun";

/// The statement that seals one event as done, for [`OwnedTx::commit_after`]; needs a transaction that was begun with
/// [`BEGIN`](outlast_postgres::tx::BEGIN). None where this try has to go step by step.
///
/// [`OwnedTx::commit_after`]: outlast_postgres::tx::OwnedTx::commit_after
pub(crate) fn last(delivery: &Delivery, outcome: &Outcome, marked: bool) -> Option<String> {
    let at_once = marked && *outcome == Outcome::Done && !crash::is_armed(Point::Sealed);
    let (schema, token, id) = (delivery.schema.name(), delivery.token, delivery.event.id);
    at_once.then(|| format!("select {schema}._seal_last('{token}', '{id}')"))
}

/// Seals one event; the last statement before COMMIT. Answers the transaction's id, by which an unanswered COMMIT is
/// settled.
///
/// `marked` says that the transaction was begun with [`BEGIN`](outlast_postgres::tx::BEGIN): then a handler that ended
/// it by itself is refused, because its seal would commit alone, without its effects.
pub(crate) async fn one(
    tx: &mut dyn Tx,
    delivery: &Delivery,
    outcome: &Outcome,
    marked: bool,
) -> Result<Option<u64>, Error> {
    // Of jobs each is completed by itself.
    if *outcome == Outcome::Done && delivery.kind == Kind::Consumer {
        return many(
            tx,
            delivery.schema,
            delivery.token,
            &[delivery.event.id],
            marked,
        )
        .await;
    }
    if let Some(tombstone) = &delivery.tombstone {
        return deletion(tx, delivery, tombstone.id).await;
    }
    const SQL: &str = "select outlast.complete(token => $1::text::uuid, id => $2::text::uuid, \
        outcome => case when $5::text = current_setting('outlast.begun', true) or $5::text is null then $3::text else $6::text end, \
        reason => $4::text)::text, pg_current_xact_id()::text";
    let (token, id) = (delivery.token.to_string(), delivery.event.id.to_string());
    let args = [
        token.as_str().into(),
        id.as_str().into(),
        outcome.as_str().into(),
        outcome.reason().into(),
        mark(marked),
        ENDED.into(),
    ];
    crash::at(Point::Sealing);
    let row = tx
        .call(delivery.schema.statement(SQL), &args)
        .await
        .map_err(own)?;
    crash::at(Point::Sealed);
    Ok(number(&row, 1))
}

/// Records that what a deletion named is gone; what else was claimed of the entity goes on.
async fn deletion(
    tx: &mut dyn Tx,
    delivery: &Delivery,
    tombstone: i64,
) -> Result<Option<u64>, Error> {
    const SQL: &str = "select outlast._cleaned(token => $1::text::uuid, id => $2::text::uuid, \
        tombstones => array[$3::text::bigint])::text, pg_current_xact_id()::text";
    let (token, id) = (delivery.token.to_string(), delivery.event.id.to_string());
    let tombstone = tombstone.to_string();
    let args = [
        token.as_str().into(),
        id.as_str().into(),
        tombstone.as_str().into(),
    ];
    crash::at(Point::Sealing);
    let row = tx
        .call(delivery.schema.statement(SQL), &args)
        .await
        .map_err(own)?;
    crash::at(Point::Sealed);
    Ok(number(&row, 1))
}

/// Seals many events of one claim; the last statement before COMMIT.
pub(crate) async fn many(
    tx: &mut dyn Tx,
    schema: Schema,
    token: Uuid,
    ids: &[Uuid],
    marked: bool,
) -> Result<Option<u64>, Error> {
    const SQL: &str = "select outlast._seal(token => $1::text::uuid, \
        ids => case when $3::text = current_setting('outlast.begun', true) or $3::text is null then $2::text::uuid[] end)::text, \
        pg_current_xact_id()::text";
    let token = token.to_string();
    let texts: Vec<_> = ids.iter().map(Uuid::to_string).collect();
    let list = array(texts.iter().map(|id| Some(id.as_str())));
    let args = [token.as_str().into(), list.as_str().into(), mark(marked)];
    crash::at(Point::Sealing);
    let row = tx.call(schema.statement(SQL), &args).await.map_err(own)?;
    crash::at(Point::Sealed);
    // Without its mark it sealed none.
    if number(&row, 0) != Some(ids.len() as u64) {
        return Err(Error::NoTransaction);
    }
    Ok(number(&row, 1))
}

fn mark(marked: bool) -> Value<'static> {
    Value::Text(marked.then_some("yes"))
}

fn number(row: &[Option<String>], nth: usize) -> Option<u64> {
    row.get(nth)?.as_deref()?.parse().ok()
}

/// What an error of the sealing statement means here.
pub(crate) fn own(error: Error) -> Error {
    match error {
        // The arguments are ours, so only `ENDED` can be refused.
        Error::BadName(_) => Error::NoTransaction,
        Error::Database(error) => match error.state() {
            Some("25P02") => Error::RolledBack,
            // Plain inserts: a seal of a former owner is a unique violation.
            Some("23505") => Error::AlreadySealed,
            _ => Error::Database(error),
        },
        other => other,
    }
}

/// Somebody newer owns the event, or everything is stopped: not a failure of the handler.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::LeaseLost | Error::AlreadySealed | Error::NotInClaim | Error::Stopped(_)
    )
}

/// The failure of a try whose seal or commit did not come about.
pub(crate) fn failure(error: &Error) -> Failure {
    match error {
        Error::NoTransaction => Failure::permanent(
            "the handler ended its transaction itself: leave begin, commit and rollback to Outlast",
        ),
        Error::RolledBack => Failure::unclassified(
            "the handler returned Ok, but a statement of its transaction had failed and its error was swallowed",
        ),
        other => Failure::of(other),
    }
}
