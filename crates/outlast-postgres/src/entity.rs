//! Marks of entities in the caller's transaction: something has changed, something is gone.
//!
//! A mark is a row and nothing else: no look, no lock, so two business transactions never wait for each other here, in no
//! isolation level. Everything that the SQL functions would refuse is checked here first, because an error of PostgreSQL would
//! abort the caller's business transaction. What a worker does with them is in `store`.

use crate::{
    Error,
    event::{
        Body,
        check::{self, Of},
    },
    schema::Schema,
    tx::{Tx, Value},
};
use uuid::Uuid;

/// How large the payload of an entity may be: 64 KiB. It says which entity is meant; how that is, its reconciler reads.
pub const PAYLOAD_LIMIT: usize = 64 * 1024;
/// How large refs may be: 16 KiB.
pub const REFS_LIMIT: usize = 16 * 1024;

/// Everything that can be said when an entity is marked.
#[derive(Clone, Debug)]
pub struct Mark<'a> {
    /// Where it is written.
    pub schema: Schema,
    /// The name of its kind.
    pub name: &'a str,
    /// The version of the payload's shape.
    pub version: u16,
    /// Which entity it is, as its reconciler reads it.
    pub body: Body<'a>,
    /// Which entity it is: its identity, with the name and the tenant.
    pub key: &'a str,
    /// Whose it is; empty where there is only one.
    pub tenant: &'a str,
    /// One at a time of everything with this key, commands too.
    pub exclusive: Option<&'a str>,
    /// Who asked.
    pub actor: Option<&'a str>,
    /// What belongs together.
    pub correlation_id: Option<Uuid>,
    /// What led to it.
    pub causation_id: Option<Uuid>,
    /// W3C trace context.
    pub traceparent: Option<&'a str>,
    /// Which key of a codec the payload is encrypted with. Its content type is then that of the plain text.
    pub codec_key: Option<&'a str>,
}

impl<'a> Mark<'a> {
    /// A mark with nothing but what is needed.
    pub fn new(name: &'a str, version: u16, body: Body<'a>, key: &'a str) -> Self {
        Self {
            schema: Schema::DEFAULT,
            name,
            version,
            body,
            key,
            tenant: "",
            exclusive: None,
            actor: None,
            correlation_id: None,
            causation_id: None,
            traceparent: None,
            codec_key: None,
        }
    }
}

/// What is left to clean up of an entity that is gone.
#[derive(Clone, Copy, Debug)]
pub struct Deleted<'a> {
    /// What others call it, everything that is needed to clean up: JSON, unless a codec has encrypted it.
    pub refs: &'a [u8],
    /// With which key a codec has.
    pub codec_key: Option<&'a str>,
    /// What tells the same refs from others instead of the bytes: for encrypted ones. 16 to 64 bytes.
    pub digest: Option<&'a [u8]>,
}

const CHANGED: &str = "select outlast.changed(name => $1, entity_id => $2, tenant => $3, exclusive => $4, payload => $5, \
    version => $6::text::int, actor => $7, correlation_id => $8::text::uuid, causation_id => $9::text::uuid, traceparent => $10, \
    bytes => $11, content_type => $12, codec_key => $13)::text";
const DELETED: &str = "select outlast.deleted(name => $1, entity_id => $2, refs => null, tenant => $3, exclusive => $4, payload => $5, \
    version => $6::text::int, actor => $7, correlation_id => $8::text::uuid, causation_id => $9::text::uuid, traceparent => $10, \
    bytes => $11, content_type => $12, codec_key => $13, refs_bytes => $14, refs_codec_key => $15, refs_digest => $16)::text";

/// Marks an entity as changed, in the caller's transaction. When that has committed its reconciler runs, at least once after it.
///
/// # Errors
/// Bad input leaves the transaction usable, with nothing written. After [`Error::Database`] roll back.
pub async fn changed(tx: &mut dyn Tx, mark: &Mark<'_>) -> Result<(), Error> {
    checked(mark)?;
    write(tx, mark, CHANGED, &[]).await
}

/// Marks an entity as gone, in the caller's transaction, before its row or a cascade takes away what is needed to clean up. Each
/// refs that differ are a duty of their own, handed out until the reconciler has returned `Ok` for them.
///
/// # Errors
/// Bad input leaves the transaction usable, with nothing written. After [`Error::Database`] roll back.
pub async fn deleted(tx: &mut dyn Tx, mark: &Mark<'_>, deleted: &Deleted<'_>) -> Result<(), Error> {
    checked(mark)?;
    let of = Of::entity(mark.name);
    match deleted.codec_key {
        None => check_refs(mark.name, deleted.refs)?,
        Some(key) => {
            sized(deleted.refs, REFS_LIMIT)?;
            check::about(of, key)?;
        }
    }
    check::digest(of, deleted.digest)?;
    let more = [
        Value::Bytes(Some(deleted.refs)),
        deleted.codec_key.into(),
        Value::Bytes(deleted.digest),
    ];
    write(tx, mark, DELETED, &more).await
}

