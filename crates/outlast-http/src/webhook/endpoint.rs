//! An endpoint: a preset, with the keys and settings of one registration at the provider.

use std::time::{Duration, SystemTime};

use super::{
    Algorithm, Authenticity, CertHost, Greeting, Handshake, How, KeyFormat, KeyKind, Limits,
    Preset, PublicKey, Refused, Request, Scheme, Secret, Signed, Token, Verified, greeting,
    request::Seen,
    scheme::{Clock, Known, Proof, key_id},
};

/// The most secrets, and the most public keys: an old and a new one while they roll, and some to spare.
const MOST_KEYS: usize = 8;

/// What one registration at a provider has of its own.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The secrets; several while they roll.
    pub secrets: Vec<Secret>,
    /// The public keys, where the provider gives some out.
    pub public_keys: Vec<PublicKey>,
    /// How far the signed time may be from now, in both directions, if not as far as the preset says.
    pub tolerance: Option<Duration>,
    /// What is taken at all.
    pub limits: Limits,
    /// How a signature is made, for the preset `hmac`; or another hash or header than that of a preset that is data.
    pub scheme: Option<Signed>,
    /// Pub/Sub: the audience of the subscription's tokens.
    pub audience: Option<String>,
    /// Pub/Sub: the service account that calls.
    pub service_account: Option<String>,
    /// SNS: the topics, as ARNs.
    pub topics: Vec<String>,
    /// SNS: take signatures of version 1 (SHA-1) too.
    pub allow_sha1: bool,
    /// PayPal: the id of the webhook.
    pub webhook_id: Option<String>,
    /// Meta: the token of our own that its GET repeats.
    pub verify_token: Option<Secret>,
}

/// Why settings make no endpoint: what is missing, and what to paste.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadEndpoint {
    /// Nothing can be proven without.
    #[error("{preset}: no secret: paste {paste}")]
    NoSecret {
        /// The preset.
        preset: &'static str,
        /// What to paste.
        paste: &'static str,
    },
    /// Nothing can be proven without.
    #[error("{preset}: no public key: paste it as the provider shows it")]
    NoPublicKey {
        /// The preset.
        preset: &'static str,
    },
    /// A key of another kind than the provider signs with.
    #[error("{preset}: a public key of another kind than this provider signs with")]
    WrongKey {
        /// The preset.
        preset: &'static str,
    },
    /// More than anybody rolls at once.
    #[error("{preset}: more than 8 keys")]
    ManyKeys {
        /// The preset.
        preset: &'static str,
    },
    /// A setting without which anybody's webhooks would count as ours.
    #[error("{preset}: {setting} is missing: {why}")]
    Missing {
        /// The preset.
        preset: &'static str,
        /// The setting.
        setting: &'static str,
        /// What it is for.
        why: &'static str,
    },
    /// A scheme that is code has no other form.
    #[error("{preset}: this provider signs in one way only: leave its scheme as it is")]
    FixedScheme {
        /// The preset.
        preset: &'static str,
    },
    /// A limit beyond what is ever taken.
    #[error("a body of {bytes} bytes is more than is ever taken: 26214400 (25 MiB) at most")]
    BodyLimit {
        /// The limit that was asked for.
        bytes: usize,
    },
}

/// Judges the webhooks of one registration at a provider.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use http::HeaderMap;
/// use outlast_http::webhook::{Endpoint, Preset, Refused, Request, Secret, Settings};
///
/// let stripe = Preset::named("stripe").unwrap();
/// let secret = Secret::parse("whsec_test_secret", stripe.key_format().unwrap())?;
/// let endpoint = Endpoint::new(stripe, Settings { secrets: vec![secret], ..Settings::default() })?;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("stripe-signature", "t=1492774577,v1=00".parse()?);
/// let request = Request { method: "POST", url: "https://a.example/in", headers: &headers, body: b"{}" };
/// let now = UNIX_EPOCH + Duration::from_secs(1_492_774_580);
/// let refused = endpoint.verify(&request, now).unwrap_err();
/// assert_eq!(refused, Refused::Mismatch);
/// assert_eq!(refused.status(), 401);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Endpoint {
    preset: &'static Preset,
    scheme: Scheme,
    settings: Settings,
}

/// What must be fetched before a request can be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// The certificate at this address of the provider; its key counts while [`Certificate::is_valid_at`](super::Certificate::is_valid_at).
    Certificate(url::Url),
    /// Google's keys, as a JSON Web Key Set; the token says that it was signed by this one.
    GoogleKeys(Option<String>),
    /// Plaid's key of this id.
    PlaidKey(Option<String>),
}

