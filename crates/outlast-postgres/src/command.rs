//! Commands in the caller's transaction: accepted, and told the end of by key.
//!
//! Everything that the SQL functions would refuse is checked here first, because an error of PostgreSQL would abort the
//! caller's business transaction. What a worker records is in `store`.

use crate::{
    Error,
    event::{
        Accepted, Body,
        check::{self, Of},
    },
    job::{self, Asking, FARTHEST, PRIORITIES, When},
    schema::Schema,
    tx::{Tx, Value},
};
use outlast_core::job::Lifetime;
use uuid::Uuid;

/// How large the payload of a command may be: 128 KiB, because the event that tells its end holds it and the answer.
pub const PAYLOAD_LIMIT: usize = 128 * 1024;
/// How large the answer of a provider may be: 64 KiB.
pub const ANSWER_LIMIT: usize = 64 * 1024;
/// How many characters the name of a command may have: that of the event that tells its end is longer.
pub const NAME_LIMIT: usize = 90;

/// Everything that can be said when a command is given.
#[derive(Clone, Debug)]
#[expect(
    missing_docs,
    reason = "the arguments of outlast.command, by their own names"
)]
pub struct Intent<'a> {
    pub schema: Schema,
    pub name: &'a str,
    pub version: u16,
    /// JSON.
    pub payload: &'a str,
    /// What is stored instead of it.
    pub encoded: Option<Encoded<'a>>,
    /// Its identity.
    pub key: &'a str,
    pub tenant: &'a str,
    pub account: Option<&'a str>,
    pub exclusive: Option<&'a str>,
    pub when: When,
    pub priority: i16,
    pub attempts: Option<u32>,
    pub lifetime: Option<Lifetime>,
    pub supersedes: Option<Uuid>,
    pub actor: Option<&'a str>,
    pub correlation_id: Option<Uuid>,
    pub causation_id: Option<Uuid>,
    pub traceparent: Option<&'a str>,
}

/// A payload as a codec has made it.
#[derive(Clone, Copy, Debug)]
pub struct Encoded<'a> {
    /// Which key decodes it.
    pub key: &'a str,
    /// What is stored.
    pub bytes: &'a [u8],
    /// What tells its content from another: a MAC of the plain JSON, 16 to 64 bytes.
    pub digest: &'a [u8],
}

const COMMAND: &str = "select outlast.command(name => $1, payload => $2::text, key => $3, tenant => $4, version => $5::text::int, \
    account => $6, exclusive => $7, after_ms => $8::text::bigint, \
    at => timestamptz 'epoch' + $9::text::bigint * interval '1 microsecond', priority => $10::text::int, \
    attempts => $11::text::int, lifetime_ms => $12::text::bigint, supersedes => $13::text::uuid, actor => $14, \
    correlation_id => $15::text::uuid, causation_id => $16::text::uuid, traceparent => $17, bytes => $18, codec_key => $19, \
    digest => $20)::text";

/// Accepts one command in the caller's transaction. It is durable when that commits, and never sent if it does not.
///
/// # Errors
/// Bad input and [`Error::Conflict`] or [`Error::Expired`] leave the transaction usable, with nothing written.
/// [`Error::Database`] does not: roll back.
pub async fn command(tx: &mut dyn Tx, intent: &Intent<'_>) -> Result<Accepted, Error> {
    checked(intent)?;
    let version = intent.version.to_string();
    let (after, at) = match intent.when {
        When::Now => (None, None),
        When::After(after) => (Some(after.as_millis().to_string()), None),
        When::At(at) => (None, Some(job::micros(at).to_string())),
    };
    let priority = intent.priority.to_string();
    let attempts = intent.attempts.map(|attempts| attempts.to_string());
    let lifetime = job::lifetime_ms(intent.lifetime.unwrap_or(Lifetime::Forever));
    let text = |id: Option<Uuid>| id.map(|id| id.to_string());
    let (supersedes, correlation, causation) = (
        text(intent.supersedes),
        text(intent.correlation_id),
        text(intent.causation_id),
    );
    let plain = intent.encoded.is_none().then_some(intent.payload);
    let args = [
        intent.name.into(),
        plain.into(),
        intent.key.into(),
        intent.tenant.into(),
        version.as_str().into(),
        intent.account.into(),
        intent.exclusive.into(),
        after.as_deref().into(),
        at.as_deref().into(),
        priority.as_str().into(),
        attempts.as_deref().into(),
        lifetime.as_str().into(),
        supersedes.as_deref().into(),
        intent.actor.into(),
        correlation.as_deref().into(),
        causation.as_deref().into(),
        intent.traceparent.into(),
        Value::Bytes(intent.encoded.map(|encoded| encoded.bytes)),
        intent.encoded.map(|encoded| encoded.key).into(),
        Value::Bytes(intent.encoded.map(|encoded| encoded.digest)),
    ];
    let row = tx.call(intent.schema.statement(COMMAND), &args).await;
    let row = row.map_err(|error| error.in_schema(intent.schema))?;
    Accepted::from_row(&row, "command", || intent.key.to_owned())
}

