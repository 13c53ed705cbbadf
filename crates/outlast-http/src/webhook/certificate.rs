//! Certificates (X.509) of providers, given as bytes: the key in them, and for how long it counts. Where a certificate may be
//! fetched from is [`cert_url`](super::cert_url)'s; who has issued it is asked where it is fetched.

use std::time::SystemTime;

use super::{
    PublicKey,
    der::{CONTEXT_0, Der, INTEGER, SEQUENCE, TIME, UTC_TIME},
    public_key::pem,
    time::civil,
};

/// The longest file of a certificate with those of its issuers.
const LONGEST: usize = 64 << 10;

/// The first certificate of a file: the one that signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    key: PublicKey,
    from: SystemTime,
    until: SystemTime,
}

impl Certificate {
    /// Reads the first certificate of a PEM file. None if there is none, or its key is weak or of an unknown kind.
    pub fn from_pem(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        if text.len() > LONGEST {
            return None;
        }
        Self::from_der(&pem(text, "CERTIFICATE")?)
    }

    /// The same of DER.
    pub fn from_der(bytes: &[u8]) -> Option<Self> {
        let mut outer = Der::new(bytes);
        let mut certificate = outer.enter(SEQUENCE)?;
        let mut content = certificate.enter(SEQUENCE)?;
        if content.peek()? == CONTEXT_0 {
            content.take(CONTEXT_0)?;
        }
        content.take(INTEGER)?;
        // Its algorithm and its issuer.
        content.take(SEQUENCE)?;
        content.take(SEQUENCE)?;
        let mut validity = content.enter(SEQUENCE)?;
        let from = time(&mut validity)?;
        let until = time(&mut validity)?;
        // Whose it is.
        content.take(SEQUENCE)?;
        let key = PublicKey::from_spki(content.whole(SEQUENCE)?).ok()?;
        Some(Self { key, from, until })
    }

    /// Whether it counts at this time.
    pub fn is_valid_at(&self, now: SystemTime) -> bool {
        self.from <= now && now <= self.until
    }

    /// The key in it.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    pub(super) fn into_key(self) -> PublicKey {
        self.key
    }
}

/// `YYMMDDhhmmssZ` until 2049, `YYYYMMDDhhmmssZ` from then on.
fn time(der: &mut Der<'_>) -> Option<SystemTime> {
    let (bytes, digits_of_year) = match der.peek()? {
        UTC_TIME => (der.take(UTC_TIME)?, 2),
        TIME => (der.take(TIME)?, 4),
        _ => return None,
    };
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('Z')?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain || text.len() != digits_of_year + 10 {
        return None;
    }
    let (year, rest) = text.split_at(digits_of_year);
    let year: u32 = year.parse().ok()?;
    let year = match digits_of_year {
        2 if year < 50 => 2000 + year,
        2 => 1900 + year,
        _ => year,
    };
    let two = |at: usize| rest.get(at..at + 2)?.parse::<u32>().ok();
    civil([year, two(0)?, two(2)?, two(4)?, two(6)?, two(8)?])
}
