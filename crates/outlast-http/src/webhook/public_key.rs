//! Public keys, in the forms in which providers publish them, and what they prove.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_FIXED, ED25519,
    RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde_json::Value;

use super::{
    certificate::Certificate,
    der::{Der, OID, SEQUENCE},
    secret::{base64, hex},
};

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const EDWARDS: &[u8] = &[0x2b, 0x65, 0x70];

/// The shortest and the longest modulus.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// The longest text of a key or a certificate.
const LONGEST: usize = 64 << 10;
/// No provider has more keys at once.
const MOST_KEYS: usize = 64;

/// A key that proves who has signed and can sign nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    id: Option<String>,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// How a signature was made. The scheme says it, never the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// RSA with PKCS #1 1.5 and SHA-256.
    RsaSha256,
    /// The same with SHA-1: only where an endpoint allows it.
    RsaSha1,
    /// ECDSA on P-256 with SHA-256, as ASN.1.
    EcdsaDer,
    /// The same as two numbers of 32 bytes, as in tokens.
    EcdsaFixed,
    /// Ed25519.
    Ed25519,
}

/// Why a text is no public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPublicKey {
    /// Nothing was pasted.
    #[error("the public key is empty: paste it as the provider shows it")]
    Empty,
    /// Neither base64, nor hexadecimal, nor PEM, or what is in it is no key.
    #[error(
        "not a public key: paste it as the provider shows it (base64, hexadecimal, whpk_ or PEM)"
    )]
    Unreadable,
    /// Of an algorithm that no preset uses.
    #[error("a public key of an unknown kind: RSA, P-256 and Ed25519 are known")]
    Unknown,
    /// So short a key could be broken.
    #[error("an RSA key of {bits} bits: 2048 to 8192 are taken")]
    Weak {
        /// How many it has.
        bits: usize,
    },
    /// More keys than any provider has.
    #[error("more than 64 keys")]
    Many,
}

impl PublicKey {
    /// Reads a key: base64 of a `SubjectPublicKeyInfo` (SendGrid, Google), its PEM, a certificate's PEM, `whpk_` and base64
    /// (Standard Webhooks v1a), or the 32 bytes of an Ed25519 key in hexadecimal digits (Discord) or base64.
    ///
    /// ```
    /// use outlast_http::webhook::PublicKey;
    ///
    /// let discord = "da2a4b1d972e340289ea57d28f2944197a5804a44a216a596fca5d9b60195c61";
    /// assert!(PublicKey::parse(discord).is_ok());
    /// assert!(PublicKey::parse("not a key").is_err());
    /// ```
    ///
    /// # Errors
    /// What is no key, or a weak one.
    pub fn parse(text: &str) -> Result<Self, BadPublicKey> {
        let text = text.trim();
        if text.is_empty() {
            return Err(BadPublicKey::Empty);
        }
        if text.len() > LONGEST {
            return Err(BadPublicKey::Unreadable);
        }
        if text.contains("-----BEGIN CERTIFICATE-----") {
            let certificate = Certificate::from_pem(text.as_bytes());
            return Ok(certificate.ok_or(BadPublicKey::Unreadable)?.into_key());
        }
        if let Some(encoded) = text.strip_prefix("whpk_") {
            let bytes = base64(encoded).ok_or(BadPublicKey::Unreadable)?;
            return Self::ed25519(bytes);
        }
        if let Some(bytes) = pem(text, "PUBLIC KEY") {
            return Self::from_spki(&bytes);
        }
        if text.len() == 64
            && let Some(bytes) = hex(text.as_bytes())
        {
            return Self::ed25519(bytes);
        }
        let bytes = base64(text).ok_or(BadPublicKey::Unreadable)?;
        match bytes.len() {
            32 => Self::ed25519(bytes),
            _ => Self::from_spki(&bytes),
        }
    }

    /// Reads the DER of a `SubjectPublicKeyInfo`.
    ///
    /// # Errors
    /// What is no key, or a weak one.
    pub fn from_spki(der: &[u8]) -> Result<Self, BadPublicKey> {
        let Info {
            algorithm,
            curve,
            key,
        } = info(der).ok_or(BadPublicKey::Unreadable)?;
        match (algorithm, curve) {
            (RSA, _) => {
                let mut outer = Der::new(key);
                let numbers = outer.enter(SEQUENCE).filter(|_| outer.is_empty());
                let mut numbers = numbers.ok_or(BadPublicKey::Unreadable)?;
                let n = numbers.unsigned().ok_or(BadPublicKey::Unreadable)?;
                let e = numbers.unsigned().ok_or(BadPublicKey::Unreadable)?;
                Self::rsa(n, e)
            }
            (EC, Some(P256)) => Self::p256(key.to_vec()),
            (EDWARDS, _) => Self::ed25519(key.to_vec()),
            _ => Err(BadPublicKey::Unknown),
        }
    }

