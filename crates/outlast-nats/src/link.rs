//! The connection: kept by the client, watched by us.
//!
//! The client reconnects by itself and for ever; what it was given in the meantime it sends then. So we give it nothing while
//! it has no connection, and what it has been given and is not answered is unknown, never "not sent".

use std::{sync::Arc, time::Duration};

use async_nats::{
    Client, ClientError, ConnectOptions, Event, HeaderMap, Message, PublishErrorKind, ServerAddr,
    ServerError, StatusCode, connection::State,
};
use bytes::Bytes;
use outlast_core::broker::{BrokerError, Why};
use tokio::{
    sync::{broadcast, watch},
    time::{Instant, sleep_until, timeout_at},
};

use crate::{NatsError, NatsSettings, acks::Acks};

/// A connection that says nothing is given up after three of them.
const PING: Duration = Duration::from_secs(2);
const CONNECT: Duration = Duration::from_secs(3);
/// How long who has just lost the connection waits for answers that are on their way within the process.
pub(crate) const GRACE: Duration = Duration::from_millis(100);
/// Older ones lose streams in a crash, or pass over what they do not know in a request.
const FLOOR: (u64, u64, u64) = (2, 10, 25);

#[derive(Debug)]
pub(crate) struct Link {
    client: Client,
    pub(crate) acks: Acks,
    news: watch::Receiver<News>,
    denials: broadcast::Sender<String>,
}

/// What the client has told.
#[derive(Clone, Debug, Default)]
struct News {
    /// How often the connection was lost.
    losses: u64,
    /// Why there is none.
    trouble: Option<String>,
    denied: bool,
}

/// Why a question has no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// It was not handed to the network.
    NotSent(String),
    /// Nobody is there to answer.
    NoResponders,
    /// The account may not say this.
    Denied(String),
    /// It was sent, and nothing came.
    Unknown(String),
}

