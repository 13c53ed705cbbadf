//! Signed tokens (JWT) in a header: Pub/Sub push, where the token says who calls and nothing of the body; Plaid, where it has
//! the body's hash. The algorithm is the scheme's; a token that names another is refused.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

use super::{Clock, Known, Proof};
use crate::{
    mac,
    webhook::{How, PublicKey, Refused, json, request::Seen, secret},
};

/// Whose token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// Google's OpenID token of a push subscription, RS256, in `Authorization`.
    PubSub,
    /// Plaid's, ES256, in `Plaid-Verification`.
    Plaid,
}

/// How far clocks may be apart where a token says itself until when it counts.
const SKEW: Duration = Duration::from_mins(1);
/// The longest token.
const LONGEST: usize = 8192;
const GOOGLE: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];

impl Token {
    pub(super) fn prove(self, seen: &Seen<'_>, known: &Known<'_>) -> Result<Proof, Refused> {
        let parsed = self.read(seen)?;
        let key = parsed.signer(known.public_keys, self.how())?;
        match self {
            Self::PubSub => google(&parsed.claims, known)?,
            Self::Plaid => plaid(&parsed.claims, known, seen.request.body)?,
        }
        Ok(Proof {
            key,
            at: time(&parsed.claims, "iat").ok(),
            delivery: None,
        })
    }

    fn how(self) -> How {
        match self {
            Self::PubSub => How::RsaSha256,
            Self::Plaid => How::EcdsaFixed,
        }
    }

    /// The token, taken apart; nothing of it is proven.
    fn read<'a>(self, seen: &Seen<'a>) -> Result<Parsed<'a>, Refused> {
        let (name, algorithm) = match self {
            Self::PubSub => ("authorization", "RS256"),
            Self::Plaid => ("plaid-verification", "ES256"),
        };
        let bad = || Refused::BadHeader(name.to_owned());
        let value = seen.text(name)?;
        let token = match self {
            Self::PubSub => {
                let (kind, token) = value.split_once(' ').ok_or_else(bad)?;
                let is_bearer = kind.eq_ignore_ascii_case("bearer");
                is_bearer.then_some(token.trim()).ok_or_else(bad)?
            }
            Self::Plaid => value,
        };
        if token.len() > LONGEST {
            return Err(bad());
        }
        let (signed, signature) = token.rsplit_once('.').ok_or_else(bad)?;
        let (header, claims) = signed.split_once('.').ok_or_else(bad)?;
        let object = |part: &str| -> Option<Value> {
            let value = json::read(&URL_SAFE_NO_PAD.decode(part).ok()?)?;
            value.is_object().then_some(value)
        };
        let header = object(header).ok_or_else(bad)?;
        if header.get("alg").and_then(Value::as_str) != Some(algorithm) {
            return Err(Refused::BadAlgorithm);
        }
        // What must be understood and is not.
        if header.get("crit").is_some() {
            return Err(bad());
        }
        Ok(Parsed {
            signed,
            key_id: header.get("kid").and_then(Value::as_str).map(str::to_owned),
            claims: object(claims).ok_or_else(bad)?,
            signature: URL_SAFE_NO_PAD.decode(signature).map_err(|_| bad())?,
        })
    }
}

/// Which key a token says that it was signed by.
pub(crate) fn key_id(token: Token, seen: &Seen<'_>) -> Result<Option<String>, Refused> {
    Ok(token.read(seen)?.key_id)
}

struct Parsed<'a> {
    signed: &'a str,
    key_id: Option<String>,
    claims: Value,
    signature: Vec<u8>,
}

impl Parsed<'_> {
    /// The key of the token's name; keys without names are all tried.
    fn signer(&self, keys: &[PublicKey], how: How) -> Result<usize, Refused> {
        let is_meant = |key: &PublicKey| match (key.id(), &self.key_id) {
            (Some(id), Some(wanted)) => id == wanted,
            (Some(_), None) => false,
            (None, _) => true,
        };
        let meant = keys.iter().enumerate().filter(|(_, key)| is_meant(key));
        let mut why = Refused::UnknownKey;
        for (index, key) in meant {
            if key.has_signed(self.signed.as_bytes(), how, &self.signature) {
                return Ok(index);
            }
            why = Refused::Mismatch;
        }
        Err(why)
    }
}

fn google(claims: &Value, known: &Known<'_>) -> Result<(), Refused> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if !text("iss").is_some_and(|issuer| GOOGLE.contains(&issuer)) {
        return Err(Refused::BadClaim("iss"));
    }
    if text("aud").is_none() || text("aud") != known.settings.audience.as_deref() {
        return Err(Refused::BadAudience);
    }
    if text("email").is_none() || text("email") != known.settings.service_account.as_deref() {
        return Err(Refused::BadClaim("email"));
    }
    if claims.get("email_verified") != Some(&Value::Bool(true)) {
        return Err(Refused::BadClaim("email_verified"));
    }
    let (from, until) = (time(claims, "iat")?, time(claims, "exp")?);
    let Some(Clock { now, tolerance }) = known.clock else {
        return Ok(());
    };
    let skew = tolerance.unwrap_or(SKEW);
    if now.checked_sub(skew).is_some_and(|now| now > until) {
        return Err(Refused::Stale);
    }
    match now.checked_add(skew).is_some_and(|now| now < from) {
        true => Err(Refused::TooNew),
        false => Ok(()),
    }
}

fn plaid(claims: &Value, known: &Known<'_>, body: &[u8]) -> Result<(), Refused> {
    known.is_in_time(time(claims, "iat")?)?;
    let hash = claims.get("request_body_sha256").and_then(Value::as_str);
    let hash = hash.and_then(|hash| secret::hex(hash.as_bytes()));
    let hash = hash.ok_or(Refused::BadClaim("request_body_sha256"))?;
    match mac::equal(mac::sha256(body).as_ref(), &hash) {
        true => Ok(()),
        false => Err(Refused::BodyHash),
    }
}

/// Whole seconds since 1970.
fn time(claims: &Value, name: &'static str) -> Result<SystemTime, Refused> {
    let seconds = claims.get(name).and_then(Value::as_u64);
    let at = seconds.and_then(|s| UNIX_EPOCH.checked_add(Duration::from_secs(s)));
    at.ok_or(Refused::BadClaim(name))
}
