//! What an answer means.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header::DATE};
use outlast_core::{Failure, Outcome, endpoint::Answer, text};

use super::{OUTCOME, REASON};
use crate::{egress::Answered, retry_after};

/// What a 429 without a time asks for.
const A_MOMENT: Duration = Duration::from_secs(5);
/// From this on clocks that disagree are worth a word: signatures are refused after 5 minutes.
const APART: Duration = Duration::from_secs(120);

/// From a whole answer to what the engine records. `now` is the time that the request was signed with.
pub(super) fn judge(answered: &Answered, now: SystemTime) -> Result<Answer, Failure> {
    let Answered {
        status, headers, ..
    } = answered;
    let reason = || reason(*status, headers, now);
    let wait = retry_after::read(headers, now);
    let waiting = |failure: Failure| match wait {
        Some(wait) => failure.after(wait),
        None => failure,
    };
    match status.as_u16() {
        200..=299 => ended(*status, headers),
        300..=399 => Err(Failure::permanent(format_args!(
            "{}; redirects are not followed: write down where it leads",
            reason()
        ))),
        408 | 425 => Err(waiting(Failure::retry(reason()))),
        429 => Err(throttled(wait.unwrap_or(A_MOMENT), reason())),
        400..=499 => Err(Failure::permanent(reason())),
        503 if wait.is_some() => Err(throttled(wait.unwrap_or_default(), reason())),
        _ => Err(waiting(Failure::retry(reason()))),
    }
}

fn throttled(wait: Duration, reason: String) -> Failure {
    let mut failure = Failure::throttled(wait);
    failure.reason = reason;
    failure
}

fn ended(status: StatusCode, headers: &HeaderMap) -> Result<Answer, Failure> {
    let outcome = headers
        .get(OUTCOME)
        .map(|value| value.to_str().unwrap_or("?"));
    match outcome.map(str::trim) {
        None | Some("done") => Ok(Answer::Ended(Outcome::Done)),
        Some("skipped") => {
            let why = told(headers).unwrap_or_else(|| "skipped by the endpoint".into());
            Ok(Answer::Ended(Outcome::skipped(why)))
        }
        Some("accepted") => Ok(Answer::Accepted),
        // It may have done anything: a word that will mean something in another version.
        Some(other) => Err(Failure::unknown(format_args!(
            "the endpoint answered {} with an outcome that is not known here: `{}`",
            status.as_u16(),
            text::clean(other, 50)
        ))),
    }
}

/// The status, the endpoint's own words, and what may explain it. Never the body, which may hold anything.
fn reason(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> String {
    let mut reason = format!("the endpoint answered {}", status.as_u16());
    if let Some(name) = status.canonical_reason() {
        reason.push(' ');
        reason.push_str(name);
    }
    if let Some(told) = told(headers) {
        reason.push_str(": ");
        reason.push_str(&told);
    }
    if let Some(apart) = clocks_apart(headers, now).filter(|_| status.is_client_error()) {
        let seconds = apart.as_secs();
        reason.push_str(&format!(
            "; its clock and ours are {seconds} s apart, which refuses signatures"
        ));
    }
    reason
}

/// What the endpoint says to people, percent-decoded.
fn told(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(REASON)?.as_bytes();
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&b, after)) = rest.split_first() {
        let digit = |n: usize| after.get(n).and_then(|d| char::from(*d).to_digit(16));
        match (b, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.extend(u8::try_from(high * 16 + low));
                rest = &after[2..];
            }
            _ => {
                out.push(b);
                rest = after;
            }
        }
    }
    let told = text::clean(String::from_utf8_lossy(&out).trim(), text::LIMIT - 200);
    (!told.is_empty()).then_some(told)
}

