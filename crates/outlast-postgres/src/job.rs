//! Jobs in the caller's transaction: accepted, withdrawn, asked about.
//!
//! Everything that the SQL functions would refuse is checked here first, because an error of PostgreSQL would abort the
//! caller's business transaction. What a worker records is in `store`.

mod cancel;
mod status;

pub(crate) use cancel::cancel_by_key;
pub use cancel::{Cancel, cancel, cancel_key};
pub use status::{Stands, Status, status};

use crate::{
    Error,
    event::{
        Accepted, Body,
        check::{self, Of},
    },
    schema::Schema,
    tx::{Tx, Value},
};
use outlast_core::job::Lifetime;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// The priorities there are, the soonest first.
pub const PRIORITIES: std::ops::RangeInclusive<i16> = -100..=100;
/// How far away a job may be due. The database allows a day more, so that a clock of ours that is off makes no difference.
pub const FARTHEST: Duration = Duration::from_secs(3649 * 24 * 3600);

/// When a job may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// As soon as it is committed.
    #[default]
    Now,
    /// So long after it was accepted, by the database's clock.
    After(Duration),
    /// At this time, by the database's clock; what is past is now.
    At(SystemTime),
}

/// Everything that can be said when one job is enqueued.
#[derive(Clone, Debug)]
pub struct Intent<'a> {
    /// Where it is written.
    pub schema: Schema,
    /// The name of the job.
    pub name: &'a str,
    /// The version of the payload's shape.
    pub version: u16,
    /// The payload.
    pub body: Body<'a>,
    /// What makes it the same job as another.
    pub key: Option<&'a str>,
    /// How long the key answers; none: as the cluster's setting says.
    pub lifetime: Option<Lifetime>,
    /// Whose it is; empty where there is only one.
    pub tenant: &'a str,
    /// When it may run.
    pub when: When,
    /// Within its tenant the lower runs sooner; 0 is usual.
    pub priority: i16,
    /// How many tries there are; none: as its workers say.
    pub attempts: Option<u32>,
    /// Where it comes from.
    pub source: Option<&'a str>,
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
    /// What tells the same content from another instead of the bytes: for payloads that are encrypted. 16 to 64 bytes.
    pub digest: Option<&'a [u8]>,
}

impl<'a> Intent<'a> {
    /// A job with nothing but its name, version and payload.
    pub fn new(name: &'a str, version: u16, body: Body<'a>) -> Self {
        Self {
            schema: Schema::DEFAULT,
            name,
            version,
            body,
            key: None,
            lifetime: None,
            tenant: "",
            when: When::Now,
            priority: 0,
            attempts: None,
            source: None,
            actor: None,
            correlation_id: None,
            causation_id: None,
            traceparent: None,
            codec_key: None,
            digest: None,
        }
    }

    fn is_plain(&self) -> bool {
        let texts = [self.source, self.actor, self.traceparent, self.codec_key];
        texts.iter().all(Option::is_none)
            && self.correlation_id.or(self.causation_id).is_none()
            && self.digest.is_none()
            && self.lifetime.is_none()
            && self.attempts.is_none()
            && self.when == When::Now
            && self.priority == 0
    }
}

/// The answer as one text, and only the arguments that most have: each argument and each column costs.
const PLAIN: &str = "select outlast.enqueue(name => $1, payload => $2::text, key => $3, tenant => $4, \
    version => $5::text::int)::text";
const FULL: &str = "select outlast.enqueue(name => $1, payload => $2::text, key => $3, tenant => $4, \
    version => $5::text::int, after_ms => $6::text::bigint, \
    at => timestamptz 'epoch' + $7::text::bigint * interval '1 microsecond', priority => $8::text::int, \
    attempts => $9::text::int, lifetime_ms => $10::text::bigint, source => $11, actor => $12, \
    correlation_id => $13::text::uuid, causation_id => $14::text::uuid, traceparent => $15, bytes => $16, \
    content_type => $17, codec_key => $18, digest => $19)::text";

/// Writes one job in the caller's transaction. It runs at least once after that has committed, and never if it does not.
///
/// # Errors
/// Bad input and [`Error::Conflict`] or [`Error::Expired`] leave the transaction usable, with nothing written.
/// [`Error::Database`] does not: roll back.
pub async fn enqueue(tx: &mut dyn Tx, intent: &Intent<'_>) -> Result<Accepted, Error> {
    checked(intent)?;
    let (json, bytes, content_type) = match intent.body {
        Body::Json(json) => (Some(json), None, "application/json"),
        Body::Bytes {
            bytes,
            content_type,
        } => (None, Some(bytes), content_type),
    };
    let version = intent.version.to_string();
    let row = match json.filter(|_| intent.is_plain()) {
        Some(json) => {
            let args = [
                intent.name.into(),
                json.into(),
                intent.key.into(),
                intent.tenant.into(),
                version.as_str().into(),
            ];
            tx.call(intent.schema.statement(PLAIN), &args).await
        }
        None => {
            let (after, at) = match intent.when {
                When::Now => (None, None),
                When::After(after) => (Some(after.as_millis().to_string()), None),
                When::At(at) => (None, Some(micros(at).to_string())),
            };
            let priority = intent.priority.to_string();
            let attempts = intent.attempts.map(|attempts| attempts.to_string());
            let lifetime = intent.lifetime.map(lifetime_ms);
            let correlation_id = intent.correlation_id.map(|id| id.to_string());
            let causation_id = intent.causation_id.map(|id| id.to_string());
            let args = [
                intent.name.into(),
                json.into(),
                intent.key.into(),
                intent.tenant.into(),
                version.as_str().into(),
                after.as_deref().into(),
                at.as_deref().into(),
                priority.as_str().into(),
                attempts.as_deref().into(),
                lifetime.as_deref().into(),
                intent.source.into(),
                intent.actor.into(),
                correlation_id.as_deref().into(),
                causation_id.as_deref().into(),
                intent.traceparent.into(),
                Value::Bytes(bytes),
                content_type.into(),
                intent.codec_key.into(),
                Value::Bytes(intent.digest),
            ];
            tx.call(intent.schema.statement(FULL), &args).await
        }
    };
    let row = row.map_err(|error| error.in_schema(intent.schema))?;
    Accepted::from_row(&row, "job", || intent.key.unwrap_or_default().to_owned())
}

