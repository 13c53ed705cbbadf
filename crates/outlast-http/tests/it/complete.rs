//! Completion over HTTP, for endpoints without SQL.

use axum::Router;
use http::StatusCode;
use outlast_http::{complete::Complete, signature::sign};
use outlast_testkit::provider::{Answer, request};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::{net::TcpListener, sync::mpsc};
use uuid::Uuid;

use crate::{
    given::{endpoint, given, ids, keys, next, shop, verifier},
    server::{answer, serve},
};

async fn mounted(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

async fn call(to: SocketAddr, path: &str, body: &str) -> (u16, Value, Answer) {
    let answer = request(to, "POST", path, &[], body).await.unwrap();
    let body = serde_json::from_str(&answer.body).unwrap_or_default();
    (answer.status, body, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_completes_with_its_token_and_a_wrong_one_is_a_problem_with_a_code() {
    let given = given().await;
    let (tell, mut heard) = mpsc::unbounded_channel();
    let server = serve(move |got| {
        tell.send(got).unwrap();
        async { answer(202, &[("outlast-outcome", "accepted")]) }
    })
    .await;
    let to = mounted(Complete::new(given.pool.clone()).router()).await;
    given.emit(0..3).await;
    let worker = given.start([shop(endpoint(&server.url()))]);
    let (first, second, third) = (
        next(&mut heard).await,
        next(&mut heard).await,
        next(&mut heard).await,
    );
    let (token, id) = ids(&first);
    let done = json!({ "token": token, "id": id }).to_string();
    let other = json!({ "token": token, "id": Uuid::now_v7() }).to_string();
    let (status, problem, whole) = call(to, "/v1/complete", &other).await;
    assert_eq!((status, &problem["code"]), (409, &json!("OL003")));
    assert_eq!(
        whole.header("content-type"),
        Some("application/problem+json")
    );
    let lost = json!({ "token": Uuid::new_v4(), "id": id }).to_string();
    let (status, problem, _) = call(to, "/v1/complete", &lost).await;
    assert_eq!((status, &problem["code"]), (409, &json!("OL001")));
    assert_eq!(call(to, "/v1/complete", &done).await.0, 204);
    let (status, problem, _) = call(to, "/v1/complete", &done).await;
    assert_eq!(status, 409, "{problem}");
    let (token, id) = ids(&second);
    let skipped =
        json!({ "token": token, "id": id, "outcome": "skipped", "reason": "not ours" }).to_string();
    assert_eq!(call(to, "/v1/complete", &skipped).await.0, 204);
    let (token, id) = ids(&third);
    let failed =
        json!({ "token": token, "id": id, "class": "permanent", "reason": "no such booking" })
            .to_string();
    let (status, state, _) = call(to, "/v1/fail", &failed).await;
    assert_eq!((status, state), (200, json!({ "state": "quarantined" })));
    given
        .until("select count(*) from outlast.processed", 2)
        .await;
    let (_, _, reason) = given.parked("quarantined").await;
    assert_eq!(reason, "no such booking");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_refused_with_what_is_wrong() {
    let given = given().await;
    let to = mounted(Complete::new(given.pool.clone()).router()).await;
    let nobody = Uuid::nil();
    let with = |more: &str| format!("{{\"token\":\"{nobody}\",\"id\":\"{nobody}\"{more}}}");
    for (body, why) in [
        (String::new(), "EOF"),
        ("{".into(), "EOF"),
        ("[]".into(), "invalid length"),
        ("{\"token\":\"7\",\"id\":\"8\"}".into(), "UUID"),
        (with(",\"outcom\":\"done\""), "unknown field `outcom`"),
        (with(",\"outcome\":\"later\""), "outcome"),
        ("\u{0}\u{1}".into(), "expected"),
    ] {
        let (status, problem, _) = call(to, "/v1/complete", &body).await;
        assert_eq!(
            (status, &problem["code"]),
            (400, &json!("OL005")),
            "{body}: {problem}"
        );
        assert!(
            problem["detail"].as_str().unwrap_or_default().contains(why),
            "{body}: {problem}"
        );
    }
    let (status, ..) = call(
        to,
        "/v1/complete",
        &with(&format!(",\"reason\":\"{}\"", "x".repeat(20_000))),
    )
    .await;
    assert_eq!(status, 413);
    let (status, problem, _) = call(to, "/v1/fail", &with(",\"class\":\"later\"")).await;
    assert_eq!(
        (status, &problem["code"]),
        (400, &json!("OL005")),
        "{problem}"
    );
    let plain = reply(to, "text/plain", &with("")).await;
    assert_eq!(plain, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

/// The status, for another type of content.
async fn reply(to: SocketAddr, kind: &str, body: &str) -> StatusCode {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(to).await.unwrap();
    let head = format!(
        "POST /v1/complete HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn where_signatures_are_asked_for_a_token_alone_is_not_enough() {
    let given = given().await;
    let to = mounted(
        Complete::new(given.pool.clone())
            .signed(verifier())
            .router(),
    )
    .await;
    let body = json!({ "token": Uuid::nil(), "id": Uuid::nil() }).to_string();
    let (status, problem, _) = call(to, "/v1/complete", &body).await;
    assert_eq!(status, 401);
    assert!(
        problem.get("code").is_none() && problem.get("detail").is_none(),
        "why is not told: {problem}"
    );
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let signature = sign(&keys(), "call-1", now, body.as_bytes());
    let stamp = now.to_string();
    let headers = [
        ("webhook-id", "call-1"),
        ("webhook-timestamp", stamp.as_str()),
        ("webhook-signature", signature.as_str()),
    ];
    let answer = request(to, "POST", "/v1/complete", &headers, &body)
        .await
        .unwrap();
    assert_eq!(answer.status, 409, "signed, and of no lease");
}