    /// Reads the keys of a JSON Web Key Set (RFC 7517), or one key alone. Keys of other kinds and uses are left out.
    ///
    /// # Errors
    /// What is no such set, or one with more than 64 keys.
    pub fn from_jwks(json: &[u8]) -> Result<Vec<Self>, BadPublicKey> {
        if json.len() > LONGEST {
            return Err(BadPublicKey::Many);
        }
        let set: Value = serde_json::from_slice(json).map_err(|_| BadPublicKey::Unreadable)?;
        let one = std::slice::from_ref(&set);
        let keys = match set.get("keys").or_else(|| set.get("key")) {
            Some(Value::Array(keys)) => keys,
            Some(key @ Value::Object(_)) => std::slice::from_ref(key),
            _ if set.get("kty").is_some() => one,
            _ => return Err(BadPublicKey::Unreadable),
        };
        if keys.len() > MOST_KEYS {
            return Err(BadPublicKey::Many);
        }
        Ok(keys.iter().filter_map(Self::from_jwk).collect())
    }

    fn from_jwk(jwk: &Value) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name: &str| {
            URL_SAFE_NO_PAD
                .decode(text(name)?.trim_end_matches('='))
                .ok()
        };
        if text("use").is_some_and(|used_for| used_for != "sig") {
            return None;
        }
        let mut key = match (text("kty")?, text("crv")) {
            ("RSA", _) => Self::rsa(&bytes("n")?, &bytes("e")?).ok()?,
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes("x")?, bytes("y")?);
                Self::p256([&[4], &x[..], &y[..]].concat()).ok()?
            }
            ("OKP", Some("Ed25519")) => Self::ed25519(bytes("x")?).ok()?,
            _ => return None,
        };
        key.id = text("kid").map(str::to_owned);
        Some(key)
    }

    fn rsa(n: &[u8], e: &[u8]) -> Result<Self, BadPublicKey> {
        let leading = n.iter().take_while(|byte| **byte == 0).count();
        let n = n[leading..].to_vec();
        if !RSA_BYTES.contains(&n.len()) {
            return Err(BadPublicKey::Weak { bits: n.len() * 8 });
        }
        let e = e.to_vec();
        Ok(Self::of(Kind::Rsa { n, e }))
    }

    fn p256(point: Vec<u8>) -> Result<Self, BadPublicKey> {
        match (point.len(), point.first()) {
            (65, Some(4)) => Ok(Self::of(Kind::P256(point))),
            _ => Err(BadPublicKey::Unreadable),
        }
    }

    fn ed25519(bytes: Vec<u8>) -> Result<Self, BadPublicKey> {
        match bytes.len() {
            32 => Ok(Self::of(Kind::Ed25519(bytes))),
            _ => Err(BadPublicKey::Unreadable),
        }
    }

    fn of(kind: Kind) -> Self {
        Self { id: None, kind }
    }

    /// The name by which tokens call it (`kid`).
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Whether a key of this kind can sign in this way.
    pub(super) fn fits(&self, how: How) -> bool {
        matches!(
            (&self.kind, how),
            (Kind::Rsa { .. }, How::RsaSha256 | How::RsaSha1)
                | (Kind::P256(_), How::EcdsaDer | How::EcdsaFixed)
                | (Kind::Ed25519(_), How::Ed25519)
        )
    }

    /// Whether this key has signed this message in this way. False for a key of another kind.
    pub(super) fn has_signed(&self, message: &[u8], how: How, signature: &[u8]) -> bool {
        let checked = match (&self.kind, how) {
            (Kind::Rsa { n, e }, How::RsaSha256) => {
                rsa(&RSA_PKCS1_2048_8192_SHA256, (n, e), message, signature)
            }
            (Kind::Rsa { n, e }, How::RsaSha1) => {
                let algorithm = &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY;
                rsa(algorithm, (n, e), message, signature)
            }
            (Kind::P256(key), How::EcdsaDer) => {
                one(&ECDSA_P256_SHA256_ASN1, key, message, signature)
            }
            (Kind::P256(key), How::EcdsaFixed) => {
                one(&ECDSA_P256_SHA256_FIXED, key, message, signature)
            }
            (Kind::Ed25519(key), How::Ed25519) => one(&ED25519, key, message, signature),
            _ => return false,
        };
        checked.is_ok()
    }
}

fn rsa(
    algorithm: &RsaParameters,
    (n, e): (&Vec<u8>, &Vec<u8>),
    message: &[u8],
    signature: &[u8],
) -> Result<(), ring::error::Unspecified> {
    RsaPublicKeyComponents { n, e }.verify(algorithm, message, signature)
}

fn one(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), ring::error::Unspecified> {
    UnparsedPublicKey::new(algorithm, key).verify(message, signature)
}

/// What is in a `SubjectPublicKeyInfo`.
struct Info<'a> {
    algorithm: &'a [u8],
    curve: Option<&'a [u8]>,
    key: &'a [u8],
}

fn info(der: &[u8]) -> Option<Info<'_>> {
    let mut outer = Der::new(der);
    let mut inner = outer.enter(SEQUENCE).filter(|_| outer.is_empty())?;
    let mut algorithm = inner.enter(SEQUENCE)?;
    let (oid, curve) = (algorithm.take(OID)?, algorithm.take(OID));
    let key = inner.bits().filter(|_| inner.is_empty())?;
    Some(Info {
        algorithm: oid,
        curve,
        key,
    })
}

/// What is between the lines of the first block of this name.
pub(super) fn pem(text: &str, label: &str) -> Option<Vec<u8>> {
    let begin = format!("-----BEGIN {label}-----");
    let end = format!("-----END {label}-----");
    let (_, after) = text.split_once(&begin)?;
    let (content, _) = after.split_once(&end)?;
    let dense: String = content.split_ascii_whitespace().collect();
    base64(&dense)
}
