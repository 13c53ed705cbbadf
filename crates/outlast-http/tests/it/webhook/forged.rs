//! What nobody honest sends, and what is looked at before any of it.

use outlast_http::webhook::{
    Authenticity, BadEndpoint, Encoding, Endpoint, Hash, Limits, Part, PublicKey, Refused, Request,
    Secret, Settings, Signed,
};
use ring::hmac::HMAC_SHA256 as SHA256;

use super::{KEY, URL, at, endpoint, headers, hex_mac, preset, request, with_secret};

const NOW: u64 = 1_700_000_000;

#[test]
fn limits_come_before_any_signature() {
    let github = preset("github");
    let mut settings = with_secret(github, KEY);
    settings.limits = Limits {
        body_bytes: 10,
        headers: 3,
        header_bytes: 100,
    };
    let github = Endpoint::new(github, settings).unwrap();
    let eleven = b"01234567890";
    let mac = format!("sha256={}", hex_mac(SHA256, &[eleven]));
    let all = headers(&[("x-hub-signature-256", &mac)]);
    let refused = github.verify(&request(&all, eleven), at(NOW)).unwrap_err();
    assert_eq!(refused, Refused::TooLarge { limit: 10 });
    assert_eq!(refused.status(), 413);
    let many = headers(&[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]);
    let long = "x".repeat(100);
    let long = headers(&[("a", &long)]);
    for all in [many, long] {
        let refused = github.verify(&request(&all, b""), at(NOW)).unwrap_err();
        assert_eq!(
            refused,
            Refused::TooManyHeaders {
                most: 3,
                bytes: 100
            }
        );
        assert_eq!(refused.status(), 400);
    }
}

#[test]
fn while_secrets_roll_any_of_them_counts_and_it_is_said_which() {
    let github = preset("github");
    let format = github.key_format().unwrap();
    let secret = |text: &str| Secret::parse(text, format).unwrap();
    let settings = Settings {
        secrets: vec![secret("another secret, the new one"), secret(KEY)],
        ..Settings::default()
    };
    let github = Endpoint::new(github, settings).unwrap();
    let mac = format!("sha256={}", hex_mac(SHA256, &[b"{}"]));
    let all = headers(&[("x-hub-signature-256", &mac)]);
    let verified = github.verify(&request(&all, b"{}"), at(NOW)).unwrap();
    assert_eq!(verified.key, 1);
}

#[test]
fn a_signature_counts_whole_or_not_at_all() {
    let github = endpoint("github");
    let mac = hex_mac(SHA256, &[b"{}"]);
    for length in 0..mac.len() {
        let part = format!("sha256={}", &mac[..length]);
        let all = headers(&[("x-hub-signature-256", &part)]);
        assert!(
            github.verify(&request(&all, b"{}"), at(NOW)).is_err(),
            "{length}"
        );
    }
    let longer = headers(&[("x-hub-signature-256", &format!("sha256={mac}00"))]);
    assert!(github.verify(&request(&longer, b"{}"), at(NOW)).is_err());
    let large = headers(&[(
        "x-hub-signature-256",
        &format!("sha256={}", mac.to_uppercase()),
    )]);
    assert!(github.verify(&request(&large, b"{}"), at(NOW)).is_ok());
}

#[test]
fn a_body_that_twilio_has_not_signed_is_refused() {
    // Signed over the URL alone: with a body of another kind nothing of it would be proven.
    let twilio = endpoint("twilio");
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, KEY.as_bytes());
    let mac = |text: &str| {
        use base64::{Engine, engine::general_purpose::STANDARD};
        STANDARD.encode(ring::hmac::sign(&key, text.as_bytes()))
    };
    let json = headers(&[
        ("x-twilio-signature", &mac(URL)),
        ("content-type", "application/json"),
    ]);
    assert!(twilio.verify(&request(&json, b""), at(NOW)).is_ok());
    let refused = twilio.verify(&request(&json, b"{}"), at(NOW)).unwrap_err();
    assert_eq!(refused.word(), "missing_signature_field");
    // A hash in the URL counts for a form too, so that nobody calls a signed body by another name.
    let hash = ring::digest::digest(&ring::digest::SHA256, b"{}");
    let hash: String = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let url = format!("{URL}?bodySHA256={hash}");
    let form = headers(&[
        ("x-twilio-signature", &mac(&url)),
        ("content-type", "application/x-www-form-urlencoded"),
    ]);
    let renamed = Request {
        url: &url,
        ..request(&form, b"")
    };
    assert_eq!(twilio.verify(&renamed, at(NOW)), Err(Refused::BodyHash));
}

