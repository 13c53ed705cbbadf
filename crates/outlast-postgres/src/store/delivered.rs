//! Statements of consumers that read a broker: claim what was delivered, hand over what failed, keep what nobody can read.
//!
//! Each commits durably before it returns: only then may a message be acked. What a broker has delivered is a [`Claimed`]
//! like any other; its copy goes along with every call, because the log may not be in this database.

use std::time::Duration;

use bytes::Bytes;
use outlast_core::{Failure, broker::Envelope, name};
use serde_json::{Map, Value, json};
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use super::{Claimed, Registered, Registration, Store, millis};
use crate::Error;

/// What a consumer reads instead of the log.
#[derive(Clone, Debug)]
pub struct Reads {
    /// What kind of broker, one word.
    pub broker: String,
    /// What it reads there.
    pub topic: String,
    /// The name of its subscription.
    pub subscription: String,
    /// How long a delivery is its own.
    pub ack_within: Duration,
}

/// What is to be done with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is ours, under this token: run it.
    Run(Uuid),
    /// It was completed before: ack it.
    Done,
    /// The retry owns it, durably: ack it.
    Parked,
    /// It is not this consumer's: ack it.
    Other,
    /// Somebody has it: not now, deliver it again after so long. Never settled.
    Defer(Duration),
    /// The consumer is paused: as [`Verdict::Defer`].
    Paused(Duration),
}

/// One event of a call, judged.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// Which event.
    pub event_id: Uuid,
    /// What is to be done with it.
    pub verdict: Verdict,
    /// Which try it is, from 1: one more than the owners that were lost.
    pub attempt: i32,
    /// How many owners were lost; from 1 on, ids are marked before they start.
    pub reclaims: i32,
    /// It was parked by this very call.
    pub kept: bool,
}

impl Store {
    /// Registers a consumer that reads a broker, or the types that it did not have. Committed when it returns.
    ///
    /// # Errors
    /// [`Error::BadName`] where a consumer of this name reads the log, or is registered with another order or filter.
    pub async fn register_delivered(
        &self,
        r: &Registration,
        reads: &Reads,
    ) -> Result<Registered, Error> {
        let attempts = i32::try_from(r.attempts).unwrap_or(i32::MAX);
        let filter = |names: &Vec<String>| (!names.is_empty()).then(|| names.clone());
        let (tenants, sources) = (filter(&r.tenants), filter(&r.sources));
        let row = self
            .one(
                "select id, state, reason from outlast._register_delivered($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
                &[
                    (&r.name, Type::TEXT),
                    (&r.types, Type::TEXT_ARRAY),
                    (&reads.broker, Type::TEXT),
                    (&reads.topic, Type::TEXT),
                    (&reads.subscription, Type::TEXT),
                    (&r.ordered, Type::BOOL),
                    (&r.owner, Type::TEXT),
                    (&attempts, Type::INT4),
                    (&r.local, Type::BOOL),
                    (&tenants, Type::TEXT_ARRAY),
                    (&sources, Type::TEXT_ARRAY),
                    (&millis(reads.ack_within).max(1), Type::INT4),
                ],
            )
            .await?;
        Ok(Registered::from_row(&row))
    }

    /// Judges what a broker has delivered: takes a lease for each event, and only then looks whether it was completed.
    /// Committed when it returns; the order is that in which they are to run.
    pub async fn claim_delivered(
        &self,
        consumer: i32,
        events: &[&Claimed],
        lease: Duration,
    ) -> Result<Vec<Judged>, Error> {
        self.judge(consumer, events, lease, None, false).await
    }

    /// The same, and what is to run is taken over whole in the same commit: it may be acked before it runs. If its owner is
    /// lost or gives it back, the retry has it.
    pub async fn take_over(
        &self,
        consumer: i32,
        events: &[&Claimed],
        lease: Duration,
    ) -> Result<Vec<Judged>, Error> {
        self.judge(consumer, events, lease, None, true).await
    }

    /// Puts what a broker has given up on before a person, unless it is completed, parked or in work. Committed when it
    /// returns; as often as one likes.
    pub async fn import_dead(
        &self,
        consumer: i32,
        events: &[&Claimed],
        lease: Duration,
        why: &str,
    ) -> Result<Vec<Judged>, Error> {
        self.judge(consumer, events, lease, Some(why), false).await
    }

    async fn judge(
        &self,
        consumer: i32,
        events: &[&Claimed],
        lease: Duration,
        dead: Option<&str>,
        keep: bool,
    ) -> Result<Vec<Judged>, Error> {
        let (envelopes, payloads) = copies(events);
        let rows = self
            .remembered(
                "select token, event_id, verdict, wait_ms, attempt, reclaims
                 from outlast._claim_delivered($5, $6, $7, $8, $1, $2, $3, $4, $9, $10)",
                &[
                    (&consumer, Type::INT4),
                    (&envelopes, Type::JSONB),
                    (&payloads, Type::BYTEA_ARRAY),
                    (&millis(lease), Type::INT4),
                    (&dead, Type::TEXT),
                    (&keep, Type::BOOL),
                ],
            )
            .await?;
        rows.iter().map(Judged::from_row).collect()
    }

