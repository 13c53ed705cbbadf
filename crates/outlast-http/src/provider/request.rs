//! One request to a provider, until it is sent.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
use serde::Serialize;

use super::{Answer, Problem, Provider, header};
use crate::egress::{Sending, Target};

/// The header that providers take an idempotency key from.
const KEY: &str = "idempotency-key";

/// One request. Nothing is sent before [`Request::send`].
#[must_use = "a request goes out when it is sent"]
pub struct Request<'a> {
    provider: &'a Provider,
    method: Method,
    target: Target,
    headers: HeaderMap,
    body: Bytes,
    timeout: Duration,
    /// The first thing that is wrong with it.
    wrong: Option<String>,
}

impl std::fmt::Debug for Request<'_> {
    /// Without path, headers and body, which may hold anything.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Request({} {})", self.method, self.target.host())
    }
}

impl<'a> Request<'a> {
    pub(super) fn new(provider: &'a Provider, method: Method, path: &str) -> Self {
        let request = Self {
            provider,
            method,
            target: provider.base.clone(),
            headers: provider.headers.clone(),
            body: Bytes::new(),
            timeout: provider.timeout,
            wrong: None,
        };
        let target = provider.base.below(path);
        request.goes(target.map_err(|why| why.to_string()))
    }

    fn goes(mut self, target: Result<Target, String>) -> Self {
        match target {
            Ok(target) => self.target = target,
            Err(why) => _ = self.wrong.get_or_insert(why),
        }
        self
    }

    /// Adds a parameter to the URL.
    pub fn query(self, name: &str, value: &str) -> Self {
        let target = self.target.query(name, value);
        self.goes(target.map_err(|why| why.to_string()))
    }

    /// Sends this header too. Its value is shown nowhere.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        match header(name, value) {
            Ok((name, value)) => _ = self.headers.insert(name, value),
            Err(why) => {
                let name = outlast_core::text::clean(name, 100);
                _ = self
                    .wrong
                    .get_or_insert_with(|| format!("header `{name}`: {why}"));
            }
        }
        self
    }

    /// The idempotency key: `Attempt::provider_key`, in the header `idempotency-key`. For a provider that takes it elsewhere, use
    /// [`Request::header`] or put it into the body.
    pub fn key(self, provider_key: &str) -> Self {
        self.header(KEY, provider_key)
    }

    /// A JSON body.
    pub fn json(mut self, body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(json) => self.body(HeaderValue::from_static("application/json"), json.into()),
            // Not what serde says: that may hold what is to be sent.
            Err(_) => {
                _ = self
                    .wrong
                    .get_or_insert_with(|| "its body cannot be written as JSON".into());
                self
            }
        }
    }

    /// A body as forms of browsers send it.
    pub fn form(self, fields: &[(&str, &str)]) -> Self {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields);
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        self.body(kind, form.finish().into())
    }

    /// These bytes.
    pub fn bytes(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        match HeaderValue::try_from(content_type) {
            Ok(kind) => self.body(kind, body.into()),
            Err(_) => {
                _ = self
                    .wrong
                    .get_or_insert_with(|| "its content type cannot be sent".into());
                self
            }
        }
    }

    fn body(mut self, kind: HeaderValue, body: Bytes) -> Self {
        self.headers.insert(CONTENT_TYPE, kind);
        self.body = body;
        self
    }

    /// How long this one may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends it, once, and reads the answer to its end.
    ///
    /// If this future is dropped, or the process dies, while it runs, the request may have had an effect.
    ///
    /// # Errors
    /// [`Problem`]: it tells *not sent* from *maybe sent*. A status is no error here: [`Answer::said`] judges it.
    pub async fn send(self) -> Result<Answer, Problem> {
        if let Some(why) = self.wrong {
            return Err(Problem::Unwritable(why));
        }
        let sending = Sending {
            method: self.method,
            headers: self.headers,
            body: self.body,
            within: self.timeout,
            answer_bytes: self.provider.answer_bytes,
        };
        let received = self.provider.client.send(&self.target, sending).await?;
        let host = self.target.host();
        Ok(Answer::new(received, host, SystemTime::now()))
    }
}
