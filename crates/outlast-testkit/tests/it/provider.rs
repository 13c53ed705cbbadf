//! The provider and its ledger.

use std::io;
use std::time::{Duration, Instant};

use outlast_testkit::provider::{
    Answer, Behaviour, Provider, Refuse,
    order::{Fault, Habits, Kind, What},
    request,
};

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

/// What is said to an order, with a key of its own.
async fn order(provider: &Provider, kind: Kind, key: &str, more: &str) -> io::Result<Answer> {
    let path = format!("/orders/{}", kind.as_str());
    let body = format!(r#"{{"reference":"{key}","account":"a"{more}}}"#);
    let headers = [("idempotency-key", key)];
    request(provider.address(), "POST", &path, &headers, &body).await
}

async fn at(provider: &Provider, path: &str) -> u16 {
    let answer = request(provider.address(), "GET", path, &[], "").await;
    answer.unwrap().status
}

/// What the ledger says, line by line.
fn done(provider: &Provider) -> Vec<What> {
    provider.orders().iter().map(|entry| entry.what).collect()
}

#[tokio::test]
async fn each_kind_of_provider_knows_of_a_repeated_order_what_it_promises() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let provider = Provider::start(&ledger).await;
    for (kind, again, effects) in [
        (Kind::Keyed, 200, 1),
        (Kind::Grudging, 409, 1),
        (Kind::Looked, 200, 2),
        (Kind::Keyless, 200, 2),
    ] {
        let before = done(&provider).len();
        assert_eq!(order(&provider, kind, "a", "").await.unwrap().status, 200);
        let status = order(&provider, kind, "a", "").await.unwrap().status;
        assert_eq!(status, again, "{kind:?}");
        let what = done(&provider).split_off(before);
        let there = what.iter().filter(|what| **what == What::Effect).count();
        assert_eq!((what.len(), there), (2, effects), "{kind:?}");
    }
    assert_eq!(at(&provider, "/orders/looked/by/a").await, 200);
    assert_eq!(at(&provider, "/orders/looked/by/b").await, 404);
    assert_eq!(at(&provider, "/orders/keyless/by/a").await, 405);
    // What it says it says again, also when it was killed in between, and as a refusal too.
    let refused = r#","refuse":true"#;
    let no = order(&provider, Kind::Keyed, "no", refused).await.unwrap();
    assert_eq!(no.status, 422);
    provider.process().kill();
    provider.process().exit(PATIENCE).await;
    let provider = Provider::start_at(&ledger, provider.address().port()).await;
    let no = order(&provider, Kind::Keyed, "no", refused).await.unwrap();
    assert_eq!(no.status, 422);
    let last = provider.orders().pop().unwrap();
    assert_eq!((last.what, last.visit), (What::Repeat, 1));
}

#[tokio::test]
async fn a_key_is_forgotten_behind_its_window_and_a_request_behind_its_time_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let provider = Provider::start(&folder.path().join("ledger")).await;
    let window = Habits {
        window_ms: Some(60_000),
        ..Habits::default()
    };
    provider.has_habits(&window).await;
    order(&provider, Kind::Keyed, "a", "").await.unwrap();
    order(&provider, Kind::Keyed, "a", "").await.unwrap();
    let later = Habits {
        ahead_ms: 61_000,
        ..window
    };
    provider.has_habits(&later).await;
    order(&provider, Kind::Keyed, "a", "").await.unwrap();
    assert_eq!(done(&provider), [What::Effect, What::Repeat, What::Effect]);
    let headers = [("valid-until-ms", "1")];
    let body = r#"{"reference":"b"}"#;
    let late = request(provider.address(), "POST", "/orders/looked", &headers, body).await;
    assert_eq!(late.unwrap().status, 408);
    assert_eq!(done(&provider).last(), Some(&What::Expired));
}

#[tokio::test]
async fn an_order_meets_the_fault_that_is_meant_for_it_and_none_at_a_later_visit() {
    let folder = tempfile::tempdir().unwrap();
    let provider = Provider::start(&folder.path().join("ledger")).await;
    for (fault, status, effect) in [
        (Fault::Throttled, Some(429), false),
        (Fault::Away, Some(503), false),
        (Fault::Lost, None, false),
        (Fault::Dropped, None, true),
        (Fault::Half, None, true),
        (Fault::Broken, Some(500), true),
        (Fault::Slow, Some(200), true),
        (Fault::Late, Some(200), true),
        (Fault::Pending, Some(202), true),
    ] {
        let habits = Habits {
            slow_ms: 20,
            settle_ms: 60_000,
            ..Habits::only(fault)
        };
        provider.has_habits(&habits).await;
        let key = format!("{fault:?}");
        let first = order(&provider, Kind::Keyed, &key, "").await;
        assert_eq!(first.ok().map(|answer| answer.status), status, "{fault:?}");
        let there = done(&provider).last() == Some(&What::Effect);
        assert_eq!(there, effect, "{fault:?}");
        let again = order(&provider, Kind::Keyed, &key, "").await.unwrap();
        let pending = if fault == Fault::Pending { 202 } else { 200 };
        assert_eq!(again.status, pending, "{fault:?}");
        let orders = provider.orders();
        let effects = orders.iter().filter(|entry| entry.reference == key);
        let effects = effects.filter(|entry| entry.what == What::Effect).count();
        assert_eq!(effects, 1, "{fault:?}");
    }
}

#[tokio::test]
async fn the_same_seed_treats_the_same_orders_the_same() {
    let mut plans = Vec::new();
    for seed in [7, 7, 8] {
        let folder = tempfile::tempdir().unwrap();
        let provider = Provider::start(&folder.path().join("ledger")).await;
        let habits = Habits {
            seed,
            percent: 50,
            slow_ms: 2,
            ..Habits::default()
        };
        provider.has_habits(&habits).await;
        for n in 0..20 {
            // Some connections are closed.
            let _ = order(&provider, Kind::Keyless, &n.to_string(), "").await;
        }
        let plan = provider.orders().into_iter().map(|entry| entry.fault);
        plans.push(plan.collect::<Vec<_>>());
    }
    assert_eq!(plans[0], plans[1]);
    assert_ne!(plans[0], plans[2]);
}

#[tokio::test]
async fn whoever_is_called_back_is_told_before_the_answer_and_until_he_takes_it() {
    let folder = tempfile::tempdir().unwrap();
    let provider = Provider::start(&folder.path().join("ledger")).await;
    provider.has_habits(&Habits::only(Fault::CalledBack)).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let call_back = format!(r#","call_back":"http://{address}/told""#);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    // The first call is turned away.
    let answers = [
        "HTTP/1.1 503 Not Now\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        "HTTP/1.1 204 Taken\r\nconnection: close\r\n\r\n",
    ];
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 8192];
            let length = stream.read(&mut request).await.unwrap();
            let text = String::from_utf8_lossy(&request[..length]).into_owned();
            stream.write_all(answer.as_bytes()).await.unwrap();
            tell.send(text).unwrap();
        }
    });
    let answer = order(&provider, Kind::Keyed, "a", &call_back)
        .await
        .unwrap();
    assert_eq!(answer.status, 200);
    for _ in 0..2 {
        let told = tokio::time::timeout(PATIENCE, told.recv()).await;
        let text = told.unwrap().unwrap();
        assert!(text.contains(r#""state":"settled""#), "{text}");
    }
}