    /// Hands a failed event over to the retry, with the copy that it will run; answers what became of it: `retry`, `behind`
    /// or `quarantined`. Those after the first are later events of its key in the same claim: they go behind it. Committed
    /// when it returns.
    pub async fn fail_delivered(
        &self,
        token: Uuid,
        events: &[&Claimed],
        failure: &Failure,
        charged: bool,
    ) -> Result<String, Error> {
        let (envelopes, payloads) = copies(events);
        let class = failure.class.as_str();
        let reason = outlast_core::text::clean(&failure.reason, 4096);
        let after = failure
            .after
            .map(|after| i64::try_from(after.as_millis()).unwrap_or(i64::MAX));
        let row = self
            .one(
                "select outlast._fail_delivered($1, $2, $3, $4, $5, $6, $7)",
                &[
                    (&token, Type::UUID),
                    (&envelopes, Type::JSONB),
                    (&payloads, Type::BYTEA_ARRAY),
                    (&class, Type::TEXT),
                    (&reason, Type::TEXT),
                    (&after, Type::INT8),
                    (&charged, Type::BOOL),
                ],
            )
            .await?;
        Ok(row.get(0))
    }

    /// Lets an event that no handler of this process can read wait for a newer worker, with its copy; those after the first
    /// go behind it. Committed when it returns.
    pub async fn wait_delivered(&self, token: Uuid, events: &[&Claimed]) -> Result<(), Error> {
        let (envelopes, payloads) = copies(events);
        self.one(
            "select outlast._wait_delivered($1, $2, $3)::text",
            &[
                (&token, Type::UUID),
                (&envelopes, Type::JSONB),
                (&payloads, Type::BYTEA_ARRAY),
            ],
        )
        .await
        .map(drop)
    }

    /// Keeps a message that is no event of ours, as it came, for a person. The same bytes are kept once. Committed when it
    /// returns.
    pub async fn keep_unreadable(
        &self,
        consumer: i32,
        broker_id: &str,
        why: &str,
        attributes: &[(String, String)],
        payload: &[u8],
    ) -> Result<Uuid, Error> {
        let clean = |text: &str| outlast_core::text::clean(text, 4096);
        let (broker_id, why) = (clean(broker_id), clean(why));
        let attributes = json!(attributes).to_string().into_bytes();
        let row = self
            .one(
                "select outlast._keep_unreadable($1, $2, $3, $4, $5)",
                &[
                    (&consumer, Type::INT4),
                    (&broker_id, Type::TEXT),
                    (&why, Type::TEXT),
                    (&attributes, Type::BYTEA),
                    (&payload, Type::BYTEA),
                ],
            )
            .await?;
        Ok(row.get(0))
    }
}

impl Judged {
    fn from_row(row: &Row) -> Result<Self, Error> {
        let token: Option<Uuid> = row.try_get(0)?;
        let wait = row.try_get::<_, Option<i32>>(3)?.unwrap_or(1000);
        let wait = Duration::from_millis(wait.unsigned_abs().into());
        let verdict = match (row.try_get(2)?, token) {
            ("run", Some(token)) => Verdict::Run(token),
            ("done", _) => Verdict::Done,
            ("parked" | "kept", _) => Verdict::Parked,
            ("other", _) => Verdict::Other,
            ("defer", _) => Verdict::Defer(wait),
            ("paused", _) => Verdict::Paused(wait),
            (other, _) => {
                return Err(Error::Unexpected(format!(
                    "a delivery was judged `{other}`"
                )));
            }
        };
        Ok(Self {
            event_id: row.try_get(1)?,
            verdict,
            attempt: row.try_get(4)?,
            reclaims: row.try_get(5)?,
            kept: row.try_get::<_, &str>(2)? == "kept",
        })
    }
}

impl Claimed {
    /// An event as a broker has delivered it, under no token yet.
    ///
    /// # Errors
    /// Why it can be nobody's event: what `emit` would have refused.
    pub fn delivered(envelope: Envelope, payload: &Bytes) -> Result<Self, String> {
        admissible(&envelope)?;
        let headers: Map<String, Value> = envelope
            .headers
            .into_iter()
            .map(|(name, value)| (name, Value::String(value)))
            .collect();
        Ok(Self {
            token: Uuid::nil(),
            event_id: envelope.id,
            log_id: envelope.log.map_or(0, |place| place.id),
            kind: envelope.name,
            version: envelope.version.into(),
            tenant: envelope.tenant,
            key: envelope.key,
            actor: envelope.actor,
            correlation_id: envelope.correlation_id,
            causation_id: envelope.causation_id,
            traceparent: envelope.traceparent,
            headers: (!headers.is_empty()).then_some(Value::Object(headers)),
            source: envelope.source,
            subject: envelope.subject,
            aggregate_version: envelope.aggregate_version,
            content_type: envelope.content_type,
            codec_key: envelope.codec_key,
            payload: payload.clone(),
            emitted_at: envelope.emitted_at,
            attempt: 1,
            reclaims: 0,
            key_seq: envelope.key_seq,
            command: None,
            entity: None,
            lane: Some(0),
        })
    }
}

