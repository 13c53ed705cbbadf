//! A provider over real sockets that refuse, reset, stall, answer half, too much, or elsewhere: what is known afterwards.

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::Request as Given,
    http::{HeaderMap, StatusCode},
};
use outlast_core::{Class, Failure};
use outlast_http::{
    egress::{Egress, Rules},
    provider::{Problem, Provider, Said},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    egress::Names,
    server::{answer, drip, plain, raw, serve},
};

const SOON: Duration = Duration::from_secs(5);
const TEN: usize = 10 << 20;

/// Sends one instruction there.
async fn charge(url: &str, within: Duration) -> Result<outlast_http::provider::Answer, Problem> {
    let provider = Provider::new(url).unwrap();
    let body = json!({ "amount": "1.00" });
    provider
        .post("charges")
        .key("k")
        .json(&body)
        .timeout(within)
        .send()
        .await
}

/// It has failed so, and that is what a command is told; with which reason.
#[track_caller]
fn failed(problem: Problem, class: Class) -> String {
    let sent = matches!(problem, Problem::MaybeSent(_));
    assert_eq!(sent, class == Class::Unknown, "{problem}");
    let failure = Failure::from(problem);
    assert_eq!(failure.class, class, "{failure}");
    failure.reason
}

/// Ends the connection by a reset.
fn reset(stream: &TcpStream) {
    stream.set_zero_linger().unwrap();
}

#[tokio::test]
async fn a_name_that_leads_nowhere_a_port_where_nobody_listens_and_tls_that_fails_are_certainly_not_sent()
 {
    let nowhere = Names::lead_to(&[&[]]);
    let client = Egress::new(Rules::own())
        .resolver(nowhere)
        .client()
        .unwrap();
    let provider = Provider::over(&client, "https://api.example/v1").unwrap();
    let problem = provider.post("charges").send().await.unwrap_err();
    failed(problem, Class::Retry);

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let problem = charge(&format!("http://{closed}/"), SOON)
        .await
        .unwrap_err();
    failed(problem, Class::Retry);

    // Speaks, but not TLS; hangs up in the middle of it; says nothing at all.
    let plain = serve(|_| async { answer(200, &[]) }).await;
    let url = format!("https://{}/", plain.address);
    failed(charge(&url, SOON).await.unwrap_err(), Class::Retry);
    let seen = Arc::new(AtomicUsize::new(0));
    for holds in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let seen = seen.clone();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = [0; 16];
            let _ = stream.read(&mut hello).await;
            // A greeting, and never a request.
            seen.fetch_add(usize::from(hello[0] != 0x16), Ordering::SeqCst);
            if holds {
                pending::<()>().await;
            }
        });
        let within = Duration::from_millis(300);
        failed(charge(&url, within).await.unwrap_err(), Class::Retry);
        serving.abort();
    }
    assert_eq!(seen.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_is_reset_after_it_was_written_stalls_or_drips_may_have_been_sent() {
    let (resets, _) = raw(|stream| async move { reset(&stream) }).await;
    failed(
        charge(&resets.url(), SOON).await.unwrap_err(),
        Class::Unknown,
    );
    let (hangs_up, _) = raw(drop_it).await;
    failed(
        charge(&hangs_up.url(), SOON).await.unwrap_err(),
        Class::Unknown,
    );

    let within = Duration::from_millis(300);
    let (silent, asked) = raw(|stream| async move {
        let _held = stream;
        pending::<()>().await;
    })
    .await;
    let begun = Instant::now();
    failed(
        charge(&silent.url(), within).await.unwrap_err(),
        Class::Unknown,
    );
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(
        asked.load(Ordering::SeqCst),
        1,
        "sent once, whatever comes of it"
    );
    let (slow_head, _) = raw(|stream| drip(stream, "HTTP/1.1 200 OK\r\nx: ")).await;
    failed(
        charge(&slow_head.url(), within).await.unwrap_err(),
        Class::Unknown,
    );
    let (slow_body, _) =
        raw(|stream| drip(stream, "HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n")).await;
    failed(
        charge(&slow_body.url(), within).await.unwrap_err(),
        Class::Unknown,
    );
}

async fn drop_it(stream: TcpStream) {
    drop(stream);
}

#[tokio::test]
async fn a_success_that_is_cut_off_or_of_ten_megabytes_may_have_been_sent_and_a_refusal_stays_one()
{
    let says = |text: &'static str| {
        raw(move |mut stream| async move {
            let _ = stream.write_all(text.as_bytes()).await;
            let _ = stream.shutdown().await;
        })
    };
    let (early, _) = says("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"id\"").await;
    failed(
        charge(&early.url(), SOON).await.unwrap_err(),
        Class::Unknown,
    );
    let (half, _) = says("HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhe").await;
    failed(charge(&half.url(), SOON).await.unwrap_err(), Class::Unknown);
    let (garbage, _) = says("SSH-2.0-OpenSSH_9.7\r\n").await;
    failed(
        charge(&garbage.url(), SOON).await.unwrap_err(),
        Class::Unknown,
    );
    let large = serve(|_| async { plain(StatusCode::OK, vec![b'x'; TEN]) }).await;
    let reason = failed(
        charge(&large.url(), SOON).await.unwrap_err(),
        Class::Unknown,
    );
    assert!(reason.contains("longer than 1048576 bytes"), "{reason}");

    let (refused, _) = says("HTTP/1.1 402 No\r\ncontent-length: 100\r\n\r\n{\"id\"").await;
    let refused = charge(&refused.url(), SOON).await.unwrap();
    assert_eq!(
        (refused.body(), refused.is_whole()),
        (&b"{\"id\""[..], false)
    );
    assert!(matches!(refused.said(), Ok(Said::Refused(_))));
    let large = serve(|_| async { plain(StatusCode::UNPROCESSABLE_ENTITY, vec![b'x'; TEN]) }).await;
    let refused = charge(&large.url(), SOON).await.unwrap();
    assert!(refused.body().len() <= 1 << 20 && !refused.is_whole());
    assert!(matches!(refused.said(), Ok(Said::Refused(_))));
    let (broken, _) = says("HTTP/1.1 500 No\r\ncontent-length: 100\r\n\r\n{\"id\"").await;
    let failure = charge(&broken.url(), SOON)
        .await
        .unwrap()
        .said()
        .unwrap_err();
    assert_eq!(failure.class, Class::Unknown);
}

