//! Keys: `whsec_` and base64, as Standard Webhooks writes them.

use std::{fmt, str::FromStr};

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

const PREFIX: &str = "whsec_";
/// Fewer bytes could be guessed.
const LEAST: usize = 16;
/// No more than anybody hands out.
const MOST: usize = 64;
/// Active at once: an old and a new one, and one to spare.
const KEYS: usize = 4;

/// Padded or not: both are handed out.
const EITHER: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// A shared key: 16 to 64 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Why a text is no key. Says nothing of the text itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadKey {
    /// No key at all.
    #[error("no key: write whsec_ and the base64 of 24 random bytes (`openssl rand -base64 24`)")]
    Empty,
    /// It does not begin as a key does.
    #[error("a key begins with whsec_")]
    Prefix,
    /// What follows is not base64.
    #[error("after whsec_ comes base64")]
    Encoding,
    /// So few bytes could be guessed, so many are no key.
    #[error(
        "a key of {bytes} bytes is not between 16 and 64: `openssl rand -base64 24` makes a good one"
    )]
    Length {
        /// How many it has.
        bytes: usize,
    },
    /// So many keys at once are a mistake.
    #[error("more than 4 keys at once")]
    Many,
}

impl Key {
    /// A new random key.
    pub fn generate() -> Self {
        // Version 4 ids are random but for six fixed bits each, by the system's own generator.
        let halves = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
        Self(
            halves
                .iter()
                .flat_map(uuid::Uuid::as_bytes)
                .copied()
                .collect(),
        )
    }

    /// The text that a receiver is given. A secret.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", EITHER.encode(&self.0))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for Key {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let encoded = text.strip_prefix(PREFIX).ok_or(match text {
            "" => BadKey::Empty,
            _ => BadKey::Prefix,
        })?;
        let bytes = EITHER.decode(encoded).map_err(|_| BadKey::Encoding)?;
        if !(LEAST..=MOST).contains(&bytes.len()) {
            return Err(BadKey::Length { bytes: bytes.len() });
        }
        Ok(Self(bytes))
    }
}

/// The active keys of one endpoint, 1 to 4: while a key is replaced, the old one and the new one.
///
/// A sender signs with each of them; a receiver takes what any of them has signed. Read from a text with spaces or commas
/// between the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys(Vec<Key>);

impl Keys {
    /// The keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.0.iter()
    }
}

impl From<Key> for Keys {
    fn from(key: Key) -> Self {
        Self(vec![key])
    }
}

impl FromStr for Keys {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let parts = text
            .split([' ', ',', '\n', '\t'])
            .filter(|part| !part.is_empty());
        let keys = parts.map(str::parse).collect::<Result<Vec<Key>, _>>()?;
        match keys.len() {
            0 => Err(BadKey::Empty),
            1..=KEYS => Ok(Self(keys)),
            _ => Err(BadKey::Many),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weak_or_misspelt_key_is_refused_and_says_what_to_paste() {
        let sixteen = EITHER.encode([7; 16]);
        for (text, why) in [
            (String::new(), BadKey::Empty),
            (" , ".into(), BadKey::Empty),
            (sixteen.clone(), BadKey::Prefix),
            ("whsec_".into(), BadKey::Length { bytes: 0 }),
            ("whsec_!".into(), BadKey::Encoding),
            (
                format!("whsec_{}", EITHER.encode([7; 15])),
                BadKey::Length { bytes: 15 },
            ),
            (
                format!("whsec_{}", EITHER.encode([7; 65])),
                BadKey::Length { bytes: 65 },
            ),
            (format!("whsec_{sixteen} ").repeat(5), BadKey::Many),
        ] {
            assert_eq!(text.parse::<Keys>(), Err(why), "{text}");
        }
        assert!(format!("whsec_{sixteen}").parse::<Keys>().is_ok());
    }

    #[test]
    fn a_key_is_never_shown_by_accident_and_comes_back_when_it_is_on_purpose() {
        let key = Key::generate();
        let keys = Keys::from(key.clone());
        assert_eq!(format!("{keys:?}"), "Keys([Key(..)])");
        assert_eq!(key.reveal().parse(), Ok(key.clone()));
        assert_ne!(key, Key::generate());
        assert_eq!(key.bytes().len(), 32);
    }
}