/// Reads a message that nobody could read when it came: its event, as `_read_again` takes it.
///
/// # Errors
/// Why it still cannot be read.
pub fn read_again(attributes: &[(String, String)]) -> Result<Value, String> {
    let envelope = Envelope::from_attributes(attributes).map_err(|why| why.to_string())?;
    // Its payload stays where it is.
    let event = Claimed::delivered(envelope, &Bytes::new())?;
    Ok(copies(&[&event]).0)
}

/// What the tables have a place for. One event that they refuse would take all others of its call with it.
fn admissible(envelope: &Envelope) -> Result<(), String> {
    name::check(&envelope.name).map_err(|bad| format!("event type {bad}"))?;
    if !(1..=32767).contains(&envelope.version) {
        return Err(format!("version {} is not 1 to 32767", envelope.version));
    }
    let texts = [
        ("tenant", Some(&envelope.tenant), 200),
        ("key", envelope.key.as_ref(), 500),
        ("source", envelope.source.as_ref(), 4096),
        ("subject", envelope.subject.as_ref(), 4096),
        ("actor", envelope.actor.as_ref(), 4096),
        ("traceparent", envelope.traceparent.as_ref(), 4096),
        ("content type", Some(&envelope.content_type), 400),
        ("codec key", envelope.codec_key.as_ref(), 4096),
    ];
    let headers = envelope
        .headers
        .iter()
        .flat_map(|(name, value)| [("header", Some(name), 4096), ("header", Some(value), 65536)]);
    for (what, text, most) in texts.into_iter().chain(headers) {
        let Some(text) = text else { continue };
        if text.chars().count() > most {
            return Err(format!("its {what} is longer than {most} characters"));
        }
        if text.contains('\0') {
            return Err(format!("its {what} has a NUL character"));
        }
    }
    if envelope.tenant.chars().any(char::is_control) {
        return Err("its tenant has control characters".into());
    }
    Ok(())
}

/// The envelopes as one document, and the payloads beside them.
fn copies<'a>(events: &[&'a Claimed]) -> (Value, Vec<&'a [u8]>) {
    let envelope = |event: &&Claimed| {
        json!({
            "id": event.event_id,
            "log_id": (event.log_id > 0).then_some(event.log_id),
            "type": event.kind,
            "version": event.version,
            "tenant": event.tenant,
            "key": event.key,
            "key_seq": event.key_seq,
            "actor": event.actor,
            "correlation_id": event.correlation_id,
            "causation_id": event.causation_id,
            "traceparent": event.traceparent,
            "headers": event.headers,
            "source": event.source,
            "subject": event.subject,
            "aggregate_version": event.aggregate_version,
            "content_type": event.content_type,
            "codec_key": event.codec_key,
            "emitted_at": humantime::format_rfc3339_micros(event.emitted_at).to_string(),
        })
    };
    let payloads = events.iter().map(|event| &*event.payload);
    (events.iter().map(envelope).collect(), payloads.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn what_was_delivered_has_the_envelope_that_it_came_with() {
        let mut whole = Envelope::new(Uuid::from_u128(7), "paid", UNIX_EPOCH);
        whole.version = 3;
        whole.tenant = "acme".into();
        whole.key = Some("booking/7".into());
        whole.key_seq = Some(9);
        whole.aggregate_version = Some(2);
        whole.source = Some("shop".into());
        whole.subject = Some("booking".into());
        whole.actor = Some("jane".into());
        whole.correlation_id = Some(Uuid::from_u128(8));
        whole.causation_id = Some(Uuid::from_u128(9));
        whole.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
        whole.headers.insert("region".into(), "eu".into());
        whole.content_type = "text/plain".into();
        whole.codec_key = Some("k".into());
        for envelope in [whole, Envelope::new(Uuid::nil(), "paid", UNIX_EPOCH)] {
            let event = Claimed::delivered(envelope.clone(), &Bytes::new());
            assert_eq!(event.map(|event| event.envelope()), Ok(envelope));
        }
    }

    #[test]
    fn what_the_tables_have_no_place_for_is_told_and_nothing_else_is_refused() {
        let good = || {
            let mut envelope = Envelope::new(Uuid::nil(), "paid", UNIX_EPOCH);
            envelope.key = Some("k".repeat(500));
            envelope
        };
        assert!(Claimed::delivered(good(), &Bytes::new()).is_ok());
        let bad = |change: fn(&mut Envelope), named: &str| {
            let mut envelope = good();
            change(&mut envelope);
            let why = Claimed::delivered(envelope, &Bytes::new()).expect_err(named);
            assert!(why.contains(named), "{why}");
        };
        bad(|e| e.name = "No Name".into(), "event type");
        bad(|e| e.version = 0, "version 0");
        bad(|e| e.version = 40_000, "version 40000");
        bad(|e| e.tenant = "a\nb".into(), "tenant");
        bad(|e| e.key = Some("k".repeat(501)), "key");
        bad(|e| e.subject = Some("a\0b".into()), "subject");
        bad(|e| _ = e.headers.insert("a".into(), "\0".into()), "header");
    }
}
