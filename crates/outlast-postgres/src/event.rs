//! Emitting: the one statement that writes an event in the caller's transaction.
//!
//! Everything that the SQL function would refuse is checked here first, because an error of PostgreSQL would abort the
//! caller's business transaction. The limits are those of `functions/check.sql`.

pub(crate) mod check;
mod landed;

pub use check::{
    ABOUT_LIMIT, DEPTH_LIMIT, HEADERS_LIMIT, KEY_LIMIT, PAYLOAD_LIMIT, TENANT_LIMIT, check_json,
};
pub use landed::{Landed, landed};

use crate::{
    Error,
    schema::Schema,
    tx::{Tx, Value},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What a payload is made of.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// JSON text, stored exactly as it is.
    Json(&'a str),
    /// Bytes of another content type, stored exactly as they are.
    Bytes {
        /// The payload.
        bytes: &'a [u8],
        /// What it is, such as `application/cbor`.
        content_type: &'a str,
    },
}

/// Everything that can be said when one event is emitted.
#[derive(Clone, Debug)]
pub struct Envelope<'a> {
    /// Where it is written.
    pub schema: Schema,
    /// The event type.
    pub name: &'a str,
    /// The version of the payload's shape.
    pub version: u16,
    /// The payload.
    pub body: Body<'a>,
    /// What it is about.
    pub key: Option<&'a str>,
    /// Whose it is; empty where there is only one.
    pub tenant: &'a str,
    /// Same tenant, type and dedup key: the same intent, written once.
    pub dedup: Option<&'a str>,
    /// A version 7 UUID of the caller's; else one is minted by the database.
    pub id: Option<Uuid>,
    /// Where it comes from, as CloudEvents means it.
    pub source: Option<&'a str>,
    /// What part of the source it is about, as CloudEvents means it.
    pub subject: Option<&'a str>,
    /// The version of the thing that it is about.
    pub aggregate_version: Option<i64>,
    /// Number it within its key, without holes. Waits for whoever else emits for this key.
    pub strict_key: bool,
    /// Who asked.
    pub actor: Option<&'a str>,
    /// What belongs together.
    pub correlation_id: Option<Uuid>,
    /// The event that led to this one.
    pub causation_id: Option<Uuid>,
    /// W3C trace context.
    pub traceparent: Option<&'a str>,
    /// A JSON object of strings.
    pub headers: Option<&'a str>,
    /// Which key of a codec the payload is encrypted with. Its content type is then that of the plain text.
    pub codec_key: Option<&'a str>,
    /// What tells the same content from another instead of the bytes: for payloads that are encrypted. 16 to 64 bytes.
    pub digest: Option<&'a [u8]>,
}

impl<'a> Envelope<'a> {
    /// An event with nothing but its type, version and payload.
    pub fn new(name: &'a str, version: u16, body: Body<'a>) -> Self {
        Self {
            schema: Schema::DEFAULT,
            name,
            version,
            body,
            key: None,
            tenant: "",
            dedup: None,
            id: None,
            source: None,
            subject: None,
            aggregate_version: None,
            strict_key: false,
            actor: None,
            correlation_id: None,
            causation_id: None,
            traceparent: None,
            headers: None,
            codec_key: None,
            digest: None,
        }
    }
}

/// What became of an intent. It is durable when your transaction commits, and gone if it does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Accepted {
    /// Its id for life: the same in every try, after replay and after restore.
    pub id: Uuid,
    /// `false`: the same intent was there already, and nothing was written.
    pub new: bool,
    xid: u64,
}

impl Accepted {
    /// The transaction that wrote it, by which an unanswered COMMIT can be settled.
    pub fn xid(&self) -> u64 {
        self.xid
    }

    /// Of a row as PostgreSQL writes one: (id,new,conflict,expired,first_digest,xid); nothing in it can hold a comma.
    pub(crate) fn from_row(
        row: &[Option<String>],
        kind: &'static str,
        key: impl FnOnce() -> String,
    ) -> Result<Self, Error> {
        let answer = row.first().and_then(Option::as_deref).unwrap_or_default();
        let answer: Vec<&str> = answer.trim_matches(['(', ')']).split(',').collect();
        let field = |nth: usize| answer.get(nth).copied().unwrap_or_default();
        let first = parse(field(0))?;
        if field(2) == "t" {
            let key = key();
            return Err(Error::Conflict { kind, key, first });
        }
        if field(3) == "t" {
            return Err(Error::Expired { kind, key: key() });
        }
        Ok(Self {
            id: first,
            new: field(1) == "t",
            xid: parse(field(5))?,
        })
    }
}

