//! One call to the server: one attempt, with a time, and an honest word on whether it may have arrived.
//!
//! The connection is made when it is needed and again when it broke. A server that says nothing at all cannot be told from
//! a connection that is dead without a word (a proxy that froze, a machine that is gone): so a call whose time ran out takes
//! the connection out of use. Pings would find it too, but Google's servers end connections that ping more than they like.

use std::{
    error::Error as _,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use bytes::Bytes;
use google_cloud_auth::credentials::{
    self, CacheableResource, Credentials, external_account, impersonated, service_account,
    user_account,
};
use outlast_core::broker::{BrokerError, Why};
use tokio::time::{Instant, timeout_at};
use tonic::{
    Code, ConnectError, Request, TimeoutExpired,
    client::Grpc,
    codegen::http::{Extensions, HeaderMap, HeaderValue, uri::PathAndQuery},
    transport::{Channel, ClientTlsConfig, Endpoint},
};
use tonic_prost::ProstCodec;

use crate::{
    Options,
    options::{EMULATOR, Place},
    wire::Call,
};

const SCOPES: [&str; 1] = ["https://www.googleapis.com/auth/pubsub"];
/// 1,000 messages of 10 MB would be more than anybody asks for; what the server gives at once is about 10 MB.
const ANSWER_BYTES: usize = 64 << 20;
const WINDOW_BYTES: u32 = 16 << 20;

/// The way to the server.
pub(crate) struct Rpc {
    endpoint: Endpoint,
    credentials: Option<Credentials>,
    current: RwLock<(u64, Option<Channel>)>,
}

/// A call that was not answered with what was asked for.
#[derive(Debug)]
pub(crate) struct Failed {
    /// It may have arrived. False: it did not, for certain.
    pub(crate) sent: bool,
    /// The time was over before it could be tried.
    pub(crate) tried: bool,
    pub(crate) code: Code,
    pub(crate) reason: String,
    /// `google.rpc.Status`, encoded.
    pub(crate) details: Bytes,
}

impl Failed {
    fn before(code: Code, reason: impl Into<String>) -> Self {
        Self {
            sent: false,
            tried: true,
            code,
            reason: reason.into(),
            details: Bytes::new(),
        }
    }

    /// Its time was over.
    pub(crate) fn not_tried() -> Self {
        Self {
            tried: false,
            ..Self::before(
                Code::DeadlineExceeded,
                "the time was over before it was sent",
            )
        }
    }

    fn unanswered() -> Self {
        Self {
            sent: true,
            ..Self::before(Code::DeadlineExceeded, "no answer in time")
        }
    }

    /// It was answered, and not as it should be.
    pub(crate) fn strange(reason: String) -> Self {
        Self {
            sent: true,
            ..Self::before(Code::Unknown, reason)
        }
    }

    /// Nothing came in the time that was given.
    pub(crate) fn is_timeout(&self) -> bool {
        self.code == Code::DeadlineExceeded
    }
}

impl Rpc {
    /// Reads the credentials; connects to nothing yet.
    pub(crate) fn new(options: &Options) -> Result<Self, BrokerError> {
        let wrong = |why: String| BrokerError::new(Why::Configuration, why);
        let emulator = std::env::var(EMULATOR).ok();
        let problems = options.problems_with(emulator.as_deref());
        if !problems.is_empty() {
            return Err(wrong(problems.join("; ")));
        }
        let Place { uri, anonymous } = options.place(emulator.as_deref()).map_err(wrong)?;
        let mut endpoint = Endpoint::from_shared(uri)
            .and_then(|endpoint| {
                endpoint.user_agent(concat!("outlast/", env!("CARGO_PKG_VERSION")))
            })
            .map_err(|why| wrong(chain(&why)))?
            .connect_timeout(options.connect_within)
            .tcp_keepalive(Some(Duration::from_secs(30)))
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        // Without credentials only in clear: nothing anonymous goes to a server that asks for TLS.
        let credentials = if anonymous {
            None
        } else {
            // Whoever uses another provider of cryptography has set it; then this one is not taken.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let tls = ClientTlsConfig::new().with_native_roots();
            endpoint = endpoint.tls_config(tls).map_err(|why| wrong(chain(&why)))?;
            Some(self::credentials(options)?)
        };
        Ok(Self {
            endpoint,
            credentials,
            current: RwLock::new((0, None)),
        })
    }

    /// One attempt. Its answer, or why there is none. A server that says nothing loses the connection.
    pub(crate) async fn call<C: Call>(&self, call: C, until: Instant) -> Result<C::Answer, Failed> {
        let (number, channel) = self.channel();
        let answer = self.on(channel, call, until).await;
        if answer
            .as_ref()
            .is_err_and(|failed| failed.sent && failed.is_timeout())
        {
            self.renew(number);
        }
        answer
    }

    /// One attempt of a call whose answer may be long in coming: silence is no sign of anything.
    pub(crate) async fn wait<C: Call>(&self, call: C, until: Instant) -> Result<C::Answer, Failed> {
        let (_, channel) = self.channel();
        self.on(channel, call, until).await
    }

    async fn on<C: Call>(
        &self,
        channel: Channel,
        call: C,
        until: Instant,
    ) -> Result<C::Answer, Failed> {
        let signed = timeout_at(until, self.sign()).await;
        let headers = signed.unwrap_or_else(|_| Err(Failed::not_tried()))?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failed::not_tried());
        }
        let (name, value) = call.about();
        let about = HeaderValue::try_from(format!("{name}={}", value.replace('/', "%2F")));
        let mut request = Request::new(call);
        request.set_timeout(left);
        let metadata: &mut HeaderMap = request.metadata_mut().as_mut();
        metadata.extend(headers);
        // What the call is about is in its body; the server's routers read it here.
        if let Ok(about) = about {
            metadata.insert("x-goog-request-params", about);
        }
        let mut grpc = Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES);
        let asked = async {
            let ready = grpc.ready().await;
            ready.map_err(|why| Failed::before(Code::Unavailable, chain(&why)))?;
            let path = PathAndQuery::from_static(C::PATH);
            let answer = grpc.unary(request, path, ProstCodec::<C, C::Answer>::default());
            answer.await.map_err(|status| failed(&status))
        };
        let answer = timeout_at(until, asked).await;
        answer
            .unwrap_or_else(|_| Err(Failed::unanswered()))
            .map(tonic::Response::into_inner)
    }

    async fn sign(&self) -> Result<HeaderMap, Failed> {
        let Some(credentials) = &self.credentials else {
            return Ok(HeaderMap::new());
        };
        match credentials.headers(Extensions::new()).await {
            Ok(CacheableResource::New { data, .. }) => Ok(data),
            Ok(CacheableResource::NotModified) => {
                Err(Failed::before(Code::Internal, "no credentials were given"))
            }
            Err(why) if why.is_transient() => Err(Failed::before(Code::Unavailable, chain(&why))),
            Err(why) => Err(Failed::before(Code::Unauthenticated, chain(&why))),
        }
    }

    fn channel(&self) -> (u64, Channel) {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        if let (number, Some(channel)) = &*current {
            return (*number, channel.clone());
        }
        drop(current);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let (number, channel) = &mut *current;
        let channel = channel.get_or_insert_with(|| self.endpoint.connect_lazy());
        (*number, channel.clone())
    }

    /// The next call makes a new connection, unless that has been done since this one was taken.
    fn renew(&self, seen: u64) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.0 == seen {
            *current = (seen + 1, None);
            tracing::warn!("Pub/Sub does not answer: its connection is given up");
        }
    }
}

