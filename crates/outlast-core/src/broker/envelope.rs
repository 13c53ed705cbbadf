//! The envelope: what an event is, as attributes of a message. CloudEvents 1.0 in binary mode, and what that has no name for.
//!
//! Values are percent-encoded as the HTTP binding of CloudEvents says, so that they pass through headers of any broker; what
//! is printable ASCII looks as it is.

use std::{borrow::Cow, collections::BTreeMap, fmt, time::SystemTime};

use uuid::Uuid;

/// An event without its payload, as it leaves the database and comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Envelope {
    /// The event's id: the same at every attempt, after replay and restore.
    pub id: Uuid,
    /// Its type.
    pub name: String,
    /// The version of its payload's shape.
    pub version: u16,
    /// Whose it is; empty where there is only one tenant.
    pub tenant: String,
    /// What it is about; order is kept per tenant and key.
    pub key: Option<String>,
    /// Its number within its key, if the emitter asked for one.
    pub key_seq: Option<i64>,
    /// The version of what it is about.
    pub aggregate_version: Option<i64>,
    /// What emitted it.
    pub source: Option<String>,
    /// What of the source it is about.
    pub subject: Option<String>,
    /// Who caused it.
    pub actor: Option<String>,
    /// What it belongs to.
    pub correlation_id: Option<Uuid>,
    /// What it follows from.
    pub causation_id: Option<Uuid>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// The emitter's own.
    pub headers: BTreeMap<String, String>,
    /// What the payload is.
    pub content_type: String,
    /// Which key decodes the payload, if it is encoded.
    pub codec_key: Option<String>,
    /// When it was emitted, to the microsecond.
    pub emitted_at: SystemTime,
    /// Where in which log it stands.
    pub log: Option<LogPlace>,
}

/// A place in a log: which log, and the id in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// The identity of the log: its deployment's.
    pub log: String,
    /// The id in it.
    pub id: i64,
}

/// Attributes that are no envelope of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

const SPEC: &str = "ce-specversion";
const ID: &str = "ce-id";
const TYPE: &str = "ce-type";
const SOURCE: &str = "ce-source";
const SUBJECT: &str = "ce-subject";
const TIME: &str = "ce-time";
const CONTENT_TYPE: &str = "content-type";
const TRACE: &str = "traceparent";
const VERSION: &str = "outlast-version";
const TENANT: &str = "outlast-tenant";
const KEY: &str = "outlast-key";
const KEY_SEQ: &str = "outlast-key-seq";
const AGGREGATE: &str = "outlast-aggregate-version";
const NAMED: &str = "outlast-source";
const ACTOR: &str = "outlast-actor";
const CORRELATION: &str = "outlast-correlation-id";
const CAUSATION: &str = "outlast-causation-id";
const CODEC: &str = "outlast-codec-key";
const LOG: &str = "outlast-log";
/// Before the name of a header of the emitter's own.
const HEADER: &str = "outlast-h-";
/// CloudEvents wants a source; of an event without one we say this, and that it has none.
const NOBODY: &str = "outlast";

impl Envelope {
    /// An event of this id and type: version 1, JSON, emitted at this time.
    pub fn new(id: Uuid, name: impl Into<String>, emitted_at: SystemTime) -> Self {
        Self {
            id,
            name: name.into(),
            version: 1,
            tenant: String::new(),
            key: None,
            key_seq: None,
            aggregate_version: None,
            source: None,
            subject: None,
            actor: None,
            correlation_id: None,
            causation_id: None,
            traceparent: None,
            headers: BTreeMap::new(),
            content_type: "application/json".into(),
            codec_key: None,
            emitted_at,
            log: None,
        }
    }

    /// Its attributes, in a fixed order. [`from_attributes`](Self::from_attributes) reads them back without loss.
    ///
    /// ```
    /// use outlast_core::broker::Envelope;
    /// use std::time::UNIX_EPOCH;
    ///
    /// let mut event = Envelope::new(uuid::Uuid::nil(), "booking.confirmed", UNIX_EPOCH);
    /// event.key = Some("booking/Zürich 1".into());
    /// let attributes = event.to_attributes();
    /// assert!(attributes.contains(&("outlast-key".into(), "booking/Z%C3%BCrich%201".into())));
    /// assert_eq!(Envelope::from_attributes(&attributes), Ok(event));
    /// ```
    pub fn to_attributes(&self) -> Vec<(String, String)> {
        let mut all = Vec::with_capacity(12 + self.headers.len());
        self.each_attribute(|name, value| all.push((name.into_owned(), value.to_owned())));
        all
    }

