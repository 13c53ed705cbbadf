//! The connection: kept by the client, watched by us.
//!
//! The client reconnects by itself and for ever; what it was given in the meantime it sends then. So we give it nothing while
//! it has no connection, and what it has been given and is not answered is unknown, never "not sent".

use std::{sync::Arc, time::Duration};

use async_nats::{
    Client, ClientError, Event, HeaderMap, Message, PublishErrorKind, Server, ServerAddr,
    ServerError, StatusCode, connection::State,
};
use bytes::Bytes;
use outlast_core::broker::{BrokerError, Why};
use tokio::{
    sync::{broadcast, watch},
    time::{Instant, sleep_until, timeout_at},
};

use crate::{NatsError, NatsSettings, acks::Acks, login};

/// How long who has just lost the connection waits for answers that are on their way within the process.
pub(crate) const GRACE: Duration = Duration::from_millis(100);
/// Older ones lose streams in a crash, or pass over what they do not know in a request.
const FLOOR: (u64, u64, u64) = (2, 10, 25);

#[derive(Debug)]
pub(crate) struct Link {
    client: Client,
    settings: Arc<NatsSettings>,
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
    /// What came of the last try to connect, of each server for which something did.
    tried: Option<String>,
    /// Where we may not listen, so that no answer can come.
    deaf: Option<String>,
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
    pub(crate) async fn open(settings: Arc<NatsSettings>) -> Result<Self, NatsError> {
        let problems = settings.problems();
        if !problems.is_empty() {
            return Err(NatsError::Settings(problems));
        }
        let (tell, news) = watch::channel(News::default());
        let (denials, _) = broadcast::channel(64);
        let (tell, denied) = (Arc::new(tell), denials.clone());
        let tried = Arc::clone(&tell);
        let options = login::options(&settings)?
            .event_callback(move |event| {
                note(&tell, &denied, event);
                std::future::ready(())
            })
            // Chooses none; but only here the client says why it did not come to a connection.
            .reconnect_to_server_callback(move |servers, _| {
                tried.send_modify(|news| news.tried = failures(&servers));
                std::future::ready(None)
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
            settings,
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
        match &self.news.borrow().deaf {
            Some(subject) => Err(BrokerError::new(Why::Denied, unheard(subject))),
            None => Ok(()),
        }
    }

    fn trouble(&self) -> BrokerError {
        let news = self.news.borrow();
        let Some(said) = news.tried.as_ref().or(news.trouble.as_ref()) else {
            return BrokerError::new(Why::Unavailable, "no connection to NATS yet");
        };
        match login::trouble(&self.settings, said) {
            (why, Some(advice)) => {
                BrokerError::new(why, format!("no connection to NATS: {said}; {advice}"))
            }
            (why, None) => BrokerError::new(why, format!("no connection to NATS: {said}")),
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
        tokio::select! {
            biased;
            (_, answer) = call.answer() => match answer.status {
                Some(StatusCode::NO_RESPONDERS) => Err(Unanswered::NoResponders),
                _ => Ok(answer),
            },
            () = denied_of(&mut denials, subject) => Err(Unanswered::Denied(denied_text(subject))),
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

/// Resolves when the server refuses what we publish to this subject. Cancel-safe.
pub(crate) async fn denied_of(denials: &mut broadcast::Receiver<String>, subject: &str) {
    loop {
        match denials.recv().await {
            Ok(denied) if denied == subject => return,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// What to do about a refusal.
pub(crate) fn denied_text(subject: &str) -> String {
    format!("we may not publish to {subject}: the user's permissions have to allow it")
}

fn unheard(subject: &str) -> String {
    format!(
        "we may not subscribe to {subject}, so no answer comes: the user's permissions have to allow it, or inbox_prefix has \
         to say what they allow"
    )
}

/// What came of the last try of each server, without what may be secret in its address.
fn failures(servers: &[Server]) -> Option<String> {
    let failed = servers.iter().filter_map(|server| {
        let why = server.last_error.as_ref()?;
        Some(format!(
            "{}:{}: {why}",
            server.addr.host(),
            server.addr.port()
        ))
    });
    let failed: Vec<_> = failed.collect();
    (!failed.is_empty()).then(|| failed.join("; "))
}

fn note(tell: &watch::Sender<News>, denials: &broadcast::Sender<String>, event: Event) {
    match event {
        Event::Connected => tell.send_modify(|news| {
            news.trouble = None;
            news.tried = None;
            news.deaf = None;
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
            news.trouble = Some(text);
        }),
        Event::ServerError(ServerError::Other(text)) => {
            if let Some(subject) = denied(&text, "publish") {
                let _ = denials.send(subject.to_owned());
            }
            if let Some(subject) = denied(&text, "subscription") {
                tell.send_modify(|news| news.deaf = Some(subject.to_owned()));
            }
            tracing::warn!(error = text, "NATS says: {text}");
        }
        Event::ServerError(other) => tracing::warn!("NATS says: {other}"),
        Event::SlowConsumer(_) => tracing::warn!("answers of NATS were dropped: too many at once"),
        Event::LameDuckMode | Event::Draining | Event::Closed => {}
    }
}

/// The subject of `Permissions Violation for Publish to "subject"`, or of the same for a subscription.
fn denied<'a>(text: &'a str, what: &str) -> Option<&'a str> {
    let start = format!("permissions violation for {what} to \"");
    let begins = text.get(..start.len())?;
    if !begins.eq_ignore_ascii_case(&start) {
        return None;
    }
    text[start.len()..].split('"').next()
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
        assert_eq!(denied(text, "publish"), Some("a.b"));
        assert_eq!(denied(text, "subscription"), None);
        let text = "Permissions Violation for Subscription to \"_INBOX.x.*\" using queue \"q\"";
        assert_eq!(denied(text, "subscription"), Some("_INBOX.x.*"));
        assert_eq!(denied("ü", "publish"), None);
    }
}
