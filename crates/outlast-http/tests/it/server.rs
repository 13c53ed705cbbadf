//! Real servers on loopback: one that answers as it is told, and one that breaks the rules.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Response, StatusCode},
};
use futures_util::future::BoxFuture;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Got {
    /// A header, or nothing.
    pub(crate) fn header(&self, name: &str) -> String {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    }

    /// The number in the body.
    pub(crate) fn n(&self) -> i64 {
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        body["n"].as_i64().unwrap()
    }
}

type Answer = Response<Body>;
type Answers = Arc<dyn Fn(Got) -> BoxFuture<'static, Answer> + Send + Sync>;

/// A server; gone when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }
}

/// A status and headers.
pub(crate) fn answer(status: u16, headers: &[(&str, &str)]) -> Answer {
    let mut answer = Response::builder().status(status);
    for (name, value) in headers {
        answer = answer.header(*name, *value);
    }
    answer.body(Body::empty()).unwrap()
}

/// An HTTP server that answers like this.
pub(crate) async fn serve<F, Fut>(answers: F) -> Server
where
    F: Fn(Got) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve_on(listener, answers)
}

pub(crate) fn serve_on<F, Fut>(listener: TcpListener, answers: F) -> Server
where
    F: Fn(Got) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    async fn handle(State(answers): State<Answers>, headers: HeaderMap, body: Bytes) -> Answer {
        answers(Got { headers, body }).await
    }
    let address = listener.local_addr().unwrap();
    let answers: Answers = Arc::new(move |got| Box::pin(answers(got)));
    let app = Router::new().fallback(handle).with_state(answers);
    let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    Server { address, task }
}

/// A server that does this with each connection, once it has read the head of a request.
pub(crate) async fn raw<F, Fut>(behaves: F) -> (Server, Arc<AtomicUsize>)
where
    F: Fn(TcpStream) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    let task = tokio::spawn(async move {
        let behaves = Arc::new(behaves);
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let behaves = behaves.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                behaves(stream).await;
            });
        }
    });
    (Server { address, task }, connections)
}

/// Writes one byte after the other, slowly, until nobody listens any more.
pub(crate) async fn drip(mut stream: TcpStream, head: &str) {
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    while stream.write_all(b"x").await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The body is not read to its end.
pub(crate) fn plain(status: StatusCode, body: impl Into<Body>) -> Answer {
    Response::builder()
        .status(status)
        .body(body.into())
        .unwrap()
}