/// What was told of a command by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// The provider did it; its answer as JSON.
    Settled(&'a str),
    /// The provider refused it, and why.
    Rejected(&'a str),
    /// There was nothing to do any more, and why.
    Obsolete(&'a str),
}

/// What a settlement will have brought about, once the caller's transaction commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// The command ends with it.
    Ends,
    /// It had ended so already.
    Same,
    /// It had ended otherwise: nothing moves, and a person must look.
    Contradicts,
    /// The command is not there yet: it will end with this when it is accepted. After seven days without it a person must look.
    Early,
    /// The command ended so long ago that only its key is left.
    Gone,
}

const SETTLE: &str = "select outlast.settle(name => $1, key => $2, state => $3, answer => $4, reason => $5, \
    tenant => $6, actor => $7)";

/// Tells the end of a command by its key, in the caller's transaction.
///
/// # Errors
/// Bad input leaves the transaction usable, with nothing written. After [`Error::Database`] roll back.
pub async fn settle(
    tx: &mut dyn Tx,
    asking: Asking<'_>,
    (name, key): (&str, &str),
    told: Told<'_>,
) -> Result<Settlement, Error> {
    let of = Of::command(name);
    check::heading(of, 1, asking.tenant)?;
    check::key(of, Some(key))?;
    let (state, answer, reason) = match told {
        Told::Settled(answer) => ("settled", Some(answer), None),
        Told::Rejected(why) => ("rejected", None, Some(why)),
        Told::Obsolete(why) => ("obsolete", None, Some(why)),
    };
    if reason.is_some_and(|why| why.is_empty() || why.contains('\0')) {
        return Err(Error::BadName(format!("{of}: say why it is {state}")));
    }
    if let Some(answer) = answer {
        sized(answer.len(), ANSWER_LIMIT)?;
        check::body(of, Body::Json(answer), false)?;
    }
    if let Some(actor) = asking.actor {
        check::about(of, actor)?;
    }
    let args = [
        name.into(),
        key.into(),
        state.into(),
        answer.into(),
        reason.into(),
        asking.tenant.into(),
        asking.actor.into(),
    ];
    let row = tx.call(asking.schema.statement(SETTLE), &args).await;
    let row = row.map_err(|error| error.in_schema(asking.schema))?;
    match row.first().and_then(Option::as_deref) {
        Some("same") => Ok(Settlement::Same),
        Some("contradicts") => Ok(Settlement::Contradicts),
        Some("early") => Ok(Settlement::Early),
        Some("gone") => Ok(Settlement::Gone),
        _ => Ok(Settlement::Ends),
    }
}

/// Withdraws the command of a key in the caller's transaction: before it was sent, or when it turns out to have had no effect.
///
/// # Errors
/// [`Error::BadName`] without a reason, with nothing written. After [`Error::Database`] roll back.
pub async fn cancel_key(
    tx: &mut dyn Tx,
    asking: Asking<'_>,
    about: (&str, &str),
    why: &str,
) -> Result<job::Cancel, Error> {
    job::cancel_by_key(tx, asking, (Of::command(about.0), "command"), about, why).await
}

fn sized(bytes: usize, limit: usize) -> Result<(), Error> {
    match bytes > limit {
        true => Err(Error::TooLarge { bytes, limit }),
        false => Ok(()),
    }
}

fn checked(intent: &Intent<'_>) -> Result<(), Error> {
    let of = Of::command(intent.name);
    let refuse = |why: String| Err(Error::BadName(format!("{of}: {why}")));
    check::heading(of, intent.version, intent.tenant)?;
    if intent.name.len() > NAME_LIMIT {
        return refuse(format!("its name has more than {NAME_LIMIT} characters"));
    }
    if intent.key.is_empty() {
        return refuse("an empty key: it is the identity of the command".into());
    }
    check::key(of, Some(intent.key))?;
    if intent.exclusive == Some("") {
        return refuse("an empty key of exclusion: give none, or one".into());
    }
    check::key(of, intent.exclusive)?;
    if let Some(account) = intent.account
        && (account.chars().count() > 200 || account.chars().any(char::is_control))
    {
        return refuse("its account has more than 200 characters, or control characters".into());
    }
    for text in [intent.actor, intent.traceparent].into_iter().flatten() {
        check::about(of, text)?;
    }
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
    if job::is_far(intent.when) {
        return refuse("it is to run ten years from now, or before all time".into());
    }
    if let Some(Encoded { key, bytes, digest }) = intent.encoded {
        check::about(of, key)?;
        check::digest(of, Some(digest))?;
        sized(bytes.len(), PAYLOAD_LIMIT)?;
    }
    sized(intent.payload.len(), PAYLOAD_LIMIT)?;
    check::body(of, Body::Json(intent.payload), false)
}
