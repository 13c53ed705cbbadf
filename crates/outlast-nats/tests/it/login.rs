//! Whom we believe and who we are, against servers that ask for it; and what is told when it does not fit.

use std::{path::Path, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use outlast_core::broker::{Acked, Broker, BrokerError, Published, Why};
use outlast_nats::{Nats, NatsError, NatsSettings};
use outlast_testkit::{
    broker::{NatsServer, nats_server::is_installed},
    wait_for,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{PATIENCE, connect, messages, scene};

const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls");
const TRY: Duration = Duration::from_millis(300);

/// A server whose certificate this is.
async fn with_tls(certificate: &str, more: &str) -> NatsServer {
    let tls = format!(
        "tls {{ cert_file: \"{TLS}/{certificate}\", key_file: \"{TLS}/server.key\"\n{more} }}"
    );
    NatsServer::start_with(&tls).await.expect("a server")
}

fn believing(server: &NatsServer, authority: &str) -> NatsSettings {
    let mut settings = NatsSettings::at(server.url());
    settings.tls_ca = Some(format!("{TLS}/{authority}").into());
    settings
}

/// All that a relay and a consumer do.
async fn works(settings: NatsSettings) {
    let nats = connect(settings).await;
    let subscription = scene(&nats, "bookings.confirmed").await;
    let said = nats
        .publish(&messages("bookings.confirmed", 1), PATIENCE)
        .await;
    assert_eq!(said, [Published::Confirmed]);
    let reader = nats.subscribe(&subscription, PATIENCE).await;
    let came = reader.expect("subscribed").next(1, PATIENCE).await;
    let one = came.expect("next").remove(0);
    assert_eq!(one.settle.ack(PATIENCE).await, Acked::Confirmed);
}

/// What is told when no connection comes about: the reason, and what to do.
async fn refused(settings: NatsSettings) -> BrokerError {
    let nats = connect(settings).await;
    let refused = wait_for("a refusal with its advice", PATIENCE, async || {
        let refused = nats.probe(TRY).await;
        let refused = refused.expect_err("it may not come about");
        refused.reason.contains("; ").then_some(refused)
    })
    .await;
    let said = nats
        .publish(&messages("bookings.confirmed", 1), TRY)
        .await
        .remove(0);
    assert!(
        matches!(&said, Published::NotSent(not) if not.why == refused.why),
        "{said:?}"
    );
    refused
}

fn told(refused: &BrokerError, why: Why, about: &[&str]) {
    assert_eq!(refused.why, why, "{refused}");
    for about in about {
        assert!(refused.reason.contains(about), "{about}: {refused}");
    }
}

#[tokio::test]
async fn a_server_is_believed_whose_certificate_our_authority_has_signed_for_its_name() {
    if !is_installed() {
        return;
    }
    let server = with_tls("server.pem", "").await;
    works(believing(&server, "authority.pem")).await;

    let another = refused(believing(&server, "another.pem")).await;
    told(&another, Why::Configuration, &["tls_ca", "another.pem"]);
    // The server asks for it, so TLS it is: with the authorities of this system.
    let unset = refused(NatsSettings::at(server.url())).await;
    told(&unset, Why::Configuration, &["set tls_ca"]);
    let elsewhere = with_tls("elsewhere.pem", "").await;
    let elsewhere = refused(believing(&elsewhere, "authority.pem")).await;
    told(&elsewhere, Why::Configuration, &["nats.test", "urls"]);
    let expired = with_tls("expired.pem", "").await;
    let expired = refused(believing(&expired, "authority.pem")).await;
    told(&expired, Why::Configuration, &["expired", "clock"]);
}

#[tokio::test]
async fn a_server_that_begins_with_tls_and_one_that_wants_our_certificate_get_what_they_want() {
    if !is_installed() {
        return;
    }
    let verify = format!("verify: true\nca_file: \"{TLS}/authority.pem\"\nhandshake_first: true");
    let server = with_tls("server.pem", &verify).await;
    let mut settings = believing(&server, "authority.pem");
    settings.tls_first = true;
    settings.tls_certificate = Some(format!("{TLS}/ours.pem").into());
    settings.tls_key = Some(format!("{TLS}/ours.key").into());
    works(settings.clone()).await;

    let mut without = settings.clone();
    (without.tls_certificate, without.tls_key) = (None, None);
    told(
        &refused(without).await,
        Why::Configuration,
        &["tls_certificate", "tls_key"],
    );
    // Neither says a word: the server waits for us, and we wait for it.
    let mut late = settings.clone();
    late.tls_first = false;
    let late = connect(late).await;
    let waited = late
        .probe(Duration::from_secs(5))
        .await
        .expect_err("nobody begins");
    told(&waited, Why::Unavailable, &["tls_first"]);
    settings.tls_key = Some(format!("{TLS}/server.key").into());
    let wrong = Nats::connect(settings)
        .await
        .expect_err("it is the key of another");
    let wrong = wrong.to_string();
    assert!(
        wrong.contains("server.key") && wrong.contains("ours.pem"),
        "{wrong}"
    );
}

#[tokio::test]
async fn where_tls_is_wanted_no_secret_leaves_without_it() {
    if !is_installed() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    // Somebody between us and the server, who says that it has no TLS, and reads what comes.
    let reading = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.expect("a client");
        let info = "INFO {\"server_id\":\"x\",\"version\":\"2.12.0\",\"max_payload\":1048576,\"headers\":true}\r\n";
        client.write_all(info.as_bytes()).await.expect("written");
        let mut came = vec![0; 4096];
        let n = client.read(&mut came).await.expect("read");
        came.truncate(n);
        let _ = client
            .write_all(b"-ERR 'Unknown Protocol Operation'\r\n")
            .await;
        came
    });
    let mut settings = NatsSettings::at(format!("tls://127.0.0.1:{port}"));
    settings.user = Some("joe".into());
    settings.password = Some("s3cret".into());
    let nats = connect(settings.clone()).await;
    let came = reading.await.expect("it was read");
    assert_eq!(came.first(), Some(&0x16), "a handshake of TLS: {came:?}");
    drop(nats);

    let plain = NatsServer::start().await.expect("a server");
    settings.urls = vec![plain.url()];
    settings.tls_required = true;
    told(
        &refused(settings).await,
        Why::Configuration,
        &["offers no TLS"],
    );
}

