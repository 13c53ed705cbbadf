//! The provider itself: what the program `fake-provider` runs.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::serve::{IncomingStream, Listener};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use super::ledger::Ledger;
use super::{Behaviour, Refuse, order};

struct Books {
    path: PathBuf,
    ledger: Mutex<Ledger>,
    behaviour: Mutex<Behaviour>,
}

/// Opens its books, new or as they were, and answers from them.
///
/// # Errors
/// If a ledger cannot be opened or is none.
pub fn open(ledger: PathBuf, behaviour: Behaviour) -> io::Result<Router> {
    let opened = Ledger::open(&ledger)?;
    let orders = order::routes(&order::beside(&ledger))?;
    let books = Books {
        path: ledger,
        ledger: Mutex::new(opened),
        behaviour: Mutex::new(behaviour),
    };
    let app = Router::new()
        .route("/send", post(send))
        .route("/sent/{key}", get(sent))
        .route("/ledger", get(read))
        .route("/behaviour", put(behave))
        .with_state(Arc::new(books));
    Ok(app.merge(orders))
}

/// Serves until the process ends.
///
/// # Errors
/// If the listener fails.
pub async fn serve(listener: TcpListener, app: Router) -> io::Result<()> {
    axum::serve(
        Droppable(listener),
        app.into_make_service_with_connect_info::<Cut>(),
    )
    .await
}

async fn send(
    State(books): State<Arc<Books>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    headers: HeaderMap,
    body: String,
) -> Response {
    let behaviour = lock(&books.behaviour).next();
    match behaviour.refuse {
        Some(Refuse::Throttle(seconds)) => {
            return (
                StatusCode::TOO_MANY_REQUESTS,
                [(header::RETRY_AFTER, seconds.to_string())],
            )
                .into_response();
        }
        Some(Refuse::Broken) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Some(Refuse::Reject) => return StatusCode::UNPROCESSABLE_ENTITY.into_response(),
        None => {}
    }
    let body = serde_json::from_str(&body).unwrap_or(Value::String(body));
    let named = headers
        .get(HeaderName::from_static("idempotency-key"))
        .and_then(|key| key.to_str().ok());
    let key = named
        .or_else(|| body.get("id").and_then(Value::as_str))
        .map(str::to_owned);
    // fsync blocks: not in the runtime's own threads.
    let entered =
        tokio::task::spawn_blocking(move || books.enter(key, behaviour.ignore_keys, body)).await;
    let Ok(Ok(repeat)) = entered else {
        return StatusCode::INSUFFICIENT_STORAGE.into_response();
    };
    if behaviour.drop_reply {
        cut.after(0);
    }
    tokio::time::sleep(Duration::from_millis(behaviour.slow_ms)).await;
    Json(json!({ "sent": true, "repeat": repeat })).into_response()
}

async fn sent(State(books): State<Arc<Books>>, Path(key): Path<String>) -> StatusCode {
    if lock(&books.ledger).knows(&key) {
        StatusCode::OK
    } else {
        StatusCode::NOT_FOUND
    }
}

async fn read(State(books): State<Arc<Books>>) -> Result<String, StatusCode> {
    std::fs::read_to_string(&books.path).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn behave(State(books): State<Arc<Books>>, Json(behaviour): Json<Behaviour>) -> StatusCode {
    *lock(&books.behaviour) = behaviour;
    StatusCode::NO_CONTENT
}

impl Books {
    /// True if it was a repeat.
    fn enter(&self, key: Option<String>, ignore_keys: bool, body: Value) -> io::Result<bool> {
        let mut ledger = lock(&self.ledger);
        let repeat = !ignore_keys && key.as_deref().is_some_and(|key| ledger.knows(key));
        ledger.enter(key, repeat, body)?;
        Ok(repeat)
    }
}

impl Behaviour {
    /// What holds for one request.
    fn next(&mut self) -> Self {
        match &mut self.times {
            None => self.clone(),
            Some(0) => Self::default(),
            Some(left) => {
                *left -= 1;
                self.clone()
            }
        }
    }
}

/// How many more bytes may be written to this connection.
#[derive(Clone, Debug)]
pub(super) struct Cut(Arc<AtomicUsize>);

impl Cut {
    /// So many more, and then it is closed.
    pub(super) fn after(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Release);
    }
}

impl Connected<IncomingStream<'_, Droppable>> for Cut {
    fn connect_info(stream: IncomingStream<'_, Droppable>) -> Self {
        stream.io().cut.clone()
    }
}

/// Accepts connections that a handler can end without an answer.
pub(super) struct Droppable(TcpListener);

pub(super) struct Connection {
    stream: TcpStream,
    cut: Cut,
}

impl Listener for Droppable {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        (
            Connection {
                stream,
                cut: Cut(Arc::new(AtomicUsize::new(usize::MAX))),
            },
            address,
        )
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let left = self.cut.0.load(Ordering::Acquire);
        if left == 0 {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let buf = &buf[..buf.len().min(left)];
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        if left != usize::MAX {
            self.cut.after(left - written);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