impl Endpoint {
    /// An endpoint of this preset.
    ///
    /// # Errors
    /// The first thing that is missing or wrong in the settings.
    pub fn new(preset: &'static Preset, settings: Settings) -> Result<Self, BadEndpoint> {
        let name = preset.name;
        let bytes = settings.limits.body_bytes;
        if bytes > Limits::MOST_BODY_BYTES {
            return Err(BadEndpoint::BodyLimit { bytes });
        }
        if settings.secrets.len().max(settings.public_keys.len()) > MOST_KEYS {
            return Err(BadEndpoint::ManyKeys { preset: name });
        }
        let scheme = scheme(preset, &settings)?;
        let has_none = settings.secrets.is_empty() && settings.public_keys.is_empty();
        let needs_secret = match (&scheme, preset.key) {
            (Scheme::Signed(signed), _) => match signed.algorithm {
                Algorithm::Hmac(_) => settings.secrets.is_empty(),
                Algorithm::Public(_) if settings.public_keys.is_empty() => {
                    return Err(BadEndpoint::NoPublicKey { preset: name });
                }
                Algorithm::Public(_) => false,
            },
            (_, KeyKind::Secret(_)) => settings.secrets.is_empty(),
            (_, KeyKind::SecretOrPublic(_)) => has_none,
            (_, KeyKind::Public | KeyKind::Fetched | KeyKind::None) => false,
        };
        if needs_secret {
            let paste = preset.key_format().unwrap_or(KeyFormat::Text).paste();
            return Err(BadEndpoint::NoSecret {
                preset: name,
                paste,
            });
        }
        let endpoint = Self {
            preset,
            scheme,
            settings,
        };
        if let Some(how) = endpoint.how()
            && !endpoint
                .settings
                .public_keys
                .iter()
                .all(|key| key.fits(how))
        {
            return Err(BadEndpoint::WrongKey { preset: name });
        }
        match endpoint.lacks() {
            Some((setting, why)) => Err(BadEndpoint::Missing {
                preset: name,
                setting,
                why,
            }),
            None => Ok(endpoint),
        }
    }

