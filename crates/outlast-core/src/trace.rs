//! W3C trace context: what is one, and what is none.

/// Whether this is a `traceparent` that another party can go on with (W3C Trace Context, level 1, and what it says about
/// later versions).
///
/// What is none is dropped, as the recommendation wants it: a trace then begins anew. It is never an error, because nobody's
/// business shall fail for a trace. `functions/check.sql` says the same.
///
/// ```
/// use outlast_core::trace::is_traceparent;
/// assert!(is_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
/// assert!(!is_traceparent("00-00000000000000000000000000000000-00f067aa0ba902b7-01"));
/// ```
pub fn is_traceparent(text: &str) -> bool {
    const LONGEST: usize = 500;
    let hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let zero = |part: &str| part.bytes().all(|b| b == b'0');
    let mut parts = text.splitn(5, '-');
    let (Some(version), Some(trace), Some(parent), Some(flags), rest) = (
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
    ) else {
        return false;
    };
    text.len() <= LONGEST
        && text.is_ascii()
        && (hex(version, 2) && version != "ff")
        && (hex(trace, 32) && !zero(trace))
        && (hex(parent, 16) && !zero(parent))
        && hex(flags, 2)
        && (rest.is_none() || version != "00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_recommendation_calls_invalid_is_none() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_traceparent(good));
        assert!(is_traceparent(&good.replacen("00", "cc", 1)));
        assert!(is_traceparent(
            &(good.replacen("00", "cc", 1) + "-what-the-future-brings")
        ));
        for bad in [
            "",
            "00-1",
            &good.to_uppercase(),
            &good.replacen("00", "ff", 1),
            &(good.to_owned() + "-more"),
            &(good.to_owned() + "0"),
            &good.replace('-', "_"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
            &(good.replacen("00", "cc", 1) + "-" + &"x".repeat(500)),
        ] {
            assert!(!is_traceparent(bad), "{bad}");
        }
    }
}
