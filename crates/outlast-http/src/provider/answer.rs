//! What a provider has answered, and what that says about the effect of the request.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, StatusCode};
use outlast_core::{Class, Classify, Failure};
use serde::de::DeserializeOwned;

use crate::{egress::Received, retry_after};

/// What a 429 without a time asks for.
const A_MOMENT: Duration = Duration::from_secs(5);

/// An answer: status, headers, and a body of bounded size.
#[derive(Clone)]
pub struct Answer {
    host: String,
    status: StatusCode,
    headers: HeaderMap,
    body: bytes::Bytes,
    is_whole: bool,
    /// How long it asks to be left alone.
    wait: Option<Duration>,
}

impl fmt::Debug for Answer {
    /// Without the body and the headers, which may hold anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({} {})", self.host, self.status.as_u16())
    }
}

/// What an instruction's answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It was taken. Whether it is settled or pending, the body or the status (202) says.
    Done,
    /// It was refused as such, without effect; the text says by which status.
    Refused(String),
}

/// A body that cannot be read as what was expected. Of a success it means *unknown*: the provider did what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread(String);

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unread {}

impl Classify for Unread {
    fn class(&self) -> Class {
        Class::Unknown
    }
}

impl Answer {
    pub(super) fn new(received: Received, host: &str, now: SystemTime) -> Self {
        Self {
            host: host.to_owned(),
            wait: retry_after::read(&received.headers, now),
            status: received.status,
            headers: received.headers,
            body: received.body,
            is_whole: received.is_whole,
        }
    }

    /// The status, such as 200. Look at it before [`Answer::said`] where one means something else at this provider.
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// The first header of this name, if it is a text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body. Of a success it is whole.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether the body came to its end: of what is no success it may have been cut off, at the limit too.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Reads the body as JSON.
    ///
    /// # Errors
    /// [`Unread`], which is *unknown*: what was done was done, whether its answer can be read or not.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Unread> {
        serde_json::from_slice(&self.body).map_err(|why| {
            // Not what serde says: it quotes the body.
            let (line, column) = (why.line(), why.column());
            let what = match why.classify() {
                serde_json::error::Category::Data => "is not what was expected",
                _ => "is not JSON",
            };
            Unread(format!(
                "{}, and its body {what}, at line {line}, column {column}",
                self.told()
            ))
        })
    }

    /// What the answer to an instruction says about its effect.
    ///
    /// | status | means |
    /// |---|---|
    /// | 2xx | [`Said::Done`] |
    /// | 400, 402, 406, 410, 412, 413, 415, 422 | [`Said::Refused`]: this instruction, without effect |
    /// | 429, and 503 with `Retry-After` | *throttled*, for as long as it asks, an hour at most; 429 without a time: 5 s |
    /// | 425 | *retry*: not looked at |
    /// | 307, 308, and every other 4xx but 408, 409 and 423 | *permanent*: no effect, and a person must look: a wrong key, URL or right |
    /// | everything else: 408, 409, 423, other 3xx, 5xx | *unknown*: it may have had an effect |
    ///
    /// A proxy on the way answers 502, 503 and 504 for a provider that has done what it was told, and many 500 come after the effect:
    /// none of them proves anything. 409 is often "the same key is in work".
    ///
    /// # Errors
    /// The failure that the status stands for. It names host and status, never the body.
    pub fn said(&self) -> Result<Said, Failure> {
        let told = self.told();
        match self.status() {
            200..=299 => Ok(Said::Done),
            400 | 402 | 406 | 410 | 412 | 413 | 415 | 422 => Ok(Said::Refused(told)),
            429 => Err(throttled(self.wait.unwrap_or(A_MOMENT), told)),
            503 if self.wait.is_some() => Err(throttled(self.wait.unwrap_or_default(), told)),
            425 => Err(match self.wait {
                Some(wait) => Failure::retry(told).after(wait),
                None => Failure::retry(told),
            }),
            307 | 308 => Err(Failure::permanent(format_args!(
                "{told}; redirects are not followed: write down where it leads"
            ))),
            408 | 409 | 423 => Err(Failure::unknown(told)),
            400..=499 => Err(Failure::permanent(told)),
            _ => Err(Failure::unknown(told)),
        }
    }

    /// Host and status, for people.
    fn told(&self) -> String {
        let (host, status) = (&self.host, self.status());
        match self.status.canonical_reason() {
            Some(reason) => format!("{host} answered {status} {reason}"),
            None => format!("{host} answered {status}"),
        }
    }
}