/// Writes one event in the caller's transaction.
///
/// # Errors
/// Bad input and [`Error::Conflict`] or [`Error::Expired`] leave the transaction usable, with nothing written.
/// [`Error::Database`] does not: roll back.
pub async fn emit(tx: &mut dyn Tx, envelope: &Envelope<'_>) -> Result<Accepted, Error> {
    check::envelope(envelope)?;
    let (json, bytes, content_type) = match envelope.body {
        Body::Json(json) => (Some(json), None, "application/json"),
        Body::Bytes {
            bytes,
            content_type,
        } => (None, Some(bytes), content_type),
    };
    let version = envelope.version.to_string();
    let row = match json.filter(|_| is_plain(envelope)) {
        Some(json) => {
            let args = [
                envelope.name.into(),
                json.into(),
                envelope.key.into(),
                envelope.tenant.into(),
                version.as_str().into(),
            ];
            tx.call(envelope.schema.statement(PLAIN), &args).await
        }
        None => {
            let id = envelope.id.map(text);
            let aggregate_version = envelope
                .aggregate_version
                .map(|version| version.to_string());
            let correlation_id = envelope.correlation_id.map(text);
            let causation_id = envelope.causation_id.map(text);
            let args = [
                envelope.name.into(),
                json.into(),
                envelope.key.into(),
                envelope.tenant.into(),
                version.as_str().into(),
                envelope.dedup.into(),
                id.as_deref().into(),
                envelope.source.into(),
                envelope.subject.into(),
                aggregate_version.as_deref().into(),
                envelope.actor.into(),
                correlation_id.as_deref().into(),
                causation_id.as_deref().into(),
                envelope.traceparent.into(),
                envelope.headers.into(),
                Value::Bytes(bytes),
                content_type.into(),
                envelope.codec_key.into(),
                if envelope.strict_key { "true" } else { "false" }.into(),
                Value::Bytes(envelope.digest),
            ];
            tx.call(envelope.schema.statement(FULL), &args).await
        }
    };
    let row = row.map_err(|error| error.in_schema(envelope.schema))?;
    let key = || {
        envelope
            .dedup
            .map_or_else(|| envelope.id.map(text).unwrap_or_default(), str::to_owned)
    };
    Accepted::from_row(&row, "event", key)
}

/// Without names and defaults: to parse and plan those costs more than half of what is done.
const PLAIN: &str = "select outlast._emit($1, $2, $3, $4, $5)";
const FULL: &str = "select outlast.emit(type => $1, payload => $2::text, key => $3, tenant => $4, \
    version => $5::text::int, dedup => $6, event_id => $7::text::uuid, source => $8, subject => $9, \
    aggregate_version => $10::text::bigint, actor => $11, correlation_id => $12::text::uuid, \
    causation_id => $13::text::uuid, traceparent => $14, headers => $15::text::jsonb, bytes => $16, content_type => $17, \
    codec_key => $18, strict_key => $19::text::bool, digest => $20)::text";

fn is_plain(envelope: &Envelope<'_>) -> bool {
    let texts = [
        envelope.dedup,
        envelope.source,
        envelope.subject,
        envelope.actor,
        envelope.traceparent,
        envelope.headers,
        envelope.codec_key,
    ];
    let ids = [envelope.id, envelope.correlation_id, envelope.causation_id];
    texts.iter().all(Option::is_none)
        && ids.iter().all(Option::is_none)
        && envelope.aggregate_version.is_none()
        && envelope.digest.is_none()
        && !envelope.strict_key
}

