//! A signature in a known place over known parts of the request.

use std::borrow::Cow;

use super::{Algorithm, Known, Part, Place, Proof, Signed};
use crate::{
    mac,
    webhook::{Find, How, Refused, find, request::Seen},
};

/// The most signatures that are looked at.
const MOST: usize = 16;
/// The longest header with fields.
const LONGEST: usize = 4096;

impl Signed {
    pub(super) fn prove(&self, seen: &Seen<'_>, known: &Known<'_>) -> Result<Proof, Refused> {
        let (given, time) = match &self.place {
            Place::Fields {
                name,
                signature,
                time,
            } => {
                let fields = fields(seen, name, [signature, time])?;
                (Given::Several(fields.signatures), Some(fields.time))
            }
            _ => (self.given(seen)?, None),
        };
        let time = match &self.time {
            None => None,
            Some((Find::Field, unit)) => {
                let text = time.unwrap_or_default().to_owned();
                Some((unit.read(&text).ok_or(Refused::BadTimestamp)?, text))
            }
            Some((Find::Header(name), unit)) => {
                let text = seen.text(name)?.to_owned();
                Some((unit.read(&text).ok_or(Refused::BadTimestamp)?, text))
            }
            Some((find, unit)) => {
                let text = find.in_item(seen, seen.json());
                let text = text.ok_or(Refused::MissingField("time"))?;
                Some((unit.read(&text).ok_or(Refused::BadTimestamp)?, text))
            }
        };
        if let Some((at, _)) = &time {
            known.is_in_time(*at)?;
        }
        let signatures = self.decoded(given)?;
        let text = time.as_ref().map_or("", |(_, text)| text);
        let parts = self.parts(seen, text)?;
        let key = self.signer(known, &parts, &signatures)?;
        Ok(Proof {
            key,
            at: time.map(|(at, _)| at),
            delivery: None,
        })
    }

    /// The signatures, as they are written.
    fn given<'a>(&self, seen: &Seen<'a>) -> Result<Given<'a>, Refused> {
        match &self.place {
            Place::Header { name, prefix } => {
                let value = seen.header(name)?;
                if value.is_empty() {
                    return Err(Refused::EmptySignature);
                }
                let signature = value.strip_prefix(prefix.as_bytes());
                let signature =
                    signature.ok_or_else(|| Refused::MissingPrefix(prefix.to_string()))?;
                Ok(Given::One(Cow::Borrowed(signature)))
            }
            Place::Numbered { name } => numbered(seen, name),
            Place::Query { name } => match &mut *seen.query(name) {
                [] => Err(Refused::MissingField("signature in its URL")),
                [one] => Ok(Given::One(Cow::Owned(std::mem::take(one).into_bytes()))),
                _ => Err(Refused::DuplicateHeader(name.to_string())),
            },
            Place::Body { path } => {
                let body = seen.json().ok_or(Refused::BadBody("JSON"))?;
                let signature =
                    find::field(body, path).ok_or(Refused::MissingField("signature"))?;
                Ok(Given::One(Cow::Owned(signature.into_bytes())))
            }
            Place::Fields { .. } => Ok(Given::Several(Vec::new())),
        }
    }

    /// A single signature that cannot be one is named; among several it is equal to nothing.
    fn decoded(&self, given: Given<'_>) -> Result<Vec<Vec<u8>>, Refused> {
        let one = match given {
            Given::Several(all) => {
                let decoded = all.iter().map(|one| self.encoding.decode(one));
                return Ok(decoded.map(Result::unwrap_or_default).collect());
            }
            Given::One(one) => one,
        };
        if one.is_empty() {
            return Err(Refused::EmptySignature);
        }
        let decoded = self.encoding.decode(&one)?;
        let expected = match self.algorithm {
            Algorithm::Hmac(hash) => hash.bytes(),
            Algorithm::Public(How::Ed25519 | How::EcdsaFixed) => 64,
            Algorithm::Public(_) => decoded.len(),
        };
        match decoded.len() == expected {
            true => Ok(vec![decoded]),
            false => Err(Refused::BadLength {
                bytes: decoded.len(),
                expected,
            }),
        }
    }

    /// What was signed.
    fn parts<'a>(&'a self, seen: &Seen<'a>, time: &'a str) -> Result<Vec<Cow<'a, [u8]>>, Refused> {
        let one = |part: &'a Part| -> Result<Cow<'a, [u8]>, Refused> {
            Ok(match part {
                Part::Text(text) => Cow::Borrowed(text.as_bytes()),
                Part::Time => Cow::Borrowed(time.as_bytes()),
                Part::Header(name) => Cow::Borrowed(seen.header(name)?),
                Part::Field(path) => {
                    let body = seen.json().ok_or(Refused::BadBody("JSON"))?;
                    let text = find::field(body, path).ok_or(Refused::MissingField(path))?;
                    Cow::Owned(text.into_bytes())
                }
                Part::Body => Cow::Borrowed(seen.request.body),
                Part::Method => Cow::Borrowed(seen.request.method.as_bytes()),
                Part::Url => Cow::Borrowed(seen.request.url.as_bytes()),
                Part::UrlAsHubSpot => Cow::Owned(as_hubspot(seen.request.url).into_bytes()),
            })
        };
        self.parts.iter().map(one).collect()
    }

    fn signer(
        &self,
        known: &Known<'_>,
        parts: &[Cow<'_, [u8]>],
        signatures: &[Vec<u8>],
    ) -> Result<usize, Refused> {
        let how = match self.algorithm {
            Algorithm::Hmac(hash) => {
                let parts = || parts.iter().map(|part| &**part);
                let secrets = known.secrets.iter();
                let tags: Vec<_> = secrets
                    .map(|secret| mac::mac(hash, secret.bytes(), parts()))
                    .collect();
                return mac::matching(&tags, signatures).ok_or(Refused::Mismatch);
            }
            Algorithm::Public(how) => how,
        };
        let message = parts.concat();
        let mut signers = signatures
            .iter()
            .map(|signature| known.signer(&message, how, signature));
        signers
            .find(Result::is_ok)
            .unwrap_or(Err(Refused::Mismatch))
    }
}