    /// Tells `put` the name and the value of each attribute, in the order of [`to_attributes`](Self::to_attributes). For
    /// whoever writes them elsewhere at once: nothing is collected, and what needs no encoding is not copied.
    ///
    /// ```
    /// use outlast_core::broker::Envelope;
    /// use std::time::UNIX_EPOCH;
    ///
    /// let event = Envelope::new(uuid::Uuid::nil(), "booking.confirmed", UNIX_EPOCH);
    /// let mut lines = String::new();
    /// event.each_attribute(|name, value| lines += &format!("{name}: {value}\n"));
    /// assert!(lines.contains("ce-type: booking.confirmed\n"));
    /// ```
    pub fn each_attribute(&self, mut put: impl FnMut(Cow<'static, str>, &str)) {
        let mut own = |name, value: &str| put(Cow::Borrowed(name), value);
        let buffer = &mut Uuid::encode_buffer();
        own(SPEC, "1.0");
        own(ID, self.id.hyphenated().encode_lower(buffer));
        own(TYPE, &encode(&self.name));
        own(SOURCE, &encode(self.source.as_deref().unwrap_or(NOBODY)));
        if let Some(subject) = &self.subject {
            own(SUBJECT, &encode(subject));
        }
        let time = humantime::format_rfc3339_micros(self.emitted_at);
        own(TIME, &time.to_string());
        own(CONTENT_TYPE, &encode_spaced(&self.content_type));
        if let Some(trace) = &self.traceparent {
            own(TRACE, &encode(trace));
        }
        own(VERSION, &self.version.to_string());
        if self.source.is_none() {
            own(NAMED, "none");
        }
        if !self.tenant.is_empty() {
            own(TENANT, &encode(&self.tenant));
        }
        if let Some(key) = &self.key {
            own(KEY, &encode(key));
        }
        if let Some(n) = self.key_seq {
            own(KEY_SEQ, &n.to_string());
        }
        if let Some(n) = self.aggregate_version {
            own(AGGREGATE, &n.to_string());
        }
        if let Some(actor) = &self.actor {
            own(ACTOR, &encode(actor));
        }
        if let Some(id) = self.correlation_id {
            own(CORRELATION, id.hyphenated().encode_lower(buffer));
        }
        if let Some(id) = self.causation_id {
            own(CAUSATION, id.hyphenated().encode_lower(buffer));
        }
        if let Some(key) = &self.codec_key {
            own(CODEC, &encode(key));
        }
        if let Some(place) = &self.log {
            own(LOG, &format!("{}:{}", encode(&place.log), place.id));
        }
        for (name, value) in &self.headers {
            let name = format!("{HEADER}{}", encode_name(name));
            put(Cow::Owned(name), &encode(value));
        }
    }

    /// Reads what [`to_attributes`](Self::to_attributes) wrote. Names are taken in any case; what is not ours is passed over.
    ///
    /// # Errors
    /// What is missing or cannot be read. Such a message is not ours, or was changed on its way.
    pub fn from_attributes(attributes: &[(String, String)]) -> Result<Self, Unreadable> {
        let mut read = BTreeMap::new();
        let mut headers = BTreeMap::new();
        for (name, value) in attributes {
            let name = name.to_ascii_lowercase();
            let value = decode(&name, value)?;
            match name.strip_prefix(HEADER) {
                Some(own) => _ = headers.insert(decode(HEADER, own)?, value),
                None => _ = read.insert(name, value),
            }
        }
        let mut take = |name: &str| read.remove(name);
        let missing = |name: &str| Unreadable(format!("the attribute {name} is missing"));
        let spec = take(SPEC).ok_or_else(|| missing(SPEC))?;
        if spec != "1.0" {
            return Err(bad(SPEC, &spec));
        }
        let nobody = take(NAMED).is_some();
        let source = take(SOURCE).filter(|_| !nobody);
        let time = take(TIME).ok_or_else(|| missing(TIME))?;
        Ok(Self {
            id: parsed(ID, take(ID))?.ok_or_else(|| missing(ID))?,
            name: take(TYPE).ok_or_else(|| missing(TYPE))?,
            version: parsed(VERSION, take(VERSION))?.unwrap_or(1),
            tenant: take(TENANT).unwrap_or_default(),
            key: take(KEY),
            key_seq: parsed(KEY_SEQ, take(KEY_SEQ))?,
            aggregate_version: parsed(AGGREGATE, take(AGGREGATE))?,
            source,
            subject: take(SUBJECT),
            actor: take(ACTOR),
            correlation_id: parsed(CORRELATION, take(CORRELATION))?,
            causation_id: parsed(CAUSATION, take(CAUSATION))?,
            traceparent: take(TRACE).filter(|trace| crate::trace::is_traceparent(trace)),
            headers,
            content_type: take(CONTENT_TYPE).unwrap_or_else(|| "application/json".into()),
            codec_key: take(CODEC),
            emitted_at: humantime::parse_rfc3339(&time).map_err(|_| bad(TIME, &time))?,
            log: take(LOG).map(|place| log(&place)).transpose()?,
        })
    }
}

fn log(place: &str) -> Result<LogPlace, Unreadable> {
    let (log, id) = place.rsplit_once(':').ok_or_else(|| bad(LOG, place))?;
    let id = id.parse().map_err(|_| bad(LOG, place))?;
    let log = log.to_owned();
    Ok(LogPlace { log, id })
}

fn parsed<T: std::str::FromStr>(
    name: &str,
    value: Option<String>,
) -> Result<Option<T>, Unreadable> {
    let Some(value) = value else { return Ok(None) };
    value.parse().map(Some).map_err(|_| bad(name, &value))
}

fn bad(name: &str, value: &str) -> Unreadable {
    let shown = crate::text::clean(value, 100);
    Unreadable(format!("the attribute {name} cannot be read: `{shown}`"))
}

/// Printable ASCII stays, but `"` and `%`; everything else, space too, becomes the percent-encoded bytes of its UTF-8.
fn encode(value: &str) -> Cow<'_, str> {
    encoded(value, |b| {
        matches!(b, b'!'..=b'~') && !matches!(b, b'"' | b'%')
    })
}

