//! How a webhook proves where it comes from. Most schemes are data: where the signature stands, what was signed, by which
//! algorithm. The others are code, a file each.

mod adyen;
mod jwt;
mod paypal;
mod signed;
mod sns;
mod standard;
mod twilio;

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use super::{Authenticity, Find, How, PublicKey, Refused, Secret, Settings, Unit, request::Seen};
use crate::mac::Hash;

pub use jwt::Token;
pub(super) use jwt::key_id;

/// A text of a preset, or one of an endpoint's own settings.
pub type Text = Cow<'static, str>;

/// How a webhook proves where it comes from. It fixes the algorithm; what a message says about that is only compared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// A signature in a known place over known parts of the request.
    Signed(Signed),
    /// Standard Webhooks: `v1` with a secret, `v1a` with a public key. Under the standard's header names, or those of Svix.
    Standard,
    /// Twilio: URL and sorted parameters, or URL and a hash of the body in it.
    Twilio,
    /// Adyen: eight fields of every item of the body.
    Adyen,
    /// SNS: the fields of the message, by the key of a certificate.
    Sns,
    /// PayPal: ids, time and a checksum of the body, by the key of a certificate.
    PayPal,
    /// A signed token in a header.
    Token(Token),
    /// Nothing at all: anybody may send.
    None,
}

/// A signature in a known place over known parts of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// Where the signature stands.
    pub place: Place,
    /// How it is written.
    pub encoding: Encoding,
    /// By which algorithm it was made.
    pub algorithm: Algorithm,
    /// What was signed, one after the other.
    pub parts: Cow<'static, [Part]>,
    /// When it was signed, if that is signed too.
    pub time: Option<(Find, Unit)>,
}

/// Where the signature stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a header of its own, after a prefix (which may be empty).
    Header {
        /// The header.
        name: Text,
        /// What stands before the signature.
        prefix: Text,
    },
    /// In one or more headers with numbers at their ends, from 1 on.
    Numbered {
        /// What stands before the number.
        name: Text,
    },
    /// In a header with fields: `t=1492774577,v1=…,v1=…`; every field of this name is a signature.
    Fields {
        /// The header.
        name: Text,
        /// The fields of signatures.
        signature: Text,
        /// The field of the time; [`Find::Field`] finds no other.
        time: Text,
    },
    /// In a parameter of the URL.
    Query {
        /// The parameter.
        name: Text,
    },
    /// In the body.
    Body {
        /// The way to it, with dots.
        path: Text,
    },
}

/// How a signature is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Hexadecimal digits, large or small.
    Hex,
    /// Base64, with padding.
    Base64,
}

/// By which algorithm a signature was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// With a shared secret.
    Hmac(Hash),
    /// With a key whose other half we know.
    Public(How),
}

/// A part of what was signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A fixed text.
    Text(Text),
    /// The time of the signature, as it was sent.
    Time,
    /// The value of a header.
    Header(Text),
    /// A field of the body.
    Field(&'static str),
    /// The raw body.
    Body,
    /// The method, in capitals.
    Method,
    /// The whole URL.
    Url,
    /// The whole URL with those characters decoded that HubSpot decodes.
    UrlAsHubSpot,
}

/// What an endpoint knows.
pub(super) struct Known<'a> {
    pub(super) secrets: &'a [Secret],
    pub(super) public_keys: &'a [PublicKey],
    pub(super) settings: &'a Settings,
    pub(super) clock: Option<Clock>,
}

/// Now, and how far from it a signature may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) now: SystemTime,
    pub(super) tolerance: Option<Duration>,
}

impl Known<'_> {
    /// Whether a signed time is near enough; always, where nobody asks.
    fn is_in_time(&self, at: SystemTime) -> Result<(), Refused> {
        match self.clock {
            Some(Clock {
                now,
                tolerance: Some(tolerance),
            }) => super::time::near(at, now, tolerance),
            _ => Ok(()),
        }
    }

    /// Which of the public keys has signed this.
    fn signer(&self, message: &[u8], how: How, signature: &[u8]) -> Result<usize, Refused> {
        if self.public_keys.is_empty() {
            return Err(Refused::UnknownKey);
        }
        let mut keys = self.public_keys.iter();
        keys.position(|key| key.has_signed(message, how, signature))
            .ok_or(Refused::Mismatch)
    }
}

/// What a scheme has proven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    /// Which of the secrets, or of the public keys.
    pub(super) key: usize,
    /// When it was signed.
    pub(super) at: Option<SystemTime>,
    /// The id of this delivery, where it is signed and not that of the event.
    pub(super) delivery: Option<String>,
}

impl Signed {
    /// A plain HMAC of the body in a header: what most providers without a preset do.
    pub fn hmac(header: impl Into<Text>, hash: Hash, encoding: Encoding) -> Self {
        Self {
            place: Place::Header {
                name: header.into(),
                prefix: Text::Borrowed(""),
            },
            encoding,
            algorithm: Algorithm::Hmac(hash),
            parts: Cow::Borrowed(&[Part::Body]),
            time: None,
        }
    }

    /// How much of a body such a signature proves.
    pub fn proves(&self) -> Authenticity {
        let is_field = |part: &Part| matches!(part, Part::Field(_));
        match self.parts.contains(&Part::Body) {
            true => Authenticity::Full,
            false if self.parts.iter().any(is_field) => Authenticity::Partial,
            false => Authenticity::None,
        }
    }
}

impl Scheme {
    pub(super) fn prove(&self, seen: &Seen<'_>, known: &Known<'_>) -> Result<Proof, Refused> {
        match self {
            Self::Signed(signed) => signed.prove(seen, known),
            Self::Standard => standard::prove(seen, known),
            Self::Twilio => twilio::prove(seen, known),
            Self::Adyen => adyen::prove(seen, known),
            Self::Sns => sns::prove(seen, known),
            Self::PayPal => paypal::prove(seen, known),
            Self::Token(token) => token.prove(seen, known),
            Self::None => Ok(Proof::default()),
        }
    }
}

impl Encoding {
    /// The bytes of a signature.
    fn decode(self, text: &[u8]) -> Result<Vec<u8>, Refused> {
        let (decoded, name) = match self {
            Self::Hex => (super::secret::hex(text), "hexadecimal"),
            Self::Base64 => {
                use base64::{Engine, engine::general_purpose::STANDARD};
                (STANDARD.decode(text).ok(), "base64")
            }
        };
        decoded.ok_or(Refused::BadEncoding(name))
    }
}
