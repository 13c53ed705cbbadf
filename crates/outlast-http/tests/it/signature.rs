//! The verifier: against published vectors, and against headers that nobody honest sends.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use outlast_http::signature::{ID, Key, Keys, Refused, SIGNATURE, TIMESTAMP, Verifier, sign};
use serde_json::Value;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// The word that the vectors use.
fn word(refused: Refused) -> &'static str {
    match refused {
        Refused::Missing(_) => "missing_header",
        Refused::Twice(_) => "duplicate_header",
        Refused::BadTimestamp => "bad_timestamp",
        Refused::TooOld => "stale_timestamp",
        Refused::TooNew => "future_timestamp",
        Refused::NoSignature => "no_known_scheme",
        Refused::Mismatch => "signature_mismatch",
        _ => "unreadable",
    }
}

#[test]
fn the_published_vectors_are_judged_as_published() {
    let all: Vec<Value> = serde_json::from_str(include_str!("standard-webhooks.json")).unwrap();
    assert!(all.len() > 15);
    for vector in all {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut headers = HeaderMap::new();
        for header in vector["headers"].as_array().unwrap() {
            let name: HeaderName = text(&header[0]).parse().unwrap();
            headers.append(name, text(&header[1]).parse().unwrap());
        }
        let body = match vector["body"].get("utf8") {
            Some(plain) => text(plain).into_bytes(),
            None => STANDARD.decode(text(&vector["body"]["base64"])).unwrap(),
        };
        let keys: Keys = text(&vector["secret"]).parse().unwrap();
        let now = at(vector["timestamp_now"].as_u64().unwrap());
        let verdict = Verifier::new(keys).verify_at(&headers, &body, now);
        let id = &vector["id"];
        match vector["expect"].as_str().unwrap() {
            "accept" => assert!(verdict.is_ok(), "{id}: {verdict:?}"),
            _ => {
                let refused = verdict.expect_err(&id.to_string());
                assert_eq!(word(refused), vector["reason"], "{id}");
            }
        }
    }
}

fn signed(keys: &Keys, id: &str, seconds: u64, body: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ID, id.parse().unwrap());
    headers.insert(TIMESTAMP, seconds.into());
    headers.insert(SIGNATURE, sign(keys, id, seconds, body).parse().unwrap());
    headers
}

#[test]
fn while_a_key_is_replaced_either_side_may_be_first() {
    let (old, new, other) = (Key::generate(), Key::generate(), Key::generate());
    let both: Keys = format!("{} {}", old.reveal(), new.reveal())
        .parse()
        .unwrap();
    let verify = |sender: &Keys, receiver: &Keys| {
        let headers = signed(sender, "1", 1000, b"body");
        let verifier = Verifier::new(receiver.clone());
        verifier.verify_at(&headers, b"body", at(1000)).map(drop)
    };
    let (old, new, other) = (old.into(), new.into(), other.into());
    for (sender, receiver) in [(&both, &old), (&both, &new), (&old, &both), (&new, &both)] {
        assert_eq!(verify(sender, receiver), Ok(()));
    }
    assert_eq!(verify(&both, &other), Err(Refused::Mismatch));
    assert_eq!(verify(&old, &new), Err(Refused::Mismatch));
}

#[test]
fn a_clock_that_is_off_is_refused_beyond_the_tolerance_in_either_direction() {
    let keys = Keys::from(Key::generate());
    let verify = |signed_at: u64, now: u64, tolerance: u64| {
        let headers = signed(&keys, "1", signed_at, b"");
        let verifier = Verifier::new(keys.clone()).tolerance(Duration::from_secs(tolerance));
        verifier.verify_at(&headers, b"", at(now)).map(drop)
    };
    assert_eq!(verify(1000, 1300, 300), Ok(()));
    assert_eq!(verify(1000, 1301, 300), Err(Refused::TooOld));
    assert_eq!(verify(1300, 1000, 300), Ok(()));
    assert_eq!(verify(1301, 1000, 300), Err(Refused::TooNew));
    assert_eq!(verify(1000, 1001, 0), Err(Refused::TooOld));
    assert_eq!(verify(u64::MAX, 1000, u64::MAX), Err(Refused::BadTimestamp));
}

/// Goal: nothing but what was signed passes, and nothing makes the verifier panic. Method: good headers, of which a byte or a
/// header is changed, doubled, dropped or replaced by nonsense, and nonsense alone; the seed is printed.
#[test]
fn hostile_headers_are_refused_and_never_more_than_that() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let keys = Keys::from(Key::generate());
    let verifier = Verifier::new(keys.clone());
    let body = b"{\"n\": 1}";
    let good = signed(&keys, "msg_1", 1_790_000_000, body);
    let now = at(1_790_000_000);
    assert!(verifier.verify_at(&good, body, now).is_ok());
    let names = [ID, TIMESTAMP, SIGNATURE];
    let nonsense: [&[u8]; 16] = [
        b"",
        b" ",
        b"v1,",
        b"v1,=",
        b"v1",
        b",",
        b"v1,v1,v1,",
        b"v1,AAAA",
        b"\xff\xfe",
        b"-1",
        b"+1790000000",
        b"1e9",
        b"99999999999999999999999",
        b"1790000000.0",
        b" 1790000000",
        b"v1a,AAAA v2,AAAA",
    ];
    for _ in 0..5_000 {
        let mut headers = good.clone();
        let mut other = body.to_vec();
        let name = names[random.usize(..names.len())];
        let mut value = good[name].as_bytes().to_vec();
        match random.u8(..7) {
            0 => _ = headers.remove(name),
            1 => _ = headers.append(name, good[name].clone()),
            2 => {
                let junk = nonsense[random.usize(..nonsense.len())];
                headers.insert(name, HeaderValue::from_bytes(junk).unwrap());
            }
            3 => {
                let at = random.usize(..value.len());
                let byte = random.u8(b' '..=b'~');
                if value[at] == byte {
                    continue;
                }
                value[at] = byte;
                headers.insert(name, HeaderValue::from_bytes(&value).unwrap());
            }
            4 => {
                value.truncate(random.usize(..value.len()));
                headers.insert(name, HeaderValue::from_bytes(&value).unwrap());
            }
            5 => {
                let at = random.usize(..other.len());
                other[at] ^= 1 << random.u8(..8);
            }
            _ => {
                let long: Vec<u8> = (0..random.usize(..9000))
                    .map(|_| random.u8(b' '..=b'~'))
                    .collect();
                headers.insert(name, HeaderValue::from_bytes(&long).unwrap());
            }
        }
        let verdict = verifier.verify_at(&headers, &other, now);
        assert!(verdict.is_err(), "SEED={seed}: {headers:?} {other:?}");
    }
}

#[test]
fn a_crowd_of_signatures_costs_no_more_than_a_few() {
    let keys = Keys::from(Key::generate());
    let verifier = Verifier::new(keys.clone());
    let mut headers = signed(&keys, "1", 1000, b"");
    let good = headers[SIGNATURE].to_str().unwrap().to_owned();
    let crowd = |before: usize| format!("{}{good}", "v1,AAAA ".repeat(before));
    headers.insert(SIGNATURE, crowd(15).parse().unwrap());
    assert!(verifier.verify_at(&headers, b"", at(1000)).is_ok());
    headers.insert(SIGNATURE, crowd(16).parse().unwrap());
    assert_eq!(
        verifier.verify_at(&headers, b"", at(1000)),
        Err(Refused::Mismatch)
    );
}
