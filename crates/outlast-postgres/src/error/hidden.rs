//! The SQLSTATE of our own errors, for a driver that hides it (diesel): found again by the text of the error.
//!
//! The texts are those of the functions themselves, which this program carries, so that nothing is said twice. A text
//! that is not found has no state: its error stays one of the database, which is always safe to be taken for.

use crate::migrate::FUNCTIONS;
use std::sync::LazyLock;

struct Raised {
    /// What stands around the values that are filled in.
    parts: Vec<&'static str>,
    state: &'static str,
}

static RAISED: LazyLock<Vec<Raised>> =
    LazyLock::new(|| FUNCTIONS.iter().flat_map(|(_, sql)| raised(sql)).collect());

pub(super) fn state(message: &str) -> Option<&'static str> {
    let found = RAISED.iter().find(|raised| fits(message, &raised.parts))?;
    Some(found.state)
}

/// Each `raise exception 'text with %', … using errcode = 'state'` of a function's text.
fn raised(sql: &'static str) -> impl Iterator<Item = Raised> {
    sql.split("raise exception '").skip(1).filter_map(|raise| {
        let (text, rest) = raise.split_once('\'')?;
        let (statement, _) = rest.split_once(';')?;
        let (_, state) = statement.split_once("errcode = '")?;
        Some(Raised {
            parts: text.split('%').collect(),
            state: state.get(..5)?,
        })
    })
}

/// The message is the parts in their order, with anything between them.
fn fits(message: &str, parts: &[&str]) -> bool {
    let [first, between @ .., last] = parts else {
        return parts == [message];
    };
    let Some(mut rest) = message
        .strip_prefix(first)
        .and_then(|rest| rest.strip_suffix(last))
    else {
        return false;
    };
    for part in between {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_every_error_that_a_function_raises_is_found_by_its_text() {
        let texts = FUNCTIONS
            .iter()
            .map(|(_, sql)| sql.matches("errcode = 'OL").count())
            .sum::<usize>();
        assert_eq!(RAISED.len(), texts, "a raise that is written another way");
        for raised in RAISED.iter() {
            let message = raised.parts.join("x7 'y'");
            assert_eq!(state(&message), Some(raised.state), "{message}");
        }
    }

    #[test]
    fn the_text_of_another_error_has_no_state() {
        for message in ["", "division by zero", "lease x is lost", "event of mine"] {
            assert_eq!(state(message), None, "{message}");
        }
        assert_eq!(
            state("lease 7 is lost: somebody newer owns its work"),
            Some("OL001")
        );
    }
}
