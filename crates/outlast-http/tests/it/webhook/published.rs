//! The table of recorded webhooks: what providers and their libraries publish, and what was derived from it.

use outlast_http::webhook::{
    Authenticity, Preset,
    vectors::{self, Judged},
};
use serde_json::{Value, json};

const FILE: &[u8] = include_bytes!("vectors.json");

fn rows() -> Vec<Value> {
    serde_json::from_slice(FILE).unwrap()
}

fn judge(rows: &[Value]) -> Vec<Judged> {
    vectors::judge(&serde_json::to_vec(rows).unwrap()).unwrap()
}

/// The ids as rows write them.
fn ids(judged: &Judged) -> Vec<Value> {
    let events = &judged.verdict.as_ref().unwrap().events;
    events.iter().map(|event| json!(event.id)).collect()
}

#[test]
fn every_row_is_judged_as_it_says_and_for_its_reason() {
    let rows = rows();
    let judged = vectors::judge(FILE).unwrap();
    assert!(rows.len() >= 134);
    assert_eq!(judged.len(), rows.len());
    let mut wrong = Vec::new();
    for (row, judged) in rows.iter().zip(&judged) {
        let verdict = match &judged.verdict {
            Ok(_) => json!("accept"),
            Err(_) => json!("reject"),
        };
        let reason = judged.verdict.as_ref().err().map(|why| why.word());
        let has_reason = row["expect"] == "accept" || json!(reason) == row["reason"];
        if verdict != row["expect"] || !has_reason {
            wrong.push(format!(
                "{}: {verdict} {reason:?}, not {} {}",
                judged.id, row["expect"], row["reason"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_accepted_row_has_the_events_that_it_says() {
    for (row, judged) in rows().iter().zip(vectors::judge(FILE).unwrap()) {
        // The id of the forged body is in the body; the row names the one that was captured.
        if row["expect"] != "accept" || row["id"] == "paypal-crc32-collision" {
            continue;
        }
        match &row["event_id"] {
            Value::Null => {}
            Value::Array(all) => assert_eq!(&ids(&judged), all, "{}", judged.id),
            one => assert_eq!(&ids(&judged), std::slice::from_ref(one), "{}", judged.id),
        }
    }
}

#[test]
fn a_body_with_a_checksum_in_common_is_bound_to_the_delivery_that_was_captured() {
    let rows = rows();
    let forged: Vec<Value> = rows
        .into_iter()
        .filter(|row| row["id"] == "paypal-crc32-collision")
        .collect();
    let judged = judge(&forged);
    let verified = judged[0].verdict.as_ref().unwrap();
    assert_eq!(
        verified.delivery.as_deref(),
        Some("dfb3be50-fd74-11e4-8bf3-77339302725b")
    );
    assert_eq!(verified.events[0].id.as_deref(), Some("WH-FORGED"));
    assert_eq!(verified.body_authenticity, Authenticity::Partial);
}

/// Goal: nothing of a body counts that is said to be proven and is not. Method: every accepted row of a preset that proves
/// all of the body, with one bit of the body flipped, at many places.
#[test]
fn where_a_whole_body_is_proven_no_bit_of_it_can_be_changed() {
    let mut flipped = Vec::new();
    for row in rows() {
        let preset = Preset::named(row["scheme"].as_str().unwrap()).unwrap();
        let is_whole = preset.body_authenticity == Authenticity::Full;
        if row["expect"] != "accept" || !is_whole {
            continue;
        }
        // Parameters of a form are proven decoded and sorted: other bytes may mean the same.
        if preset.name == "twilio" && row["headers"].to_string().contains("form-urlencoded") {
            continue;
        }
        let body = match row["body"]["utf8"].as_str() {
            Some(text) => text.as_bytes().to_vec(),
            None => base64(row["body"]["base64"].as_str().unwrap()),
        };
        for at in (0..body.len()).step_by(1 + body.len() / 40) {
            let mut other = body.clone();
            other[at] ^= 1 << (at % 8);
            let mut row = row.clone();
            row["body"] = json!({ "base64": to_base64(&other) });
            flipped.push(row);
        }
    }
    assert!(flipped.len() > 500, "{}", flipped.len());
    for judged in judge(&flipped) {
        assert!(judged.verdict.is_err(), "{}", judged.id);
    }
}

#[test]
fn where_only_a_part_is_proven_the_rest_can_be_changed_and_that_is_said() {
    for (id, is_accepted) in [
        ("adyen-std-unsigned-field", true),
        ("dropboxsign-unsigned-body", true),
    ] {
        let judged = vectors::judge(FILE).unwrap();
        let judged = judged.into_iter().find(|one| one.id == id).unwrap();
        assert_eq!(judged.verdict.is_ok(), is_accepted, "{id}");
        assert_eq!(
            judged.verdict.unwrap().body_authenticity,
            Authenticity::Partial,
            "{id}"
        );
    }
}

#[test]
fn no_row_is_accepted_with_another_key_or_without_one() {
    let mut others = Vec::new();
    let mut none = Vec::new();
    for mut row in rows() {
        if row["expect"] != "accept" {
            continue;
        }
        if row["secret"].is_string() {
            // Of the same length and form, and different.
            let other: String = row["secret"].as_str().unwrap().chars().rev().collect();
            let other = match other.strip_suffix("_cceshw") {
                Some(rest) if row["scheme"] == "standard-webhooks" => format!("whsec_{rest}"),
                _ => other,
            };
            let mut row = row.clone();
            row["secret"] = json!(other);
            others.push(row);
        }
        row["secret"] = Value::Null;
        row["public_key"] = Value::Null;
        none.push(row);
    }
    for judged in judge(&others).into_iter().chain(judge(&none)) {
        assert!(judged.verdict.is_err(), "{}", judged.id);
    }
}

#[test]
fn a_row_without_a_clock_cannot_ask_for_a_tolerance() {
    let mut row = rows().swap_remove(0);
    row["timestamp_now"] = Value::Null;
    let judged = judge(&[row]);
    assert_eq!(judged[0].verdict.as_ref().unwrap_err().word(), "no_clock");
}

fn base64(text: &str) -> Vec<u8> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.decode(text).unwrap()
}

fn to_base64(bytes: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(bytes)
}
