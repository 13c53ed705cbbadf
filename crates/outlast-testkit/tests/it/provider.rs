//! The provider and its ledger.

use std::io;
use std::time::{Duration, Instant};

use outlast_testkit::provider::{Behaviour, Provider, Refuse, request};

use crate::PATIENCE;

#[tokio::test]
async fn a_known_key_sends_once_and_is_still_known_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let provider = Provider::start(&ledger).await;
    assert_eq!(
        provider.send("a", r#"{"to":"x"}"#).await.unwrap().status,
        200
    );
    assert!(
        provider
            .send("a", r#"{"to":"x"}"#)
            .await
            .unwrap()
            .body
            .contains(r#""repeat":true"#)
    );
    let by_body = request(provider.address(), "POST", "/send", &[], r#"{"id":"b"}"#)
        .await
        .unwrap();
    assert!(by_body.body.contains(r#""repeat":false"#));
    provider.process().kill();
    provider.process().exit(PATIENCE).await;

    let provider = Provider::start(&ledger).await;
    provider.send("b", "not json").await.unwrap();
    let seen: Vec<_> = provider
        .ledger()
        .into_iter()
        .map(|line| (line.key.unwrap(), line.repeat))
        .collect();
    let expected = [("a", false), ("a", true), ("b", false), ("b", true)];
    assert_eq!(seen, expected.map(|(key, repeat)| (key.to_owned(), repeat)));
    let served = request(provider.address(), "GET", "/ledger", &[], "")
        .await
        .unwrap();
    assert_eq!(served.body.lines().count(), 4);
    let looked = |key| request(provider.address(), "GET", key, &[], "");
    assert_eq!(looked("/sent/a").await.unwrap().status, 200);
    assert_eq!(looked("/sent/z").await.unwrap().status, 404);
}

#[tokio::test]
async fn a_dropped_reply_is_in_the_ledger_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let provider = Provider::start(&folder.path().join("ledger")).await;
    provider
        .behave(&Behaviour {
            drop_reply: true,
            times: Some(1),
            ..Behaviour::default()
        })
        .await;
    let lost = provider.send("a", "{}").await.unwrap_err();
    assert!(
        matches!(
            lost.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
        ),
        "{lost}"
    );
    assert_eq!(provider.ledger().len(), 1);
    let again = provider.send("a", "{}").await.unwrap();
    assert!(again.body.contains(r#""repeat":true"#));
}

#[tokio::test]
async fn refused_mails_are_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let provider = Provider::start(&folder.path().join("ledger")).await;
    let refusals = [
        (Refuse::Throttle(7), 429),
        (Refuse::Broken, 500),
        (Refuse::Reject, 422),
    ];
    for (refuse, status) in refusals {
        provider
            .behave(&Behaviour {
                refuse: Some(refuse),
                times: Some(1),
                ..Behaviour::default()
            })
            .await;
        let answer = provider.send("a", "{}").await.unwrap();
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("retry-after"), (status == 429).then_some("7"));
    }
    assert_eq!(provider.ledger().len(), 0);
    assert_eq!(provider.send("a", "{}").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_slow_provider_has_sent_before_it_answers_and_one_without_keys_sends_twice() {
    let folder = tempfile::tempdir().unwrap();
    let provider = Provider::start(&folder.path().join("ledger")).await;
    let slow = Duration::from_millis(200);
    provider
        .behave(&Behaviour {
            slow_ms: 200,
            ignore_keys: true,
            ..Behaviour::default()
        })
        .await;
    let asked = Instant::now();
    provider.send("a", "{}").await.unwrap();
    provider.send("a", "{}").await.unwrap();
    assert!(asked.elapsed() >= slow * 2);
    assert!(provider.ledger().iter().all(|line| !line.repeat));
}
