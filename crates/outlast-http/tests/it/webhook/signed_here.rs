//! Providers that publish no recorded webhook: signed here, as their pages say.

use http::HeaderMap;
use outlast_http::webhook::{Endpoint, Identity, PublicKey, Refused, Request, Settings, presets};
use ring::{
    hmac::{HMAC_SHA1_FOR_LEGACY_USE_ONLY as SHA1, HMAC_SHA256 as SHA256},
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use serde_json::{Value, json};

use super::{URL, at, endpoint, headers, hex_mac, preset, request};

const NOW: u64 = 1_700_000_000;

fn token(parts: [&Value; 2], sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let [header, claims] = parts.map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let signed = format!("{header}.{claims}");
    let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

#[test]
fn linear_is_proven_by_its_body_and_the_time_in_it() {
    let linear = endpoint("linear");
    let body = br#"{"action":"create","type":"Issue","createdAt":"2023-11-14T22:13:19.000Z","webhookTimestamp":1700000000000}"#;
    let mac = hex_mac(SHA256, &[body]);
    let all = headers(&[("Linear-Signature", &mac), ("Linear-Delivery", "d-1")]);
    let verified = linear.verify(&request(&all, body), at(NOW + 60)).unwrap();
    assert_eq!(verified.events[0].id.as_deref(), Some("d-1"));
    assert_eq!(
        verified.events[0].event_type.as_deref(),
        Some("Issue|create")
    );
    assert_eq!(verified.events[0].occurred_at, Some(at(NOW - 1)));
    assert_eq!(verified.signed_at, Some(at(NOW)));
    let late = linear.verify(&request(&all, body), at(NOW + 61));
    assert_eq!(late, Err(Refused::Stale));
    let early = linear.verify(&request(&all, body), at(NOW - 61));
    assert_eq!(early, Err(Refused::TooNew));
    assert!(linear.verify_stored(&request(&all, body), &[]).is_ok());
}

#[test]
fn intercom_is_proven_by_sha_1_and_by_nothing_else() {
    let intercom = endpoint("intercom");
    let body = br#"{"id":"notif_1","topic":"user.created","created_at":1700000000}"#;
    let of = |signature: String| {
        let all = headers(&[("X-Hub-Signature", &signature)]);
        intercom.verify(&request(&all, body), at(NOW))
    };
    let verified = of(format!("sha1={}", hex_mac(SHA1, &[body]))).unwrap();
    assert_eq!(verified.events[0].id.as_deref(), Some("notif_1"));
    assert_eq!(
        verified.events[0].event_type.as_deref(),
        Some("user.created")
    );
    let bytes = of(format!("sha1={}", hex_mac(SHA256, &[body])));
    assert_eq!(
        bytes,
        Err(Refused::BadLength {
            bytes: 32,
            expected: 20
        })
    );
    let prefix = of(format!("sha256={}", hex_mac(SHA256, &[body])));
    assert_eq!(prefix, Err(Refused::MissingPrefix("sha1=".into())));
}

#[test]
fn pandadoc_is_proven_by_a_parameter_of_its_url_and_tells_several_events_at_once() {
    let pandadoc = endpoint("pandadoc");
    let body = br#"[{"event":"document_updated"},{"event":"recipient_completed"}]"#;
    let mac = hex_mac(SHA256, &[body]);
    let none = HeaderMap::new();
    let of = |url: &str| {
        let request = Request {
            url,
            ..request(&none, body)
        };
        pandadoc.verify(&request, at(NOW))
    };
    let verified = of(&format!("{URL}?a=b&signature={mac}")).unwrap();
    let types: Vec<_> = verified
        .events
        .iter()
        .map(|e| e.event_type.as_deref())
        .collect();
    assert_eq!(
        types,
        [Some("document_updated"), Some("recipient_completed")]
    );
    assert_eq!(of(URL).unwrap_err().word(), "missing_signature_field");
    let twice = of(&format!("{URL}?signature={mac}&signature={mac}"));
    assert_eq!(twice.unwrap_err().word(), "duplicate_header");
    assert_eq!(
        of(&format!("{URL}?signature=")),
        Err(Refused::EmptySignature)
    );
}

#[test]
fn a_form_in_several_parts_is_read_by_its_part_json() {
    let sign = endpoint("dropbox-sign");
    let mac = hex_mac(SHA256, &[b"1348177752", b"signature_request_sent"]);
    let event = json!({"event": {"event_time": "1348177752", "event_type": "signature_request_sent", "event_hash": mac}});
    let body =
        format!("--x\r\nContent-Disposition: form-data; name=\"json\"\r\n\r\n{event}\r\n--x--\r\n");
    let all = headers(&[("Content-Type", "multipart/form-data; boundary=x")]);
    let verified = sign
        .verify(&request(&all, body.as_bytes()), at(NOW))
        .unwrap();
    assert_eq!(
        verified.events[0].event_type.as_deref(),
        Some("signature_request_sent")
    );
    assert_eq!(sign.preset().answer, Some("Hello API Event Received"));
    let other = headers(&[("Content-Type", "multipart/form-data; boundary=y")]);
    assert_eq!(
        sign.verify(&request(&other, body.as_bytes()), at(NOW)),
        Err(Refused::BadBody("JSON"))
    );
}

#[test]
fn plaid_is_proven_by_a_fetched_key_and_the_hash_of_its_body() {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap();
    let sign = |message: &[u8]| key.sign(&random, message).unwrap().as_ref().to_vec();
    let encode = |bytes: &[u8]| {
        use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
        URL_SAFE_NO_PAD.encode(bytes)
    };
    let point = key.public_key().as_ref();
    let jwk = json!({"key": {"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "k1",
        "x": encode(&point[1..33]), "y": encode(&point[33..])}});
    let keys = PublicKey::from_jwks(jwk.to_string().as_bytes()).unwrap();
    assert_eq!(keys[0].id(), Some("k1"));

    let plaid = Endpoint::new(preset("plaid"), Settings::default()).unwrap();
    let body = br#"{"webhook_type":"ITEM","webhook_code":"ERROR"}"#;
    let hash = ring::digest::digest(&ring::digest::SHA256, body);
    let hash: String = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let header = json!({"alg": "ES256", "kid": "k1", "typ": "JWT"});
    let claims = json!({"iat": NOW, "request_body_sha256": hash});
    let of = |token: String, body: &[u8], now| {
        let all = headers(&[("Plaid-Verification", &token)]);
        plaid.verify_with(&request(&all, body), at(now), &keys)
    };
    let good = token([&header, &claims], sign);
    let verified = of(good.clone(), body, NOW + 300).unwrap();
    assert_eq!(verified.events[0].event_type.as_deref(), Some("ITEM|ERROR"));
    assert_eq!(of(good.clone(), body, NOW + 301), Err(Refused::Stale));
    assert_eq!(of(good.clone(), b"{}", NOW), Err(Refused::BodyHash));
    for (header, why) in [
        (json!({"alg": "none", "kid": "k1"}), Refused::BadAlgorithm),
        (json!({"alg": "HS256", "kid": "k1"}), Refused::BadAlgorithm),
        (json!({"kid": "k1"}), Refused::BadAlgorithm),
        (json!({"alg": "ES256", "kid": "k2"}), Refused::UnknownKey),
        (json!({"alg": "ES256"}), Refused::UnknownKey),
        (
            json!({"alg": "ES256", "kid": "k1", "crit": ["b64"]}),
            Refused::BadHeader("plaid-verification".into()),
        ),
    ] {
        let refused = of(token([&header, &claims], sign), body, NOW);
        assert_eq!(refused, Err(why), "{header}");
    }
    let all = headers(&[("Plaid-Verification", &good)]);
    let without = plaid.verify(&request(&all, body), at(NOW));
    assert_eq!(without, Err(Refused::UnknownKey));
}

#[test]
fn a_webhook_that_proves_nothing_says_so() {
    let open = Endpoint::new(preset("none"), Settings::default()).unwrap();
    let none = HeaderMap::new();
    let verified = open.verify(&request(&none, b"anything"), at(NOW)).unwrap();
    assert_eq!(verified.body_authenticity.word(), "none");
}

#[test]
fn an_id_in_a_header_that_is_not_signed_is_called_unsigned() {
    for preset in presets() {
        let is_header = matches!(
            &preset.identity,
            Identity::Signed(outlast_http::webhook::Find::Header(_))
        );
        assert!(!is_header, "{}: no preset signs that header", preset.name);
    }
}
