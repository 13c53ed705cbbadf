//! Text from outside, made fit to be stored and shown.

/// How long an error text may be: 4 KiB.
pub const LIMIT: usize = 4096;

/// Keeps what people can read: no control characters but line feed and tab, at most `limit` bytes, cut between characters.
///
/// A cut text ends in `…`.
pub fn clean(text: &str, limit: usize) -> String {
    const MORE: char = '…';
    let mut kept = String::with_capacity(text.len().min(limit));
    for c in text
        .chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
    {
        if kept.len() + c.len_utf8() > limit {
            while kept.len() + MORE.len_utf8() > limit && kept.pop().is_some() {}
            if MORE.len_utf8() <= limit {
                kept.push(MORE);
            }
            break;
        }
        kept.push(c);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_go_and_lines_stay() {
        assert_eq!(
            clean("a\0b\u{7f}c\u{85}\r\nd\te\u{1b}[0m", 100),
            "abc\nd\te[0m"
        );
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_so() {
        for limit in 0..12 {
            let cut = clean("äöüäöüäöü", limit);
            assert!(cut.len() <= limit, "{limit}: {cut}");
            assert!(limit < 3 || cut.ends_with('…'), "{limit}: {cut}");
        }
        assert_eq!(clean("abc", 3), "abc");
        assert_eq!(clean("abcdef", 5), "ab…");
    }
}
