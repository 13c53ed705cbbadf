//! Names: what a topic, a subscription and a stream are called at NATS.

/// Accepts a subject that can be published to and that a stream can have: tokens between dots, no wildcards.
///
/// # Errors
/// Why it cannot be one.
pub(crate) fn check_subject(subject: &str) -> Result<(), String> {
    // The line of the protocol, with the subject of the reply, has at most 4,096 bytes.
    const LONGEST: usize = 1_000;
    if subject.len() > LONGEST {
        return Err(format!(
            "a subject of {} bytes; at most {LONGEST} are taken",
            subject.len()
        ));
    }
    let strange = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '*' | '>');
    if let Some(c) = subject.chars().find(|c| strange(*c)) {
        return Err(format!("a subject with {c:?} in it"));
    }
    if subject.split('.').any(str::is_empty) {
        return Err("a subject with an empty part between dots".into());
    }
    if subject.starts_with('$') {
        return Err("a subject that begins with `$` is the server's own".into());
    }
    Ok(())
}

/// The name of a stream or a durable consumer for one of our names. They may have no dot and no slash; ours do. No two of
/// ours become the same.
///
/// # Errors
/// When there can be none of that name.
pub(crate) fn encode(name: &str) -> Result<String, String> {
    if name.is_empty() || name.len() > 200 {
        return Err(format!(
            "a name of {} bytes; 1 to 200 are taken",
            name.len()
        ));
    }
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '*' | '>' | '\\' | '=' | '~');
    if let Some(c) = name.chars().find(|c| !plain(*c)) {
        return Err(format!("a name with {c:?} in it"));
    }
    Ok(name.replace('.', "=").replace('/', "~"))
}

/// Whether it is a name everywhere without any doubt.
pub(crate) fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    !name.is_empty() && name.len() <= 200 && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_tokens_and_no_wildcards() {
        for good in ["a", "bookings.confirmed", "ü.1", "a-b_c/d"] {
            assert_eq!(check_subject(good), Ok(()), "{good}");
        }
        let long = "x".repeat(1_001);
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "a b",
            "a\r\nb",
            "*",
            "a.>",
            "$JS.API.INFO",
            "a\0",
            &long,
        ] {
            assert!(check_subject(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_stay_apart() {
        let names = ["mail.sender", "mail/sender", "mail-sender", "mail_sender"];
        let encoded: std::collections::HashSet<_> = names.iter().map(|name| encode(name)).collect();
        assert_eq!(encoded.len(), names.len());
        for bad in ["", "a b", "a=b", "a~b", "*", "ü", "a\\b"] {
            assert!(encode(bad).is_err(), "{bad}");
        }
    }
}
