//! What providers ask before they trust an endpoint.

use outlast_http::webhook::{Endpoint, Greeting, Refused, Request, Secret, Settings};
use ring::{
    hmac::HMAC_SHA256 as SHA256,
    signature::{Ed25519KeyPair, KeyPair},
};
use serde_json::Value;

use super::{KEY, URL, at, endpoint, headers, hex_mac, preset, request, with_secret};

const NOW: u64 = 1_700_000_000;

fn said(greeting: Option<Greeting>) -> (&'static str, String) {
    match greeting {
        Some(Greeting::Say { content_type, body }) => (content_type, body),
        other => panic!("nothing to say: {other:?}"),
    }
}

/// `v0=` over `v0:TIME:BODY`.
fn v0(body: &[u8]) -> String {
    let time = NOW.to_string();
    format!(
        "v0={}",
        hex_mac(SHA256, &[b"v0:", time.as_bytes(), b":", body])
    )
}

#[test]
fn slack_hears_its_challenge_if_it_has_signed_it() {
    let slack = endpoint("slack");
    let body = br#"{"type":"url_verification","challenge":"3eZbrw1a"}"#;
    let time = NOW.to_string();
    let all = headers(&[
        ("x-slack-signature", &v0(body)),
        ("x-slack-request-timestamp", &time),
    ]);
    let verified = slack.verify(&request(&all, body), at(NOW)).unwrap();
    assert_eq!(
        said(verified.greeting),
        ("text/plain; charset=utf-8", "3eZbrw1a".into())
    );
    let forged = br#"{"type":"url_verification","challenge":"<script>"}"#;
    assert_eq!(
        slack.verify(&request(&all, forged), at(NOW)),
        Err(Refused::Mismatch)
    );
    let event = br#"{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}"#;
    let all = headers(&[
        ("x-slack-signature", &v0(event)),
        ("x-slack-request-timestamp", &time),
    ]);
    let verified = slack.verify(&request(&all, event), at(NOW)).unwrap();
    assert_eq!(verified.greeting, None);
    assert_eq!(verified.events[0].id.as_deref(), Some("Ev1"));
    assert_eq!(verified.events[0].event_type.as_deref(), Some("message"));
}

#[test]
fn zoom_gets_its_token_back_signed() {
    let zoom = endpoint("zoom");
    let body =
        br#"{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}"#;
    let all = headers(&[
        ("x-zm-signature", &v0(body)),
        ("x-zm-request-timestamp", &NOW.to_string()),
    ]);
    let verified = zoom.verify(&request(&all, body), at(NOW)).unwrap();
    let (content_type, body) = said(verified.greeting);
    assert_eq!(content_type, "application/json");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["plainToken"], "qgg8vlvZRS6UYooatFL8Aw");
    assert_eq!(
        body["encryptedToken"],
        hex_mac(SHA256, &[b"qgg8vlvZRS6UYooatFL8Aw"])
    );
}

#[test]
fn discord_gets_its_ping_back() {
    let seed = [7; 32];
    let key = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let public = outlast_http::webhook::PublicKey::parse(&hex(key.public_key().as_ref())).unwrap();
    let settings = Settings {
        public_keys: vec![public],
        ..Settings::default()
    };
    let discord = Endpoint::new(preset("discord"), settings).unwrap();
    let body = br#"{"id":"1","type":1}"#;
    let time = NOW.to_string();
    let signature = hex(key.sign(&[time.as_bytes(), body].concat()).as_ref());
    let all = headers(&[
        ("x-signature-ed25519", &signature),
        ("x-signature-timestamp", &time),
    ]);
    let verified = discord.verify(&request(&all, body), at(NOW)).unwrap();
    assert_eq!(
        said(verified.greeting),
        ("application/json", r#"{"type":1}"#.into())
    );
}

#[test]
fn meta_hears_its_challenge_only_with_our_own_token() {
    let settings = Settings {
        verify_token: Some(
            Secret::parse("a token of our own", outlast_http::webhook::KeyFormat::Text).unwrap(),
        ),
        ..with_secret(preset("meta"), KEY)
    };
    let meta = Endpoint::new(preset("meta"), settings).unwrap();
    let none = headers(&[]);
    let get = |query: &str| {
        let url = format!("{URL}?{query}");
        let request = Request {
            method: "GET",
            url: &url,
            headers: &none,
            body: b"",
        };
        meta.verify(&request, at(NOW))
    };
    let good = "hub.mode=subscribe&hub.verify_token=a+token+of+our+own";
    let verified = get(&format!("{good}&hub.challenge=1158201444")).unwrap();
    assert!(verified.events.is_empty());
    assert_eq!(said(verified.greeting).1, "1158201444");
    for query in [
        "",
        "hub.mode=subscribe&hub.challenge=1",
        "hub.mode=subscribe&hub.verify_token=another&hub.challenge=1",
        "hub.verify_token=a+token+of+our+own&hub.challenge=1",
        &format!("{good}&hub.verify_token=another&hub.challenge=1"),
    ] {
        assert_eq!(get(query), Err(Refused::Mismatch), "{query}");
    }
    assert_eq!(get(good).unwrap_err().status(), 400);
    // A GET of a preset without this handshake is judged like anything else.
    let github = endpoint("github");
    let url = format!("{URL}?{good}&hub.challenge=1");
    let request = Request {
        method: "GET",
        url: &url,
        headers: &none,
        body: b"",
    };
    assert_eq!(
        github.verify(&request, at(NOW)).unwrap_err().word(),
        "missing_header"
    );
}
