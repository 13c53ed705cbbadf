//! Keys of providers, given as bytes: certificates, sets of keys, and what is none.

use base64::{Engine, engine::general_purpose::STANDARD};
use outlast_http::webhook::{
    Authenticity, BadPublicKey, Certificate, Endpoint, Needs, PublicKey, Refused, Settings,
};
use serde_json::{Value, json};

use super::{at, headers, preset, request};

const CERTIFICATE: &[u8] = include_bytes!("certificate.pem");
const MESSAGE: &str = include_str!("sns.json");
/// While the certificate counts.
const NOW: u64 = 1_800_000_000;

fn sns() -> Endpoint {
    let settings = Settings {
        topics: vec!["arn:aws:sns:eu-central-1:123456789012:payments".into()],
        ..Settings::default()
    };
    Endpoint::new(preset("aws-sns"), settings).unwrap()
}

#[test]
fn a_message_of_sns_is_proven_by_the_certificate_that_it_names() {
    let (sns, none) = (sns(), headers(&[]));
    let request = request(&none, MESSAGE.as_bytes());
    let Ok(Needs::Certificate(url)) = sns.needs(&request) else {
        panic!("it needs a certificate");
    };
    assert_eq!(url.host_str(), Some("sns.eu-central-1.amazonaws.com"));
    assert_eq!(sns.verify(&request, at(NOW)), Err(Refused::UnknownKey));
    let certificate = Certificate::from_pem(CERTIFICATE).unwrap();
    assert!(certificate.is_valid_at(at(NOW)));
    assert!(!certificate.is_valid_at(at(1_700_000_000)));
    assert!(!certificate.is_valid_at(at(2_200_000_000)));
    let keys = [certificate.key().clone()];
    let verified = sns.verify_with(&request, at(NOW), &keys).unwrap();
    assert_eq!(
        verified.events[0].id.as_deref(),
        Some("6b1a0c3e-0001-5000-9000-000000000001")
    );
    // The attributes are not signed, and so the body is not wholly proven.
    assert_eq!(verified.body_authenticity, Authenticity::Partial);
    let attribute = MESSAGE.replace("\"x\"", "\"y\"");
    let request = super::request(&none, attribute.as_bytes());
    assert!(sns.verify_with(&request, at(NOW), &keys).is_ok());
    // An empty subject is signed as one: to leave it away is a change.
    let mut without: Value = serde_json::from_str(MESSAGE).unwrap();
    without.as_object_mut().unwrap().remove("Subject");
    let without = without.to_string();
    let request = super::request(&none, without.as_bytes());
    assert_eq!(
        sns.verify_with(&request, at(NOW), &keys),
        Err(Refused::Mismatch)
    );
}

#[test]
fn what_a_request_needs_is_never_somebody_elses_address() {
    let (sns, none) = (sns(), headers(&[]));
    let evil = MESSAGE.replace("sns.eu-central-1.amazonaws.com", "evil.example");
    let needs = sns.needs(&request(&none, evil.as_bytes()));
    assert_eq!(needs, Err(Refused::UntrustedCertUrl));
    let settings = Settings {
        webhook_id: Some("4JH86294D6297924G".into()),
        ..Settings::default()
    };
    let paypal = Endpoint::new(preset("paypal"), settings).unwrap();
    for (url, is_good) in [
        ("https://api.paypal.com/v1/notifications/certs/CERT-1", true),
        (
            "https://api.paypal.com.evil.example/v1/notifications/certs/CERT-1",
            false,
        ),
    ] {
        let all = headers(&[("paypal-cert-url", url)]);
        let needs = paypal.needs(&request(&all, b"{}"));
        assert_eq!(matches!(needs, Ok(Needs::Certificate(_))), is_good, "{url}");
    }
}

#[test]
fn a_key_is_read_in_each_of_its_forms() {
    let certificate = Certificate::from_pem(CERTIFICATE).unwrap();
    let pem = std::str::from_utf8(CERTIFICATE).unwrap();
    assert_eq!(PublicKey::parse(pem).as_ref(), Ok(certificate.key()));
    let bytes = [7; 32];
    let hex = "07".repeat(32);
    let key = PublicKey::parse(&hex).unwrap();
    assert_eq!(PublicKey::parse(&STANDARD.encode(bytes)), Ok(key.clone()));
    assert_eq!(
        PublicKey::parse(&format!("whpk_{}", STANDARD.encode(bytes))),
        Ok(key)
    );
}

#[test]
fn what_is_no_key_or_a_weak_one_is_refused() {
    for (text, why) in [
        ("", BadPublicKey::Empty),
        ("  ", BadPublicKey::Empty),
        ("hello, world", BadPublicKey::Unreadable),
        ("whpk_AAAA", BadPublicKey::Unreadable),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
            BadPublicKey::Unreadable,
        ),
        // RSA with 1,024 bits.
        (
            "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC7VJTUt9Us8cKjMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvuNMoSfm76oqFvAp8Gy0iz5sxjZmSnXyCdPEovGhLa0VzMaQ8s+CLOyS56YyCFGeJZqgtzJ6GR3eqoYSW9b9UMvkBpZODSctWSNGj3P7jRFDO5VoTwCQAWbFnOjDfH5Ulgp2PKSQnSJP3AJLQNFNe7br1XbrhV//eO+t51mIpGSDCUv3E0DDFcWDTH9cXDTTlRZVEiR2BwpZOOkE/Z0/BVnhZYL71oZV34bKfWjQIt6V/isSMahdsAASACp4ZTGtwiVuNd9tybAgMBAAE=",
            BadPublicKey::Unreadable,
        ),
    ] {
        assert_eq!(PublicKey::parse(text), Err(why), "{text}");
    }
    let weak = json!({"keys": [{"kty": "RSA", "kid": "weak", "n": "u1SU1LfVLPHCozMxH2Mo4lgOEeP", "e": "AQAB"},
        {"kty": "oct", "k": "AAAA"}, {"kty": "EC", "crv": "P-384", "x": "AA", "y": "AA"}]});
    assert_eq!(
        PublicKey::from_jwks(weak.to_string().as_bytes()),
        Ok(Vec::new())
    );
    let many = json!({"keys": vec![json!({}); 65]});
    assert_eq!(
        PublicKey::from_jwks(many.to_string().as_bytes()),
        Err(BadPublicKey::Many)
    );
    assert_eq!(PublicKey::from_jwks(b"[]"), Err(BadPublicKey::Unreadable));
}
