//! Names: what an event type or a consumer may be called.

use std::fmt;

/// How long a name may be.
pub const LIMIT: usize = 100;

/// A name that is refused, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadName {
    name: String,
    why: &'static str,
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = crate::text::clean(&self.name, LIMIT + 20);
        write!(f, "`{shown}` cannot be a name: {}", self.why)
    }
}

impl std::error::Error for BadName {}

/// Accepts 1–100 of `a-z 0-9 . _ / -`: what SQL, URLs, metrics and shells all take without quoting.
pub fn check(name: &str) -> Result<(), BadName> {
    let refuse = |why| {
        Err(BadName {
            name: name.to_owned(),
            why,
        })
    };
    if name.is_empty() {
        return refuse("it is empty");
    }
    if name.len() > LIMIT {
        return refuse("it is longer than 100 characters");
    }
    if !name
        .bytes()
        .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'/' | b'-'))
    {
        return refuse("use only a-z, 0-9 and . _ / -");
    }
    Ok(())
}

/// Accepts an event type, or a pattern: what begins with all of it but a last `*`.
pub fn check_types(types: &str) -> Result<(), BadName> {
    match types.strip_suffix('*') {
        Some("") => Ok(()),
        Some(prefix) if prefix.len() < LIMIT => check(prefix),
        _ => check(types),
    }
}

/// Accepts what an application may call its own event type.
pub fn check_event(name: &str) -> Result<(), BadName> {
    check(name)?;
    if name.ends_with(".resolved") || name.ends_with(".finished") {
        let why = "these endings belong to the events that Outlast writes when a command or workflow ends";
        return Err(BadName {
            name: name.to_owned(),
            why,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_are_taken() {
        for name in [
            "a",
            "booking.confirmed",
            "stripe/payment_intent.succeeded",
            "x-1",
            &"a".repeat(100),
        ] {
            assert_eq!(check_event(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        let long = "a".repeat(101);
        let hostile = [
            "",
            " ",
            "A",
            "é",
            "a b",
            "a\0b",
            "a'b",
            "a;drop table x",
            "a\n",
            "a:b",
            "a%2fb",
            "ａ",
            &long,
        ];
        for name in hostile {
            assert!(check(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_refusal_shows_the_name_without_its_control_characters() {
        let refused = check("a\u{1b}[2Jb").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "`a[2Jb` cannot be a name: use only a-z, 0-9 and . _ / -"
        );
    }

    #[test]
    fn the_endings_of_our_own_events_are_taken_only_as_plain_names() {
        for name in ["charge_card.resolved", "book_tour.finished"] {
            assert!(check(name).is_ok() && check_event(name).is_err(), "{name}");
        }
    }
}
