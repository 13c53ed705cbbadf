//! `--since`: a span before now, or a time.

use std::str::FromStr;

/// Both are judged by the database's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// A span in PostgreSQL's words.
    Ago(String),
    /// A time in ISO 8601.
    At(String),
}

impl Since {
    /// (time, span), one of them.
    pub(crate) fn parts(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Ago(span) => (None, Some(span)),
            Self::At(time) => (Some(time), None),
        }
    }

    /// The same as arguments of a statement: neither, if it was not given.
    pub(crate) fn given(time: &Option<Self>) -> (Option<String>, Option<String>) {
        let (at, ago) = time.as_ref().map_or((None, None), Self::parts);
        (at.map(str::to_owned), ago.map(str::to_owned))
    }
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, rest) = text.split_at(digits);
        let unit = match rest {
            "s" => Some("seconds"),
            "m" | "min" => Some("minutes"),
            "h" => Some("hours"),
            "d" => Some("days"),
            _ => None,
        };
        match (unit, number.parse::<u32>()) {
            (Some(unit), Ok(number)) => Ok(Self::Ago(format!("{number} {unit}"))),
            _ if digits == 4 && rest.starts_with('-') => iso(text).map(Self::At),
            _ => Err(
                "a span such as 90s, 15m, 6h, 2d, or a time such as 2026-01-31T12:00:00Z".into(),
            ),
        }
    }
}

/// Only its letters are checked here: PostgreSQL knows the calendar.
fn iso(text: &str) -> Result<String, String> {
    if !text
        .chars()
        .all(|c| c.is_ascii_digit() || "-:.+TZ ".contains(c))
    {
        return Err("a time is written as 2026-01-31T12:00:00Z".into());
    }
    match text.get(10..) {
        None | Some("") => Ok(format!("{text}T00:00:00Z")),
        Some(time) if time.ends_with('Z') || time.contains(['+', '-']) => Ok(text.to_owned()),
        Some(_) => Err(
            "a time needs its zone: end it with Z for UTC, or with an offset such as +02:00".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_times_are_told_apart() {
        let ago = |text: &str| Since::Ago(text.to_owned());
        let at = |text: &str| Since::At(text.to_owned());
        let good = [
            ("90s", ago("90 seconds")),
            ("15m", ago("15 minutes")),
            ("2d", ago("2 days")),
            ("2026-01-31", at("2026-01-31T00:00:00Z")),
            ("2026-01-31T12:00:00Z", at("2026-01-31T12:00:00Z")),
            (
                "2026-01-31 12:00:00.5+02:00",
                at("2026-01-31 12:00:00.5+02:00"),
            ),
        ];
        for (text, expected) in good {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "5",
            "5 parsecs",
            "2026-01-31T12:00:00",
            "2026-01-31'; drop",
            "99999999999d",
            "yesterday",
            "2026-€€€€€€",
        ] {
            assert!(text.parse::<Since>().is_err(), "{text}");
        }
    }
}