#[tokio::test]
async fn who_we_are_is_shown_by_a_password_or_a_token_and_a_wrong_one_is_told() {
    if !is_installed() {
        return;
    }
    let server = NatsServer::start_with("authorization { user: joe, password: \"s3cret\" }").await;
    let server = server.expect("a server");
    let mut settings = NatsSettings::at(server.url());
    told(
        &refused(settings.clone()).await,
        Why::Denied,
        &["who we are"],
    );
    settings.user = Some("joe".into());
    settings.password = Some("wr0ng".into());
    let wrong = refused(settings.clone()).await;
    told(&wrong, Why::Denied, &["joe", "password"]);
    assert!(!wrong.reason.contains("wr0ng"), "{wrong}");
    settings.password = Some("s3cret".into());
    works(settings).await;

    let server = NatsServer::start_with("authorization { token: \"t0ken\" }").await;
    let server = server.expect("a server");
    let mut settings = NatsSettings::at(server.url());
    settings.token = Some("wr0ng".into());
    told(
        &refused(settings.clone()).await,
        Why::Denied,
        &["set token"],
    );
    settings.token = Some("t0ken".into());
    works(settings).await;
}

fn written(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, text).expect("written");
    file
}

#[tokio::test]
async fn who_we_are_is_shown_by_an_nkey_of_which_the_server_has_the_public_part() {
    if !is_installed() {
        return;
    }
    let (ours, other) = (KeyPair::new_user(), KeyPair::new_user());
    let users = format!(
        "authorization {{ users: [ {{ nkey: {} }} ] }}",
        ours.public_key()
    );
    let server = NatsServer::start_with(&users).await.expect("a server");
    let folder = tempfile::tempdir().expect("a folder");
    let with = |name: &str, text: &str| {
        let mut settings = NatsSettings::at(server.url());
        settings.nkey_file = Some(written(folder.path(), name, text));
        settings
    };
    let seed = |pair: &KeyPair| pair.seed().expect("it has one");
    works(with("ours.nk", &format!("{}\n", seed(&ours)))).await;
    let other = refused(with("other.nk", &seed(&other))).await;
    told(&other, Why::Denied, &["other.nk", "users"]);
    let public = Nats::connect(with("public.nk", &ours.public_key())).await;
    let public = public.expect_err("that is no seed");
    assert!(public.to_string().contains("begins with SU"), "{public}");
}

