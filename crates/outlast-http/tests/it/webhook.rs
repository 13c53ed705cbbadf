//! Webhooks: recorded ones, ones that are signed here, forged ones, and bytes that mean nothing.

mod arbitrary;
mod forged;
mod greetings;
mod keys;
mod published;
mod signed_here;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use outlast_http::webhook::{Endpoint, Preset, Request, Secret, Settings};
use ring::hmac;

const URL: &str = "https://hooks.example.com/in/1";
const KEY: &str = "a secret of more than 16 bytes";

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn preset(name: &str) -> &'static Preset {
    Preset::named(name).unwrap_or_else(|| panic!("no preset {name}"))
}

fn headers(all: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in all {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    map
}

fn request<'a>(headers: &'a HeaderMap, body: &'a [u8]) -> Request<'a> {
    Request {
        method: "POST",
        url: URL,
        headers,
        body,
    }
}

/// Settings with this secret, in the format of the preset.
fn with_secret(preset: &Preset, secret: &str) -> Settings {
    let format = preset.key_format().expect("it has secrets");
    Settings {
        secrets: vec![Secret::parse(secret, format).unwrap()],
        ..Settings::default()
    }
}

fn endpoint(name: &str) -> Endpoint {
    let preset = preset(name);
    Endpoint::new(preset, with_secret(preset, KEY)).unwrap()
}

fn hex_mac(algorithm: hmac::Algorithm, parts: &[&[u8]]) -> String {
    let key = hmac::Key::new(algorithm, KEY.as_bytes());
    let tag = hmac::sign(&key, &parts.concat());
    tag.as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
