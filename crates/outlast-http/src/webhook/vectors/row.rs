//! One row of a file of vectors, as it is written.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::Value;

use super::Reason;
use crate::{
    mac::Hash,
    webhook::{Algorithm, Encoding, Part, Place, Preset, Scheme, Signed, Text},
};

pub(super) struct Row {
    pub(super) id: String,
    pub(super) scheme: String,
    pub(super) method: String,
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) secret: Vec<String>,
    pub(super) public_key: Vec<String>,
    pub(super) timestamp_now: Option<u64>,
    pub(super) tolerance_s: Option<u64>,
    pub(super) options: Options,
    pub(super) expect: Option<String>,
}

/// What else an endpoint of such a scheme knows.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Options {
    header: Option<String>,
    hash: Option<String>,
    encoding: Option<String>,
    prefix: Option<String>,
    pub(super) audience: Option<String>,
    pub(super) service_account: Option<String>,
    pub(super) topics: Vec<String>,
    pub(super) allow_versions: Vec<String>,
    pub(super) webhook_id: Option<String>,
}

#[derive(Deserialize)]
struct Written {
    id: String,
    scheme: String,
    method: Option<String>,
    url: Option<String>,
    headers: Vec<(String, String)>,
    body: Body,
    secret: Option<Several>,
    public_key: Option<Several>,
    timestamp_now: Option<u64>,
    tolerance_s: Option<u64>,
    options: Option<Options>,
    expect: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Body {
    Utf8(String),
    Base64(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Several {
    One(String),
    All(Vec<String>),
}

impl Several {
    fn all(several: Option<Self>) -> Vec<String> {
        match several {
            None => Vec::new(),
            Some(Self::One(one)) => vec![one],
            Some(Self::All(all)) => all,
        }
    }
}

impl Row {
    pub(super) fn read(value: Value) -> Result<Self, String> {
        let row: Written = serde_json::from_value(value).map_err(|why| why.to_string())?;
        let body = match row.body {
            Body::Utf8(text) => text.into_bytes(),
            Body::Base64(text) => {
                let decoded = STANDARD.decode(text);
                decoded.map_err(|why| format!("the body is not base64: {why}"))?
            }
        };
        Ok(Self {
            id: row.id,
            scheme: row.scheme,
            method: row.method.unwrap_or_else(|| "POST".to_owned()),
            url: row.url.unwrap_or_default(),
            headers: row.headers,
            body,
            secret: Several::all(row.secret),
            public_key: Several::all(row.public_key),
            timestamp_now: row.timestamp_now,
            tolerance_s: row.tolerance_s,
            options: row.options.unwrap_or_default(),
            expect: row.expect,
        })
    }

    /// The scheme of its options, if they say one.
    pub(super) fn scheme(&self, preset: &Preset) -> Result<Option<Signed>, Reason> {
        let options = &self.options;
        let hash = match options.hash.as_deref() {
            None => None,
            Some("sha1") => Some(Hash::Sha1),
            Some("sha256") => Some(Hash::Sha256),
            Some("sha512") => Some(Hash::Sha512),
            Some(_) => return Err(Reason::Option("hash")),
        };
        let encoding = match options.encoding.as_deref() {
            None => None,
            Some("hex") => Some(Encoding::Hex),
            Some("base64") => Some(Encoding::Base64),
            Some(_) => return Err(Reason::Option("encoding")),
        };
        let mut signed = match &preset.scheme {
            Some(Scheme::Signed(signed)) if hash.is_some() || encoding.is_some() => signed.clone(),
            Some(_) => return Ok(None),
            None => {
                let header = options.header.clone().ok_or(Reason::Option("header"))?;
                Signed {
                    place: Place::Header {
                        name: Text::Owned(header),
                        prefix: Text::Owned(options.prefix.clone().unwrap_or_default()),
                    },
                    parts: (&[Part::Body][..]).into(),
                    ..Signed::hmac("", Hash::Sha256, Encoding::Hex)
                }
            }
        };
        if let Some(hash) = hash {
            signed.algorithm = Algorithm::Hmac(hash);
        }
        signed.encoding = encoding.unwrap_or(signed.encoding);
        Ok(Some(signed))
    }
}
