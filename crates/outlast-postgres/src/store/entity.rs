//! What a worker claims and records of entities, besides what it does of jobs: an entity is claimed, completed and failed as a
//! job is, under its own queue.

use bytes::Bytes;
use serde_json::Value;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::Store;
use crate::Error;

/// What a claim says of an entity besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityTry {
    /// For providers that accept one: of two claims of an entity the later has the higher, also after a restore.
    pub fence: u64,
    /// What was kept last.
    pub refs: Option<Refs>,
    /// What was deleted and has not been cleaned up, the oldest first; each with other refs.
    pub tombstones: Vec<Tombstone>,
}

/// What somebody else calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refs {
    /// JSON, unless a codec has encrypted it.
    pub bytes: Bytes,
    /// With which key a codec has.
    pub codec_key: Option<String>,
}

/// Something that is to be cleaned up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// Which, for [`Store::cleaned`].
    pub id: i64,
    /// Everything that is needed for it.
    pub refs: Refs,
}

impl EntityTry {
    /// Of the one column that only an entity has.
    pub(super) fn from_json(entity: &Value) -> Result<Self, Error> {
        let fence = entity["fence"].as_u64().ok_or_else(|| odd(entity))?;
        let refs = Some(&entity["refs"]).filter(|refs| !refs.is_null());
        let tombstones = entity["tombstones"].as_array().ok_or_else(|| odd(entity))?;
        let tombstone = |one: &Value| -> Result<_, Error> {
            Ok(Tombstone {
                id: one["id"].as_i64().ok_or_else(|| odd(one))?,
                refs: Refs::from_json(one)?,
            })
        };
        Ok(Self {
            fence,
            refs: refs.map(Refs::from_json).transpose()?,
            tombstones: tombstones.iter().map(tombstone).collect::<Result<_, _>>()?,
        })
    }
}

impl Refs {
    fn from_json(refs: &Value) -> Result<Self, Error> {
        let bytes = refs["hex"].as_str().and_then(unhex);
        Ok(Self {
            bytes: bytes.ok_or_else(|| odd(refs))?.into(),
            codec_key: refs["codec_key"].as_str().map(str::to_owned),
        })
    }
}

/// Without what it says: refs are no text for messages.
fn odd(value: &Value) -> Error {
    let fields: Vec<_> = value.as_object().into_iter().flatten().collect();
    let names: Vec<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
    Error::Unexpected(format!(
        "what a claim says of an entity is not what it should be: it has {}",
        names.join(", ")
    ))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    match text.len() % 2 {
        0 => text.as_bytes().chunks(2).map(pair).collect(),
        _ => None,
    }
}

/// Under which name the entities of a name are claimed: a job, a command and an entity may be called alike.
pub fn entity_queue(name: &str) -> String {
    format!("{ENTITIES}{name}")
}

/// The name of the entities that are claimed under this one, if it is one of entities.
pub fn entity_of(queue: &str) -> Option<&str> {
    queue.strip_prefix(ENTITIES)
}

/// What stands before the names of entities where they are claimed.
const ENTITIES: &str = "entity:";

impl Store {
    /// Keeps what the provider calls an entity, for every try after this one; none forgets it. Committed when it returns. False:
    /// the lease was lost. Then nothing is kept, and what was to be kept is put before a person, because nobody else knows of it.
    pub async fn keep(
        &self,
        token: Uuid,
        id: Uuid,
        refs: Option<&Refs>,
        digest: Option<&[u8]>,
    ) -> Result<bool, Error> {
        let bytes = refs.map(|refs| &*refs.bytes);
        let codec_key = refs.and_then(|refs| refs.codec_key.as_deref());
        let row = self
            .one(
                "select outlast._keep($1, $2, $3, $4, $5)",
                &[
                    (&token, Type::UUID),
                    (&id, Type::UUID),
                    (&bytes, Type::BYTEA),
                    (&codec_key, Type::TEXT),
                    (&digest, Type::BYTEA),
                ],
            )
            .await?;
        Ok(row.get::<_, &str>(0) == "kept")
    }

    /// These are cleaned up, whatever becomes of the rest of the try. Committed when it returns.
    pub async fn cleaned(&self, token: Uuid, id: Uuid, tombstones: &[i64]) -> Result<(), Error> {
        self.one(
            "select outlast._cleaned($1, $2, $3)::text",
            &[
                (&token, Type::UUID),
                (&id, Type::UUID),
                (&tombstones, Type::INT8_ARRAY),
            ],
        )
        .await
        .map(drop)
    }

    /// Whether the transaction `xid`, whose COMMIT was not answered, has completed this claim of an entity. Waits until it has
    /// ended.
    ///
    /// # Errors
    /// [`Error::Stalled`] while it is still open after some seconds; ask again.
    pub async fn entity_landed(&self, token: Uuid, id: Uuid, xid: u64) -> Result<bool, Error> {
        let text = xid.to_string();
        let args: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
            &[(&token, Type::UUID), (&id, Type::UUID), (&text, Type::TEXT)];
        let sql = "select outlast._entity_landed($1, $2, $3::text::xid8)";
        self.landed_by(sql, args, xid).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_claim_says_of_an_entity_is_read_and_what_is_odd_is_refused_without_its_content() {
        let whole = json!({"fence": 7, "refs": {"hex": "7b7d", "codec_key": null},
            "tombstones": [{"id": 5, "hex": "00ff", "codec_key": "k1"}]});
        let entity = EntityTry::from_json(&whole).expect("reads");
        assert_eq!(entity.fence, 7);
        assert_eq!(entity.refs.expect("kept").bytes, "{}");
        assert_eq!(entity.tombstones[0].id, 5);
        assert_eq!(*entity.tombstones[0].refs.bytes, [0, 255]);
        assert_eq!(entity.tombstones[0].refs.codec_key.as_deref(), Some("k1"));
        for odd in [
            json!(null),
            json!({"fence": -1, "refs": null, "tombstones": []}),
            json!({"fence": 1, "refs": {"hex": "secre"}, "tombstones": []}),
            json!({"fence": 1, "refs": null, "tombstones": [{"id": 5, "hex": "secret"}]}),
        ] {
            let error = EntityTry::from_json(&odd).expect_err("is odd");
            assert!(!error.to_string().contains("secre"), "{error}");
        }
    }

    #[test]
    fn a_queue_of_entities_is_told_from_others() {
        assert_eq!(entity_of(&entity_queue("crm")), Some("crm"));
        assert_eq!(entity_of("command:crm"), None);
        assert_eq!(entity_of("crm"), None);
    }
}
