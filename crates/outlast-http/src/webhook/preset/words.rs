//! The words in which the table of presets is written: what many of them have in common.

use std::{borrow::Cow, time::Duration};

use super::{Authenticity, Identity, Items, KeyKind, Preset};
use crate::{
    mac::Hash,
    webhook::{Algorithm, Encoding, Find, KeyFormat, Part, Place, Scheme, Signed, Unit},
};

pub(super) const MINUTE: Option<Duration> = Some(Duration::from_mins(1));
pub(super) const FIVE_MINUTES: Option<Duration> = Some(Duration::from_mins(5));
/// As the libraries of SendGrid's users have it: its batches come late.
pub(super) const TEN_MINUTES: Option<Duration> = Some(Duration::from_mins(10));

pub(super) const SHA1: Algorithm = Algorithm::Hmac(Hash::Sha1);
pub(super) const SHA256: Algorithm = Algorithm::Hmac(Hash::Sha256);
pub(super) const BODY: &[Part] = &[Part::Body];
pub(super) const TIME_DOT_BODY: &[Part] = &[Part::Time, text("."), Part::Body];
pub(super) const TIME_BODY: &[Part] = &[Part::Time, Part::Body];
pub(super) const TIME_COMMA_BODY: &[Part] = &[Part::Time, text(","), Part::Body];
pub(super) const URL_BODY: &[Part] = &[Part::Url, Part::Body];
pub(super) const METHOD_URL_BODY_TIME: &[Part] =
    &[Part::Method, Part::UrlAsHubSpot, Part::Body, Part::Time];
pub(super) const EVENT_TIME_TYPE: &[Part] = &[
    Part::Field("event.event_time"),
    Part::Field("event.event_type"),
];
pub(super) const TIME_TOKEN: &[Part] = &[Part::Time, Part::Field("signature.token")];
pub(super) const V0: &[Part] = &[text("v0:"), Part::Time, text(":"), Part::Body];

/// What most presets have in common.
pub(super) const USUAL: Preset = Preset {
    name: "",
    aliases: &[],
    scheme: None,
    key: KeyKind::Secret(KeyFormat::Text),
    body_authenticity: Authenticity::Full,
    tolerance: None,
    items: Items::One,
    identity: Identity::Digest,
    event_type: None,
    occurred: None,
    handshake: None,
    answer: None,
    page: "",
};

pub(super) const fn text(text: &'static str) -> Part {
    Part::Text(Cow::Borrowed(text))
}

pub(super) const fn header(name: &'static str) -> Find {
    Find::Header(Cow::Borrowed(name))
}

pub(super) const fn body(path: &'static str) -> Find {
    Find::Body(Cow::Borrowed(path))
}

pub(super) const fn signed(
    place: Place,
    encoding: Encoding,
    algorithm: Algorithm,
    parts: &'static [Part],
) -> Signed {
    Signed {
        place,
        encoding,
        algorithm,
        parts: Cow::Borrowed(parts),
        time: None,
    }
}

pub(super) const fn in_header(name: &'static str, prefix: &'static str) -> Place {
    Place::Header {
        name: Cow::Borrowed(name),
        prefix: Cow::Borrowed(prefix),
    }
}

/// `t=…,v1=…` over time, dot and body.
pub(super) const fn fields(name: &'static str, unit: Unit, parts: &'static [Part]) -> Scheme {
    Scheme::Signed(Signed {
        place: Place::Fields {
            name: Cow::Borrowed(name),
            signature: Cow::Borrowed("v1"),
            time: Cow::Borrowed("t"),
        },
        encoding: Encoding::Hex,
        algorithm: SHA256,
        parts: Cow::Borrowed(parts),
        time: Some((Find::Field, unit)),
    })
}

pub(super) const fn hmac(place: Place, encoding: Encoding, algorithm: Algorithm) -> Scheme {
    Scheme::Signed(signed(place, encoding, algorithm, BODY))
}
