//! Vectors: requests with their secrets and what should become of them, in a file. `outlast webhooks verify --vectors` judges
//! any such file, and ours is the test table of this room.
//!
//! A file is an array of rows. `id`, `scheme`, `headers` and `body` (`utf8` or `base64`) must be there; `method`, `url`, `secret` (one
//! or several), `public_key`, `timestamp_now`, `tolerance_s` and `options` may be. Other fields are left alone.

mod row;

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::{
    BadEndpoint, Endpoint, Limits, Preset, PublicKey, Refused, Request, Secret, Settings, Verified,
    scheme::Clock,
};
use row::Row;

/// The longest file.
pub const MOST_BYTES: usize = 64 << 20;
/// The most rows.
const MOST_ROWS: usize = 100_000;

/// What became of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judged {
    /// The row.
    pub id: String,
    /// What its webhook proved; or why it is refused.
    pub verdict: Result<Verified, Reason>,
    /// Whether the file says that it should be accepted, if it says so.
    pub expected: Option<bool>,
}

/// Why a row is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Its webhook is.
    #[error(transparent)]
    Webhook(#[from] Refused),
    /// Nobody knows this scheme; so nobody is believed.
    #[error("no scheme of this name is known")]
    UnknownScheme,
    /// Its keys or options make no endpoint.
    #[error(transparent)]
    Endpoint(#[from] BadEndpoint),
    /// Its secret is none.
    #[error(transparent)]
    Secret(#[from] super::BadSecret),
    /// Its public key is none.
    #[error(transparent)]
    PublicKey(#[from] super::BadPublicKey),
    /// An option that says nothing that is known.
    #[error("the option {0} says nothing that is known")]
    Option(&'static str),
    /// A tolerance without a time to compare with.
    #[error("a tolerance without a time to compare with")]
    NoClock,
}

impl Reason {
    /// One word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Webhook(refused) => refused.word(),
            Self::UnknownScheme => "unknown_scheme",
            Self::Endpoint(_) => "bad_endpoint",
            Self::Secret(_) => "bad_secret",
            Self::PublicKey(_) => "bad_public_key",
            Self::Option(_) => "bad_option",
            Self::NoClock => "no_clock",
        }
    }
}

/// Why a file cannot be judged. Nothing of it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadVectors {
    /// It is too long.
    #[error("more than {MOST_BYTES} bytes, or more than {MOST_ROWS} rows")]
    Many,
    /// It is not an array in JSON.
    #[error("not an array of rows in JSON: {0}")]
    Json(serde_json::Error),
    /// One of its rows is not as rows are.
    #[error("row {number}{}: {why}", .id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default())]
    Row {
        /// Which one, from 1 on.
        number: usize,
        /// Its id, if it has one.
        id: Option<String>,
        /// What is wrong.
        why: String,
    },
}

/// Judges every row of a file, in order. Short secrets are taken, as published examples have them; everything else is judged as an
/// endpoint would.
///
/// ```
/// use outlast_http::webhook::vectors;
///
/// let file = br#"[{"id":"a","scheme":"nobody","headers":[],"body":{"utf8":""}}]"#;
/// let judged = vectors::judge(file)?;
/// assert_eq!(judged[0].verdict.as_ref().unwrap_err().word(), "unknown_scheme");
/// # Ok::<(), vectors::BadVectors>(())
/// ```
///
/// # Errors
/// A file that is not as such files are: nothing of it is judged then.
pub fn judge(file: &[u8]) -> Result<Vec<Judged>, BadVectors> {
    if file.len() > MOST_BYTES {
        return Err(BadVectors::Many);
    }
    let rows: Vec<Value> = serde_json::from_slice(file).map_err(BadVectors::Json)?;
    if rows.len() > MOST_ROWS {
        return Err(BadVectors::Many);
    }
    let read = |(index, value): (usize, Value)| {
        let id = value.get("id").and_then(Value::as_str).map(str::to_owned);
        Row::read(value).map_err(|why| BadVectors::Row {
            number: index + 1,
            id,
            why,
        })
    };
    let rows = rows.into_iter().enumerate().map(read);
    let rows = rows.collect::<Result<Vec<Row>, _>>()?;
    Ok(rows.iter().map(Row::judged).collect())
}

impl Row {
    fn judged(&self) -> Judged {
        Judged {
            id: self.id.clone(),
            verdict: self.verdict(),
            expected: self.expect.as_deref().map(|expect| expect == "accept"),
        }
    }

    fn verdict(&self) -> Result<Verified, Reason> {
        let preset = Preset::named(&self.scheme).ok_or(Reason::UnknownScheme)?;
        let endpoint = self.endpoint(preset)?;
        let headers = self.headers()?;
        let request = Request {
            method: &self.method,
            url: &self.url,
            headers: &headers,
            body: &self.body,
        };
        let clock = match (self.timestamp_now, self.tolerance_s) {
            (None, Some(_)) => return Err(Reason::NoClock),
            (None, None) => None,
            (Some(now), tolerance) => {
                let now = UNIX_EPOCH.checked_add(Duration::from_secs(now));
                Some(Clock {
                    now: now.ok_or(Reason::NoClock)?,
                    tolerance: tolerance.map(Duration::from_secs).or(preset.tolerance),
                })
            }
        };
        Ok(endpoint.judge(&request, clock, &[])?)
    }

    fn endpoint(&self, preset: &'static Preset) -> Result<Endpoint, Reason> {
        let mut settings = Settings {
            limits: Limits {
                body_bytes: Limits::MOST_BODY_BYTES,
                ..Limits::default()
            },
            scheme: self.scheme(preset)?,
            audience: self.options.audience.clone(),
            service_account: self.options.service_account.clone(),
            topics: self.options.topics.clone(),
            allow_sha1: self.options.allow_versions.iter().any(|v| v == "1"),
            webhook_id: self.options.webhook_id.clone(),
            ..Settings::default()
        };
        if let Some(format) = preset.key_format() {
            let secrets = self.secret.iter();
            let read = secrets.map(|text| Secret::even_weak(text, format));
            settings.secrets = read.collect::<Result<_, _>>()?;
        }
        for text in &self.public_key {
            match text.trim_start().starts_with('{') {
                true => settings
                    .public_keys
                    .extend(PublicKey::from_jwks(text.as_bytes())?),
                false => settings.public_keys.push(PublicKey::parse(text)?),
            }
        }
        Ok(Endpoint::new(preset, settings)?)
    }

    /// A header that cannot be one is what no server would have handed on.
    fn headers(&self) -> Result<HeaderMap, Refused> {
        let mut headers = HeaderMap::with_capacity(self.headers.len().min(64));
        for (name, value) in &self.headers {
            let bad = || Refused::BadHeader(name.clone());
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad())?;
            headers.try_append(key, value).map_err(|_| bad())?;
        }
        Ok(headers)
    }
}
