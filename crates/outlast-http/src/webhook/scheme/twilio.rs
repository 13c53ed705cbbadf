//! Twilio: HMAC-SHA-1 of the URL and the sorted parameters of a form, or of the URL with the hash of any other body in it.
//!
//! Twilio signs the URL with or without its port, whatever was configured, and with each `'` of the query as `%27`: all of these
//! spellings are tried.

use std::collections::BTreeSet;

use http::header::CONTENT_TYPE;

use super::{Encoding, Known, Proof};
use crate::{
    mac::{self, Hash},
    webhook::{Refused, request::Seen, secret},
};

const SIGNATURE: &str = "x-twilio-signature";
const HASH: &str = "bodySHA256";

pub(super) fn prove(seen: &Seen<'_>, known: &Known<'_>) -> Result<Proof, Refused> {
    let signature = seen.header(SIGNATURE)?;
    if signature.is_empty() {
        return Err(Refused::EmptySignature);
    }
    let signature = Encoding::Base64.decode(signature)?;
    let expected = Hash::Sha1.bytes();
    if signature.len() != expected {
        let bytes = signature.len();
        return Err(Refused::BadLength { bytes, expected });
    }
    let body = seen.request.body;
    let hashes = seen.query(HASH);
    let is_form = is_form(seen);
    if hashes.is_empty() && !is_form && !body.is_empty() {
        // Nothing would be signed of such a body.
        return Err(Refused::MissingField("hash in its URL (bodySHA256)"));
    }
    let parameters = if is_form {
        parameters(body)
    } else {
        Vec::new()
    };
    let urls = spellings(seen.request.url);
    let given = [signature];
    let of = |secret: &secret::Secret| {
        let tags: Vec<_> = urls
            .iter()
            .map(|url| {
                let parts = [url.as_bytes(), &parameters[..]];
                mac::mac(Hash::Sha1, secret.bytes(), parts)
            })
            .collect();
        mac::matching(&tags, &given).is_some()
    };
    let key = known.secrets.iter().position(of).ok_or(Refused::Mismatch)?;
    let actual = mac::sha256(body);
    for hash in hashes {
        let signed = secret::hex(hash.as_bytes()).ok_or(Refused::BadEncoding("hexadecimal"))?;
        if !mac::equal(actual.as_ref(), &signed) {
            return Err(Refused::BodyHash);
        }
    }
    Ok(Proof {
        key,
        ..Proof::default()
    })
}

fn is_form(seen: &Seen<'_>) -> bool {
    let kind = seen.text(CONTENT_TYPE.as_str()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// Names and values, sorted, each pair once, without anything between them.
fn parameters(body: &[u8]) -> Vec<u8> {
    let pairs: BTreeSet<_> = url::form_urlencoded::parse(body).collect();
    let texts = pairs.iter().flat_map(|(name, value)| [name, value]);
    texts.flat_map(|text| text.bytes()).collect()
}

/// The URL as Twilio may have spelt it.
fn spellings(url: &str) -> Vec<String> {
    let mut all = ports(url);
    if let Some((path, query)) = url.split_once('?')
        && query.contains('\'')
    {
        all.extend(ports(&format!("{path}?{}", query.replace('\'', "%27"))));
    }
    all
}

/// The URL as it is, and without its port or with the usual one.
fn ports(url: &str) -> Vec<String> {
    let mut all = vec![url.to_owned()];
    let Some((scheme, rest)) = url.split_once("://") else {
        return all;
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (format!("{user}@"), host),
        None => (String::new(), authority),
    };
    let port = host.rsplit_once(':').filter(|(_, port)| {
        // Within brackets is an address, not a port.
        port.bytes().all(|b| b.is_ascii_digit())
    });
    match (port, scheme) {
        (Some((name, _)), _) => all.push(format!("{scheme}://{user}{name}{path}")),
        (None, "https") => all.push(format!("{scheme}://{user}{host}:443{path}")),
        (None, "http") => all.push(format!("{scheme}://{user}{host}:80{path}")),
        _ => {}
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_tried_as_twilio_may_have_spelt_it() {
        let all = |url: &str| spellings(url).split_off(1);
        assert_eq!(
            all("https://a.example/x?y=:1"),
            ["https://a.example:443/x?y=:1"]
        );
        assert_eq!(all("http://u:p@a.example"), ["http://u:p@a.example:80"]);
        assert_eq!(
            all("https://u:p@a.example:1/x"),
            ["https://u:p@a.example/x"]
        );
        assert_eq!(all("https://[::1]/"), ["https://[::1]:443/"]);
        assert_eq!(all("https://[::1]:8/"), ["https://[::1]/"]);
        assert!(all("nonsense").is_empty());
        let quoted = all("https://a.example:1/it's?it's");
        let spelt = [
            "https://a.example/it's?it's",
            "https://a.example:1/it's?it%27s",
            "https://a.example/it's?it%27s",
        ];
        assert_eq!(quoted, spelt);
    }
}
