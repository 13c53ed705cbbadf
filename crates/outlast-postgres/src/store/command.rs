//! What a worker records of commands.

use std::time::Duration;

use outlast_core::command::Policy;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Store, millis};
use crate::Error;

/// What a provider has answered, for the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// settled, pending, rejected, obsolete; when it was asked also `not_applied` and unsure.
    pub result: &'static str,
    /// JSON.
    pub answer: Option<Vec<u8>>,
    /// What the provider calls it.
    pub reference: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

impl Store {
    /// Writes down that a command is about to leave; false: it must not, because it was settled, cancelled or lost meanwhile, or
    /// its provider may have forgotten the key. Committed when it returns.
    pub async fn sent(
        &self,
        token: Uuid,
        id: Uuid,
        lease: Duration,
        policy: Policy,
        replays: bool,
    ) -> Result<bool, Error> {
        let window = policy
            .resend_within
            .map(|window| i64::try_from(window.as_millis()).unwrap_or(i64::MAX));
        let row = self
            .one(
                "select count(*) from outlast._sent($1, array[$2], $3, $4, $5, $6)",
                &[
                    (&token, Type::UUID),
                    (&id, Type::UUID),
                    (&millis(lease), Type::INT4),
                    (&window, Type::INT8),
                    (&policy.looks, Type::BOOL),
                    (&replays, Type::BOOL),
                ],
            )
            .await?;
        Ok(row.get::<_, i64>(0) == 1)
    }

    /// Records what a provider has answered; answers the state of the command after it, or `late` when the lease was lost: then
    /// it counts as told by anybody. Committed when it returns.
    pub async fn record(
        &self,
        token: Uuid,
        id: Uuid,
        answered: &Answered,
        polled_every: Option<Duration>,
    ) -> Result<String, Error> {
        let polls = polled_every.map(|every| i64::try_from(every.as_millis()).unwrap_or(i64::MAX));
        let result = answered.result;
        let row = self
            .one(
                "select outlast._record($1, $2, $3, $4, $5, $6, $7)",
                &[
                    (&token, Type::UUID),
                    (&id, Type::UUID),
                    (&result, Type::TEXT),
                    (&answered.answer, Type::BYTEA),
                    (&answered.reference, Type::TEXT),
                    (&answered.reason, Type::TEXT),
                    (&polls, Type::INT8),
                ],
            )
            .await?;
        Ok(row.get(0))
    }
}
