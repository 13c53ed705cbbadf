//! What a worker records under a lease: seals, failures, starts, the end of a batch.

use std::time::Duration;

use outlast_core::Failure;
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};
use uuid::Uuid;

use super::{Seen, Store};
use crate::Error;

impl Store {
    /// Seals events that an effect handler returned `Ok` for. Committed when it returns. `repeated` tolerates those that
    /// are sealed already: after a takeover, or when the answer to the same call was lost.
    pub async fn seal(&self, token: Uuid, ids: &[Uuid], repeated: bool) -> Result<(), Error> {
        self.one(
            "select outlast._seal($1, $2, $3)",
            &[
                (&token, Type::UUID),
                (&ids, Type::UUID_ARRAY),
                (&repeated, Type::BOOL),
            ],
        )
        .await
        .map(drop)
    }

    /// Completes one event, as skipped for a reason. Committed when it returns.
    pub async fn skip(&self, token: Uuid, id: Uuid, reason: &str) -> Result<(), Error> {
        self.one(
            "select outlast.complete($1, $2, 'skipped', $3)::text",
            &[
                (&token, Type::UUID),
                (&id, Type::UUID),
                (&reason, Type::TEXT),
            ],
        )
        .await
        .map(drop)
    }

    /// Marks events of a reclaimed batch as about to start. Committed when it returns.
    pub async fn start(&self, token: Uuid, ids: &[Uuid]) -> Result<(), Error> {
        self.one(
            "select outlast._start($1, $2)::text",
            &[(&token, Type::UUID), (&ids, Type::UUID_ARRAY)],
        )
        .await
        .map(drop)
    }

    /// Records a failure; answers what became of the event: `retry`, `behind` or `quarantined`. Committed when it returns.
    /// On an ordered consumer later events of its key go behind it in the same commit.
    pub async fn fail(
        &self,
        token: Uuid,
        id: Uuid,
        failure: &Failure,
        charged: bool,
    ) -> Result<String, Error> {
        let (class, reason, after) = asked(failure);
        let row = self
            .one(
                "select outlast._fail($1, $2, $3, $4, $5, $6)",
                &[
                    (&token, Type::UUID),
                    (&id, Type::UUID),
                    (&class, Type::TEXT),
                    (&reason, Type::TEXT),
                    (&after, Type::INT8),
                    (&charged, Type::BOOL),
                ],
            )
            .await?;
        Ok(row.get(0))
    }

    /// Whether the transaction `xid`, whose COMMIT was not answered, has sealed this event. Waits until it has ended.
    ///
    /// # Errors
    /// [`Error::Stalled`] while it is still open after some seconds; ask again.
    pub async fn landed(&self, consumer: i32, id: Uuid, xid: u64) -> Result<bool, Error> {
        let text = xid.to_string();
        let args: [(&(dyn ToSql + Sync), Type); 3] = [
            (&consumer, Type::INT4),
            (&id, Type::UUID),
            (&text, Type::TEXT),
        ];
        let sql = "select outlast._landed($1, $2, $3::text::xid8)";
        self.landed_by(sql, &args, xid).await
    }

    /// Asks until there is an answer.
    pub(super) async fn landed_by(
        &self,
        sql: &str,
        args: &[(&(dyn ToSql + Sync), Type)],
        xid: u64,
    ) -> Result<bool, Error> {
        for _ in 0..100 {
            let row = self.one(sql, args).await?;
            if let Some(landed) = row.get::<_, Option<bool>>(0) {
                return Ok(landed);
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        Err(Error::Stalled {
            what: format!("the end of transaction {xid}"),
            after: Duration::from_secs(3),
        })
    }

    /// Whether this event was sealed under this lease, where COMMIT was not answered and the transaction has no known id.
    /// Waits until every open seal under the lease has ended.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] when somebody newer owns the work.
    pub async fn settled(&self, token: Uuid, id: Uuid) -> Result<bool, Error> {
        let args = [(&token as _, Type::UUID), (&id as _, Type::UUID)];
        let row = self.one("select outlast._settled($1, $2)", &args).await?;
        Ok(row.get(0))
    }

    /// Which of these events, side by side with the tokens that they run under, have ended; the others are open.
    pub async fn accepted(
        &self,
        consumer: i32,
        tokens: &[Uuid],
        ids: &[Uuid],
    ) -> Result<Vec<(Uuid, Uuid, Seen)>, Error> {
        let rows = self
            .rows(
                "select token, id, state from outlast._accepted($1, $2, $3)",
                &[
                    (&consumer, Type::INT4),
                    (&tokens, Type::UUID_ARRAY),
                    (&ids, Type::UUID_ARRAY),
                ],
            )
            .await?;
        let seen = |row: &Row| {
            let seen = match row.get(2) {
                "sealed" => Seen::Sealed,
                "failed" => Seen::Failed,
                _ => Seen::Lost,
            };
            (row.get(0), row.get(1), seen)
        };
        Ok(rows.iter().map(seen).collect())
    }

    /// Parks an event that no handler of this process can read, without a charge. Committed when it returns.
    pub async fn wait_for_version(&self, token: Uuid, id: Uuid) -> Result<(), Error> {
        self.one(
            "select outlast._wait_for_version($1, $2)::text",
            &[(&token, Type::UUID), (&id, Type::UUID)],
        )
        .await
        .map(drop)
    }

    /// Ends the batches of these tokens by what the tables say; answers how many events were left over and parked.
    /// Committed when it returns.
    pub async fn finish(&self, tokens: &[Uuid]) -> Result<usize, Error> {
        let rows = self
            .remembered(
                "select leftovers from outlast._finish($5, $1, $2, $3, $4)",
                &[(&tokens, Type::UUID_ARRAY)],
            )
            .await?;
        Ok(rows
            .iter()
            .map(|row| usize::try_from(row.get::<_, i32>(0)).unwrap_or(0))
            .sum())
    }

    /// The last seals of a batch and its end, in one commit: as [`Store::seal`] and [`Store::finish`].
    pub async fn seal_and_finish(
        &self,
        token: Uuid,
        ids: &[Uuid],
        repeated: bool,
    ) -> Result<usize, Error> {
        let rows = self
            .remembered(
                "select outlast._seal_and_finish($5, $6, $7, $1, $2, $3, $4)",
                &[
                    (&token, Type::UUID),
                    (&ids, Type::UUID_ARRAY),
                    (&repeated, Type::BOOL),
                ],
            )
            .await?;
        let leftovers = rows.first().and_then(|row| row.get::<_, Option<i32>>(0));
        Ok(leftovers.and_then(|n| usize::try_from(n).ok()).unwrap_or(0))
    }

    /// Gives a batch back without a charge; `running` are the ids that a handler still works on.
    pub async fn hand_back(&self, token: Uuid, running: &[Uuid]) -> Result<(), Error> {
        self.one(
            "select outlast._hand_back($1, $2)::text",
            &[(&token, Type::UUID), (&running, Type::UUID_ARRAY)],
        )
        .await
        .map(drop)
    }
}

/// A failure as the arguments of a statement: its class, its reason, and how long to wait at least.
pub(super) fn asked(failure: &Failure) -> (&'static str, String, Option<i64>) {
    let after = failure
        .after
        .map(|after| i64::try_from(after.as_millis()).unwrap_or(i64::MAX));
    let reason = outlast_core::text::clean(&failure.reason, 4096);
    (failure.class.as_str(), reason, after)
}