fn clocks_apart(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let theirs = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    let apart = match theirs.duration_since(now) {
        Ok(ahead) => ahead,
        Err(behind) => behind.duration(),
    };
    (apart > APART).then_some(apart)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use outlast_core::Class;
    use std::time::UNIX_EPOCH;

    fn answered(status: u16, headers: &[(&'static str, &str)]) -> Result<Answer, Failure> {
        let named = |(name, value): &(&'static str, &str)| {
            let value = HeaderValue::from_str(value).unwrap();
            (http::HeaderName::from_static(name), value)
        };
        let answered = Answered {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.iter().map(named).collect(),
        };
        judge(&answered, UNIX_EPOCH + Duration::from_secs(1_790_000_000))
    }

    #[test]
    fn every_status_has_one_meaning() {
        let done = Ok(Answer::Ended(Outcome::Done));
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(answered(status, &[]), done, "{status}");
        }
        for (status, class, charged) in [
            (300, Class::Permanent, true),
            (301, Class::Permanent, true),
            (304, Class::Permanent, true),
            (307, Class::Permanent, true),
            (400, Class::Permanent, true),
            (401, Class::Permanent, true),
            (404, Class::Permanent, true),
            (408, Class::Retry, true),
            (409, Class::Permanent, true),
            (410, Class::Permanent, true),
            (413, Class::Permanent, true),
            (422, Class::Permanent, true),
            (425, Class::Retry, true),
            (429, Class::Throttled, false),
            (500, Class::Retry, true),
            (502, Class::Retry, true),
            (503, Class::Retry, true),
            (504, Class::Retry, true),
            (599, Class::Retry, true),
            (999, Class::Retry, true),
        ] {
            let failure = answered(status, &[]).unwrap_err();
            assert_eq!(
                (failure.class, failure.is_charged()),
                (class, charged),
                "{status}"
            );
            assert!(failure.reason.contains(&status.to_string()), "{failure}");
        }
    }

    #[test]
    fn who_asks_to_come_later_is_obeyed() {
        let after = |status, value| {
            let failure = answered(status, &[("retry-after", value)]).unwrap_err();
            (failure.class, failure.after.map(|after| after.as_secs()))
        };
        assert_eq!(after(429, "120"), (Class::Throttled, Some(120)));
        assert_eq!(after(429, "soon"), (Class::Throttled, Some(5)));
        assert_eq!(after(503, "86400"), (Class::Throttled, Some(3600)));
        assert_eq!(after(503, "-5"), (Class::Retry, None));
        assert_eq!(after(500, "60"), (Class::Retry, Some(60)));
        assert_eq!(after(400, "60"), (Class::Permanent, None));
    }

    #[test]
    fn a_success_may_say_more() {
        let said = |headers: &[(&'static str, &str)]| answered(202, headers);
        assert_eq!(said(&[(OUTCOME, "accepted")]), Ok(Answer::Accepted));
        assert_eq!(said(&[(OUTCOME, "done")]), Ok(Answer::Ended(Outcome::Done)));
        assert_eq!(
            said(&[(OUTCOME, "skipped"), (REASON, "not%20ours%0a%1b%C3%BC%zz")]),
            Ok(Answer::Ended(Outcome::Skipped("not ours\nü%zz".into())))
        );
        assert!(matches!(
            said(&[(OUTCOME, "skipped")]),
            Ok(Answer::Ended(Outcome::Skipped(_)))
        ));
        let failure = said(&[(OUTCOME, "later")]).unwrap_err();
        assert_eq!(failure.class, Class::Unknown, "{failure}");
        assert_eq!(
            answered(500, &[(OUTCOME, "done")]).unwrap_err().class,
            Class::Retry
        );
    }

    #[test]
    fn words_of_the_endpoint_are_kept_bounded_and_clocks_that_disagree_are_told() {
        let long = "x".repeat(9000);
        let failure = answered(422, &[(REASON, &long)]).unwrap_err();
        assert!(
            failure
                .reason
                .starts_with("the endpoint answered 422 Unprocessable Entity: xx")
        );
        assert!(failure.reason.len() <= text::LIMIT);
        let failure = answered(401, &[("date", "Mon, 21 Sep 2026 15:13:20 GMT")]).unwrap_err();
        assert!(
            failure.reason.contains("clock and ours are 3600 s apart"),
            "{failure}"
        );
        let failure = answered(401, &[("date", "Mon, 21 Sep 2026 14:12:10 GMT")]).unwrap_err();
        assert_eq!(failure.reason, "the endpoint answered 401 Unauthorized");
    }
}
