//! The end of a command whose payload is encoded: the database writes it, and cannot decode. The event is JSON, and has in place of the command
//! its bytes as they are stored, and the key that they need.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use outlast_core::Failure;
use serde::Deserialize;

use crate::handler::Received;

/// What the names of these events end with; no other event's may.
const RESOLVED: &str = ".resolved";
/// How the database begins them, where the command is encoded.
const BEGINS: &str = "{\"encoded\":";
/// .. and goes on behind it. No quote stands in base64, and none by itself in what is before that.
const GOES_ON: &str = "\"},\"how\":";

/// Of such an event the command, as it was given, and the rest.
pub(super) struct Part {
    pub(super) command: Received,
    how: String,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Encoded {
    key: String,
    bytes: String,
}

/// None: it is another event, or one whose command is plain.
pub(super) fn encoded(event: &Received) -> Result<Option<Part>, Failure> {
    let name = event.name.strip_suffix(RESOLVED);
    let name = name.filter(|_| event.command.is_none() && event.entity.is_none());
    let text = std::str::from_utf8(&event.payload).ok();
    let text = text.and_then(|text| text.strip_prefix(BEGINS));
    let (Some(name), Some(text)) = (name, text) else {
        return Ok(None);
    };
    let broken = || {
        Failure::permanent("unreadable: the end of a command, and not as the database writes it")
    };
    let (Encoded { key, bytes }, how) = cut(text).ok_or_else(broken)?;
    let bytes = STANDARD.decode(bytes).map_err(|_| broken())?;
    let mut command = event.clone();
    command.name = name.to_owned();
    (command.codec_key, command.payload) = (Some(key), bytes.into());
    Ok(Some(Part {
        command,
        how: how.to_owned(),
    }))
}

/// What is encoded, and how it ended; letter by letter, because a number of an answer is not to be read and written again.
fn cut(text: &str) -> Option<(Encoded, &str)> {
    let at = text.find(GOES_ON)?;
    let how = text[at + GOES_ON.len()..].strip_suffix('}')?;
    let encoded = serde_json::from_str(&text[..at + 2]).ok()?;
    Some((encoded, how))
}

impl Part {
    /// The event as it would be with a plain command.
    pub(super) fn with(&self, plain: &[u8]) -> Vec<u8> {
        let (begins, goes_on, ends) = (&b"{\"command\":"[..], &b",\"how\":"[..], &b"}"[..]);
        [begins, plain, goes_on, self.how.as_bytes(), ends].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_cut_from_how_it_ended_whatever_its_key_and_its_answer_hold() {
        let key = r#"tenant/"},"how":{}"#;
        let how = r#"{"settled":{"n":1.10,"text":"\"},\"how\":"}}"#;
        let text = format!(
            r#"{{"key":{},"bytes":"YWI="}},"how":{how}}}"#,
            serde_json::json!(key)
        );
        let encoded = Encoded {
            key: key.into(),
            bytes: "YWI=".into(),
        };
        assert_eq!(cut(&text), Some((encoded, how)));
        assert_eq!(cut(&text[1..]), None);
        assert_eq!(cut("{}"), None);
    }
}