pub(crate) fn lifetime_ms(lifetime: Lifetime) -> String {
    match lifetime {
        Lifetime::For(lifetime) => lifetime.as_millis().max(1).to_string(),
        // In SQL nought is for ever.
        _ => "0".to_owned(),
    }
}

/// From the epoch; negative before it. What does not fit is refused before.
pub(crate) fn micros(at: SystemTime) -> i64 {
    let whole = |since: Duration| i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) => whole(since),
        Err(before) => -whole(before.duration()),
    }
}

/// Whether it is further away than anything may be.
pub(crate) fn is_far(when: When) -> bool {
    match when {
        When::Now => false,
        When::After(after) => after > FARTHEST,
        // Before the year 1 there is no time in PostgreSQL that anybody means.
        When::At(at) => {
            at.duration_since(SystemTime::now())
                .is_ok_and(|after| after > FARTHEST)
                || micros(at) < -62_135_596_800_000_000
        }
    }
}

/// What is refused in the JSON of a job; for one that is encrypted afterwards.
///
/// # Errors
/// [`Error::TooLarge`], [`Error::BadPayload`].
pub fn check_json(name: &str, json: &str) -> Result<(), Error> {
    check::body(Of::job(name), Body::Json(json), false)
}

fn checked(intent: &Intent<'_>) -> Result<(), Error> {
    let of = Of::job(intent.name);
    let refuse = |why: String| Err(Error::BadName(format!("{of}: {why}")));
    check::heading(of, intent.version, intent.tenant)?;
    if intent.key == Some("") {
        return refuse("an empty key: give none, or one that names the job".into());
    }
    check::key(of, intent.key)?;
    [
        intent.source,
        intent.actor,
        intent.traceparent,
        intent.codec_key,
    ]
    .into_iter()
    .flatten()
    .try_for_each(|text| check::about(of, text))?;
    check::digest(of, intent.digest)?;
    if !PRIORITIES.contains(&intent.priority) {
        return refuse(format!(
            "priority {} is not between -100 (soonest) and 100",
            intent.priority
        ));
    }
    if let Some(attempts) = intent.attempts.filter(|n| !(1..=1000).contains(n)) {
        return refuse(format!("attempts of {attempts} are not between 1 and 1000"));
    }
    if let Some(Lifetime::For(lifetime)) = intent.lifetime
        && lifetime > FARTHEST
    {
        return refuse("a lifetime of more than ten years: let it be for ever".into());
    }
    if is_far(intent.when) {
        return refuse("it is to run ten years from now, or before all time".into());
    }
    check::body(of, intent.body, intent.codec_key.is_some())
}

/// Whose job it is about, and on whose behalf.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Where it is.
    pub schema: Schema,
    /// Whose it is; empty where there is only one.
    pub tenant: &'a str,
    /// Who asks, for whoever looks later.
    pub actor: Option<&'a str>,
}

fn asked(of: Of<'_>, asking: Asking<'_>) -> Result<(), Error> {
    if asking.tenant.contains('\0') {
        return Err(Error::BadName(format!(
            "{of}: a NUL character, which PostgreSQL text cannot hold"
        )));
    }
    asking.actor.map_or(Ok(()), |actor| check::about(of, actor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_arguments_are_refused_before_they_reach_the_database() {
        let good = Intent::new("greet", 1, Body::Json("{}"));
        assert!(checked(&good).is_ok());
        let century = Duration::from_secs(100 * 366 * 24 * 3600);
        let long = "k".repeat(501);
        for bad in [
            Intent {
                name: "Greet'; drop table x",
                ..good.clone()
            },
            Intent {
                version: 0,
                ..good.clone()
            },
            Intent {
                tenant: "a\nb",
                ..good.clone()
            },
            Intent {
                key: Some(""),
                ..good.clone()
            },
            Intent {
                key: Some(&long),
                ..good.clone()
            },
            Intent {
                actor: Some("\0"),
                ..good.clone()
            },
            Intent {
                priority: 101,
                ..good.clone()
            },
            Intent {
                attempts: Some(0),
                ..good.clone()
            },
            Intent {
                lifetime: Some(Lifetime::For(Duration::MAX)),
                ..good.clone()
            },
            Intent {
                when: When::After(Duration::MAX),
                ..good.clone()
            },
            Intent {
                when: When::At(SystemTime::now() + century),
                ..good.clone()
            },
            Intent {
                digest: Some(b"short"),
                ..good.clone()
            },
        ] {
            assert!(matches!(checked(&bad), Err(Error::BadName(_))), "{bad:?}");
        }
        let large = format!("\"{}\"", "x".repeat(300_000));
        let bad = Intent {
            body: Body::Json(&large),
            ..good
        };
        assert!(matches!(checked(&bad), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn a_time_before_the_epoch_is_a_negative_one() {
        assert_eq!(micros(UNIX_EPOCH - Duration::from_secs(1)), -1_000_000);
        assert_eq!(micros(UNIX_EPOCH + Duration::from_micros(7)), 7);
    }
}