#[test]
fn settings_that_would_believe_anybody_make_no_endpoint() {
    let refused =
        |name: &str, settings: Settings| Endpoint::new(preset(name), settings).unwrap_err();
    let none = refused("stripe", Settings::default());
    assert!(none.to_string().contains("paste"), "{none}");
    for (name, setting) in [
        ("google-pubsub-push", "audience"),
        ("aws-sns", "topics"),
        ("paypal", "webhook_id"),
    ] {
        let why = refused(name, Settings::default());
        assert!(
            matches!(why, BadEndpoint::Missing { setting: s, .. } if s == setting),
            "{why}"
        );
    }
    let generic = refused("hmac", with_secret(preset("hmac"), KEY));
    assert!(
        matches!(
            generic,
            BadEndpoint::Missing {
                setting: "scheme",
                ..
            }
        ),
        "{generic}"
    );
    let fixed = Settings {
        scheme: Some(Signed::hmac("x", Hash::Sha256, Encoding::Hex)),
        ..with_secret(preset("twilio"), KEY)
    };
    assert_eq!(
        refused("twilio", fixed),
        BadEndpoint::FixedScheme { preset: "twilio" }
    );
    let ed25519 = "da2a4b1d972e340289ea57d28f2944197a5804a44a216a596fca5d9b60195c61";
    let wrong = Settings {
        public_keys: vec![PublicKey::parse(ed25519).unwrap()],
        ..Settings::default()
    };
    assert_eq!(
        refused("sendgrid", wrong),
        BadEndpoint::WrongKey { preset: "sendgrid" }
    );
    assert_eq!(
        refused("discord", Settings::default()),
        BadEndpoint::NoPublicKey { preset: "discord" }
    );
    // An HMAC in the place of a public key still asks for a secret.
    let swapped = Settings {
        scheme: Some(Signed::hmac("x", Hash::Sha256, Encoding::Hex)),
        ..Settings::default()
    };
    assert!(matches!(
        refused("discord", swapped),
        BadEndpoint::NoSecret { .. }
    ));
}

#[test]
fn what_a_sender_is_told_says_nothing_but_its_kind() {
    for (refused, status) in [
        (Refused::Mismatch, 401),
        (Refused::UnknownKey, 401),
        (Refused::BadAlgorithm, 401),
        (Refused::WrongTopic, 401),
        (Refused::Stale, 403),
        (Refused::TooNew, 403),
        (Refused::BadTimestamp, 400),
        (Refused::EmptySignature, 400),
        (Refused::MissingHeader("x".into()), 400),
        (Refused::TooLarge { limit: 1 }, 413),
    ] {
        assert_eq!(refused.status(), status, "{refused}");
    }
}

#[test]
fn the_other_scheme_of_a_provider_is_data() {
    let convoy = preset("hmac");
    let settings = Settings {
        scheme: Some(Signed::hmac("x-signature", Hash::Sha256, Encoding::Hex)),
        ..with_secret(convoy, KEY)
    };
    let endpoint = Endpoint::new(convoy, settings).unwrap();
    let mac = hex_mac(SHA256, &[b"{}"]);
    let all = headers(&[("x-signature", &mac)]);
    assert!(endpoint.verify(&request(&all, b"{}"), at(NOW)).is_ok());
    assert_eq!(
        endpoint.verify(&request(&all, b"{ }"), at(NOW)),
        Err(Refused::Mismatch)
    );
    assert_eq!(endpoint.body_authenticity(), Authenticity::Full);
}

#[test]
fn a_scheme_of_ones_own_that_signs_no_body_does_not_say_that_it_proves_one() {
    let hmac = preset("hmac");
    let settings = Settings {
        scheme: Some(Signed {
            parts: vec![Part::Header("x-id".into())].into(),
            ..Signed::hmac("x-signature", Hash::Sha256, Encoding::Hex)
        }),
        ..with_secret(hmac, KEY)
    };
    let endpoint = Endpoint::new(hmac, settings).unwrap();
    let mac = hex_mac(SHA256, &[b"7"]);
    let all = headers(&[("x-signature", &mac), ("x-id", "7")]);
    let verified = endpoint
        .verify(&request(&all, b"anything"), at(NOW))
        .unwrap();
    assert_eq!(verified.body_authenticity, Authenticity::None);
}
