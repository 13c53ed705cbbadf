//! A NATS server, and its own client.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use async_nats::{
    HeaderMap, HeaderName,
    jetstream::{self, context::PublishAckFuture},
};
use outlast::broker::Message;
use outlast_nats::NatsSettings;
use outlast_testkit::broker::NatsServer;

use super::duel::{BATCH, Place, What};
use crate::report::locked;

pub struct Nats {
    // It ends with this.
    _server: NatsServer,
    version: String,
    bare: jetstream::Context,
    ours: outlast_nats::Nats,
}

impl Nats {
    pub async fn start() -> Result<Self> {
        let server = NatsServer::start().await?;
        let client = async_nats::connect(server.url()).await?;
        Ok(Self {
            version: client.server_info().version,
            bare: jetstream::new(client),
            ours: outlast_nats::Nats::connect(NatsSettings::at(server.url())).await?,
            _server: server,
        })
    }
}

impl Place for Nats {
    type Broker = outlast_nats::Nats;
    const NAME: &'static str = "NATS";

    fn describe(&self) -> String {
        format!(
            "NATS {} on this machine, a stream in files, its sync interval and its window for doubles as they are by default; \
             the bare client is async-nats {}: JetStream publish, then each acknowledgement, {BATCH} messages in a batch",
            self.version,
            locked("async-nats")
        )
    }

    fn broker(&self) -> Self::Broker {
        self.ours.clone()
    }

    async fn bare(&self, messages: &[Message], what: What) -> Result<Duration> {
        let begun = Instant::now();
        let mut before: Vec<PublishAckFuture> = Vec::new();
        for batch in messages.chunks(BATCH) {
            let mut now = Vec::with_capacity(BATCH);
            for message in batch {
                let (topic, body) = (message.topic.to_string(), message.body.clone());
                now.push(match what {
                    What::Body => self.bare.publish(topic, body).await?,
                    What::Whole => {
                        let headers = headers(message);
                        self.bare.publish_with_headers(topic, headers, body).await?
                    }
                });
            }
            for confirmed in std::mem::replace(&mut before, now) {
                confirmed.await?;
            }
        }
        for confirmed in before {
            confirmed.await?;
        }
        Ok(begun.elapsed())
    }

    async fn remove(&self, topic: &str, messages: u64) -> Result<()> {
        let stream = self.bare.get_stream(topic).await?;
        let there = stream.cached_info().state.messages;
        ensure!(there == messages, "{topic} has {there} of {messages}");
        self.bare.delete_stream(topic).await?;
        Ok(())
    }
}

/// The same headers as ours.
fn headers(message: &Message) -> HeaderMap {
    let mut headers = HeaderMap::new();
    message.envelope.each_attribute(|name, value| match name {
        std::borrow::Cow::Borrowed(name) => headers.insert(HeaderName::from_static(name), value),
        std::borrow::Cow::Owned(name) => headers.insert(name, value),
    });
    headers.insert(async_nats::header::NATS_MESSAGE_ID, message.dedup_id());
    headers
}
