//! Where certificates may be fetched from: a message names an address, and only those of its provider are believed.
//!
//! The rule is about the URL alone. Whoever fetches keeps to [`egress`](crate::egress) besides: addresses judged, no redirects.

use url::{Host, Url};

/// Whose certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertHost {
    /// `sns.REGION.amazonaws.com`, and the same in China; a `.pem`.
    Sns,
    /// `api.paypal.com` and its sandbox, below `/v1/notifications/certs/`.
    PayPal,
}

impl CertHost {
    /// The URL, if it is one of the provider's certificates: `https`, its own host, no user, no other port.
    ///
    /// ```
    /// use outlast_http::webhook::CertHost;
    ///
    /// let good = "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0.pem";
    /// assert!(CertHost::Sns.allows(good).is_some());
    /// assert!(CertHost::Sns.allows("https://sns.evil.example/SimpleNotificationService-0.pem").is_none());
    /// ```
    pub fn allows(self, url: &str) -> Option<Url> {
        let (url, host, path) = plain(url)?;
        let is_theirs = match self {
            Self::Sns => is_sns(&host) && path.ends_with(".pem"),
            Self::PayPal => {
                matches!(&*host, "api.paypal.com" | "api.sandbox.paypal.com")
                    && path.starts_with("/v1/notifications/certs/")
            }
        };
        is_theirs.then_some(url)
    }
}

/// Where a subscription to SNS is confirmed: the same hosts, and no other action.
pub(super) fn confirms_sns(url: &str) -> Option<Url> {
    let (url, host, _) = plain(url)?;
    let mut actions = url.query_pairs().filter(|(key, _)| key == "Action");
    let confirms = actions
        .next()
        .is_some_and(|(_, value)| value == "ConfirmSubscription");
    (is_sns(&host) && confirms && actions.next().is_none()).then_some(url)
}

/// `https`, a name, the usual port, no user, nothing that only looks like a part of the host.
fn plain(text: &str) -> Option<(Url, String, String)> {
    let is_short = text.len() <= 2048;
    // What a URL parser mends in silence is not what somebody honest writes.
    let is_plain = text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    if !is_short || !is_plain {
        return None;
    }
    let url = Url::parse(text).ok()?;
    let Some(Host::Domain(host)) = url.host() else {
        return None;
    };
    let host = host.to_owned();
    let has_user = !url.username().is_empty() || url.password().is_some();
    // Dots and the like in a path have been resolved by now: the path is judged as it will be asked for.
    let path = url.path().to_owned();
    let is_usual = url.scheme() == "https" && url.port().is_none() && !has_user;
    is_usual.then_some((url, host, path))
}

fn is_sns(host: &str) -> bool {
    let region = host.strip_prefix("sns.").and_then(|rest| {
        rest.strip_suffix(".amazonaws.com")
            .or_else(|| rest.strip_suffix(".amazonaws.com.cn"))
    });
    region.is_some_and(|region| {
        let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        (3..=40).contains(&region.len()) && region.bytes().all(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_providers_own_certificates_are_at_its_addresses() {
        for (host, url, is_allowed) in [
            (
                CertHost::Sns,
                "https://sns.us-east-1.amazonaws.com/x.pem",
                true,
            ),
            (
                CertHost::Sns,
                "https://sns.us-gov-west-1.amazonaws.com/x.pem",
                true,
            ),
            (
                CertHost::Sns,
                "https://sns.cn-north-1.amazonaws.com.cn/x.pem",
                true,
            ),
            (
                CertHost::Sns,
                "http://sns.us-east-1.amazonaws.com/x.pem",
                false,
            ),
            (
                CertHost::Sns,
                "https://sns.us-east-1.amazonaws.com:8443/x.pem",
                false,
            ),
            (
                CertHost::Sns,
                "https://u@sns.us-east-1.amazonaws.com/x.pem",
                false,
            ),
            (
                CertHost::Sns,
                "https://sns.us-east-1.amazonaws.com.evil.example/x.pem",
                false,
            ),
            (
                CertHost::Sns,
                "https://evil.example/sns.us-east-1.amazonaws.com/x.pem",
                false,
            ),
            (
                CertHost::Sns,
                "https://evil.example\\.sns.us-east-1.amazonaws.com/x.pem",
                false,
            ),
            (CertHost::Sns, "https://sns.a.b.amazonaws.com/x.pem", false),
            (CertHost::Sns, "https://sns..amazonaws.com/x.pem", false),
            (
                CertHost::Sns,
                "https://s3.us-east-1.amazonaws.com/x.pem",
                false,
            ),
            (
                CertHost::Sns,
                "https://sns.us-east-1.amazonaws.com/x.pem?y",
                true,
            ),
            (
                CertHost::Sns,
                "https://sns.us-east-1.amazonaws.com/x?.pem",
                false,
            ),
            (
                CertHost::Sns,
                "https://sns.us-east-1.amazonaws.com/x#.pem",
                false,
            ),
            (CertHost::Sns, "https://127.0.0.1/x.pem", false),
            (
                CertHost::Sns,
                "https://sns.us-east-1\n.amazonaws.com/x.pem",
                false,
            ),
            (
                CertHost::PayPal,
                "https://api.paypal.com/v1/notifications/certs/CERT-1",
                true,
            ),
            (
                CertHost::PayPal,
                "https://api.sandbox.paypal.com/v1/notifications/certs/CERT-1",
                true,
            ),
            (
                CertHost::PayPal,
                "https://api.paypal.com.evil.example/v1/notifications/certs/C",
                false,
            ),
            (
                CertHost::PayPal,
                "https://api.paypal.com@evil.example/v1/notifications/certs/C",
                false,
            ),
            (
                CertHost::PayPal,
                "https://www.paypal.com/v1/notifications/certs/CERT-1",
                false,
            ),
            (
                CertHost::PayPal,
                "https://api.paypal.com/v1/notifications/certs/../../open?to=x",
                false,
            ),
            (CertHost::PayPal, "https://api.paypal.com/cert", false),
            (CertHost::PayPal, "", false),
        ] {
            assert_eq!(host.allows(url).is_some(), is_allowed, "{url}");
        }
    }

    #[test]
    fn a_confirmation_is_nothing_but_a_confirmation() {
        let sns = "https://sns.us-west-2.amazonaws.com/";
        for (url, is_allowed) in [
            (
                format!("{sns}?Action=ConfirmSubscription&TopicArn=a&Token=t"),
                true,
            ),
            (format!("{sns}?Action=DeleteTopic&TopicArn=a"), false),
            (
                format!("{sns}?Action=ConfirmSubscription&Action=DeleteTopic"),
                false,
            ),
            (sns.to_owned(), false),
            (
                "https://evil.example/?Action=ConfirmSubscription".to_owned(),
                false,
            ),
        ] {
            assert_eq!(confirms_sns(&url).is_some(), is_allowed, "{url}");
        }
    }
}
