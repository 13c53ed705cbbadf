//! `Retry-After`: seconds or a date, from whoever answered.

use std::time::{Duration, SystemTime};

use http::{
    HeaderMap,
    header::{DATE, RETRY_AFTER},
};

/// Nobody is waited for longer.
const LONGEST: Duration = Duration::from_hours(1);

/// How long the answer asks to wait, at most an hour. A date is measured against the answer's own, if it has one: so the
/// clocks need not agree. What cannot be read, and what is past, asks for nothing. Of several the longest counts.
pub(crate) fn read(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let date = headers
        .get(DATE)
        .and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    let now = date.unwrap_or(now);
    let one = |value: &http::HeaderValue| {
        let text = value.to_str().ok()?.trim();
        let wait = match text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
            // More digits than fit are a very long time.
            true => Some(text.parse().map_or(Duration::MAX, Duration::from_secs)),
            false => httpdate::parse_http_date(text)
                .ok()?
                .duration_since(now)
                .ok(),
        };
        match wait {
            None => tracing::debug!("an answer asks to come back in the past"),
            Some(wait) if wait > LONGEST => {
                tracing::warn!("an answer asks to be left alone for {wait:?}; an hour is waited");
            }
            Some(_) => {}
        }
        wait.map(|wait| wait.min(LONGEST))
    };
    headers.get_all(RETRY_AFTER).iter().filter_map(one).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn read_at(values: &[&str], date: Option<&str>, now: &str) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(RETRY_AFTER, HeaderValue::from_str(value).unwrap());
        }
        if let Some(date) = date {
            headers.insert(DATE, HeaderValue::from_str(date).unwrap());
        }
        let now = httpdate::parse_http_date(now).unwrap();
        read(&headers, now).map(|wait| wait.as_secs())
    }

    #[test]
    fn seconds_and_dates_are_read_and_bounded_and_nonsense_asks_for_nothing() {
        const NOW: &str = "Wed, 21 Oct 2026 07:27:00 GMT";
        for (values, expected) in [
            (&["120"][..], Some(120)),
            (&["0"], Some(0)),
            (&[" 7 "], Some(7)),
            (&["86400"], Some(3600)),
            (&["99999999999999999999999"], Some(3600)),
            (&["Wed, 21 Oct 2026 07:28:00 GMT"], Some(60)),
            (&["Wednesday, 21-Oct-26 07:28:00 GMT"], Some(60)),
            (&["Thu, 21 Oct 2027 07:28:00 GMT"], Some(3600)),
            (&["Wed, 21 Oct 2026 07:26:00 GMT"], None),
            (&["-5"], None),
            (&["1e9"], None),
            (&["1.5"], None),
            (&["abc"], None),
            (&[""], None),
            (&["120", "60"], Some(120)),
            (&["abc", "60"], Some(60)),
            (&[], None),
        ] {
            assert_eq!(read_at(values, None, NOW), expected, "{values:?}");
        }
    }

    #[test]
    fn a_date_counts_from_the_answers_own_so_that_clocks_need_not_agree() {
        let values = ["Wed, 21 Oct 2026 07:28:00 GMT"];
        let date = Some("Wed, 21 Oct 2026 07:27:30 GMT");
        for now in [
            "Wed, 21 Oct 2026 09:00:00 GMT",
            "Wed, 21 Oct 2020 07:00:00 GMT",
        ] {
            assert_eq!(read_at(&values, date, now), Some(30), "{now}");
        }
    }
}