/// What an operator or an account says of somebody, signed.
fn says(issuer: &KeyPair, of: &KeyPair, name: &str, nats: &Value) -> String {
    let of_json = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = of_json(&json!({ "typ": "JWT", "alg": "ed25519-nkey" }));
    let body = of_json(&json!({
        "jti": name, "iat": 1_577_836_800, "iss": issuer.public_key(), "name": name, "sub": of.public_key(), "nats": nats,
    }));
    let signed = issuer
        .sign(format!("{head}.{body}").as_bytes())
        .expect("signed");
    format!("{head}.{body}.{}", URL_SAFE_NO_PAD.encode(signed))
}

fn credentials(account: &KeyPair) -> String {
    let user = KeyPair::new_user();
    let nats = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
    let jwt = says(account, &user, "joe", &nats);
    let seed = user.seed().expect("it has one");
    format!(
        "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
}

#[tokio::test]
async fn who_we_are_is_shown_by_a_file_of_credentials_of_the_servers_operator() {
    if !is_installed() {
        return;
    }
    let operator = KeyPair::new_operator();
    let [account, system, stranger] = [(); 3].map(|()| KeyPair::new_account());
    let limits = json!({
        "subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1, "payload": -1, "wildcards": true,
    });
    let mut streams = limits.clone();
    for what in ["mem_storage", "disk_storage", "streams", "consumer"] {
        streams[what] = (-1).into();
    }
    let trusted = json!({ "type": "operator", "version": 2 });
    let trusted = says(&operator, &operator, "operator", &trusted);
    let of = |account: &KeyPair, limits: Value| {
        let nats = json!({ "type": "account", "version": 2, "limits": limits });
        let said = says(&operator, account, "account", &nats);
        format!("{}: {said}", account.public_key())
    };
    let config = format!(
        "operator: {trusted}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}, {} }}",
        system.public_key(),
        of(&account, streams),
        of(&system, limits),
    );
    let server = NatsServer::start_with(&config).await.expect("a server");
    let folder = tempfile::tempdir().expect("a folder");
    let with = |name: &str, text: &str| {
        let mut settings = NatsSettings::at(server.url());
        settings.credentials_file = Some(written(folder.path(), name, text));
        settings
    };
    works(with("ours.creds", &credentials(&account))).await;
    let other = refused(with("other.creds", &credentials(&stranger))).await;
    told(&other, Why::Denied, &["other.creds", "credentials"]);
    let secret = "SUAIO3FHUX5PNV2LQIIP7TZ3N4L7TX3W53MQGEIVYFIGA635OZCKEYHFLM";
    let broken = Nats::connect(with("broken.creds", secret)).await;
    let broken = broken.expect_err("there is no JWT in it");
    assert!(matches!(broken, NatsError::File(..)), "{broken}");
    let broken = broken.to_string();
    assert!(
        broken.contains("broken.creds") && !broken.contains(secret),
        "{broken}"
    );
}
