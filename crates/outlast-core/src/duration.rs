//! Durations as people write them: `15s`, `500ms`, `1h 30m`.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::time::Duration;

const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// For `#[serde(with = ..)]`.
///
/// # Errors
/// None of its own.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&show(*duration))
}

/// For `#[serde(with = ..)]`.
///
/// # Errors
/// When the text is not a duration.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map_err(D::Error::custom)
}

/// Whole milliseconds in the largest units that fit, such as `1m 30s`.
pub fn show(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut parts = Vec::new();
    for (unit, ms) in UNITS {
        if rest >= ms {
            parts.push(format!("{}{unit}", rest / ms));
            rest %= ms;
        }
    }
    if parts.is_empty() {
        "0s".into()
    } else {
        parts.join(" ")
    }
}

/// Reads `15s`, `500ms`, `5m`, `2h`, `7d` and sums of them.
///
/// # Errors
/// Says what would have been right.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("`{text}` is not a duration such as \"15s\", \"500ms\", \"5m\" or \"1h 30m\"");
    let mut rest = text.trim();
    let mut sum = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let letters = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let (_, ms) = UNITS
            .into_iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(wrong)?;
        let part = number
            .checked_mul(ms)
            .map(Duration::from_millis)
            .ok_or_else(wrong)?;
        sum = sum.checked_add(part).ok_or_else(wrong)?;
        rest = after.trim_start();
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read_and_shown_in_one_way() {
        let table = [
            ("15s", 15_000, "15s"),
            ("500ms", 500, "500ms"),
            ("90s", 90_000, "1m 30s"),
            ("1h30m", 5_400_000, "1h 30m"),
        ];
        for (text, ms, shown) in table {
            let duration = parse(text).unwrap();
            assert_eq!(
                (duration, show(duration).as_str()),
                (Duration::from_millis(ms), shown)
            );
        }
        assert_eq!(show(Duration::ZERO), "0s");
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn what_is_not_a_duration_says_what_would_be() {
        for text in [
            "",
            "15",
            "s",
            "15 s",
            "1.5s",
            "-1s",
            "15sec",
            "1s,2s",
            "99999999999999999999s",
            "999999999999999d",
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains("is not a duration such as"), "{text}: {why}");
        }
    }
}
