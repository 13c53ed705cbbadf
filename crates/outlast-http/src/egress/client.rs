//! One request, from the name to the end of the answer.

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header::HOST};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::{
    NoRoots, Problem, Resolve, Rules, SystemResolver, Target,
    body::{self, Ended},
    connect::{self, Connection, HEAD_BYTES, Idle},
};

/// How long the rest of an answer that is no success is waited for: only so that its connection can be used again.
const REST: Duration = Duration::from_millis(500);

/// How much a request may take besides its own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// To resolve the name and to connect. 5 s.
    pub connect: Duration,
    /// Of an answer's body. 64 KiB.
    pub answer_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer_bytes: 64 * 1024,
        }
    }
}

/// What a [`Client`] is made of.
///
/// ```
/// use outlast_http::egress::{Egress, Rules};
///
/// let client = Egress::new(Rules::new().allow("10.1.0.0/16".parse::<outlast_http::egress::Net>()?)).client()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "make a client of it"]
pub struct Egress {
    rules: Rules,
    resolver: Arc<dyn Resolve>,
    trusted: Vec<CertificateDer<'static>>,
    limits: Limits,
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress")
            .field("rules", &self.rules)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Egress {
    /// The system's resolver and certificates, the default limits.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            resolver: Arc::new(SystemResolver),
            trusted: Vec::new(),
            limits: Limits::default(),
        }
    }

    /// Another resolver.
    pub fn resolver(mut self, resolver: impl Resolve) -> Self {
        self.resolver = Arc::new(resolver);
        self
    }

    /// Trusts this authority besides those of the system.
    pub fn trust(mut self, authority: CertificateDer<'static>) -> Self {
        self.trusted.push(authority);
        self
    }

    /// Other limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Reads the system's certificates.
    ///
    /// # Errors
    /// [`NoRoots`] when nobody is trusted.
    pub fn client(self) -> Result<Client, NoRoots> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(self.trusted);
        if roots.is_empty() {
            return Err(NoRoots);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring knows TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Client(Arc::new(Inner {
            rules: self.rules,
            resolver: self.resolver,
            tls: TlsConnector::from(Arc::new(tls)),
            limits: self.limits,
            idle: Idle::default(),
        })))
    }
}

/// Sends requests to where they may go. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Client").field(&self.0.rules).finish()
    }
}

struct Inner {
    rules: Rules,
    resolver: Arc<dyn Resolve>,
    tls: TlsConnector,
    limits: Limits,
    idle: Idle,
}

/// An answer. A success has come to its end; of others only the head counts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answered {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
}

/// An answer with as much of its body as may be.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The body came to its end. A success always has.
    pub(crate) is_whole: bool,
}

/// What is sent, and how much it may take.
pub(crate) struct Sending {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// From the name's resolution to the last byte of the answer.
    pub(crate) within: Duration,
    /// The most bytes of the answer's body.
    pub(crate) answer_bytes: usize,
}

impl Client {
    /// Where it may go.
    pub fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// Sends one request, once, and reads the answer to its end, all of it within this time.
    ///
    /// # Errors
    /// [`Problem::may_have_arrived`] tells whether it may have had an effect.
    pub async fn post(
        &self,
        target: &Target,
        headers: HeaderMap,
        body: Bytes,
        within: Duration,
    ) -> Result<Answered, Problem> {
        let sending = Sending {
            method: Method::POST,
            headers,
            body,
            within,
            answer_bytes: self.0.limits.answer_bytes,
        };
        // Of what is no success nothing but the head counts.
        let received = self.exchange(target, sending, |_| REST).await?;
        Ok(Answered {
            status: received.status,
            headers: received.headers,
        })
    }

    /// Sends one request, once, and keeps the answer's body.
    ///
    /// # Errors
    /// [`Problem::may_have_arrived`] tells whether it may have had an effect.
    pub(crate) async fn send(
        &self,
        target: &Target,
        sending: Sending,
    ) -> Result<Received, Problem> {
        self.exchange(target, sending, |left| left).await
    }