impl Link {
    /// Connects in the background: a server that is not there yet is no error.
    pub(crate) async fn open(settings: &NatsSettings) -> Result<Self, NatsError> {
        let problems = settings.problems();
        if !problems.is_empty() {
            return Err(NatsError::Settings(problems));
        }
        let (tell, news) = watch::channel(News::default());
        let (denials, _) = broadcast::channel(64);
        let options = options(settings).await?;
        let (tell, denied) = (Arc::new(tell), denials.clone());
        let options = options.event_callback(move |event| {
            note(&tell, &denied, event);
            std::future::ready(())
        });
        let urls: Result<Vec<ServerAddr>, _> =
            settings.urls.iter().map(|url| url.parse()).collect();
        let urls = urls.expect("problems() has read them all");
        let connected = options.connect(urls).await;
        let client = connected.map_err(|why| NatsError::Connect(why.to_string()))?;
        let acks = Acks::new(&client).await;
        let acks = acks.map_err(|why| NatsError::Connect(why.to_string()))?;
        Ok(Self {
            client,
            acks,
            news,
            denials,
        })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn max_payload(&self) -> usize {
        self.client.max_payload()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Whether the server is one of several.
    pub(crate) fn is_cluster(&self) -> bool {
        self.client.server_info().cluster.is_some()
    }

    pub(crate) fn version(&self) -> String {
        self.client.server_info().version
    }

    /// Waits for a connection to a server that fits.
    ///
    /// # Errors
    /// When there is none by then, or the server is too old.
    pub(crate) async fn ready(&self, by: Instant) -> Result<(), BrokerError> {
        let mut news = self.news.clone();
        while !self.is_up() {
            // A word may come before the state is set: look again soon in any case.
            let soon = (Instant::now() + Duration::from_millis(20)).min(by);
            let _ = timeout_at(soon, news.changed()).await;
            if Instant::now() >= by && !self.is_up() {
                return Err(self.trouble());
            }
        }
        let version = self.version();
        if numbers(&version).is_none_or(|numbers| numbers < FLOOR) {
            let (a, b, c) = FLOOR;
            let what = format!("NATS {version} is too old: {a}.{b}.{c} or newer is needed");
            return Err(BrokerError::new(Why::Configuration, what));
        }
        Ok(())
    }

    fn trouble(&self) -> BrokerError {
        let news = self.news.borrow();
        let why = if news.denied {
            Why::Denied
        } else {
            Why::Unavailable
        };
        match &news.trouble {
            Some(trouble) => BrokerError::new(why, format!("no connection to NATS: {trouble}")),
            None => BrokerError::new(why, "no connection to NATS yet"),
        }
    }

    /// What to wait for to learn that the connection of now is lost.
    pub(crate) fn loss(&self) -> Loss {
        let news = self.news.clone();
        let losses = news.borrow().losses;
        Loss { news, losses }
    }

    /// The subjects to which we may not publish, as the server refuses them from now on.
    pub(crate) fn denials(&self) -> broadcast::Receiver<String> {
        self.denials.subscribe()
    }

    /// Sends a question and waits for one answer.
    pub(crate) async fn ask(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        body: Bytes,
        by: Instant,
    ) -> Result<Message, Unanswered> {
        if !self.is_up() {
            return Err(Unanswered::NotSent(self.trouble().reason));
        }
        let (mut loss, mut denials) = (self.loss(), self.denials());
        let mut call = self.acks.call();
        let reply = call.reply(0);
        let to = subject.to_owned();
        let sent = async {
            match headers {
                Some(headers) => {
                    let client = &self.client;
                    client
                        .publish_with_reply_and_headers(to, reply, headers, body)
                        .await
                }
                None => self.client.publish_with_reply(to, reply, body).await,
            }
        };
        match timeout_at(by, sent).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Err(Unanswered::NotSent(why.to_string())),
            Err(_) => return Err(Unanswered::NotSent("the time was over".into())),
        }
        let denied = async {
            loop {
                match denials.recv().await {
                    Ok(denied) if denied == subject => return,
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            biased;
            (_, answer) = call.answer() => match answer.status {
                Some(StatusCode::NO_RESPONDERS) => Err(Unanswered::NoResponders),
                _ => Ok(answer),
            },
            () = denied => Err(Unanswered::Denied(format!("we may not publish to {subject}"))),
            () = loss.lost() => Err(Unanswered::Unknown("the connection was lost before the answer".into())),
            () = sleep_until(by) => Err(Unanswered::Unknown("no answer in time".into())),
        }
    }
}

/// Waits for the end of a connection.
pub(crate) struct Loss {
    news: watch::Receiver<News>,
    losses: u64,
}

impl Loss {
    /// Returns a moment after the connection is lost: what came in before can be read first. Cancel-safe.
    pub(crate) async fn lost(&mut self) {
        let was = self.losses;
        if self.news.wait_for(|news| news.losses != was).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(GRACE).await;
    }
}

async fn options(settings: &NatsSettings) -> Result<ConnectOptions, NatsError> {
    let mut options = ConnectOptions::new()
        .name(&settings.name)
        .retry_on_initial_connect()
        .connection_timeout(CONNECT)
        .ping_interval(PING)
        // Exponential from 2 ms in the client's own; a server that comes back should be found within a second.
        .reconnect_delay_callback(|attempt| {
            let doublings = u32::try_from(attempt.min(10)).unwrap_or(10);
            Duration::from_millis(1 << doublings).min(Duration::from_secs(1))
        });
    if let Some(prefix) = &settings.inbox_prefix {
        options = options.custom_inbox_prefix(prefix);
    }
    if let Some(file) = &settings.credentials_file {
        let read = options.credentials_file(file).await;
        options = read.map_err(|why| NatsError::File(file.clone(), why.to_string()))?;
    }
    if let Some(token) = &settings.token {
        options = options.token(token.clone());
    }
    if let (Some(user), Some(password)) = (&settings.user, &settings.password) {
        options = options.user_and_password(user.clone(), password.clone());
    }
    options = options.require_tls(settings.tls_required);
    if let Some(ca) = &settings.tls_ca {
        readable(ca)?;
        options = options.add_root_certificates(ca.clone());
    }
    if let (Some(certificate), Some(key)) = (&settings.tls_certificate, &settings.tls_key) {
        readable(certificate)?;
        readable(key)?;
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(options)
}

fn readable(file: &std::path::Path) -> Result<(), NatsError> {
    let read = std::fs::File::open(file);
    read.map_err(|why| NatsError::File(file.to_owned(), why.to_string()))?;
    Ok(())
}

fn note(tell: &watch::Sender<News>, denials: &broadcast::Sender<String>, event: Event) {
    match event {
        Event::Connected => tell.send_modify(|news| {
            news.trouble = None;
            news.denied = false;
        }),
        Event::Disconnected => tell.send_modify(|news| {
            news.losses += 1;
            news.trouble = Some("it was lost".into());
        }),
        Event::ClientError(why) => tell.send_modify(|news| {
            let text = match why {
                ClientError::Other(text) => text,
                other => other.to_string(),
            };
            news.denied = text.contains("authorization") || text.contains("authentication");
            news.trouble = Some(text);
        }),
        Event::ServerError(ServerError::Other(text)) => {
            if let Some(subject) = denied(&text) {
                let _ = denials.send(subject.to_owned());
            }
            tracing::warn!(error = text, "NATS says: {text}");
        }
        Event::ServerError(other) => tracing::warn!("NATS says: {other}"),
        Event::SlowConsumer(_) => tracing::warn!("answers of NATS were dropped: too many at once"),
        Event::LameDuckMode | Event::Draining | Event::Closed => {}
    }
}

/// The subject of `Permissions Violation for Publish to "subject"`.
fn denied(text: &str) -> Option<&str> {
    const START: &str = "permissions violation for publish to \"";
    let start = text.get(..START.len())?;
    if !start.eq_ignore_ascii_case(START) {
        return None;
    }
    text[START.len()..].split('"').next()
}

fn numbers(version: &str) -> Option<(u64, u64, u64)> {
    let version = version.trim_start_matches('v');
    let mut parts = version.split(['.', '-']).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

/// Why the client did not take a message: never sent in any case.
pub(crate) fn refused(kind: PublishErrorKind) -> Why {
    match kind {
        PublishErrorKind::MaxPayloadExceeded | PublishErrorKind::InvalidSubject => Why::Message,
        PublishErrorKind::Send => Why::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert_eq!(numbers("2.10.25"), Some((2, 10, 25)));
        assert_eq!(numbers("v2.12.0-RC.1"), Some((2, 12, 0)));
        assert!(numbers("2.9.30") < Some(FLOOR) && numbers("2.10.4") < Some(FLOOR));
        assert_eq!(numbers("nightly"), None);
    }

    #[test]
    fn the_subject_of_a_denial_is_read_from_its_text() {
        let text = "Permissions Violation for Publish to \"a.b\"";
        assert_eq!(denied(text), Some("a.b"));
        assert_eq!(
            denied("Permissions Violation for Subscription to \"a\""),
            None
        );
        assert_eq!(denied("ü"), None);
    }
}
