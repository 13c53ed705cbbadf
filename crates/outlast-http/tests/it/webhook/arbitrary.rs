//! Bytes that mean nothing, and webhooks with a few bytes changed: whatever comes, it is refused or proven, and nothing panics.

use fastrand::Rng;
use http::{HeaderMap, HeaderName, HeaderValue};
use outlast_http::webhook::{
    CertHost, Certificate, PublicKey, Request, Unit,
    vectors::{self, judge},
};
use serde_json::{Value, json};

use super::{at, endpoint};

const FILE: &[u8] = include_bytes!("vectors.json");

fn bytes(random: &mut Rng, most: usize) -> Vec<u8> {
    (0..random.usize(..=most)).map(|_| random.u8(..)).collect()
}

/// Some bytes of a text replaced, dropped, doubled, or all of it cut.
fn changed(random: &mut Rng, text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..random.usize(1..4) {
        let place = random.usize(..=bytes.len());
        match random.u8(..5) {
            0 => bytes.truncate(place),
            1 if place < bytes.len() => drop(bytes.remove(place)),
            2 => bytes.insert(place, random.u8(..)),
            3 => bytes.insert(place, *random.choice(b",.=-:%;\"{}[]\r\n 0").unwrap()),
            _ => {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << random.u8(..8);
                }
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A row with one of its texts changed.
fn mutated(random: &mut Rng, row: &Value) -> Value {
    let mut row = row.clone();
    let headers = row["headers"].as_array().map_or(0, Vec::len);
    let path = match random.u8(..8) {
        0 => "/url".to_owned(),
        1 => "/secret".to_owned(),
        2 => "/public_key".to_owned(),
        3 | 4 => "/body/utf8".to_owned(),
        _ => format!("/headers/{}/1", random.usize(..headers.max(1))),
    };
    if let Some(Value::String(text)) = row.pointer_mut(&path) {
        *text = changed(random, text);
    }
    row
}

#[test]
fn no_changed_webhook_makes_anything_panic() {
    let rows: Vec<Value> = serde_json::from_slice(FILE).unwrap();
    let mut random = Rng::with_seed(7);
    let mut refused = 0;
    for _ in 0..20 {
        let some: Vec<Value> = rows.iter().map(|row| mutated(&mut random, row)).collect();
        let judged = judge(&serde_json::to_vec(&some).unwrap()).unwrap();
        let differs = judged
            .iter()
            .filter(|one| one.expected == Some(true) && one.verdict.is_err());
        refused += differs.count();
    }
    assert!(refused > 300, "the changes reach something: {refused}");
}

#[test]
fn no_arbitrary_request_makes_anything_panic_or_is_believed() {
    let mut random = Rng::with_seed(8);
    let names = [
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "stripe-signature",
        "x-twilio-signature",
        "content-type",
        "x-hub-signature-256",
        "x-slack-signature",
        "x-slack-request-timestamp",
        "x-docusign-signature-1",
        "workos-signature",
        "x-hubspot-signature-v3",
        "x-hubspot-request-timestamp",
    ];
    let values: [&[u8]; 6] = [
        b"1700000000",
        b"t=1700000000,v1=00",
        b"v0=00",
        b"sha256=00",
        b"multipart/form-data; boundary=x",
        b"application/x-www-form-urlencoded",
    ];
    let keys = [
        "stripe",
        "twilio",
        "github",
        "docusign",
        "workos",
        "hubspot",
        "slack",
        "dropbox-sign",
        "mailgun",
        "linear",
        "meta",
        "pandadoc",
    ];
    let endpoints: Vec<_> = keys.iter().map(|name| endpoint(name)).collect();
    for _ in 0..1000 {
        let mut headers = HeaderMap::new();
        for name in &names {
            let value = match random.u8(..3) {
                0 => random.choice(values).unwrap().to_vec(),
                1 => bytes(&mut random, 60),
                _ => continue,
            };
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        let body = match random.u8(..3) {
            0 => json!({"event": {"event_hash": "00", "event_time": 1}, "signature": 1})
                .to_string()
                .into_bytes(),
            1 => b"--x\r\nContent-Disposition: form-data; name=json\r\n\r\n{}\r\n--x--".to_vec(),
            _ => bytes(&mut random, 200),
        };
        let url = String::from_utf8_lossy(&bytes(&mut random, 60)).into_owned();
        let method = if random.bool() { "GET" } else { "POST" };
        let request = Request {
            method,
            url: &url,
            headers: &headers,
            body: &body,
        };
        for endpoint in &endpoints {
            let judged = endpoint.verify(&request, at(1_700_000_000));
            assert!(judged.is_err(), "{}: {judged:?}", endpoint.preset().name);
            let _ = endpoint.needs(&request);
        }
    }
}

#[test]
fn no_arbitrary_key_certificate_file_time_or_url_makes_anything_panic() {
    let mut random = Rng::with_seed(9);
    let pem = include_str!("certificate.pem");
    use base64::{Engine, engine::general_purpose::STANDARD};
    let inner: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let der = STANDARD.decode(inner).unwrap();
    assert!(Certificate::from_der(&der).is_some());
    let jwks = json!({"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "k"}]})
        .to_string();
    for _ in 0..5_000 {
        let mut other = der.clone();
        for _ in 0..random.usize(1..4) {
            let place = random.usize(..other.len());
            other[place] = random.u8(..);
        }
        other.truncate(random.usize(..=other.len() * 2));
        let _ = Certificate::from_der(&other);
        let _ = PublicKey::from_spki(&other);
        let few = bytes(&mut random, 40);
        let _ = Certificate::from_der(&few);
        let _ = PublicKey::from_spki(&few);
        let text = String::from_utf8_lossy(&few).into_owned();
        let _ = PublicKey::parse(&text);
        let _ = PublicKey::from_jwks(changed(&mut random, &jwks).as_bytes());
        let _ = vectors::judge(&few);
        for unit in [Unit::Seconds, Unit::Millis, Unit::Rfc3339] {
            let _ = unit.read(&text);
            let _ = unit.read(&changed(&mut random, "2015-05-18T15:45:13.999+02:00"));
        }
        let url = changed(&mut random, "https://sns.us-east-1.amazonaws.com/x.pem");
        if let Some(url) = CertHost::Sns.allows(&url) {
            let host = url.host_str().unwrap();
            assert!(
                host.starts_with("sns.") && host.ends_with(".amazonaws.com"),
                "{url}"
            );
        }
    }
}
