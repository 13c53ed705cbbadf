//! What has arrived, as it arrived, and what of it may be looked at before anything is proven.

use std::cell::OnceCell;

use http::HeaderMap;
use serde_json::Value;

use super::{Refused, json, multipart};

/// A request, before anything has read its body.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its method, in capitals.
    pub method: &'a str,
    /// The whole URL as the provider knows it: scheme and host of the endpoint's registered URL, path and query of this request.
    /// Never made of forwarded headers.
    pub url: &'a str,
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The raw bytes that were received.
    pub body: &'a [u8],
}

/// What is taken at all, asked before any cryptography.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a body.
    pub body_bytes: usize,
    /// The most headers.
    pub headers: usize,
    /// The most bytes of all names and values of headers.
    pub header_bytes: usize,
}

impl Default for Limits {
    /// 1 MiB, 64 headers, 16 KiB of headers.
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            headers: 64,
            header_bytes: 16 << 10,
        }
    }
}

impl Limits {
    /// The most that [`Limits::body_bytes`] may be: 25 MiB.
    pub const MOST_BODY_BYTES: usize = 25 << 20;

    /// Whether a request is inside.
    ///
    /// # Errors
    /// [`Refused::TooLarge`], [`Refused::TooManyHeaders`].
    pub fn check(&self, request: &Request<'_>) -> Result<(), Refused> {
        if request.body.len() > self.body_bytes {
            return Err(Refused::TooLarge {
                limit: self.body_bytes,
            });
        }
        let length = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            name.as_str().len() + value.len()
        };
        let bytes: usize = request.headers.iter().map(length).sum();
        if request.headers.len() > self.headers || bytes > self.header_bytes {
            return Err(Refused::TooManyHeaders {
                most: self.headers,
                bytes: self.header_bytes,
            });
        }
        Ok(())
    }
}

/// A request that is being looked at; its JSON is read once, if anybody asks.
pub(super) struct Seen<'a> {
    pub(super) request: Request<'a>,
    json: OnceCell<Option<Value>>,
}

impl<'a> Seen<'a> {
    pub(super) fn new(request: Request<'a>) -> Self {
        Self {
            request,
            json: OnceCell::new(),
        }
    }

    /// The one value of a header, as bytes: a header may hold what is no text.
    pub(super) fn header(&self, name: &str) -> Result<&'a [u8], Refused> {
        let mut values = self.request.headers.get_all(name).iter();
        let value = values
            .next()
            .ok_or_else(|| Refused::MissingHeader(name.to_owned()))?;
        match values.next() {
            Some(_) => Err(Refused::DuplicateHeader(name.to_owned())),
            None => Ok(value.as_bytes()),
        }
    }

    /// The same, if it is printable ASCII.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, Refused> {
        let bytes = self.header(name)?;
        let is_plain = bytes.iter().all(|b| (b' '..=b'~').contains(b));
        let text = std::str::from_utf8(bytes).ok().filter(|_| is_plain);
        text.ok_or_else(|| Refused::BadHeader(name.to_owned()))
    }

    /// The body as JSON without a name twice; of a form in several parts, its part `json`.
    pub(super) fn json(&self) -> Option<&Value> {
        let read = || {
            let bytes = match multipart::boundary(self.request.headers) {
                Some(boundary) => multipart::part(self.request.body, &boundary, "json")?,
                None => self.request.body,
            };
            json::read(bytes)
        };
        self.json.get_or_init(read).as_ref()
    }

    /// Every value of a parameter in the URL's query, decoded.
    pub(super) fn query(&self, name: &str) -> Vec<String> {
        let after = self.request.url.split_once('?').map_or("", |(_, q)| q);
        let query = after.split_once('#').map_or(after, |(query, _)| query);
        url::form_urlencoded::parse(query.as_bytes())
            .filter(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
            .collect()
    }
}
