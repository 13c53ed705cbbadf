//! Where requests go, and what an answer may not do to us.

use std::{
    collections::VecDeque,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, StatusCode};
use outlast_core::broker::BoxFuture;
use outlast_http::egress::{Client, Egress, Net, Problem, Refusal, Resolve, Rules, Target};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::server::{answer, drip, plain, raw, serve};

const SOON: Duration = Duration::from_secs(5);

/// Answers one list after the other; the last one again and again.
#[derive(Clone)]
pub(crate) struct Names(Arc<Mutex<VecDeque<Vec<IpAddr>>>>);

impl Names {
    pub(crate) fn lead_to(lists: &[&[&str]]) -> Self {
        let parsed = |list: &&[&str]| {
            list.iter()
                .map(|address| address.parse().unwrap())
                .collect()
        };
        Self(Arc::new(Mutex::new(lists.iter().map(parsed).collect())))
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let mut lists = self.0.lock().unwrap();
        let list = match lists.len() {
            1 => lists[0].clone(),
            _ => lists.pop_front().unwrap_or_default(),
        };
        Box::pin(async move { Ok(list) })
    }
}

fn loopback() -> Rules {
    Rules::new().allow("127.0.0.1".parse::<Net>().unwrap())
}

fn client() -> Client {
    Egress::new(loopback()).client().unwrap()
}

