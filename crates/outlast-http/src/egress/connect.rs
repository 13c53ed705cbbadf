//! Connections: to one of the addresses that were judged, and kept for some seconds.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinHandle,
    time::Instant,
};
use tokio_rustls::TlsConnector;

use super::{Problem, Target};

/// The most bytes of an answer's head, and the most lines of it.
pub(super) const HEAD_BYTES: usize = 32 * 1024;
const HEAD_LINES: usize = 100;
/// Many servers close what is idle after 5 s; a request that meets that counts as unknown.
const IDLE: Duration = Duration::from_secs(4);
/// Idle connections to one host.
const IDLE_MOST: usize = 16;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// One connection; ends when it is dropped, whatever it is doing.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    address: IpAddr,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Connects to one of these addresses; tries one after the other, all of them within this time.
pub(super) async fn connect(
    target: &Target,
    addresses: &[IpAddr],
    tls: &TlsConnector,
    within: Duration,
) -> Result<Connection, Problem> {
    let end = Instant::now() + within;
    let host = || target.host().to_owned();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    for (n, address) in addresses.iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - n).unwrap_or(u32::MAX);
        let to = SocketAddr::new(*address, target.port());
        match tokio::time::timeout(share, TcpStream::connect(to)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                return greet(target, *address, stream, tls, end).await;
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(Problem::Unconnected {
        host: host(),
        why: last,
    })
}

/// TLS where it is asked for, then HTTP.
async fn greet(
    target: &Target,
    address: IpAddr,
    stream: TcpStream,
    tls: &TlsConnector,
    end: Instant,
) -> Result<Connection, Problem> {
    let host = || target.host().to_owned();
    let stream: Box<dyn Stream> = if target.is_https() {
        let wrong = |why: io::Error| Problem::Tls { host: host(), why };
        let name = ServerName::try_from(host())
            .map_err(|error| wrong(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let greeted = tokio::time::timeout_at(end, tls.connect(name, stream)).await;
        let greeted = greeted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        Box::new(greeted.map_err(wrong)?)
    } else {
        Box::new(stream)
    };
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_LINES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Problem::Unsent { host: host() })?;
    let driver = tokio::spawn(async move {
        // Whoever has sent something is told by its own future.
        let _ = connection.await;
    });
    Ok(Connection {
        sender,
        address,
        driver,
    })
}

/// Connections that wait for another request, by scheme, host and port.
#[derive(Debug, Default)]
pub(super) struct Idle(Mutex<HashMap<String, Vec<(Connection, Instant)>>>);

impl Idle {
    /// The youngest one that leads to one of these addresses.
    pub(super) fn take(&self, target: &Target, addresses: &[IpAddr]) -> Option<Connection> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = all.get_mut(&key(target))?;
        kept.retain(|(connection, since)| {
            since.elapsed() < IDLE
                && !connection.sender.is_closed()
                && addresses.contains(&connection.address)
        });
        let taken = kept.pop().map(|(connection, _)| connection);
        if kept.is_empty() {
            all.remove(&key(target));
        }
        taken
    }

    pub(super) fn put(&self, target: &Target, connection: Connection) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = all.entry(key(target)).or_default();
        if kept.len() < IDLE_MOST {
            kept.push((connection, Instant::now()));
        }
    }
}

fn key(target: &Target) -> String {
    format!("{}:{}", target.is_https(), target.authority())
}
