//! Forms in several parts (`multipart/form-data`), as far as Dropbox Sign needs them: the content of one part by its name.

use http::{HeaderMap, header::CONTENT_TYPE};

/// The longest boundary of RFC 2046.
const LONGEST: usize = 70;
/// No honest form has more.
const MOST_PARTS: usize = 64;

/// What stands between the parts, if the headers say that this is such a form.
pub(super) fn boundary(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let mut fields = kind.split(';').map(str::trim);
    if !fields.next()?.eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let value = fields.find_map(|field| parameter(field, "boundary"))?;
    (!value.is_empty() && value.len() <= LONGEST).then(|| value.to_owned())
}

/// The content of the first part of this name.
pub(super) fn part<'a>(body: &'a [u8], boundary: &str, name: &str) -> Option<&'a [u8]> {
    let first = format!("--{boundary}");
    let next = format!("\r\n--{boundary}");
    let mut rest = &body[find(body, first.as_bytes())? + first.len()..];
    for _ in 0..MOST_PARTS {
        // Two dashes after a boundary: the end.
        rest = rest.strip_prefix(b"\r\n")?;
        let end = find(rest, next.as_bytes())?;
        let (whole, after) = (&rest[..end], &rest[end + next.len()..]);
        let head_ends = find(whole, b"\r\n\r\n")?;
        let (head, content) = (&whole[..head_ends], &whole[head_ends + 4..]);
        if is_named(head, name) {
            return Some(content);
        }
        rest = after;
    }
    None
}

fn is_named(head: &[u8], name: &str) -> bool {
    let Ok(head) = std::str::from_utf8(head) else {
        return false;
    };
    let disposition = head.split("\r\n").find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case("content-disposition")
            .then_some(value)
    });
    let fields = disposition.into_iter().flat_map(|value| value.split(';'));
    fields
        .filter_map(|field| parameter(field.trim(), "name"))
        .any(|value| value == name)
}

/// `key=value` or `key="value"`.
fn parameter<'a>(field: &'a str, key: &str) -> Option<&'a str> {
    let (name, value) = field.split_once('=')?;
    let value = value.trim();
    let plain = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'));
    name.trim()
        .eq_ignore_ascii_case(key)
        .then(|| plain.unwrap_or(value))
}

/// In time that grows with the length of the body, whatever boundary somebody chose.
fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &[u8] = b"preamble\r\n--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\njson\r\n\
--b\r\ncontent-disposition: form-data; name=json\r\nContent-Type: text/plain\r\n\r\n{\"a\":\r\n1}\r\n--b--\r\n";

    #[test]
    fn a_part_is_found_by_its_name_and_kept_byte_for_byte() {
        assert_eq!(part(FORM, "b", "json"), Some(&b"{\"a\":\r\n1}"[..]));
        assert_eq!(part(FORM, "b", "other"), Some(&b"json"[..]));
        assert_eq!(part(FORM, "b", "absent"), None);
        assert_eq!(part(FORM, "c", "json"), None);
        assert_eq!(part(&FORM[..FORM.len() - 8], "b", "json"), None, "cut");
    }

    #[test]
    fn a_boundary_is_read_quoted_or_not() {
        let of = |kind: &'static str| {
            let value = http::HeaderValue::from_static(kind);
            boundary(&HeaderMap::from_iter([(CONTENT_TYPE, value)]))
        };
        assert_eq!(of("multipart/form-data; boundary=x"), Some("x".into()));
        let quoted = of("Multipart/Form-Data; charset=utf-8; Boundary=\"x y\"");
        assert_eq!(quoted, Some("x y".into()));
        assert_eq!(of("multipart/form-data"), None);
        assert_eq!(of("application/json; boundary=x"), None);
    }
}
