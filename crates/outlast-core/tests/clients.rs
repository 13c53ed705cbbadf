//! What the packages for other languages are tested against: envelopes, and the attributes that we write of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use outlast_core::broker::{Envelope, LogPlace};
use serde_json::{Value, json};
use uuid::Uuid;

/// Set, the file is written anew instead of compared.
const UPDATE: &str = "OUTLAST_UPDATE_VECTORS";

#[test]
fn the_envelopes_that_other_languages_are_tested_with_are_what_we_write() {
    let made: Vec<Value> = envelopes().iter().map(|(n, e)| vector(n, e)).collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/vectors/envelopes.json");
    if std::env::var_os(UPDATE).is_some() {
        // One on a line, so that a difference shows which.
        let lines: Vec<String> = made.iter().map(|one| ascii(&one.to_string())).collect();
        fs::write(&file, format!("[\n{}\n]\n", lines.join(",\n"))).expect("it can be written");
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    let kept: Vec<Value> = serde_json::from_str(&kept).unwrap_or_default();
    assert!(
        kept == made,
        "{} is not what is written now; {UPDATE}=1 writes it anew",
        file.display()
    );
}

/// JSON that shows what an editor would hide.
fn ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii_graphic() || c == ' ' {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out += &format!("\\u{unit:04x}");
            }
        }
    }
    out
}

fn vector(name: &str, e: &Envelope) -> Value {
    let micros = e.emitted_at.duration_since(UNIX_EPOCH).expect("later");
    // Integers of 64 bits as text: not every reader of JSON has them.
    let number = |n: Option<i64>| n.map(|n| n.to_string());
    let log = |place: &LogPlace| json!({"log": place.log, "id": place.id.to_string()});
    let envelope = json!({
        "id": e.id,
        "type": e.name,
        "version": e.version,
        "tenant": e.tenant,
        "key": e.key,
        "key_seq": number(e.key_seq),
        "aggregate_version": number(e.aggregate_version),
        "source": e.source,
        "subject": e.subject,
        "actor": e.actor,
        "correlation_id": e.correlation_id,
        "causation_id": e.causation_id,
        "traceparent": e.traceparent,
        "headers": e.headers,
        "content_type": e.content_type,
        "codec_key": e.codec_key,
        "emitted_at_micros": micros.as_micros().to_string(),
        "log": e.log.as_ref().map_or(Value::Null, log),
    });
    json!({"name": name, "attributes": e.to_attributes(), "envelope": envelope})
}

fn envelopes() -> Vec<(&'static str, Envelope)> {
    let at = |micros| UNIX_EPOCH + Duration::from_micros(micros);
    let least = Envelope::new(Uuid::nil(), "a", at(0));

    let mut whole = Envelope::new(
        Uuid::from_u128(0x0193_7a3e_5c7d_7f00_8abc_0123_4567_89ab),
        "booking.confirmed/v2",
        at(1_790_000_000_123_456),
    );
    whole.version = u16::MAX;
    whole.tenant = "Zürich \n\"1%\"".into();
    whole.key = Some("a b/%41%".into());
    whole.key_seq = Some(i64::MAX);
    whole.aggregate_version = Some(i64::MIN);
    whole.source = Some("outlast".into());
    whole.subject = Some(String::new());
    whole.actor = Some("usr:1, usr:2".into());
    whole.correlation_id = Some(Uuid::from_u128(8));
    whole.causation_id = Some(Uuid::max());
    whole.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
    whole.content_type = "application/json; charset=\"utf-8\"".into();
    whole.codec_key = Some("k/1".into());
    whole.log = Some(LogPlace {
        log: "prod:eu\u{2028}".into(),
        id: -1,
    });

    let mut odd = Envelope::new(Uuid::from_u128(7), "odd", at(1));
    // A byte order mark, beyond the basic plane, a combining accent, right to left, C1, the last character.
    odd.key = Some("\u{feff}😀e\u{301}\u{202e}\u{85}\u{10ffff}".into());
    odd.tenant = "\u{1}\t\u{7f}\u{a0}".into();
    odd.subject = Some("%".into());
    odd.actor = Some("+ &=?#;,\\'~^|`{}<>".into());
    odd.headers = BTreeMap::from([
        ("X-Key: odd".into(), "v\tü\r\n".into()),
        ("x-key".into(), String::new()),
        ("Ünïcode 😀".into(), "\u{feff}".into()),
        ("__proto__".into(), "a name like another".into()),
        ("%".into(), "%25".into()),
    ]);
    vec![("least", least), ("whole", whole), ("odd", odd)]
}