/// Many events of one type with one context, in the order given.
#[derive(Clone, Debug)]
pub struct Envelopes<'a> {
    /// Where they are written.
    pub schema: Schema,
    /// The event type.
    pub name: &'a str,
    /// The version of the payloads' shape.
    pub version: u16,
    /// JSON texts, stored exactly as they are, each with what it is about.
    pub events: Vec<(String, Option<String>)>,
    /// Whose they are; empty where there is only one.
    pub tenant: &'a str,
    /// Where they come from.
    pub source: Option<&'a str>,
    /// Who asked.
    pub actor: Option<&'a str>,
    /// What belongs together.
    pub correlation_id: Option<Uuid>,
    /// The event that led to these.
    pub causation_id: Option<Uuid>,
    /// W3C trace context.
    pub traceparent: Option<&'a str>,
}

/// Writes many events in the caller's transaction: one statement for each thousand.
///
/// # Errors
/// As [`emit`]; bad input in any of them is found before the first is written.
pub async fn emit_all(tx: &mut dyn Tx, envelopes: &Envelopes<'_>) -> Result<Vec<Accepted>, Error> {
    const SQL: &str = "select string_agg(e.id::text, ' ' order by e.ord), min(e.xid::text) \
        from outlast.emit_all(type => $1, payloads => $2::text::text[], keys => $3::text::text[], tenant => $4, \
        version => $5::text::int, source => $6, actor => $7, correlation_id => $8::text::uuid, \
        causation_id => $9::text::uuid, traceparent => $10) e";
    const ROWS: usize = 1000;
    check::envelopes(envelopes)?;
    let version = envelopes.version.to_string();
    let correlation_id = envelopes.correlation_id.map(text);
    let causation_id = envelopes.causation_id.map(text);
    let mut accepted = Vec::with_capacity(envelopes.events.len());
    for events in envelopes.events.chunks(ROWS) {
        let payloads = array(events.iter().map(|(payload, _)| Some(payload.as_str())));
        let keys = array(events.iter().map(|(_, key)| key.as_deref()));
        let args = [
            envelopes.name.into(),
            payloads.as_str().into(),
            keys.as_str().into(),
            envelopes.tenant.into(),
            version.as_str().into(),
            envelopes.source.into(),
            envelopes.actor.into(),
            correlation_id.as_deref().into(),
            causation_id.as_deref().into(),
            envelopes.traceparent.into(),
        ];
        let row = tx.call(envelopes.schema.statement(SQL), &args).await;
        let row = row.map_err(|error| error.in_schema(envelopes.schema))?;
        let ids: String = column(&row, 0)?;
        let xid = column(&row, 1)?;
        for id in ids.split(' ') {
            accepted.push(Accepted {
                id: parse(id)?,
                new: true,
                xid,
            });
        }
    }
    Ok(accepted)
}

/// A PostgreSQL array literal: `{"a","b",NULL}`.
pub fn array<'a>(items: impl Iterator<Item = Option<&'a str>>) -> String {
    let mut literal = String::from("{");
    for (nth, item) in items.enumerate() {
        if nth > 0 {
            literal.push(',');
        }
        let Some(item) = item else {
            literal.push_str("NULL");
            continue;
        };
        literal.push('"');
        for c in item.chars() {
            if matches!(c, '"' | '\\') {
                literal.push('\\');
            }
            literal.push(c);
        }
        literal.push('"');
    }
    literal.push('}');
    literal
}

fn text(id: Uuid) -> String {
    id.to_string()
}

fn column<T: std::str::FromStr>(row: &[Option<String>], nth: usize) -> Result<T, Error> {
    let text = row.get(nth).and_then(Option::as_deref);
    parse(text.unwrap_or_default())
}

pub(crate) fn parse<T: std::str::FromStr>(text: &str) -> Result<T, Error> {
    let odd = || {
        crate::error::DatabaseError::new(
            None,
            format!("the database answered `{text}`, which is not expected"),
        )
    };
    text.parse().map_err(|_| Error::Database(odd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_literal_keeps_every_character() {
        let items = [
            Some(r#"{"a":"\\\"\n"}"#),
            None,
            Some(""),
            Some("NULL"),
            Some("ä,{}"),
        ];
        let expected = r#"{"{\"a\":\"\\\\\\\"\\n\"}",NULL,"","NULL","ä,{}"}"#;
        assert_eq!(array(items.into_iter()), expected);
        assert_eq!(array(std::iter::empty()), "{}");
    }
}
