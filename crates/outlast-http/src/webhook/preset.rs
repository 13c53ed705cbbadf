//! The providers that are known: one table, in which each says how its webhooks prove where they come from, how much of a body
//! that proves, and where id, type and time stand.

mod table;
mod words;

use std::time::Duration;

use super::{Find, KeyFormat, Scheme, Unit};

pub use table::presets;

/// What is known of one provider.
#[derive(Debug)]
#[non_exhaustive]
pub struct Preset {
    /// Its name in settings.
    pub name: &'static str,
    /// Other names of the same: those who send in the same way, and older spellings.
    pub aliases: &'static [&'static str],
    /// How its webhooks prove where they come from. None: the endpoint's own settings say it (`hmac`).
    pub scheme: Option<Scheme>,
    /// What the operator pastes.
    pub key: KeyKind,
    /// How much of a body is proven.
    pub body_authenticity: Authenticity,
    /// How far the signed time may be from now, in both directions. None: no time is signed, or repeats of a delivery carry the
    /// time of the first one.
    pub tolerance: Option<Duration>,
    /// How a body is split into events.
    pub items: Items,
    /// What makes an event the same event.
    pub identity: Identity,
    /// Where the type of an event stands.
    pub event_type: Option<Find>,
    /// Where the provider says when it happened.
    pub occurred: Option<(Find, Unit)>,
    /// What the provider asks before it trusts the endpoint.
    pub handshake: Option<Handshake>,
    /// What a 2xx must say, where the provider reads it.
    pub answer: Option<&'static str>,
    /// The provider's own page.
    pub page: &'static str,
}

/// What an operator pastes for an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// A shared secret in this format.
    Secret(KeyFormat),
    /// A shared secret in this format, or a public key.
    SecretOrPublic(KeyFormat),
    /// A public key.
    Public,
    /// Nothing: keys are fetched from the provider.
    Fetched,
    /// Nothing: nothing is proven.
    None,
}

/// How much of a body is proven. What is not [`Full`](Authenticity::Full) should be read again from the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Authenticity {
    /// Nothing of it: who calls is proven at most.
    None,
    /// Some fields of it: somebody who has seen one webhook may change the others.
    Partial,
    /// Every byte, or everything that has a meaning.
    Full,
}

impl Authenticity {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Partial => "partial",
            Self::Full => "full",
        }
    }
}

/// How a body is split into events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Items {
    /// It is one event.
    One,
    /// An array of events. A body that is none is one event.
    Array,
    /// An array of this name, with the event of each element under the second name.
    Within(&'static str, &'static str),
}

/// What makes an event the same event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The provider's id for it, which is signed.
    Signed(Find),
    /// The provider's id for it, which is not signed: whoever has seen a webhook may send it again under another id. The body's
    /// digest is compared besides.
    Unsigned(Find),
    /// The provider has no id for it: the body's digest.
    Digest,
}

/// What a provider asks before it trusts an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Slack: a signed `url_verification` with a challenge to repeat.
    SlackChallenge,
    /// Zoom: a signed `endpoint.url_validation` with a token to sign.
    ZoomToken,
    /// Meta: a GET with our own token and a challenge to repeat.
    MetaGet,
    /// SNS: a signed `SubscriptionConfirmation` with a URL to visit.
    SnsConfirmation,
    /// Discord: a signed ping.
    DiscordPing,
}

impl Preset {
    /// The preset of this name, or of one of its aliases.
    ///
    /// ```
    /// use outlast_http::webhook::Preset;
    ///
    /// assert_eq!(Preset::named("clerk").unwrap().name, "standard-webhooks");
    /// assert!(Preset::named("nobody").is_none());
    /// ```
    pub fn named(name: &str) -> Option<&'static Self> {
        let is_it = |preset: &&Self| preset.name == name || preset.aliases.contains(&name);
        presets().iter().find(is_it)
    }

    /// The format of its secrets, where it has secrets.
    pub fn key_format(&self) -> Option<KeyFormat> {
        match self.key {
            KeyKind::Secret(format) | KeyKind::SecretOrPublic(format) => Some(format),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::{Algorithm, Place};

    #[test]
    fn no_two_presets_have_a_name_in_common() {
        let names = presets()
            .iter()
            .flat_map(|p| [&[p.name], p.aliases].concat());
        let mut all: Vec<&str> = names.collect();
        let many = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), many);
    }

    #[test]
    fn what_a_preset_asks_for_is_what_its_scheme_needs() {
        for preset in presets() {
            let fits = match (&preset.scheme, preset.key) {
                (Some(Scheme::Signed(signed)), key) => match signed.algorithm {
                    Algorithm::Hmac(_) => matches!(key, KeyKind::Secret(_)),
                    Algorithm::Public(_) => key == KeyKind::Public,
                },
                (Some(Scheme::Standard), key) => matches!(key, KeyKind::SecretOrPublic(_)),
                (Some(Scheme::Twilio | Scheme::Adyen) | None, key) => {
                    matches!(key, KeyKind::Secret(_))
                }
                (Some(Scheme::Sns | Scheme::PayPal | Scheme::Token(_)), key) => {
                    key == KeyKind::Fetched
                }
                (Some(Scheme::None), key) => key == KeyKind::None,
            };
            assert!(fits, "{}", preset.name);
            assert!(preset.page.starts_with("https://"), "{}", preset.name);
        }
    }

    #[test]
    fn no_preset_says_that_more_is_proven_than_is_signed() {
        for preset in presets() {
            if let Some(Scheme::Signed(signed)) = &preset.scheme {
                assert_eq!(preset.body_authenticity, signed.proves(), "{}", preset.name);
            }
        }
    }

    #[test]
    fn a_time_in_a_field_is_only_asked_for_where_there_are_fields() {
        for preset in presets() {
            if let Some(Scheme::Signed(signed)) = &preset.scheme {
                let of_field = matches!(signed.time, Some((Find::Field, _)));
                let has_fields = matches!(signed.place, Place::Fields { .. });
                assert_eq!(of_field, has_fields, "{}", preset.name);
                assert!(
                    preset.tolerance.is_none() || signed.time.is_some(),
                    "{}",
                    preset.name
                );
            }
        }
    }
}