async fn write(
    tx: &mut dyn Tx,
    mark: &Mark<'_>,
    sql: &'static str,
    more: &[Value<'_>],
) -> Result<(), Error> {
    let (json, bytes, content_type) = match mark.body {
        Body::Json(json) => (Some(json), None, "application/json"),
        Body::Bytes {
            bytes,
            content_type,
        } => (None, Some(bytes), content_type),
    };
    let version = mark.version.to_string();
    let correlation_id = mark.correlation_id.map(|id| id.to_string());
    let causation_id = mark.causation_id.map(|id| id.to_string());
    let args = [
        mark.name.into(),
        mark.key.into(),
        mark.tenant.into(),
        mark.exclusive.into(),
        json.into(),
        version.as_str().into(),
        mark.actor.into(),
        correlation_id.as_deref().into(),
        causation_id.as_deref().into(),
        mark.traceparent.into(),
        Value::Bytes(bytes),
        content_type.into(),
        mark.codec_key.into(),
    ];
    let args: Vec<Value<'_>> = args.iter().chain(more).copied().collect();
    let row = tx.call(mark.schema.statement(sql), &args).await;
    row.map(drop).map_err(|error| error.in_schema(mark.schema))
}

/// What is refused in the JSON of an entity; for one that is encrypted afterwards.
///
/// # Errors
/// [`Error::TooLarge`], [`Error::BadPayload`].
pub fn check_json(name: &str, json: &str) -> Result<(), Error> {
    sized(json.as_bytes(), PAYLOAD_LIMIT)?;
    check::body(Of::entity(name), Body::Json(json), false)
}

/// What is refused in the JSON of refs; for those that are encrypted afterwards.
///
/// # Errors
/// [`Error::TooLarge`], [`Error::BadPayload`].
pub fn check_refs(name: &str, json: &[u8]) -> Result<(), Error> {
    sized(json, REFS_LIMIT)?;
    let of = Of::entity(name);
    let refuse = |_| Error::BadPayload(format!("{of}: the refs are not UTF-8"));
    let json = std::str::from_utf8(json).map_err(refuse)?;
    check::body(of, Body::Json(json), false)
}

fn sized(content: &[u8], limit: usize) -> Result<(), Error> {
    let bytes = content.len();
    match bytes > limit {
        true => Err(Error::TooLarge { bytes, limit }),
        false => Ok(()),
    }
}

fn checked(mark: &Mark<'_>) -> Result<(), Error> {
    let of = Of::entity(mark.name);
    let refuse = |why: &str| Err(Error::BadName(format!("{of}: {why}")));
    check::heading(of, mark.version, mark.tenant)?;
    if mark.key.is_empty() {
        return refuse("an empty id: it says which entity is meant");
    }
    check::key(of, Some(mark.key))?;
    if mark.exclusive == Some("") {
        return refuse("an empty key of exclusion: give none, or one");
    }
    check::key(of, mark.exclusive)?;
    [mark.actor, mark.traceparent, mark.codec_key]
        .into_iter()
        .flatten()
        .try_for_each(|text| check::about(of, text))?;
    match mark.body {
        Body::Json(json) => sized(json.as_bytes(), PAYLOAD_LIMIT)?,
        Body::Bytes { bytes, .. } => sized(bytes, PAYLOAD_LIMIT)?,
    }
    check::body(of, mark.body, mark.codec_key.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_marks_are_refused_before_they_reach_the_database() {
        let good = Mark::new("crm", 1, Body::Json("{}"), "a");
        assert!(checked(&good).is_ok());
        let (long, large) = (
            "k".repeat(501),
            format!("\"{}\"", "x".repeat(PAYLOAD_LIMIT)),
        );
        for bad in [
            Mark {
                name: "Crm",
                ..good.clone()
            },
            Mark {
                version: 0,
                ..good.clone()
            },
            Mark {
                tenant: "a\nb",
                ..good.clone()
            },
            Mark {
                key: "",
                ..good.clone()
            },
            Mark {
                key: &long,
                ..good.clone()
            },
            Mark {
                key: "a\0b",
                ..good.clone()
            },
            Mark {
                exclusive: Some(""),
                ..good.clone()
            },
            Mark {
                exclusive: Some(&long),
                ..good.clone()
            },
            Mark {
                actor: Some("\0"),
                ..good.clone()
            },
            Mark {
                codec_key: Some(&long),
                ..good.clone()
            },
            Mark {
                body: Body::Json("{"),
                ..good.clone()
            },
            Mark {
                body: Body::Json(&large),
                ..good.clone()
            },
        ] {
            assert!(checked(&bad).is_err(), "{bad:?}");
        }
        assert!(check_refs("crm", b"{\"id\": 7}").is_ok());
        for bad in [&b"{"[..], &[0xff], &vec![b' '; REFS_LIMIT + 1]] {
            assert!(check_refs("crm", bad).is_err());
        }
    }
}