fn throttled(wait: Duration, told: String) -> Failure {
    let mut failure = Failure::throttled(wait);
    failure.reason = told;
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use std::time::UNIX_EPOCH;

    fn answer(status: u16, retry_after: Option<&str>, body: &'static str) -> Answer {
        let mut headers = HeaderMap::new();
        if let Some(wait) = retry_after {
            headers.insert("retry-after", HeaderValue::from_str(wait).unwrap());
        }
        let received = Received {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: body.into(),
            is_whole: true,
        };
        // Wed, 21 Oct 2026 07:28:00 GMT.
        Answer::new(
            received,
            "acme.example",
            UNIX_EPOCH + Duration::from_secs(1_792_567_680),
        )
    }

    fn class(status: u16) -> Result<&'static str, Class> {
        match answer(status, None, "").said() {
            Ok(Said::Done) => Ok("done"),
            Ok(Said::Refused(_)) => Ok("refused"),
            Err(failure) => Err(failure.class),
        }
    }

    #[test]
    fn every_status_has_one_meaning_and_only_a_refusal_at_the_door_proves_that_there_was_no_effect()
    {
        for status in 200..=299 {
            assert_eq!(class(status), Ok("done"), "{status}");
        }
        for status in [400, 402, 406, 410, 412, 413, 415, 422] {
            assert_eq!(class(status), Ok("refused"), "{status}");
        }
        for status in [
            401, 403, 404, 405, 407, 411, 414, 421, 426, 428, 431, 451, 307, 308,
        ] {
            assert_eq!(class(status), Err(Class::Permanent), "{status}");
        }
        assert_eq!(class(429), Err(Class::Throttled));
        assert_eq!(class(425), Err(Class::Retry));
        let unknown = (500..=599).chain([300, 301, 302, 303, 304, 408, 409, 423, 999]);
        for status in unknown {
            assert_eq!(class(status), Err(Class::Unknown), "{status}");
        }
    }

    #[test]
    fn who_asks_to_come_later_is_obeyed_for_an_hour_at_most() {
        let after = |status, wait| {
            let failure = answer(status, Some(wait), "").said().unwrap_err();
            (failure.class, failure.after.map(|after| after.as_secs()))
        };
        for status in [429, 503] {
            for (wait, seconds) in [
                ("120", 120),
                ("Wed, 21 Oct 2026 07:29:30 GMT", 90),
                ("86400", 3600),
                ("99999999999999999999", 3600),
                ("Thu, 21 Oct 2027 07:28:00 GMT", 3600),
            ] {
                assert_eq!(
                    after(status, wait),
                    (Class::Throttled, Some(seconds)),
                    "{status} {wait}"
                );
            }
        }
        for nonsense in ["-5", "1e9", "abc", "", "Wed, 21 Oct 2020 07:28:00 GMT"] {
            assert_eq!(
                after(429, nonsense),
                (Class::Throttled, Some(5)),
                "{nonsense}"
            );
            assert_eq!(after(503, nonsense), (Class::Unknown, None), "{nonsense}");
        }
    }

    #[test]
    fn a_success_that_cannot_be_read_is_unknown_and_nothing_of_its_body_is_told() {
        for (body, why) in [
            ("{\"id\": \"s3cret\"}", "is not what was expected"),
            ("s3cret", "is not JSON"),
        ] {
            let unread = answer(200, None, body).json::<i64>().unwrap_err();
            let failure = Failure::from(unread);
            assert_eq!(failure.class, Class::Unknown);
            assert!(
                failure.reason.starts_with("acme.example answered 200 OK"),
                "{failure}"
            );
            assert!(
                failure.reason.contains(why) && !failure.reason.contains("s3cret"),
                "{failure}"
            );
        }
        assert_eq!(answer(200, None, "7").json::<i64>(), Ok(7));
        let shown = format!("{:?}", answer(200, Some("s3cret"), "s3cret"));
        assert_eq!(shown, "Answer(acme.example 200)");
    }
}
