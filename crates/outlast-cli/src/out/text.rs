//! Text from outside, made safe to look at.

use std::fmt::{Display, Write};

/// For one cell or one line: everything that would move the cursor, hide text or turn its direction is spelled out.
pub(crate) fn line(text: &str) -> String {
    escape(text, |_| false)
}

/// For a payload on a terminal: line ends and tabs are left as they are.
pub(crate) fn lines(text: &str) -> String {
    escape(text, |c| c == '\n' || c == '\t')
}

fn escape(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if keep(c) || !is_hostile(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => write!(out, "\\u{{{:x}}}", u32::from(c)).expect("a String takes everything"),
        }
    }
    out
}

/// JSON escapes only what is below a space. What else a terminal obeys can occur in strings alone, so it may be
/// written as an escape: the document means the same.
pub(crate) fn plain_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hostile(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").expect("a String takes everything");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Control characters, and those that turn the direction of text or are invisible.
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A payload: as text exactly as stored if it is UTF-8, else its bytes in hex.
pub(crate) enum Payload<'a> {
    /// Exactly as stored.
    Text(&'a str),
    /// Two digits a byte.
    Hex(String),
}

impl<'a> Payload<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Hex(hex(bytes)),
        }
    }

    /// How it is written: `utf8` or `hex`.
    pub(crate) fn encoding(&self) -> &'static str {
        match self {
            Self::Text(_) => "utf8",
            Self::Hex(_) => "hex",
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Hex(hex) => hex,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
            write!(out, "{byte:02x}").expect("a String takes everything");
            out
        })
}

/// `2026-11-29T18:45:59.103332Z` as a person reads it in a table: `2026-11-29 18:45:59Z`.
pub(crate) fn time(iso: &str) -> String {
    match iso.split_once('T') {
        Some((day, time)) => format!(
            "{day} {}Z",
            time.split(['.', 'Z']).next().unwrap_or_default()
        ),
        None => iso.to_owned(),
    }
}

/// `1 batch`, `2 batches`.
pub(crate) fn count<N: Copy + Display + PartialEq + From<u8>>(
    n: N,
    one: &str,
    many: &str,
) -> String {
    let word = if n == N::from(1) { one } else { many };
    format!("{n} {word}")
}

/// A number of bytes, as people say it.
pub(crate) fn bytes(n: i64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    let mut value = n as f64 / 1000.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1000.0 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    if value < 10.0 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// A time span, as people say it: the largest unit only.
pub(crate) fn duration(seconds: i64) -> String {
    let (n, one, many) = match seconds {
        172_800.. => (seconds / 86_400, "day", "days"),
        7_200.. => (seconds / 3_600, "hour", "hours"),
        120.. => (seconds / 60, "minute", "minutes"),
        _ => (seconds, "second", "seconds"),
    };
    count(n, one, many)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_spelled_out() {
        assert_eq!(line("a\x1b[2Jb\nc\td"), "a\\u{1b}[2Jb\\nc\\td");
        assert_eq!(
            line("\u{202e}txt.exe \u{9b}31m"),
            "\\u{202e}txt.exe \\u{9b}31m"
        );
        assert_eq!(line("Zoë 東京 \u{1f600}"), "Zoë 東京 \u{1f600}");
        assert_eq!(lines("{\n\t\"a\": 1\r}"), "{\n\t\"a\": 1\\r}");
    }

    #[test]
    fn json_means_the_same_after_its_hostile_characters_are_escaped() {
        let value = serde_json::json!({ "k": "a\x1b\u{9b}31m\u{202e}\u{feff}\u{1f600}" });
        let safe = plain_json(&value.to_string());
        assert!(safe.chars().all(|c| !is_hostile(c)), "{safe}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&safe).ok(),
            Some(value)
        );
    }

    #[test]
    fn a_payload_is_text_as_stored_or_hex() {
        assert_eq!(
            Payload::of(b"{\"n\":12345678901234567890}").as_str(),
            "{\"n\":12345678901234567890}"
        );
        let odd = Payload::of(&[0xff, 0x00]);
        assert_eq!((odd.encoding(), odd.as_str()), ("hex", "ff00"));
    }
}
