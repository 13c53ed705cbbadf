//! Rows of an outbox table, from their claim to what became of them. Each is one call of one SQL function, which works with the
//! rights of this login wherever it speaks to a table that is not ours.

use std::time::Duration;

use outlast_core::Failure;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Outbox, Outboxes};
use crate::{
    Error,
    store::{Claim, Claimed, Store, int, millis},
};

/// What a look at an outbox has brought.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    /// The lease of what was claimed, if anything was.
    pub token: Option<Uuid>,
    /// Whether anything was looked at.
    pub state: State,
    /// How many rows were set aside, because they can never be published.
    pub aside: usize,
    /// At which block of the table the next look begins.
    pub next: i64,
    /// That is its beginning: the whole table was looked at.
    pub round: bool,
}

/// Whether an outbox could be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was.
    Open,
    /// Another relay claims of it at this moment.
    Busy,
    /// An operator has paused it.
    Paused,
}

impl Store {
    /// The outboxes whose rows go to this broker, by name.
    pub async fn outboxes(&self, broker: &str) -> Result<Outboxes, Error> {
        let sql = "select name, definition from outlast._outboxes($1)";
        let rows = self.rows(sql, &[(&broker, Type::TEXT)]).await?;
        rows.iter()
            .map(|row| {
                let read = serde_json::from_value::<Outbox>(row.try_get(1)?);
                let outbox = read.map_err(|why| Error::Unexpected(format!("an outbox: {why}")))?;
                Ok((row.try_get(0)?, outbox))
            })
            .collect()
    }

    /// Everything that keeps this login from reading an outbox, a sentence each.
    pub async fn outbox_problems(&self, outbox: &str) -> Result<Vec<String>, Error> {
        let sql = "select * from outlast._outbox_problems($1)";
        let rows = self.rows(sql, &[(&outbox, Type::TEXT)]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Takes rows of an outbox, at most so many of so many bytes together and `most` each, beginning at a block. Committed, and
    /// durable, when it returns; nothing of theirs is locked, nor changed but where a row was set aside.
    ///
    /// # Errors
    /// [`Error::Config`] when the table is not there any more; [`Error::Database`] when this login may not read it, or when
    /// its columns have other types by now.
    pub async fn claim_outbox(
        &self,
        (consumer, outbox): (i32, &str),
        (rows, bytes, most): (usize, usize, usize),
        lease: Duration,
        block: i64,
    ) -> Result<Looked, Error> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let rows = self
            .remembered(
                "select token, state, aside, next_block, round from outlast._outbox_claim($5, $6, $7, $8, $9, $10, $11, $1, $2, $3, $4)",
                &[
                    (&consumer, Type::INT4),
                    (&outbox, Type::TEXT),
                    (&int(rows), Type::INT4),
                    (&bytes, Type::INT8),
                    (&int(most), Type::INT4),
                    (&millis(lease), Type::INT4),
                    (&block, Type::INT8),
                ],
            )
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| Error::Unexpected("a claim of an outbox without an answer".into()))?;
        Ok(Looked {
            token: row.try_get(0)?,
            state: match row.try_get(1)? {
                "open" => State::Open,
                "busy" => State::Busy,
                _ => State::Paused,
            },
            aside: usize::try_from(row.try_get::<_, i32>(2)?).unwrap_or(0),
            next: row.try_get(3)?,
            round: row.try_get(4)?,
        })
    }

    /// The rows of a claim as events, in their order. Those that somebody has deleted meanwhile are left out.
    pub async fn read_outbox(&self, outbox: &str, token: Uuid) -> Result<Vec<Claimed>, Error> {
        let rows = self
            .rows(
                "select * from outlast._outbox_read($1, $2)",
                &[(&outbox, Type::TEXT), (&token, Type::UUID)],
            )
            .await?;
        Ok(Claim::from_rows(&rows)?.events)
    }

    /// The broker has confirmed these: their rows are deleted, or marked. Committed when it returns. Answers how many there were
    /// still.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] when somebody newer owns them.
    pub async fn outbox_done(
        &self,
        outbox: &str,
        token: Uuid,
        ids: &[Uuid],
    ) -> Result<usize, Error> {
        let rows = self
            .remembered(
                "select outlast._outbox_done($5, $6, $7, $1, $2, $3, $4)",
                &[
                    (&outbox, Type::TEXT),
                    (&token, Type::UUID),
                    (&ids, Type::UUID_ARRAY),
                ],
            )
            .await?;
        let row = rows.first();
        let done = row.map(|row| row.try_get::<_, i32>(0)).transpose()?;
        Ok(usize::try_from(done.unwrap_or(0)).unwrap_or(0))
    }

    /// One of a claim was not published: a whole copy of it is parked, and its row goes in the same commit. Answers what became
    /// of it.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] when somebody newer owns it.
    pub async fn outbox_failed(
        &self,
        outbox: &str,
        (token, id): (Uuid, Uuid),
        failure: &Failure,
        charged: bool,
    ) -> Result<String, Error> {
        let after = failure
            .after
            .map(|after| i64::try_from(after.as_millis()).unwrap_or(i64::MAX));
        let reason = outlast_core::text::clean(&failure.reason, outlast_core::text::LIMIT);
        let row = self
            .one(
                "select outlast._outbox_failed($1, $2, $3, $4, $5, $6, $7)",
                &[
                    (&outbox, Type::TEXT),
                    (&token, Type::UUID),
                    (&id, Type::UUID),
                    (&failure.class.as_str(), Type::TEXT),
                    (&reason, Type::TEXT),
                    (&after, Type::INT8),
                    (&charged, Type::BOOL),
                ],
            )
            .await?;
        Ok(row.try_get(0)?)
    }

    /// Ends a claim. What is left of it may be claimed again at once; `kept` may have been sent. `lost`: one of them may be what
    /// has broken the relay. Committed when it returns.
    pub async fn end_outbox(&self, token: Uuid, kept: &[Uuid], lost: bool) -> Result<(), Error> {
        self.rows(
            "select outlast._outbox_end($1, $2, $3)::text",
            &[
                (&token, Type::UUID),
                (&kept, Type::UUID_ARRAY),
                (&lost, Type::BOOL),
            ],
        )
        .await
        .map(drop)
    }
}