/// A media type has spaces and quotes, and everybody expects them as they are.
fn encode_spaced(value: &str) -> Cow<'_, str> {
    encoded(value, |b| matches!(b, b' '..=b'~') && b != b'%')
}

/// What a header may be called anywhere, also where case is lost.
fn encode_name(name: &str) -> Cow<'_, str> {
    encoded(
        name,
        |b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'),
    )
}

fn encoded(value: &str, stays: impl Fn(u8) -> bool) -> Cow<'_, str> {
    use fmt::Write;
    if value.bytes().all(&stays) {
        return Cow::Borrowed(value);
    }
    let mut out = String::with_capacity(value.len() + 8);
    for b in value.bytes() {
        if stays(b) {
            out.push(char::from(b));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{b:02X}");
        }
    }
    Cow::Owned(out)
}

fn decode(name: &str, value: &str) -> Result<String, Unreadable> {
    if !value.contains('%') {
        return Ok(value.to_owned());
    }
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(b) = rest.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(bad(name, value));
        };
        out.extend(u8::try_from(high * 16 + low));
    }
    String::from_utf8(out).map_err(|_| bad(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn whole() -> Envelope {
        let mut e = Envelope::new(
            Uuid::from_u128(7),
            "booking.confirmed",
            UNIX_EPOCH + Duration::from_micros(1_790_000_000_123_456),
        );
        e.version = 3;
        e.tenant = "Zürich \n\"1%\"".into();
        e.key = Some("a b/%41".into());
        e.key_seq = Some(9);
        e.aggregate_version = Some(-1);
        e.source = Some("shop".into());
        e.subject = Some(String::new());
        e.actor = Some("usr:1".into());
        e.correlation_id = Some(Uuid::from_u128(8));
        e.causation_id = Some(Uuid::from_u128(9));
        e.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
        e.headers.insert("X-Key: odd".into(), "v\tü".into());
        e.headers.insert("x-key".into(), String::new());
        e.content_type = "application/json; charset=\"utf-8\"".into();
        e.codec_key = Some("k/1".into());
        e.log = Some(LogPlace {
            log: "prod:eu".into(),
            id: 42,
        });
        e
    }

    #[test]
    fn everything_comes_back_also_where_case_is_lost() {
        for event in [whole(), Envelope::new(Uuid::nil(), "a", UNIX_EPOCH)] {
            let attributes = event.to_attributes();
            for (name, value) in &attributes {
                let plain = |text: &str| text.bytes().all(|b| matches!(b, b' '..=b'~'));
                assert!(plain(name) && plain(value), "{name}: {value}");
            }
            assert_eq!(Envelope::from_attributes(&attributes), Ok(event.clone()));
            let upper: Vec<_> = attributes
                .into_iter()
                .map(|(name, value)| (name.to_ascii_uppercase(), value))
                .collect();
            assert_eq!(Envelope::from_attributes(&upper), Ok(event));
        }
    }

    #[test]
    fn an_event_without_a_source_comes_back_without_one_and_one_of_that_name_with_it() {
        let mut event = Envelope::new(Uuid::nil(), "a", UNIX_EPOCH);
        let source = |event: &Envelope| {
            let read = Envelope::from_attributes(&event.to_attributes());
            read.map(|event| event.source)
        };
        assert_eq!(source(&event), Ok(None));
        event.source = Some(NOBODY.into());
        assert_eq!(source(&event), Ok(Some(NOBODY.into())));
    }

    #[test]
    fn what_is_not_ours_or_broken_is_told_by_name() {
        let good = whole().to_attributes();
        let with = |name: &str, value: Option<&str>| {
            let mut attributes = good.clone();
            attributes.retain(|(known, _)| known != name);
            attributes.extend(value.map(|value| (name.to_owned(), value.to_owned())));
            Envelope::from_attributes(&attributes).map_err(|why| why.to_string())
        };
        for name in [SPEC, ID, TYPE, TIME] {
            assert_eq!(
                with(name, None),
                Err(format!("the attribute {name} is missing"))
            );
        }
        for (name, value) in [
            (SPEC, "0.3"),
            (ID, "7"),
            (TIME, "yesterday"),
            (VERSION, "70000"),
            (KEY, "%f"),
            (KEY, "%FF"),
            (LOG, "prod"),
            (LOG, "prod:x"),
        ] {
            let why = with(name, Some(value)).expect_err(value);
            assert!(why.contains(name), "{why}");
        }
        assert!(with("x-other", Some("1")).is_ok());
        assert_eq!(
            with(TRACE, Some("nonsense")).expect("reads").traceparent,
            None
        );
    }
}
