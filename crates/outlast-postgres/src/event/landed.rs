//! Whether an intent is there, after a COMMIT that nobody answered.

use super::{Accepted, column};
use crate::{
    Error,
    schema::Schema,
    tx::{OwnedTx, Pool, Tx},
};
use std::time::Duration;

/// What became of an intent whose COMMIT was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Landed {
    /// It committed: do not write it again.
    Landed,
    /// It is not there and never will be: its transaction has ended without it.
    NotLanded,
}

/// Looks for an intent, once the transaction that wrote it has ended.
///
/// A plain look-up would say "absent" while COMMIT is still on the wire, so this waits for that transaction's end; drop
/// the future to stop waiting. Writes nothing.
///
/// # Errors
/// When the database cannot be asked; then nothing is known yet.
pub async fn landed(
    pool: &impl Pool,
    schema: Schema,
    accepted: &Accepted,
) -> Result<Landed, Error> {
    const OWN: &str = "select pg_current_xact_id()::text";
    const LOOK: &str = "select pg_visible_in_snapshot($1::text::xid8, pg_current_snapshot())::text, \
        outlast._emitted($2::text::uuid)::text";
    let (xid, id) = (accepted.xid.to_string(), accepted.id.to_string());
    let mut pause = Duration::from_millis(2);
    loop {
        let mut tx = pool.begin().await?;
        // A transaction id that is not below a new one died in a crash, and its number may be handed out again.
        let own: u64 = column(&tx.call(OWN, &[]).await?, 0)?;
        tx.rollback().await?;
        // A new transaction, so that its snapshot is younger than that id in every isolation level.
        let mut tx = pool.begin().await?;
        let row = tx
            .call(
                schema.statement(LOOK),
                &[xid.as_str().into(), id.as_str().into()],
            )
            .await?;
        tx.rollback().await?;
        let (ended, there): (bool, bool) = (column(&row, 0)?, column(&row, 1)?);
        if ended || accepted.xid >= own {
            return Ok(if there {
                Landed::Landed
            } else {
                Landed::NotLanded
            });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}