/// What a status of gRPC says, and whether the call left us.
fn failed(status: &tonic::Status) -> Failed {
    let late = behind::<TimeoutExpired>(status);
    Failed {
        sent: !behind::<ConnectError>(status),
        tried: true,
        code: if late {
            Code::DeadlineExceeded
        } else {
            status.code()
        },
        reason: status_text(status),
        details: Bytes::copy_from_slice(status.details()),
    }
}

fn credentials(options: &Options) -> Result<Credentials, BrokerError> {
    let wrong = |why: String| BrokerError::new(Why::Denied, why);
    let Some(file) = &options.credentials_file else {
        let own = credentials::Builder::default().with_scopes(SCOPES).build();
        return own.map_err(|why| wrong(format!("credentials of this machine: {}", chain(&why))));
    };
    let named = |why: String| wrong(format!("credentials_file {}: {why}", file.display()));
    let text = std::fs::read(file).map_err(|why| named(why.to_string()))?;
    // The words of the parser could quote the key.
    let key: serde_json::Value =
        serde_json::from_slice(&text).map_err(|_| named("it is not JSON".into()))?;
    let kind = key["type"].as_str().unwrap_or_default().to_owned();
    let built = match kind.as_str() {
        "service_account" => service_account::Builder::new(key)
            .with_access_specifier(service_account::AccessSpecifier::from_scopes(SCOPES))
            .build(),
        "authorized_user" => user_account::Builder::new(key).with_scopes(SCOPES).build(),
        "external_account" => external_account::Builder::new(key)
            .with_scopes(SCOPES)
            .build(),
        "impersonated_service_account" => {
            impersonated::Builder::new(key).with_scopes(SCOPES).build()
        }
        _ => {
            return Err(named(
                "its type is none of service_account, authorized_user, external_account, impersonated_service_account"
                    .into(),
            ));
        }
    };
    built.map_err(|why| named(chain(&why)))
}

/// Whether such an error is behind a status.
fn behind<E: std::error::Error + 'static>(status: &tonic::Status) -> bool {
    let mut next = status.source();
    while let Some(cause) = next {
        if cause.is::<E>() {
            return true;
        }
        next = cause.source();
    }
    false
}

/// Its words, and what is behind them; a status prints itself with all of its fields.
fn status_text(status: &tonic::Status) -> String {
    let behind = status.source().map(chain).unwrap_or_default();
    match (status.message(), behind.as_str()) {
        ("", "") => status.code().to_string(),
        ("", behind) => behind.to_owned(),
        (said, behind) if behind.is_empty() || behind.contains(said) || said.contains(behind) => {
            said.to_owned()
        }
        (said, behind) => format!("{said}: {behind}"),
    }
}

/// An error and what is behind it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}