/// Signatures, as they are written.
enum Given<'a> {
    One(Cow<'a, [u8]>),
    Several(Vec<&'a [u8]>),
}

struct Fields<'a> {
    signatures: Vec<&'a [u8]>,
    time: &'a str,
}

/// `t=1492774577,v1=…,v1=…`: in any order, with or without spaces after the commas; one time and no second one.
fn fields<'a>(
    seen: &Seen<'a>,
    name: &str,
    [signature, time]: [&str; 2],
) -> Result<Fields<'a>, Refused> {
    let bad = || Refused::BadHeader(name.to_owned());
    let value = seen.text(name)?;
    if value.is_empty() {
        return Err(Refused::EmptySignature);
    }
    if value.len() > LONGEST {
        return Err(bad());
    }
    let mut times = Vec::new();
    let mut signatures = Vec::new();
    for part in value.split(',') {
        let (key, value) = part.trim().split_once('=').ok_or_else(bad)?;
        if key == time {
            times.push(value);
        } else if key == signature {
            signatures.push(value.as_bytes());
        }
    }
    let &[time] = &times[..] else {
        return Err(bad());
    };
    signatures.truncate(MOST);
    match signatures.is_empty() {
        true => Err(Refused::NoKnownVersion),
        false => Ok(Fields { signatures, time }),
    }
}

/// `X-Signature-1`, `X-Signature-2`, … up to the first that is missing.
fn numbered<'a>(seen: &Seen<'a>, name: &str) -> Result<Given<'a>, Refused> {
    let mut all = Vec::new();
    for number in 1..=MOST {
        match seen.header(&format!("{name}{number}")) {
            Ok(value) => all.push(value),
            Err(Refused::MissingHeader(_)) if number > 1 => break,
            Err(why) => return Err(why),
        }
    }
    Ok(Given::Several(all))
}

/// HubSpot signs the URL with these decoded, wherever they stand, and nothing else.
fn as_hubspot(url: &str) -> String {
    const DECODED: [(&str, &str); 12] = [
        ("%3A", ":"),
        ("%2F", "/"),
        ("%3F", "?"),
        ("%40", "@"),
        ("%21", "!"),
        ("%24", "$"),
        ("%27", "'"),
        ("%28", "("),
        ("%29", ")"),
        ("%2A", "*"),
        ("%2C", ","),
        ("%3B", ";"),
    ];
    let mut decoded = String::with_capacity(url.len());
    let mut rest = url;
    while let Some(at) = rest.find('%') {
        let (before, from) = rest.split_at(at);
        decoded.push_str(before);
        let code = from.get(..3).unwrap_or_default();
        let known = DECODED.iter().find(|(c, _)| code.eq_ignore_ascii_case(c));
        let (plain, length) = known.map_or(("%", 1), |(_, plain)| (*plain, 3));
        decoded.push_str(plain);
        rest = &from[length..];
    }
    decoded + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hubspots_urls_are_decoded_where_hubspot_decodes_them() {
        for (url, decoded) in [
            ("https://a.example/x", "https://a.example/x"),
            ("https://a.example/%3a%2F%20%", "https://a.example/:/%20%"),
            ("https://a.example/%2", "https://a.example/%2"),
            ("https://a.example/%é", "https://a.example/%é"),
            ("https://a.example/%253A", "https://a.example/%253A"),
        ] {
            assert_eq!(as_hubspot(url), decoded);
        }
    }
}
