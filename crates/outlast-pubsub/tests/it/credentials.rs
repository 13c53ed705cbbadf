//! Who we are: with TLS always somebody, in clear never.

use std::time::Duration;

use outlast_core::broker::{Broker, BrokerError, Why};
use outlast_pubsub::{Options, PubSub};

const SECRET: &str = "c2VjcmV0LWtleQ";

/// What comes of an https endpoint, on which nobody listens, with such a file of credentials.
async fn with(file: Option<&str>) -> Result<(), BrokerError> {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = free.local_addr().expect("it is bound");
    drop(free);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("key.json");
    if let Some(file) = file {
        std::fs::write(&path, file).expect("written");
    }
    let mut options = Options::new("my-project");
    options.endpoint = Some(format!("https://{address}"));
    options.credentials_file = Some(path);
    PubSub::new(options)?.probe(Duration::from_secs(10)).await
}

#[tokio::test]
async fn with_tls_nothing_is_asked_without_credentials_and_no_error_tells_a_secret() {
    let key = format!("-----BEGIN PRIVATE KEY-----\\n{SECRET}\\n-----END PRIVATE KEY-----\\n");
    let of = |kind: &str| {
        format!(
            r#"{{"type": "{kind}", "client_email": "a@b.c", "private_key_id": "1", "private_key": "{key}"}}"#
        )
    };
    for (file, about) in [
        (None, "key.json"),
        (Some("not JSON".to_owned()), "not JSON"),
        (Some(of("nobody")), "service_account"),
        (Some(of("service_account")), ""),
    ] {
        let refused = with(file.as_deref()).await.expect_err(about);
        assert_eq!(refused.why, Why::Denied, "{refused}");
        assert!(refused.reason.contains(about), "{refused}");
        assert!(!refused.reason.contains(SECRET), "{refused}");
    }
}

#[tokio::test]
async fn options_that_contradict_each_other_are_all_told_before_anything_is_asked() {
    let mut options = Options::new("");
    options.endpoint = Some("http://127.0.0.1:1".into());
    options.credentials_file = Some("key.json".into());
    options.requests_in_flight = 0;
    let refused = PubSub::new(options).map(drop).expect_err("three problems");
    assert_eq!(refused.why, Why::Configuration);
    for about in ["project", "credentials_file", "requests_in_flight"] {
        assert!(refused.reason.contains(about), "{refused}");
    }
}