#[tokio::test]
async fn a_redirect_is_told_and_not_followed() {
    let (elsewhere, connections) = raw(drop_it).await;
    for (status, class) in [
        (307, Class::Permanent),
        (308, Class::Permanent),
        (302, Class::Unknown),
        (303, Class::Unknown),
    ] {
        let to = elsewhere.url();
        let server = serve(move |_| {
            let to = to.clone();
            async move { answer(status, &[("location", &to)]) }
        })
        .await;
        let redirected = charge(&server.url(), SOON).await.unwrap();
        assert_eq!(
            redirected.header("location"),
            Some(elsewhere.url().as_str())
        );
        assert_eq!(redirected.said().unwrap_err().class, class, "{status}");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

type Seen = Arc<Mutex<Vec<(String, String, HeaderMap, Vec<u8>)>>>;

#[tokio::test]
async fn what_is_asked_for_arrives_as_it_was_said_and_the_answer_with_its_body() {
    let seen = Seen::default();
    let keep = seen.clone();
    let app = Router::new().fallback(move |given: Given| {
        let keep = keep.clone();
        async move {
            let (head, body) = given.into_parts();
            let body = axum::body::to_bytes(body, TEN).await.unwrap().to_vec();
            let (method, uri) = (head.method.to_string(), head.uri.to_string());
            keep.lock().unwrap().push((method, uri, head.headers, body));
            let answer = Json(json!({ "id": "ch_1" }));
            (StatusCode::CREATED, [("x-request-id", "r1")], answer)
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let provider = Provider::new(&url)
        .unwrap()
        .header("authorization", "Bearer s3cret")
        .unwrap();
    let sent = provider
        .post("charges")
        .key("k1")
        .json(&json!({ "amount": "1.00" }));
    let answer = sent.send().await.unwrap();
    assert_eq!(answer.said(), Ok(Said::Done));
    assert_eq!(
        (answer.status(), answer.header("x-request-id")),
        (201, Some("r1"))
    );
    assert_eq!(answer.json::<Value>().unwrap()["id"], "ch_1");
    let asked = provider.get("charges").query("key", "a&b").send();
    asked.await.unwrap();
    let form = provider
        .put("charges/ch 1?x")
        .form(&[("amount", "1.00"), ("to", "ü")]);
    form.send().await.unwrap();
    serving.abort();

    let seen = seen.lock().unwrap();
    let lines: Vec<_> = seen
        .iter()
        .map(|(method, uri, ..)| format!("{method} {uri}"))
        .collect();
    assert_eq!(
        lines,
        [
            "POST /v1/charges",
            "GET /v1/charges?key=a%26b",
            "PUT /v1/charges/ch%201%3Fx"
        ]
    );
    let (.., headers, body) = &seen[0];
    assert_eq!(headers["idempotency-key"], "k1");
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(body, br#"{"amount":"1.00"}"#);
    assert!(
        seen.iter()
            .all(|(.., headers, _)| headers["authorization"] == "Bearer s3cret")
    );
    assert_eq!(seen[2].3, b"amount=1.00&to=%C3%BC");
    let shown = format!("{provider:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

struct Never;

impl serde::Serialize for Never {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("s3cret"))
    }
}

#[tokio::test]
async fn what_cannot_be_written_down_is_not_sent_and_says_why_without_its_value() {
    let server = serve(|_| async { answer(200, &[]) }).await;
    let provider = Provider::new(&server.url()).unwrap();
    for (request, why) in [
        (
            provider.post("../../admin"),
            "the path leads out of the URL",
        ),
        (
            provider.post("x").header("a b", "s3cret"),
            "header `a b`: not the name of a header",
        ),
        (
            provider.post("x").header("x", "s3cret\n"),
            "header `x`: its value cannot be sent",
        ),
        (
            provider.post("x").header("host", "evil"),
            "header `host`: it is set by HTTP itself",
        ),
        (
            provider.post("x").bytes("a\nb", "s3cret"),
            "its content type cannot be sent",
        ),
        (
            provider.post("x").json(&Never),
            "its body cannot be written as JSON",
        ),
    ] {
        let problem = request.send().await.unwrap_err();
        let told = problem.to_string();
        assert!(told.contains(why) && !told.contains("s3cret"), "{told}");
        assert_eq!(Failure::from(problem).class, Class::Permanent);
    }
    for (url, why) in [
        ("ftp://a.example", "url: only https:// can be sent to"),
        (
            "https://user:s3cret@a.example",
            "a user or password in a URL is refused",
        ),
        ("http://8.8.8.8/", "only https is allowed"),
    ] {
        let told = Provider::new(url).unwrap_err().to_string();
        assert!(told.contains(why) && !told.contains("s3cret"), "{told}");
    }
    let bad = Provider::new(&server.url())
        .unwrap()
        .header("x", "s3cret\n");
    let told = bad.unwrap_err().to_string();
    assert!(!told.contains("s3cret"), "{told}");
}