async fn post(client: &Client, url: &str, within: Duration) -> Result<StatusCode, Problem> {
    let target = Target::parse(url).unwrap();
    let sent = client.post(&target, HeaderMap::new(), Bytes::from_static(b"{}"), within);
    sent.await.map(|answered| answered.status)
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused_before_anybody_is_spoken_to() {
    let (server, connections) = raw(|_| async {}).await;
    let port = server.address.port();
    for list in [
        &["127.0.0.1"][..],
        &["8.8.8.8", "127.0.0.1"],
        &["8.8.8.8", "::1"],
        &["::ffff:127.0.0.1"],
    ] {
        let rules = Rules::new().port(port);
        let client = Egress::new(rules)
            .resolver(Names::lead_to(&[list]))
            .client()
            .unwrap();
        let problem = post(&client, &format!("https://hooks.example:{port}/"), SOON)
            .await
            .unwrap_err();
        assert!(
            matches!(problem, Problem::Refused(Refusal::Address { .. })),
            "{list:?}: {problem}"
        );
        assert!(!problem.may_have_arrived());
        assert!(
            !problem.to_string().contains("127.0.0"),
            "what it leads to is not told: {problem}"
        );
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_name_is_judged_at_every_attempt_also_where_a_connection_is_open() {
    let server = serve(|_| async { answer(200, &[]) }).await;
    let names = Names::lead_to(&[&["127.0.0.1"], &["127.0.0.1"], &["127.0.0.2"], &[]]);
    let client = Egress::new(loopback()).resolver(names).client().unwrap();
    let url = format!("http://hooks.example:{}/", server.address.port());
    for _ in 0..2 {
        assert_eq!(post(&client, &url, SOON).await.unwrap(), StatusCode::OK);
    }
    let rebound = post(&client, &url, SOON).await.unwrap_err();
    assert!(matches!(rebound, Problem::Refused(_)), "{rebound}");
    let nowhere = post(&client, &url, SOON).await.unwrap_err();
    assert!(matches!(nowhere, Problem::Unresolved { .. }), "{nowhere}");
}

#[tokio::test]
async fn the_connection_goes_to_an_address_that_was_judged_and_stays_for_the_next_request() {
    let (server, connections) = raw(|mut stream| async move {
        loop {
            let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            if stream.write_all(ok).await.is_err() {
                return;
            }
            let mut rest = [0; 1024];
            let mut seen = Vec::new();
            while !seen.windows(4).any(|four| four == b"\r\n\r\n") {
                match stream.read(&mut rest).await {
                    Ok(0) | Err(_) => return,
                    Ok(n) => seen.extend_from_slice(&rest[..n]),
                }
            }
        }
    })
    .await;
    // Of both only one answers; the other refuses the connection.
    let rules = Rules::new().allow("127.0.0.0/8".parse::<Net>().unwrap());
    let names = Names::lead_to(&[&["127.0.0.3", "127.0.0.1"]]);
    let client = Egress::new(rules).resolver(names).client().unwrap();
    let url = format!("http://hooks.example:{}/", server.address.port());
    for _ in 0..3 {
        assert_eq!(post(&client, &url, SOON).await.unwrap(), StatusCode::OK);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_not_followed() {
    let (inside, connections) = raw(|_| async {}).await;
    let to = inside.url();
    let server = serve(move |_| {
        let to = to.clone();
        async move { answer(307, &[("location", &to)]) }
    })
    .await;
    let status = post(&client(), &server.url(), SOON).await.unwrap();
    assert_eq!(status, StatusCode::TEMPORARY_REDIRECT);
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn ten_megabytes_are_cut_whether_their_length_is_told_or_not() {
    const TEN: usize = 10 << 20;
    let told = serve(|_| async { plain(StatusCode::OK, vec![b'x'; TEN]) }).await;
    let untold = serve(|_| async {
        let chunk = || Ok::<_, io::Error>(Bytes::from(vec![b'x'; 64 << 10]));
        let chunks = stream::iter((0..TEN / (64 << 10)).map(move |_| chunk()));
        plain(StatusCode::OK, Body::from_stream(chunks))
    })
    .await;
    for server in [&told, &untold] {
        let problem = post(&client(), &server.url(), SOON).await.unwrap_err();
        assert!(
            matches!(
                problem,
                Problem::TooLarge {
                    status: 200,
                    limit: 65_536
                }
            ),
            "{problem}"
        );
        assert!(problem.may_have_arrived());
    }
    // Of what is no success only the head counts.
    let failed = serve(|_| async { plain(StatusCode::BAD_REQUEST, vec![b'x'; TEN]) }).await;
    assert_eq!(
        post(&client(), &failed.url(), SOON).await.unwrap(),
        StatusCode::BAD_REQUEST
    );
}

/// Goal: a server that writes without end is cut off, not read. Method: it counts what it could write.
#[tokio::test]
async fn an_endless_answer_is_not_read_to_any_end() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let tell = Arc::new(Mutex::new(Some(tell)));
    let (server, _) = raw(move |mut stream| {
        let tell = tell.lock().unwrap().take();
        async move {
            let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
            let mut written = 0;
            stream.write_all(head).await.unwrap();
            while let Ok(n) = stream.write(&[b'x'; 16 << 10]).await {
                written += n;
            }
            let _ = tell.unwrap().send(written);
        }
    })
    .await;
    let problem = post(&client(), &server.url(), SOON).await.unwrap_err();
    assert!(matches!(problem, Problem::TooLarge { .. }), "{problem}");
    let written = tokio::time::timeout(SOON, told)
        .await
        .expect("its connection is closed")
        .unwrap();
    // What the sockets of both sides hold, and no more.
    assert!(written < 16 << 20, "{written}");
}

#[tokio::test]
async fn an_answer_that_ends_early_breaks_or_is_no_http_is_told_apart() {
    let says = |text: &'static str| {
        raw(move |mut stream| async move {
            let _ = stream.write_all(text.as_bytes()).await;
            let _ = stream.shutdown().await;
        })
    };
    let (early, _) = says("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nok").await;
    let problem = post(&client(), &early.url(), SOON).await.unwrap_err();
    assert!(matches!(problem, Problem::Cut { status: 200 }), "{problem}");
    let (half, _) = says("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhe").await;
    let problem = post(&client(), &half.url(), SOON).await.unwrap_err();
    assert!(matches!(problem, Problem::Cut { status: 200 }), "{problem}");
    let (failed, _) = says("HTTP/1.1 500 No\r\ncontent-length: 100\r\n\r\nok").await;
    let status = post(&client(), &failed.url(), SOON).await.unwrap();
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    let (nothing, _) = says("").await;
    let problem = post(&client(), &nothing.url(), SOON).await.unwrap_err();
    assert!(matches!(problem, Problem::Broken), "{problem}");
    let (garbage, _) = says("SSH-2.0-OpenSSH_9.7\r\n").await;
    let problem = post(&client(), &garbage.url(), SOON).await.unwrap_err();
    assert!(matches!(problem, Problem::NotHttp { .. }), "{problem}");
    let (long, _) = raw(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
        let line = format!("x-long: {}\r\n", "x".repeat(1000));
        while stream.write_all(line.as_bytes()).await.is_ok() {}
    })
    .await;
    let problem = post(&client(), &long.url(), SOON).await.unwrap_err();
    assert!(matches!(problem, Problem::NotHttp { .. }), "{problem}");
    for problem in [Problem::Broken, Problem::Cut { status: 200 }] {
        assert!(problem.may_have_arrived());
    }
}

#[tokio::test]
async fn who_never_answers_or_drips_is_given_up_in_time() {
    let within = Duration::from_millis(300);
    let (silent, _) = raw(|stream| async move {
        let _held = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let (slow_head, _) = raw(|stream| drip(stream, "HTTP/1.1 200 OK\r\nx-slow: ")).await;
    let (slow_body, _) =
        raw(|stream| drip(stream, "HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n")).await;
    let begun = Instant::now();
    for server in [&silent, &slow_head] {
        let problem = post(&client(), &server.url(), within).await.unwrap_err();
        assert!(matches!(problem, Problem::NoAnswer { .. }), "{problem}");
    }
    let problem = post(&client(), &slow_body.url(), within).await.unwrap_err();
    assert!(
        matches!(problem, Problem::Late { status: 200, .. }),
        "{problem}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
}

/// The authority, and a server with a certificate of it for `hooks.example`.
async fn encrypted() -> (u16, CertificateDer<'static>, tokio::task::JoinHandle<()>) {
    let certificate = |pem: &'static [u8]| CertificateDer::from_pem_slice(pem).unwrap();
    let authority = certificate(include_bytes!("tls/authority.pem"));
    let own = certificate(include_bytes!("tls/server.pem"));
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut some = [0; 4096];
            let _ = stream.read(&mut some).await;
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    });
    (port, authority, serving)
}

#[tokio::test]
async fn a_certificate_must_be_of_a_trusted_authority_and_for_this_name() {
    let (port, authority, _serving) = encrypted().await;
    let trusting = || {
        let names = Names::lead_to(&[&["127.0.0.1"]]);
        Egress::new(loopback()).resolver(names)
    };
    let untrusted = trusting().client().unwrap();
    let problem = post(&untrusted, &format!("https://hooks.example:{port}/"), SOON)
        .await
        .unwrap_err();
    assert!(
        matches!(problem, Problem::Tls { .. }) && !problem.may_have_arrived(),
        "{problem}"
    );
    let trusted = trusting().trust(authority).client().unwrap();
    let problem = post(&trusted, &format!("https://other.example:{port}/"), SOON)
        .await
        .unwrap_err();
    assert!(matches!(problem, Problem::Tls { .. }), "{problem}");
    let status = post(&trusted, &format!("https://hooks.example:{port}/"), SOON)
        .await
        .unwrap();
    assert_eq!(status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn nobody_listens_is_no_connection() {
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let problem = post(&client(), &format!("http://127.0.0.1:{port}/"), SOON)
        .await
        .unwrap_err();
    assert!(
        matches!(problem, Problem::Unconnected { .. }) && !problem.may_have_arrived(),
        "{problem}"
    );
}
