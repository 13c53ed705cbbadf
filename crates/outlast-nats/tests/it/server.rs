//! What a server has, has lost, and refuses.

use std::time::Duration;

use outlast_core::broker::{Broker, Ensure, Published, Severity, Subscription, Topology, Why};
use outlast_nats::{Nats, NatsError, NatsSettings};
use outlast_testkit::broker::{NatsServer, conformance::Server, nats_server::is_installed};
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpListener};

use crate::{PATIENCE, api, connect, ensure, messages, nats, scene, worst};

fn why(said: &Published) -> Option<Why> {
    match said {
        Published::NotSent(not) => Some(not.why),
        _ => None,
    }
}

#[tokio::test]
async fn a_wiped_store_is_found_out_and_made_anew() {
    if !is_installed() {
        return;
    }
    let server = NatsServer::start().await.expect("a server");
    let nats = nats(&server).await;
    let subscription = scene(&nats, "bookings.confirmed").await;
    server.kill().await;
    server.wipe();
    server.start().await;
    for wanted in [
        Topology::topic("bookings.confirmed", true),
        Topology::Subscription(subscription),
    ] {
        let found = ensure(&nats, &wanted, Ensure::Verify).await;
        assert_eq!(worst(&found), Severity::Bad, "{found:?}");
    }
    let lost = nats
        .publish(&messages("bookings.confirmed", 1), PATIENCE)
        .await;
    assert_eq!(why(&lost[0]), Some(Why::Missing), "{lost:?}");
    scene(&nats, "bookings.confirmed").await;
    let said = nats
        .publish(&messages("bookings.confirmed", 1), PATIENCE)
        .await;
    assert_eq!(said, [Published::Confirmed]);
}

#[tokio::test]
async fn a_full_stream_throttles_and_loses_nothing_that_it_confirmed() {
    if !is_installed() {
        return;
    }
    let server = NatsServer::start().await.expect("a server");
    let mut settings = NatsSettings::at(server.url());
    settings.max_bytes = 20_000;
    let nats = connect(settings).await;
    scene(&nats, "bookings.confirmed").await;
    let said = nats
        .publish(&messages("bookings.confirmed", 200), PATIENCE)
        .await;
    let confirmed = said.iter().filter(|one| one.is_confirmed()).count();
    assert!((1..200).contains(&confirmed), "{confirmed} were confirmed");
    let refused: Vec<_> = said.iter().filter(|one| !one.is_confirmed()).collect();
    assert!(
        refused.iter().all(|one| why(one) == Some(Why::Throttled)),
        "{:?}",
        refused[0]
    );
    let stream = api(&server, "STREAM.INFO.bookings=confirmed", json!({})).await;
    assert_eq!(stream["state"]["messages"], confirmed, "{stream}");
}

#[tokio::test]
async fn of_a_key_nothing_passes_a_message_that_a_full_stream_refuses() {
    if !is_installed() {
        return;
    }
    let server = NatsServer::start().await.expect("a server");
    let mut settings = NatsSettings::at(server.url());
    settings.max_bytes = 20_000;
    let nats = connect(settings).await;
    scene(&nats, "bookings.confirmed").await;
    let mut call = messages("bookings.confirmed", 4);
    // The second one does not fit any more; the third would.
    for (one, size) in call.iter_mut().zip([12_000, 12_000, 10, 10]) {
        one.body = vec![b'x'; size].into();
        one.ordering_key = Some("a".into());
    }
    // It would: on its own it is taken.
    call[3].ordering_key = None;
    let said = nats.publish(&call, PATIENCE).await;
    assert!(said[0].is_confirmed() && said[3].is_confirmed(), "{said:?}");
    let refused = [why(&said[1]), why(&said[2])];
    assert_eq!(
        refused,
        [Some(Why::Throttled), Some(Why::Behind)],
        "{said:?}"
    );
}

#[tokio::test]
async fn what_the_stream_does_that_loses_messages_is_found() {
    if !is_installed() {
        return;
    }
    let server = NatsServer::start().await.expect("a server");
    let nats = nats(&server).await;
    let theirs = json!({ "name": "theirs", "subjects": ["theirs.>"], "max_bytes": 1_000_000, "discard": "old" });
    let made = api(&server, "STREAM.CREATE.theirs", theirs).await;
    assert!(made["error"].is_null(), "{made}");
    for how in [Ensure::Create, Ensure::Verify] {
        let found = ensure(&nats, &Topology::topic("theirs.a", true), how).await;
        let old = found.iter().find(|one| one.found.contains("discard: old"));
        assert_eq!(
            old.map(|one| one.severity),
            Some(Severity::Bad),
            "{found:?}"
        );
    }
    // One stream for many subjects is as good as one for each: nothing was made beside it.
    let streams = api(&server, "STREAM.NAMES", json!({})).await;
    assert_eq!(streams["streams"], json!(["theirs"]));
}

