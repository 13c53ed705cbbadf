//! Push: an HTTPS endpoint as the handler of a consumer.
//!
//! One attempt is one signed request: the payload is the body, the envelope stands in CloudEvents headers. What the answer
//! means is decided here (`answer`); when there is another attempt, and what is recorded, is the engine's.

mod answer;
mod rate;
mod refused;
mod request;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, HeaderName, HeaderValue};
use outlast_core::{
    Class, Failure,
    broker::BoxFuture,
    endpoint::{Answer, Endpoint, Pushed},
};
use tokio::time::Instant;

use crate::{
    egress::{BadUrl, Client, Refusal, Target},
    signature::Keys,
};
use rate::Rate;
use refused::InARow;

/// The header of the lease of this attempt: what completes the event. A secret while it lives.
pub const TOKEN: &str = "outlast-token";
/// The header of the number of this attempt, from 1.
pub const ATTEMPT: &str = "outlast-attempt";
/// The header of the consumer's name.
pub const CONSUMER: &str = "outlast-consumer";
/// The header of how long the endpoint has to answer or to complete, in milliseconds from now.
pub const WITHIN: &str = "outlast-within-ms";
/// In an answer: `done`, `skipped` or `accepted`.
pub const OUTCOME: &str = "outlast-outcome";
/// In an answer: why, for people.
pub const REASON: &str = "outlast-reason";

/// An endpoint that events are pushed to.
///
/// ```
/// use outlast_http::{HttpEndpoint, egress::{Egress, Rules}, signature::Keys};
/// use std::time::Duration;
///
/// let client = Egress::new(Rules::new()).client()?;
/// let keys: Keys = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
/// let shop = HttpEndpoint::new(&client, "https://shop.example/events", keys)?
///     .timeout(Duration::from_secs(10))
///     .header("authorization", "Bearer s3cret")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "give it to `Consumer::push`"]
pub struct HttpEndpoint {
    client: Client,
    target: Target,
    keys: Keys,
    headers: HeaderMap,
    timeout: Duration,
    rate: Option<Rate>,
    refused: InARow,
    now: fn() -> SystemTime,
}

/// Why there can be no such endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadEndpoint {
    /// Nothing can be sent to such a URL.
    #[error("url: {0}")]
    Url(#[from] BadUrl),
    /// Nothing may be sent there.
    #[error("url: {0}")]
    Refused(#[from] Refusal),
    /// A header that cannot be sent.
    #[error("header `{name}`: {why}")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong. Never shows the value.
        why: &'static str,
    },
}

impl HttpEndpoint {
    /// An endpoint of this URL; what is sent there is signed with each of these keys.
    ///
    /// # Errors
    /// When nothing can be, or may be, sent there, as far as that can be told before the name is resolved.
    pub fn new(client: &Client, url: &str, keys: Keys) -> Result<Self, BadEndpoint> {
        let target = Target::parse(url)?;
        client.rules().judge_early(&target)?;
        Ok(Self {
            client: client.clone(),
            target,
            keys,
            headers: HeaderMap::new(),
            timeout: Duration::from_secs(30),
            rate: None,
            refused: InARow::default(),
            now: SystemTime::now,
        })
    }

    /// How long the answer may take, from the name's resolution to the last byte. 30 s; never longer than the try's deadline.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// At most this many requests a second of this process, evenly spaced but for a tenth of a second.
    pub fn rate(mut self, per_second: u32) -> Self {
        self.rate = (per_second > 0).then(|| Rate::new(per_second));
        self
    }

    /// Sends this header too. Its value is a secret: it is shown nowhere.
    ///
    /// # Errors
    /// When it is no header, or one that is ours to send.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, BadEndpoint> {
        let bad = |why| BadEndpoint::Header {
            name: outlast_core::text::clean(name, 100),
            why,
        };
        let header = HeaderName::try_from(name).map_err(|_| bad("not the name of a header"))?;
        if request::is_ours(&header) {
            return Err(bad("it is set by Outlast or by HTTP itself"));
        }
        let mut value =
            HeaderValue::try_from(value).map_err(|_| bad("its value cannot be sent"))?;
        value.set_sensitive(true);
        self.headers.insert(header, value);
        Ok(self)
    }

    /// Another clock, for signatures.
    #[doc(hidden)]
    pub fn clock(mut self, now: fn() -> SystemTime) -> Self {
        self.now = now;
        self
    }

    async fn once(&self, event: &Pushed, within: Duration) -> Result<Answer, Failure> {
        let begun = Instant::now();
        if let Some(rate) = &self.rate {
            let turn = rate.turn(within.saturating_sub(self.timeout));
            let wait = turn.map_err(|wait| {
                let mut failure = Failure::throttled(wait);
                failure.reason = "its turn within the rate of this endpoint comes too late".into();
                failure
            })?;
            tokio::time::sleep(wait).await;
        }
        let left = within.saturating_sub(begun.elapsed());
        let now = (self.now)();
        let headers = request::headers(&self.headers, &self.keys, event, now, left)?;
        let body = event.body.clone();
        let timeout = self.timeout.min(left);
        match self.client.post(&self.target, headers, body, timeout).await {
            Ok(answered) => answer::judge(&answered, now),
            Err(problem) => Err(problem.into()),
        }
    }
}

impl Endpoint for HttpEndpoint {
    fn push<'a>(
        &'a self,
        event: &'a Pushed,
        within: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            match self.once(event, within).await {
                Ok(answer) => {
                    self.refused.ended();
                    Ok(answer)
                }
                Err(failure) if failure.class == Class::Permanent => {
                    Err(self.refused.judge(event.envelope.id, failure))
                }
                Err(failure) => Err(failure),
            }
        })
    }
}

// Invariant: an endpoint can be shared by consumers of several types of events.
const _: fn(Arc<HttpEndpoint>) -> Arc<dyn Endpoint> = |endpoint| endpoint;