    /// `rest`: how much of the time that is left the body of what is no success may take.
    async fn exchange(
        &self,
        target: &Target,
        sending: Sending,
        rest: fn(Duration) -> Duration,
    ) -> Result<Received, Problem> {
        let (within, limit) = (sending.within, sending.answer_bytes);
        let deadline = Instant::now() + within;
        let addresses = self.addresses(target, within).await?;
        self.0.rules.judge(target, &addresses)?;
        let host = || target.host().to_owned();
        let mut request =
            request(target, sending).ok_or_else(|| Problem::Unsent { host: host() })?;
        loop {
            let idle = self.ready(target, &addresses).await;
            let was_idle = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let within = left.min(self.0.limits.connect);
                    connect::connect(target, &addresses, &self.0.tls, within).await?
                }
            };
            let sent = connection.sender.try_send_request(request);
            match tokio::time::timeout_at(deadline, sent).await {
                Ok(Ok(answer)) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let until = match answer.status().is_success() {
                        true => deadline,
                        false => deadline.min(Instant::now() + rest(left)),
                    };
                    return self
                        .read(target, connection, answer, (until, within, limit))
                        .await;
                }
                Ok(Err(mut error)) => match error.take_message() {
                    // Closed by the other side before anything was written: a new connection is no second attempt.
                    Some(unsent) if was_idle => request = unsent,
                    Some(_) => return Err(Problem::Unsent { host: host() }),
                    None if error.error().is_parse() => {
                        return Err(Problem::NotHttp { limit: HEAD_BYTES });
                    }
                    None => return Err(Problem::Broken),
                },
                Err(_) => return Err(Problem::NoAnswer { within }),
            }
        }
    }

    /// Every address that the name has now.
    async fn addresses(&self, target: &Target, within: Duration) -> Result<Vec<IpAddr>, Problem> {
        if let Some(address) = target.address() {
            return Ok(vec![address]);
        }
        let resolving = self.0.resolver.resolve(target.host());
        let within = within.min(self.0.limits.connect);
        let resolved = tokio::time::timeout(within, resolving).await;
        let found = match resolved {
            Ok(Ok(found)) if found.is_empty() => Err(std::io::Error::new(
                std::io::ErrorKind::NotFound,
                "it has no address",
            )),
            Ok(answer) => answer,
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        };
        found.map_err(|why| Problem::Unresolved {
            host: target.host().to_owned(),
            why,
        })
    }

    /// An idle connection that takes another request.
    async fn ready(&self, target: &Target, addresses: &[IpAddr]) -> Option<Connection> {
        while let Some(mut connection) = self.0.idle.take(target, addresses) {
            let ready = connection.sender.ready();
            if let Ok(Ok(())) = tokio::time::timeout(REST, ready).await {
                return Some(connection);
            }
        }
        None
    }

    async fn read(
        &self,
        target: &Target,
        connection: Connection,
        answer: Response<Incoming>,
        (until, within, limit): (Instant, Duration, usize),
    ) -> Result<Received, Problem> {
        let (head, body) = answer.into_parts();
        let (body, ended) = body::to_its_end(body, limit, until).await;
        let is_whole = matches!(ended, Ended::Whole);
        if is_whole {
            self.0.idle.put(target, connection);
        } else if head.status.is_success() {
            let status = head.status.as_u16();
            return Err(match ended {
                Ended::TooLarge => Problem::TooLarge { status, limit },
                Ended::Late => Problem::Late { status, within },
                _ => Problem::Cut { status },
            });
        }
        // Of others the head counts, whatever became of the body. The connection goes.
        Ok(Received {
            status: head.status,
            headers: head.headers,
            body,
            is_whole,
        })
    }
}

fn request(target: &Target, sending: Sending) -> Option<Request<Full<Bytes>>> {
    let mut request = Request::new(Full::new(sending.body));
    *request.method_mut() = sending.method;
    *request.uri_mut() = target.path().parse().ok()?;
    *request.headers_mut() = sending.headers;
    let authority = target.authority().parse().ok()?;
    request.headers_mut().insert(HOST, authority);
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::Net;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    /// Goal: what the other side has closed meanwhile is no failed attempt. Method: a server that says nothing of it and
    /// hangs up after each answer; the next request comes when our side has seen that.
    #[tokio::test]
    async fn an_idle_connection_that_was_closed_costs_no_attempt() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut some = [0; 4096];
                let _ = stream.read(&mut some).await;
                let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                let _ = stream.write_all(ok).await;
            }
        });
        let rules = Rules::new().allow("127.0.0.1".parse::<Net>().unwrap());
        let client = Egress::new(rules).client().unwrap();
        let target = Target::parse(&url).unwrap();
        for _ in 0..3 {
            let within = Duration::from_secs(5);
            let sent = client.post(&target, HeaderMap::new(), Bytes::new(), within);
            assert_eq!(sent.await.unwrap().status, StatusCode::OK);
            let seen = async {
                let here = [target.address().unwrap()];
                while let Some(connection) = client.0.idle.take(&target, &here) {
                    client.0.idle.put(&target, connection);
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(within, seen)
                .await
                .expect("it is seen");
        }
    }
}
