//! A provider's HTTP API, called so that it is known afterwards whether a request may have had an effect.
//!
//! Every request goes out once: no retries, no redirects, no proxies of the environment; bounded in time, and the answer in size.
//! There are three ends. *Not sent*: no name, no connection, no TLS; certainly no effect, so it is tried again. *Maybe sent*: a
//! timeout, a connection that broke, an answer that was cut off; nobody knows, and a command becomes *unknown*. *Answered*: what
//! that means is [`Answer::said`]. When there is another try, and what is recorded, is the engine's.
//!
//! Do not put a client with retries of its own around this: one deadline and one budget are enough.

mod answer;
mod problem;
mod request;

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::egress::{BadUrl, Client, Egress, NoRoots, Refusal, Rules, Target};

pub use answer::{Answer, Said, Unread};
pub use problem::Problem;
pub use request::Request;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Of an answer's body.
const ANSWER_BYTES: usize = 1024 * 1024;

/// The API of a provider below one URL.
///
/// ```
/// use outlast_core::{Command, Failure, Sent};
/// use outlast_http::provider::{Provider, Said};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)] struct ChargeCard { booking: i64, amount: String }
/// # #[derive(Serialize, Deserialize)] struct ChargeId { id: String }
/// # impl Command for ChargeCard { const NAME: &'static str = "charge_card"; type Answer = ChargeId; fn key(&self) -> String { self.booking.to_string() } }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let acme = Provider::new("https://api.acme.example/v1")?
///     .header("authorization", "Bearer s3cret")?;
///
/// async fn charge(acme: &Provider, c: &ChargeCard, provider_key: &str) -> Result<Sent<ChargeId>, Failure> {
///     let answer = acme.post("charges").key(provider_key).json(c).send().await?;
///     Ok(match answer.said()? {
///         Said::Done => Sent::Settled(answer.json()?),
///         Said::Refused(why) => Sent::Rejected(why),
///     })
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Provider {
    client: Client,
    base: Target,
    headers: HeaderMap,
    timeout: Duration,
    answer_bytes: usize,
}

/// Why there can be no such provider.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadProvider {
    /// Nothing can be sent to such a URL.
    #[error("url: {0}")]
    Url(#[from] BadUrl),
    /// Nothing may be sent there.
    #[error("url: {0}")]
    Refused(#[from] Refusal),
    /// Nobody is trusted.
    #[error(transparent)]
    NoRoots(#[from] NoRoots),
    /// A header that cannot be sent.
    #[error("header `{name}`: {why}")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong. Never shows the value.
        why: &'static str,
    },
}

impl Provider {
    /// The provider at this URL, which is your own program's or configuration's: [`Rules::own`]. It trusts the system's certificates.
    ///
    /// # Errors
    /// When nothing can be, or may be, sent there.
    pub fn new(url: &str) -> Result<Self, BadProvider> {
        Self::over(&Egress::new(Rules::own()).client()?, url)
    }

    /// The same with another client: other rules, another authority, another resolver.
    ///
    /// # Errors
    /// When nothing can be, or may be, sent there, as far as that can be told before the name is resolved.
    pub fn over(client: &Client, url: &str) -> Result<Self, BadProvider> {
        let base = Target::parse(url)?;
        client.rules().judge_early(&base)?;
        Ok(Self {
            client: client.clone(),
            base,
            headers: HeaderMap::new(),
            timeout: TIMEOUT,
            answer_bytes: ANSWER_BYTES,
        })
    }

    /// How long one request may take, from the name's resolution to the answer's last byte. 20 s. Keep it below the deadline of a
    /// try, which is the command's: else the try is over before it is known what came of it.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The most bytes of an answer's body. 1 MiB. A success that is longer counts as *maybe sent*.
    pub fn answer_bytes(mut self, most: usize) -> Self {
        self.answer_bytes = most;
        self
    }

    /// Sends this header with every request. Its value is a secret: it is shown nowhere.
    ///
    /// # Errors
    /// When it is no header, or one that HTTP itself sets.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, BadProvider> {
        let (name, value) = header(name, value).map_err(|why| BadProvider::Header {
            name: outlast_core::text::clean(name, 100),
            why,
        })?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Asks for what is at this path below the provider's URL.
    pub fn get(&self, path: &str) -> Request<'_> {
        self.request(Method::GET, path)
    }

    /// Gives an instruction.
    pub fn post(&self, path: &str) -> Request<'_> {
        self.request(Method::POST, path)
    }

    /// Replaces what is at this path.
    pub fn put(&self, path: &str) -> Request<'_> {
        self.request(Method::PUT, path)
    }

    /// Removes what is at this path.
    pub fn delete(&self, path: &str) -> Request<'_> {
        self.request(Method::DELETE, path)
    }

    /// Whatever the method. A path that leads out of the provider's URL is refused when it is sent.
    pub fn request(&self, method: Method, path: &str) -> Request<'_> {
        Request::new(self, method, path)
    }
}

/// A header as it is sent.
fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    const HTTPS_OWN: [&str; 6] = [
        "connection",
        "content-length",
        "host",
        "te",
        "transfer-encoding",
        "upgrade",
    ];
    let name = HeaderName::try_from(name).map_err(|_| "not the name of a header")?;
    if HTTPS_OWN.contains(&name.as_str()) {
        return Err("it is set by HTTP itself");
    }
    let mut value = HeaderValue::try_from(value).map_err(|_| "its value cannot be sent")?;
    value.set_sensitive(true);
    Ok((name, value))
}