    /// Which preset it is of.
    pub fn preset(&self) -> &'static Preset {
        self.preset
    }

    /// What must be fetched, and given to [`Endpoint::verify_with`], before this request can be judged. Nothing that it says is
    /// proven; an address is one of the provider's all the same.
    ///
    /// # Errors
    /// A request that is refused whatever were fetched.
    pub fn needs(&self, request: &Request<'_>) -> Result<Needs, Refused> {
        self.settings.limits.check(request)?;
        let seen = Seen::new(*request);
        Ok(match &self.scheme {
            Scheme::Sns => {
                let body = seen.json().ok_or(Refused::BadBody("JSON"))?;
                let url = super::find::field(body, "SigningCertURL");
                let url = url.ok_or(Refused::MissingField("SigningCertURL"))?;
                let url = CertHost::Sns.allows(&url);
                Needs::Certificate(url.ok_or(Refused::UntrustedCertUrl)?)
            }
            Scheme::PayPal => {
                let url = CertHost::PayPal.allows(seen.text("paypal-cert-url")?);
                Needs::Certificate(url.ok_or(Refused::UntrustedCertUrl)?)
            }
            Scheme::Token(Token::PubSub) => Needs::GoogleKeys(key_id(Token::PubSub, &seen)?),
            Scheme::Token(Token::Plaid) => Needs::PlaidKey(key_id(Token::Plaid, &seen)?),
            _ => Needs::Nothing,
        })
    }

    /// Judges a request at this time.
    ///
    /// # Errors
    /// Why it is refused: for the operator. The time of the answer says nothing about the signature that would have been right.
    pub fn verify(&self, request: &Request<'_>, now: SystemTime) -> Result<Verified, Refused> {
        self.verify_with(request, now, &[])
    }

    /// The same with public keys that were fetched ([`Endpoint::needs`]); without any, with the endpoint's own.
    ///
    /// # Errors
    /// As [`Endpoint::verify`].
    pub fn verify_with(
        &self,
        request: &Request<'_>,
        now: SystemTime,
        keys: &[PublicKey],
    ) -> Result<Verified, Refused> {
        let tolerance = self.settings.tolerance.or(self.preset.tolerance);
        self.judge(request, Some(Clock { now, tolerance }), keys)
    }

    /// Judges a request that is stored, whenever it came: everything but the time. With keys that were fetched, or without any with
    /// the endpoint's own.
    ///
    /// # Errors
    /// As [`Endpoint::verify`], but never that it is too old or too new.
    pub fn verify_stored(
        &self,
        request: &Request<'_>,
        keys: &[PublicKey],
    ) -> Result<Verified, Refused> {
        self.judge(request, None, keys)
    }

    pub(super) fn judge(
        &self,
        request: &Request<'_>,
        clock: Option<Clock>,
        fetched: &[PublicKey],
    ) -> Result<Verified, Refused> {
        self.settings.limits.check(request)?;
        let seen = Seen::new(*request);
        if self.preset.handshake == Some(Handshake::MetaGet)
            && let Some(asked) = greeting::meta(&seen, self.settings.verify_token.as_ref())
        {
            return Ok(self.greeted(asked?));
        }
        let public_keys = match fetched {
            [] => &self.settings.public_keys[..],
            fetched => fetched,
        };
        let known = Known {
            secrets: &self.settings.secrets,
            public_keys,
            settings: &self.settings,
            clock,
        };
        let proof = self.scheme.prove(&seen, &known)?;
        let secret = self.settings.secrets.get(proof.key);
        let greeting = match self.preset.handshake {
            Some(handshake) => handshake.asked(&seen, secret)?,
            None => None,
        };
        let events = self.preset.events(&seen, &proof);
        let Proof { key, at, delivery } = proof;
        Ok(Verified {
            key,
            signed_at: at,
            delivery,
            body_authenticity: self.body_authenticity(),
            events,
            greeting,
        })
    }

    /// How much of a body is proven here: what the preset says, or less where the endpoint's own scheme signs less.
    pub fn body_authenticity(&self) -> Authenticity {
        let own = self.settings.scheme.as_ref().map(Signed::proves);
        let preset = self.preset.body_authenticity;
        own.map_or(preset, |own| own.min(preset))
    }

    /// A request that has no body, and so no event.
    fn greeted(&self, greeting: Greeting) -> Verified {
        Verified {
            key: 0,
            signed_at: None,
            delivery: None,
            body_authenticity: Authenticity::None,
            events: Vec::new(),
            greeting: Some(greeting),
        }
    }

    /// How the provider's public keys sign.
    fn how(&self) -> Option<How> {
        match &self.scheme {
            Scheme::Signed(signed) => match signed.algorithm {
                Algorithm::Public(how) => Some(how),
                Algorithm::Hmac(_) => None,
            },
            Scheme::Standard => Some(How::Ed25519),
            Scheme::Sns | Scheme::PayPal | Scheme::Token(Token::PubSub) => Some(How::RsaSha256),
            Scheme::Token(Token::Plaid) => Some(How::EcdsaFixed),
            Scheme::Twilio | Scheme::Adyen | Scheme::None => None,
        }
    }

    /// The first setting that is missing, and what it is for.
    fn lacks(&self) -> Option<(&'static str, &'static str)> {
        let is_empty = |text: &Option<String>| text.as_deref().is_none_or(str::is_empty);
        let settings = &self.settings;
        match &self.scheme {
            Scheme::Token(Token::PubSub) if is_empty(&settings.audience) => Some((
                "audience",
                "Google signs such tokens for everybody's subscriptions",
            )),
            Scheme::Token(Token::PubSub) if is_empty(&settings.service_account) => {
                Some(("service_account", "any account of Google could call"))
            }
            Scheme::Sns if settings.topics.is_empty() => {
                Some(("topics", "Amazon signs the messages of everybody's topics"))
            }
            Scheme::PayPal if is_empty(&settings.webhook_id) => {
                Some(("webhook_id", "it is part of what PayPal signs"))
            }
            _ => None,
        }
    }
}

/// The preset's, unless the settings have one and it may be another.
fn scheme(preset: &'static Preset, settings: &Settings) -> Result<Scheme, BadEndpoint> {
    match (&settings.scheme, &preset.scheme) {
        (Some(own), None | Some(Scheme::Signed(_))) => Ok(Scheme::Signed(own.clone())),
        (Some(_), Some(_)) => Err(BadEndpoint::FixedScheme {
            preset: preset.name,
        }),
        (None, Some(scheme)) => Ok(scheme.clone()),
        (None, None) => Err(BadEndpoint::Missing {
            preset: preset.name,
            setting: "scheme",
            why: "which header has the signature, and how it is written",
        }),
    }
}
