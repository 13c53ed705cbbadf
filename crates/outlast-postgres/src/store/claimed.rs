//! What a claim hands out.

use std::time::SystemTime;

use bytes::Bytes;
use outlast_core::broker::Envelope;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use super::EntityTry;
use crate::Error;

/// The answer of a claim.
#[derive(Debug, Default)]
pub struct Claim {
    /// The events, grouped by their token, in id order within each.
    pub events: Vec<Claimed>,
    /// Nothing was found in the part that was looked at, but there is more: claim again at once.
    pub more: bool,
}

/// One event under a lease: the whole envelope and the exact payload bytes.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the columns of the log, by their own names")]
pub struct Claimed {
    pub token: Uuid,
    pub event_id: Uuid,
    pub log_id: i64,
    pub kind: String,
    pub version: i32,
    pub tenant: String,
    pub key: Option<String>,
    pub actor: Option<String>,
    pub correlation_id: Option<Uuid>,
    pub causation_id: Option<Uuid>,
    pub traceparent: Option<String>,
    pub headers: Option<Value>,
    pub source: Option<String>,
    pub subject: Option<String>,
    pub aggregate_version: Option<i64>,
    pub content_type: String,
    pub codec_key: Option<String>,
    pub payload: Bytes,
    pub emitted_at: SystemTime,
    /// 1 + reclaims of its batch + failures charged to it.
    pub attempt: i32,
    /// Of its batch; from 1 on, ids are marked before they start.
    pub reclaims: i32,
    /// Its number within its key, if it was emitted with one.
    pub key_seq: Option<i64>,
    /// The lane of its batch; none for a parked event.
    pub lane: Option<i32>,
    /// What is to be done with it, if it is a command.
    pub command: Option<Box<CommandTry>>,
    /// What was kept and what is to be cleaned up, if it is an entity.
    pub entity: Option<Box<EntityTry>>,
}

/// What a claim says of a command besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTry {
    /// What is due.
    pub due: CommandDue,
    /// What the provider is told, so that it knows the command again.
    pub provider_key: String,
    /// What the provider calls it, if it has said.
    pub reference: Option<String>,
}

/// What is due with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandDue {
    /// It is to be sent.
    Send,
    /// It is unknown, and its provider is to be asked.
    Look,
    /// It is pending, and its provider is to be asked.
    Poll,
}

/// How an event ended that somebody outside has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is complete.
    Sealed,
    /// It was given to a later try.
    Failed,
    /// The lease is not there any more: somebody newer owns it.
    Lost,
}

impl Claimed {
    /// Whether its batch is of a side lane, which holds tenants with a backlog only.
    pub fn aside(&self) -> bool {
        self.lane.is_some_and(|lane| lane >= 1024)
    }

    /// What it is without its payload, as it leaves. It does not say which log it is of, because that has no name here.
    pub fn envelope(&self) -> Envelope {
        let mut envelope = Envelope::new(self.event_id, self.kind.as_str(), self.emitted_at);
        envelope.version = u16::try_from(self.version).unwrap_or(u16::MAX);
        envelope.tenant.clone_from(&self.tenant);
        envelope.key.clone_from(&self.key);
        envelope.key_seq = self.key_seq;
        envelope.aggregate_version = self.aggregate_version;
        envelope.source.clone_from(&self.source);
        envelope.subject.clone_from(&self.subject);
        envelope.actor.clone_from(&self.actor);
        envelope.correlation_id = self.correlation_id;
        envelope.causation_id = self.causation_id;
        envelope.traceparent.clone_from(&self.traceparent);
        envelope.content_type.clone_from(&self.content_type);
        envelope.codec_key.clone_from(&self.codec_key);
        // They were checked when they were emitted: strings only.
        if let Some(Value::Object(headers)) = &self.headers {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let all = headers.iter();
            envelope.headers = all
                .filter_map(|(name, value)| Some((name.clone(), text(value)?)))
                .collect();
        }
        envelope
    }
}

impl Claim {
    pub(crate) fn from_rows(rows: &[Row]) -> Result<Self, Error> {
        let mut claim = Self::default();
        for row in rows {
            if row.try_get::<_, Option<Uuid>>(0)?.is_none() {
                claim.more = true;
                continue;
            }
            claim.events.push(Claimed {
                token: row.try_get(0)?,
                event_id: row.try_get(1)?,
                log_id: row.try_get(2)?,
                kind: row.try_get(3)?,
                version: row.try_get(4)?,
                tenant: row.try_get(5)?,
                key: row.try_get(6)?,
                actor: row.try_get(7)?,
                correlation_id: row.try_get(8)?,
                causation_id: row.try_get(9)?,
                traceparent: row.try_get(10)?,
                headers: row.try_get(11)?,
                source: row.try_get(12)?,
                subject: row.try_get(13)?,
                aggregate_version: row.try_get(14)?,
                content_type: row.try_get(15)?,
                codec_key: row.try_get(16)?,
                payload: row.try_get::<_, Vec<u8>>(17)?.into(),
                emitted_at: row.try_get(18)?,
                attempt: row.try_get(19)?,
                reclaims: row.try_get(20)?,
                command: None,
                entity: None,
                lane: row.try_get(21)?,
                key_seq: row.try_get(22)?,
            });
        }
        Ok(claim)
    }
}
