//! As much of DER as public keys and certificates need: tag, length, content, in order. Nothing is copied, nothing panics.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BITS: u8 = 0x03;
pub(super) const OID: u8 = 0x06;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
/// The version of a certificate.
pub(super) const CONTEXT_0: u8 = 0xa0;

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The tag of what comes next.
    pub(super) fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The content of the next element, if it has this tag.
    pub(super) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_first()?;
        if *first != tag {
            return None;
        }
        let (length, rest) = length(rest)?;
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(content)
    }

    /// What is inside the next element.
    pub(super) fn enter(&mut self, tag: u8) -> Option<Self> {
        self.take(tag).map(Self)
    }

    /// The next element with its tag and length.
    pub(super) fn whole(&mut self, tag: u8) -> Option<&'a [u8]> {
        let before = self.0;
        self.take(tag)?;
        before.get(..before.len() - self.0.len())
    }

    /// A number that is not negative, without leading zeros.
    pub(super) fn unsigned(&mut self) -> Option<&'a [u8]> {
        let bytes = self.take(INTEGER)?;
        match bytes {
            [] | [0x80..=0xff, ..] => None,
            [0, rest @ ..] if !rest.is_empty() => Some(rest),
            _ => Some(bytes),
        }
    }

    /// Bits that fill whole bytes.
    pub(super) fn bits(&mut self) -> Option<&'a [u8]> {
        self.take(BITS)?.strip_prefix(&[0])
    }
}

/// Short, or with one to three bytes: nothing here is longer than 16 MiB.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let many = match first {
        0..=0x7f => return Some((usize::from(*first), rest)),
        0x81..=0x83 => usize::from(first - 0x80),
        _ => return None,
    };
    let (digits, rest) = rest.split_at_checked(many)?;
    let length = digits
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    Some((length, rest))
}