#[tokio::test]
async fn how_often_the_store_is_synced_is_read_from_the_monitoring() {
    if !is_installed() {
        return;
    }
    let topic = Topology::topic("bookings.confirmed", true);
    let sync = async |server: &NatsServer, monitor: Option<String>| {
        let mut settings = NatsSettings::at(server.url());
        settings.monitor = monitor;
        let found = ensure(&connect(settings).await, &topic, Ensure::Create).await;
        let sync = found.into_iter().find(|one| one.about == "sync_interval");
        let sync = sync.expect("something is said of it");
        (sync.severity, sync.found)
    };
    let usual = NatsServer::start().await.expect("a server");
    let (severity, found) = sync(&usual, Some(usual.monitor())).await;
    assert_eq!((severity, &*found), (Severity::Warning, "2m"));
    assert_eq!(sync(&usual, None).await.0, Severity::Unverified);
    assert_eq!(
        sync(&usual, Some("http://127.0.0.1:1".into())).await.0,
        Severity::Unverified
    );
    let always = NatsServer::start_syncing().await.expect("a server");
    let (severity, found) = sync(&always, Some(always.monitor())).await;
    assert_eq!((severity, &*found), (Severity::Good, "always"));
}

const USERS: &str = r#"authorization { users: [
    { user: "all", password: "s3cret" },
    { user: "some", password: "s3cret", permissions: { publish: { deny: ["bookings.>"] } } },
] }"#;

fn user(server: &NatsServer, user: &str, password: &str) -> NatsSettings {
    let mut settings = NatsSettings::at(server.url());
    settings.user = Some(user.into());
    settings.password = Some(password.into());
    settings
}

#[tokio::test]
async fn what_we_may_not_is_denied_and_the_rest_goes_on() {
    if !is_installed() {
        return;
    }
    let server = NatsServer::start_with(USERS).await.expect("a server");
    let all = connect(user(&server, "all", "s3cret")).await;
    for topic in ["bookings.confirmed", "free"] {
        scene(&all, topic).await;
    }
    let some = connect(user(&server, "some", "s3cret")).await;
    let mut call = messages("bookings.confirmed", 2);
    call.extend(messages("free", 2));
    let said = some.publish(&call, PATIENCE).await;
    assert_eq!(
        [why(&said[0]), why(&said[1])],
        [Some(Why::Denied); 2],
        "{said:?}"
    );
    assert!(said[2].is_confirmed() && said[3].is_confirmed(), "{said:?}");

    let wrong = connect(user(&server, "all", "wrong")).await;
    let probe = wrong
        .probe(Duration::from_secs(2))
        .await
        .expect_err("the password is wrong");
    assert_eq!(probe.why, Why::Denied, "{probe}");
    assert!(!format!("{wrong:?} {probe}").contains("wrong\""));
}

#[tokio::test]
async fn a_server_that_is_too_old_is_told_by_its_version() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let info = "INFO {\"server_id\":\"x\",\"version\":\"2.10.24\",\"max_payload\":1048576,\"headers\":true}\r\nPONG\r\n";
            let _ = client.write_all(info.as_bytes()).await;
            open.push(client);
        }
    });
    let nats = connect(NatsSettings::at(format!("nats://{address}"))).await;
    let old = nats.probe(PATIENCE).await.expect_err("too old");
    assert_eq!(old.why, Why::Configuration);
    assert!(
        old.reason.contains("2.10.24") && old.reason.contains("2.10.25"),
        "{old}"
    );
    let said = nats
        .publish(&messages("a", 1), Duration::from_secs(1))
        .await;
    assert_eq!(why(&said[0]), Some(Why::Configuration), "{said:?}");
    let found = nats.subscribe(&Subscription::new("r", "a"), PATIENCE).await;
    assert_eq!(found.err().map(|why| why.why), Some(Why::Configuration));
}

#[tokio::test]
async fn settings_that_cannot_be_are_refused_before_any_connection() {
    let mut settings = NatsSettings::at("not an address");
    settings.deliveries = 0;
    let refused = Nats::connect(settings)
        .await
        .expect_err("nothing of it is right");
    assert!(
        matches!(&refused, NatsError::Settings(all) if all.len() == 2),
        "{refused}"
    );
    let mut settings = NatsSettings::at("nats://127.0.0.1:1");
    settings.credentials_file = Some("/nowhere/nats.creds".into());
    let refused = Nats::connect(settings)
        .await
        .expect_err("there is no such file");
    assert!(
        refused.to_string().contains("/nowhere/nats.creds"),
        "{refused}"
    );
}
