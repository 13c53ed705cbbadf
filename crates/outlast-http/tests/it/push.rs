//! One attempt, its answer, and what is recorded of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use axum::http::StatusCode;
use outlast_core::broker::Envelope;
use outlast_engine::{Consumer, Start};
use outlast_http::{
    HttpEndpoint,
    egress::{Egress, Net, Rules},
    push::BadEndpoint,
    signature::{Key, Verifier},
};
use tokio::{io::AsyncWriteExt, sync::mpsc};

use crate::{
    egress::Names,
    given::{ODD, endpoint, given, ids, keys, next, shop, verifier},
    server::{Got, answer, plain, raw, serve},
};

#[tokio::test(flavor = "multi_thread")]
async fn an_event_arrives_whole_and_signed_and_is_completed_by_a_2xx() {
    let given = given().await;
    let (tell, mut heard) = mpsc::unbounded_channel();
    let server = serve(move |got| {
        tell.send(got).unwrap();
        async { answer(204, &[]) }
    })
    .await;
    let sql = "select id from outlast.emit(type => 'ping', payload => $1::text, key => 'booking/Zürich 1', tenant => 'acme',
        source => 'shop', subject => 'a b', actor => 'jane', version => 3, headers => '{\"X-Odd: 1\": \"v\\tü\"}')";
    let id: uuid::Uuid = given.sql.query_one(sql, &[&ODD]).await.unwrap().get(0);
    let own = endpoint(&server.url())
        .header("authorization", "Bearer s3cret")
        .unwrap();
    let worker = given.start([shop(own)]);
    let got = next(&mut heard).await;
    assert_eq!(got.body, ODD, "byte for byte");
    assert!(verifier().verify(&got.headers, &got.body).is_ok());
    assert_eq!(got.header("webhook-id"), id.to_string());
    assert_eq!(
        (
            got.header("outlast-attempt"),
            got.header("outlast-consumer")
        ),
        ("1".into(), "shop".into())
    );
    assert_eq!(got.header("authorization"), "Bearer s3cret");
    let within: u64 = got.header("outlast-within-ms").parse().unwrap();
    assert!((50_000..=60_000).contains(&within), "{within}");
    let attributes: Vec<_> = got
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    let envelope = Envelope::from_attributes(&attributes).unwrap();
    assert_eq!(
        (envelope.id, envelope.name.as_str(), envelope.version),
        (id, "ping", 3)
    );
    assert_eq!(
        (envelope.key.as_deref(), envelope.tenant.as_str()),
        (Some("booking/Zürich 1"), "acme")
    );
    assert_eq!(
        (envelope.source.as_deref(), envelope.subject.as_deref()),
        (Some("shop"), Some("a b"))
    );
    assert_eq!(envelope.headers["X-Odd: 1"], "v\tü");
    let emitted: SystemTime = given
        .sql
        .query_one("select emitted_at from outlast.event", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(envelope.emitted_at, emitted);
    given.processed(1).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_has_the_same_id_and_bytes_and_another_token_and_signature() {
    let given = given().await;
    let (tell, mut heard) = mpsc::unbounded_channel();
    let count = Arc::new(AtomicUsize::new(0));
    let server = serve(move |got: Got| {
        tell.send(got).unwrap();
        let n = count.fetch_add(1, Ordering::SeqCst);
        async move { answer(if n < 2 { 500 } else { 200 }, &[]) }
    })
    .await;
    given.emit(7..8).await;
    let worker = given.start([shop(endpoint(&server.url()))]);
    let first = next(&mut heard).await;
    let mut tokens = vec![ids(&first).0];
    for attempt in ["2", "3"] {
        let again = next(&mut heard).await;
        assert_eq!(again.header("webhook-id"), first.header("webhook-id"));
        assert_eq!(again.body, first.body);
        assert_eq!(again.header("outlast-attempt"), attempt);
        assert!(verifier().verify(&again.headers, &again.body).is_ok());
        assert!(!tokens.contains(&ids(&again).0));
        tokens.push(ids(&again).0);
    }
    given.processed(1).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_answer_is_recorded_as_what_it_means() {
    let given = given().await;
    let server = serve(|got: Got| async move {
        match got.n() {
            0 => answer(410, &[("outlast-reason", "no%20such%20booking")]),
            1 => answer(
                301,
                &[("location", "https://elsewhere.example/?token=s3cret")],
            ),
            2 => answer(429, &[("retry-after", "600")]),
            3 => answer(
                200,
                &[
                    ("outlast-outcome", "skipped"),
                    ("outlast-reason", "not ours"),
                ],
            ),
            4 => plain(StatusCode::OK, vec![b'x'; 10 << 20]),
            5 => plain(
                StatusCode::UNPROCESSABLE_ENTITY,
                "the payload once more: {\"n\":5}",
            ),
            6 => std::future::pending().await,
            _ => answer(200, &[]),
        }
    })
    .await;
    given.emit(0..12).await;
    let worker = given.start([shop(
        endpoint(&server.url()).timeout(Duration::from_millis(500)),
    )]);
    // 3 and 7 to 11; the others wait, or need a person.
    given
        .until("select count(*) from outlast.processed", 6)
        .await;
    given.until("select count(*) from outlast._parked where token is null and failures + 0 >= 0 and class is not null", 6).await;
    let sql = "select convert_from(e.payload, 'UTF8') || ' ' || p.state || ' ' || p.class || ' ' || p.failures || ': ' || p.reason
        from outlast._parked p join outlast._event e on e.event_id = p.event_id order by e.id";
    let lines = given.texts(sql).await;
    for (line, expected) in lines.iter().zip([
        r#"{"n":0} quarantined permanent 1: the endpoint answered 410 Gone: no such booking"#,
        r#"{"n":1} quarantined permanent 1: the endpoint answered 301 Moved Permanently; redirects are not followed"#,
        r#"{"n":2} retry throttled 0: the endpoint answered 429 Too Many Requests"#,
        r#"{"n":4} retry unknown"#,
        r#"{"n":5} quarantined permanent 1: the endpoint answered 422 Unprocessable Entity"#,
        r#"{"n":6} retry unknown"#,
    ]) {
        assert!(line.starts_with(expected), "{line}\nis not\n{expected}");
    }
    assert!(
        lines[3].contains("the answer 200 is longer than 65536 bytes: cut"),
        "{}",
        lines[3]
    );
    assert!(lines[5].contains("no answer within"), "{}", lines[5]);
    let all = lines.join("\n");
    assert!(
        !all.contains("s3cret") && !all.contains("once more"),
        "neither secrets nor payloads: {all}"
    );
    let skipped = given
        .texts("select reason from outlast.processed where outcome = 'skipped'")
        .await;
    assert_eq!(skipped, ["not ours"]);
    let waits = given.count("select extract(epoch from max(next_at) - now())::bigint from outlast._parked where class = 'throttled'").await;
    assert!((590..=600).contains(&waits), "{waits}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_200_and_hangs_up_has_not_said_that_it_is_done() {
    let given = given().await;
    let (server, _) = raw(|mut stream| async move {
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
            .await;
        let _ = stream.shutdown().await;
    })
    .await;
    given.emit(0..1).await;
    let worker = given.start([shop(endpoint(&server.url()))]);
    let (class, failures, reason) = given.parked("retry").await;
    assert_eq!(
        (class.as_str(), reason.as_str()),
        ("unknown", "the answer 200 ended early")
    );
    assert!(failures >= 1);
    assert_eq!(
        given.count("select count(*) from outlast.processed").await,
        0
    );
    worker.stop().await;
}

/// Refuses what it cannot verify, as a receiver does.
async fn receiver(verifier: Verifier) -> crate::server::Server {
    serve(move |got: Got| {
        let verified = verifier.verify(&got.headers, &got.body);
        async move {
            match verified {
                Ok(_) => answer(204, &[]),
                Err(why) => answer(
                    401,
                    &[("outlast-reason", &why.to_string().replace(' ', "%20"))],
                ),
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_and_a_clock_that_is_off_are_refused_and_told() {
    fn an_hour_ago() -> SystemTime {
        SystemTime::now() - Duration::from_hours(1)
    }
    let given = given().await;
    let good = receiver(verifier()).await;
    let other_key = receiver(Verifier::new(Key::generate().into())).await;
    given.emit(0..1).await;
    let named = |name: &str| Consumer::new(name).from(Start::Earliest);
    let worker = given.start([
        named("good").push("ping", endpoint(&good.url())),
        named("key").push("ping", endpoint(&other_key.url())),
        named("clock").push("ping", endpoint(&good.url()).clock(an_hour_ago)),
    ]);
    given
        .until("select count(*) from outlast.processed", 1)
        .await;
    given
        .until(
            "select count(*) from outlast._parked where state = 'quarantined'",
            2,
        )
        .await;
    let reasons = given
        .texts("select reason from outlast._parked order by length(reason)")
        .await;
    assert_eq!(
        reasons[0],
        "the endpoint answered 401 Unauthorized: the signature does not match"
    );
    assert!(
        reasons[1].starts_with(
            "the endpoint answered 401 Unauthorized: signed too long ago; its clock and ours are 3"
        ),
        "{reasons:?}"
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_whose_name_leads_inside_gets_nothing_and_others_do() {
    let given = given().await;
    let (inside, connections) = raw(|_| async {}).await;
    let port = inside.address.port();
    let client = Egress::new(Rules::new().port(port))
        .resolver(Names::lead_to(&[&["127.0.0.1"]]))
        .client()
        .unwrap();
    let rebound =
        HttpEndpoint::new(&client, &format!("https://hooks.example:{port}/"), keys()).unwrap();
    let fine = serve(|_| async { answer(200, &[]) }).await;
    given.emit(0..3).await;
    let worker = given.start([
        Consumer::new("inside")
            .from(Start::Earliest)
            .push("*", rebound),
        shop(endpoint(&fine.url())),
    ]);
    given
        .until("select count(*) from outlast.processed", 3)
        .await;
    given
        .until("select count(*) from outlast._parked where failures > 0", 3)
        .await;
    let reasons = given
        .texts("select distinct reason from outlast._parked")
        .await;
    assert_eq!(
        reasons,
        ["hooks.example leads to an address that is loopback, and such are not allowed"]
    );
    assert_eq!(connections.load(Ordering::SeqCst), 0);
    worker.stop().await;
}

#[tokio::test]
async fn what_cannot_be_an_endpoint_is_refused_when_it_is_made() {
    let strict = Egress::new(Rules::new()).client().unwrap();
    let refused = |url: &str| HttpEndpoint::new(&strict, url, keys()).unwrap_err();
    for url in [
        "http://shop.example/",
        "https://10.0.0.1/",
        "https://[::ffff:127.0.0.1]/",
        "https://0x7f000001/",
    ] {
        assert!(matches!(refused(url), BadEndpoint::Refused(_)), "{url}");
    }
    for url in ["shop.example", "https://u:hunter2@shop.example/"] {
        let why = refused(url);
        assert!(
            matches!(why, BadEndpoint::Url(_)) && !why.to_string().contains("hunter2"),
            "{why}"
        );
    }
    let shop = || HttpEndpoint::new(&strict, "https://shop.example/", keys()).unwrap();
    for (name, value) in [
        ("webhook-id", "1"),
        ("Outlast-Token", "1"),
        ("host", "x"),
        ("a b", "1"),
        ("x", "s3cret\r\ny: z"),
    ] {
        let why = shop().header(name, value).unwrap_err();
        assert!(
            matches!(why, BadEndpoint::Header { .. }) && !why.to_string().contains("s3cret"),
            "{why}"
        );
    }
    let shown = format!(
        "{:?}",
        shop().header("authorization", "Bearer s3cret").unwrap()
    );
    assert!(
        !shown.contains("s3cret") && !shown.contains("MfKQ"),
        "{shown}"
    );
    let open = Egress::new(Rules::new().allow("10.0.0.0/8".parse::<Net>().unwrap()))
        .client()
        .unwrap();
    assert!(HttpEndpoint::new(&open, "http://10.0.0.1:8080/", keys()).is_ok());
}
