//! Google's emulator of Pub/Sub, and Google's own client.

use std::time::{Duration, Instant};

use anyhow::Result;
use google_cloud_pubsub::{client::Publisher, model, publisher::PublishFuture};
use outlast::broker::Message;
use outlast_pubsub::Options;
use outlast_testkit::broker::{Emulator, emulator};

use super::duel::{BATCH, Place, What};
use crate::report::locked;

pub struct PubSub {
    server: Emulator,
    project: String,
    ours: outlast_pubsub::PubSub,
}

impl PubSub {
    pub async fn start() -> Result<Self> {
        let (server, project) = (Emulator::start().await?, emulator::project());
        let ours = ours(&server.endpoint(), &project)?;
        Ok(Self {
            server,
            project,
            ours,
        })
    }

    /// Where it listens, and the project.
    pub fn address(&self) -> (String, &str) {
        (self.server.endpoint(), &self.project)
    }
}

pub fn ours(endpoint: &str, project: &str) -> Result<outlast_pubsub::PubSub> {
    let mut options = Options::new(project);
    options.endpoint = Some(endpoint.to_owned());
    Ok(outlast_pubsub::PubSub::new(options)?)
}

impl Place for PubSub {
    type Broker = outlast_pubsub::PubSub;
    const NAME: &'static str = "Pub/Sub's emulator";

    fn describe(&self) -> String {
        format!(
            "Pub/Sub's emulator {} on this machine with a heap of 256 MB; the bare client is google-cloud-pubsub {}: a new \
             Publisher each time, {BATCH} messages in a batch, a delay of 1 ms",
            self.server.version(),
            locked("google-cloud-pubsub")
        )
    }

    fn broker(&self) -> Self::Broker {
        self.ours.clone()
    }

    async fn bare(&self, messages: &[Message], what: What) -> Result<Duration> {
        let topic = messages.first().map_or("", |first| &*first.topic);
        let publisher = Publisher::builder(format!("projects/{}/topics/{topic}", self.project))
            .with_endpoint(self.server.endpoint())
            .with_credentials(google_cloud_auth::credentials::anonymous::Builder::new().build())
            .set_message_count_threshold(BATCH as u32)
            .set_byte_threshold(9_000_000)
            .set_delay_threshold(Duration::from_millis(1))
            .build()
            .await?;
        let begun = Instant::now();
        let mut before: Vec<PublishFuture> = Vec::new();
        for batch in messages.chunks(BATCH) {
            let now = batch.iter().map(|one| publisher.publish(theirs(one, what)));
            let now = now.collect();
            for confirmed in std::mem::replace(&mut before, now) {
                confirmed.await?;
            }
        }
        for confirmed in before {
            confirmed.await?;
        }
        Ok(begun.elapsed())
    }

    /// Nobody has subscribed to it: there is nothing to count, and nothing to remove.
    async fn remove(&self, _: &str, _: u64) -> Result<()> {
        Ok(())
    }
}

fn theirs(message: &Message, what: What) -> model::Message {
    let attributes = match what {
        What::Whole => message.all_attributes(),
        What::Body => Vec::new(),
    };
    model::Message::new()
        .set_data(message.body.clone())
        .set_attributes(attributes)
        .set_ordering_key(message.ordering_key.clone().unwrap_or_default())
}
