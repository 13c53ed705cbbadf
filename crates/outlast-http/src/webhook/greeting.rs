//! What providers ask before they trust an endpoint, and what it answers. Everything but Meta's GET is signed like any webhook.

use serde_json::{Value, json};
use url::Url;

use super::{
    Handshake, Refused, Secret, cert_url,
    find::{at, field},
    request::Seen,
};
use crate::mac::{self, Hash};

/// The longest challenge that is repeated.
const LONGEST: usize = 4096;

/// What a provider wants before it trusts an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Greeting {
    /// Answer 200 with this.
    Say {
        /// Its `content-type`.
        content_type: &'static str,
        /// Its body.
        body: String,
    },
    /// Visit this, once; it is at an address of the provider.
    Visit(Url),
}

impl Handshake {
    /// What a proven request asks, if it asks something.
    ///
    /// # Errors
    /// A request that asks to visit what is not the provider's.
    pub(super) fn asked(
        self,
        seen: &Seen<'_>,
        secret: Option<&Secret>,
    ) -> Result<Option<Greeting>, Refused> {
        let Some(body) = seen.json() else {
            return Ok(None);
        };
        let says = |name: &str, word: &str| at(body, name).and_then(Value::as_str) == Some(word);
        let greeting = match self {
            Self::SlackChallenge if says("type", "url_verification") => {
                let challenge = short(field(body, "challenge"))?;
                text(challenge)
            }
            Self::ZoomToken if says("event", "endpoint.url_validation") => {
                let token = short(field(body, "payload.plainToken"))?;
                let secret = secret.ok_or(Refused::UnknownKey)?;
                let signed = mac::mac(Hash::Sha256, secret.bytes(), [token.as_bytes()]);
                let signed: String = signed.as_ref().iter().map(|b| format!("{b:02x}")).collect();
                object(&json!({ "plainToken": token, "encryptedToken": signed }))
            }
            Self::DiscordPing if at(body, "type") == Some(&json!(1)) => {
                object(&json!({ "type": 1 }))
            }
            Self::SnsConfirmation if says("Type", "SubscriptionConfirmation") => {
                let url = field(body, "SubscribeURL").unwrap_or_default();
                let url = cert_url::confirms_sns(&url);
                Greeting::Visit(url.ok_or(Refused::UntrustedCertUrl)?)
            }
            _ => return Ok(None),
        };
        Ok(Some(greeting))
    }
}

/// Meta's GET: our own token, and a challenge to repeat. None if the request is none.
pub(super) fn meta(seen: &Seen<'_>, token: Option<&Secret>) -> Option<Result<Greeting, Refused>> {
    if seen.request.method != "GET" {
        return None;
    }
    let one = |name: &str| match &mut *seen.query(name) {
        [value] => Some(std::mem::take(value)),
        _ => None,
    };
    let given = one("hub.verify_token").unwrap_or_default();
    let is_right = token.is_some_and(|token| mac::equal(token.bytes(), given.as_bytes()));
    if one("hub.mode").as_deref() != Some("subscribe") || !is_right {
        return Some(Err(Refused::Mismatch));
    }
    Some(short(one("hub.challenge")).map(text))
}

fn short(text: Option<String>) -> Result<String, Refused> {
    let text = text.filter(|text| text.len() <= LONGEST);
    text.ok_or(Refused::MissingField("challenge"))
}

fn text(body: String) -> Greeting {
    Greeting::Say {
        content_type: "text/plain; charset=utf-8",
        body,
    }
}

fn object(value: &Value) -> Greeting {
    Greeting::Say {
        content_type: "application/json",
        body: value.to_string(),
    }
}
