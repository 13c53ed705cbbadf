//! Which broker a drill's processes talk to, in one word of a command line, and the connection to it.

use std::{fmt, str::FromStr, sync::Arc};

use anyhow::Result;
use outlast_core::broker::Broker;

/// A kind of broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// NATS JetStream, a real server.
    Nats,
    /// Google Pub/Sub, its emulator.
    PubSub,
}

impl Kind {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nats => "nats",
            Self::PubSub => "pubsub",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = [Self::Nats, Self::PubSub];
        let known = known.into_iter().find(|kind| kind.as_str() == word);
        known.ok_or_else(|| format!("`{word}` is not nats or pubsub"))
    }
}

/// Where a broker is: `nats,nats://HOST:PORT`, `pubsub,http://HOST:PORT,PROJECT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What it is.
    pub kind: Kind,
    /// Its address.
    pub url: String,
    /// Of Pub/Sub.
    pub project: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.kind.as_str(), self.url, self.project)
    }
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',').map(str::to_owned);
        let kind = words.next().unwrap_or_default().parse()?;
        Ok(Self {
            kind,
            url: words.next().ok_or("its address is missing")?,
            project: words.next().unwrap_or_default(),
        })
    }
}

impl Source {
    /// A connection that comes about, and comes back, by itself. What it makes at NATS drops no copy of a message: a drill
    /// counts them.
    ///
    /// # Errors
    /// When the settings cannot be.
    #[cfg(feature = "brokers")]
    pub(super) async fn connect(&self) -> Result<Arc<dyn Broker>> {
        use outlast_nats::{Nats, NatsSettings};
        use outlast_pubsub::{Options, PubSub};

        Ok(match self.kind {
            Kind::Nats => {
                let mut settings = NatsSettings::at(&self.url);
                settings.duplicate_window = std::time::Duration::from_millis(100);
                Arc::new(Nats::connect(settings).await?)
            }
            Kind::PubSub => {
                let mut options = Options::new(&self.project);
                options.endpoint = Some(self.url.clone());
                Arc::new(PubSub::new(options)?)
            }
        })
    }

    /// Only with the feature `brokers`.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "brokers"))]
    #[expect(clippy::unused_async, reason = "as with the feature")]
    pub(super) async fn connect(&self) -> Result<Arc<dyn Broker>> {
        anyhow::bail!("built without the feature brokers")
    }
}
