//! Shared secrets, in the forms in which providers hand them out.

use std::fmt;

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use crate::signature::{BadKey, Key};

/// Fewer bytes could be guessed.
const LEAST: usize = 16;
/// More than anybody hands out.
const MOST: usize = 4096;

/// Padded or not, both alphabets are tried.
const EITHER: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const PLAIN: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, EITHER);
const FOR_URLS: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, EITHER);

/// How a secret is written, and which bytes of it are the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFormat {
    /// The text itself is the key, prefix and all (Stripe, GitHub, Slack).
    Text,
    /// Base64 of the key.
    Base64,
    /// Hexadecimal digits of the key (Adyen).
    Hex,
    /// `whsec_` and base64 of the key (Standard Webhooks, Svix).
    Whsec,
}

impl KeyFormat {
    /// What a person should paste.
    pub fn paste(self) -> &'static str {
        match self {
            Self::Text => "the signing secret exactly as the provider shows it",
            Self::Base64 => "the signing key as the provider shows it, in base64",
            Self::Hex => "the signing key as the provider shows it, in hexadecimal digits",
            Self::Whsec => "the signing secret of this endpoint, with its whsec_",
        }
    }
}

/// The key of an HMAC. Its `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Why a text is no secret. Says nothing of the text itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadSecret {
    /// Nothing was pasted, or nothing is left of it.
    #[error("the secret is empty: paste {}", .0.paste())]
    Empty(KeyFormat),
    /// It is not written as it should be.
    #[error("the secret cannot be read: paste {}", .0.paste())]
    Encoding(KeyFormat),
    /// So few bytes could be guessed.
    #[error("a secret of {bytes} bytes could be guessed, 16 are the least: paste {}", .format.paste())]
    Weak {
        /// How many it has.
        bytes: usize,
        /// What was expected.
        format: KeyFormat,
    },
    /// No provider hands out so much.
    #[error("a secret has at most 4096 bytes: paste {}", .0.paste())]
    Long(KeyFormat),
}

impl Secret {
    /// Reads a secret. White space around it is dropped: it comes with pasting.
    ///
    /// ```
    /// use outlast_http::webhook::{BadSecret, KeyFormat, Secret};
    ///
    /// assert!(Secret::parse("8f742231b10e8888abcd99yyyzzz85a5", KeyFormat::Text).is_ok());
    /// let weak = Secret::parse("c2hvcnQ=", KeyFormat::Base64).unwrap_err();
    /// assert_eq!(weak, BadSecret::Weak { bytes: 5, format: KeyFormat::Base64 });
    /// ```
    ///
    /// # Errors
    /// A weak, empty or unreadable secret; the error says what to paste.
    pub fn parse(text: &str, format: KeyFormat) -> Result<Self, BadSecret> {
        let secret = Self::even_weak(text, format)?;
        match secret.0.len() {
            LEAST.. => Ok(secret),
            bytes => Err(BadSecret::Weak { bytes, format }),
        }
    }

    /// The same for published examples, whose secrets are short. An empty one is refused all the same.
    pub(super) fn even_weak(text: &str, format: KeyFormat) -> Result<Self, BadSecret> {
        let text = text.trim();
        let bytes = match format {
            KeyFormat::Text => text.as_bytes().to_vec(),
            KeyFormat::Base64 => base64(text).ok_or(BadSecret::Encoding(format))?,
            KeyFormat::Hex => hex(text.as_bytes()).ok_or(BadSecret::Encoding(format))?,
            KeyFormat::Whsec => whsec(text)?,
        };
        match bytes.len() {
            0 => Err(BadSecret::Empty(format)),
            1..=MOST => Ok(Self(bytes)),
            _ => Err(BadSecret::Long(format)),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// As the keys of our own signatures; some providers leave the prefix away.
fn whsec(text: &str) -> Result<Vec<u8>, BadSecret> {
    let format = KeyFormat::Whsec;
    let key: Result<Key, BadKey> = match text.starts_with("whsec_") || text.is_empty() {
        true => text.parse(),
        false => format!("whsec_{text}").parse(),
    };
    match key {
        Ok(key) => Ok(key.bytes().to_vec()),
        Err(BadKey::Empty | BadKey::Length { bytes: 0 }) => Err(BadSecret::Empty(format)),
        Err(BadKey::Length { bytes }) if bytes < LEAST => Err(BadSecret::Weak { bytes, format }),
        Err(BadKey::Length { .. }) => Err(BadSecret::Long(format)),
        Err(_) => Err(BadSecret::Encoding(format)),
    }
}

/// In either alphabet, padded or not.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let plain = PLAIN.decode(text);
    plain.or_else(|_| FOR_URLS.decode(text)).ok()
}

/// Pairs of digits, nothing else.
pub(super) fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let pairs = text.chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weak_or_misspelt_secret_is_refused_and_says_what_to_paste() {
        use KeyFormat::{Base64, Hex, Text, Whsec};
        for (text, format, why) in [
            ("", Text, BadSecret::Empty(Text)),
            (" \n", Text, BadSecret::Empty(Text)),
            (
                "fifteen letters",
                Text,
                BadSecret::Weak {
                    bytes: 15,
                    format: Text,
                },
            ),
            ("", Hex, BadSecret::Empty(Hex)),
            ("abc", Hex, BadSecret::Encoding(Hex)),
            ("zz", Hex, BadSecret::Encoding(Hex)),
            (
                "00ff",
                Hex,
                BadSecret::Weak {
                    bytes: 2,
                    format: Hex,
                },
            ),
            ("", Base64, BadSecret::Empty(Base64)),
            ("%", Base64, BadSecret::Encoding(Base64)),
            ("", Whsec, BadSecret::Empty(Whsec)),
            ("whsec_", Whsec, BadSecret::Empty(Whsec)),
            ("whsec_%", Whsec, BadSecret::Encoding(Whsec)),
            (
                "whsec_c2hvcnQ=",
                Whsec,
                BadSecret::Weak {
                    bytes: 5,
                    format: Whsec,
                },
            ),
        ] {
            let refused = Secret::parse(text, format).unwrap_err();
            assert_eq!(refused, why, "{text:?}");
            assert!(refused.to_string().contains(format.paste()), "{refused}");
        }
        let long = "a".repeat(MOST + 1);
        assert_eq!(Secret::parse(&long, Text), Err(BadSecret::Long(Text)));
    }

    #[test]
    fn each_format_says_which_bytes_are_the_key() {
        let key = |text: &str, format| Secret::parse(text, format).unwrap().bytes().to_vec();
        let sixteen = b"0123456789abcdef".to_vec();
        let encoded = "MDEyMzQ1Njc4OWFiY2RlZg==";
        assert_eq!(key(" 0123456789abcdef\n", KeyFormat::Text), sixteen);
        assert_eq!(key(encoded, KeyFormat::Base64), sixteen);
        assert_eq!(
            key(encoded.trim_end_matches('='), KeyFormat::Base64),
            sixteen
        );
        assert_eq!(key(&format!("whsec_{encoded}"), KeyFormat::Whsec), sixteen);
        assert_eq!(key(encoded, KeyFormat::Whsec), sixteen);
        let digits = "30313233343536373839616263646566";
        assert_eq!(key(digits, KeyFormat::Hex), sixteen);
        assert_eq!(format!("{:?}", Secret(sixteen)), "Secret(..)");
    }
}
