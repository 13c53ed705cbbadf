//! Which project, where, and as whom.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use outlast_core::duration;
use serde::{Deserialize, Serialize};

use crate::name;

/// Google's own, worldwide.
const GOOGLE: &str = "https://pubsub.googleapis.com";
/// Set by `gcloud beta emulators pubsub env-init`.
pub(crate) const EMULATOR: &str = "PUBSUB_EMULATOR_HOST";

/// How to reach Pub/Sub, and what [`ensure`](outlast_core::broker::Broker::ensure) makes there.
///
/// ```
/// use outlast_pubsub::Options;
///
/// let mut options = Options::new("my-project");
/// options.ordering_buckets = std::num::NonZeroU32::new(256);
/// assert!(options.problems().is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Options {
    /// The project that topics and subscriptions are in, unless a name says another: `projects/OTHER/topics/NAME`.
    pub project: String,
    /// `https://HOST[:PORT]`, with credentials; or `http://HOST:PORT`, an emulator, without any. Without one:
    /// `PUBSUB_EMULATOR_HOST`, else Google's. A regional one (`https://europe-west1-pubsub.googleapis.com`) keeps the order
    /// of keys when publishers are in several regions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// A file with credentials: of a service account, of a user, federated, or impersonated. Without one: Application
    /// Default Credentials, which are `GOOGLE_APPLICATION_CREDENTIALS`, gcloud's, or the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_file: Option<PathBuf>,
    /// Pub/Sub takes one ordering key a request. With many keys of few messages that is many requests; with a number here
    /// keys share so many of Pub/Sub's ordering keys, by hash. Order of each key is kept; the envelope has the key itself.
    /// What is not settled holds up more behind it. Change it only when nothing is in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering_buckets: Option<NonZeroU32>,
    /// How many requests may be under way at once. 64.
    pub requests_in_flight: usize,
    /// How long a connection may take to come about. 5 s.
    #[serde(with = "duration")]
    pub connect_within: Duration,
    /// What follows the name of a subscription in the names of its dead-letter topic and of that one's subscription.
    /// `-dead`.
    pub dead_suffix: String,
    /// After how many deliveries Pub/Sub gives a message up, about. It is a net for messages that kill their worker: failures
    /// are counted in PostgreSQL. While PostgreSQL is away messages come and go too: 50 are some seven hours. 5 to 100; 50.
    pub deliveries_most: u16,
    /// Makes subscriptions on which acks are confirmed. They cost latency and throughput; the inbox drops doubles without
    /// them.
    pub exactly_once: bool,
    /// How long new subscriptions keep what is not acked. 10 min to 31 days; 7 days.
    #[serde(with = "duration")]
    pub retention: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            project: String::new(),
            endpoint: None,
            credentials_file: None,
            ordering_buckets: None,
            requests_in_flight: 64,
            connect_within: Duration::from_secs(5),
            dead_suffix: "-dead".into(),
            deliveries_most: 50,
            exactly_once: false,
            retention: Duration::from_hours(7 * 24),
        }
    }
}

/// Where to go, and whether without credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) uri: String,
    pub(crate) anonymous: bool,
}

impl Options {
    /// This project, at Google's, as the machine's own account.
    pub fn new(project: impl Into<String>) -> Self {
        Self {
            project: project.into(),
            ..Self::default()
        }
    }

    /// Everything that is wrong with them, at once; empty when nothing is.
    pub fn problems(&self) -> Vec<String> {
        self.problems_with(std::env::var(EMULATOR).ok().as_deref())
    }

    pub(crate) fn problems_with(&self, emulator: Option<&str>) -> Vec<String> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, problem: String| {
            if !holds {
                problems.push(problem);
            }
        };
        require(
            name::is_project(&self.project),
            format!("project: `{}` is not the id of a project", self.project),
        );
        match self.place(emulator) {
            Err(why) => require(false, why),
            Ok(place) if place.anonymous => {
                require(
                    self.credentials_file.is_none(),
                    format!(
                        "credentials_file: {} is an emulator, which gets no credentials; over http they would be readable",
                        place.uri
                    ),
                );
                require(
                    !place.uri.contains("googleapis.com"),
                    format!("endpoint: {} needs https", place.uri),
                );
            }
            Ok(_) => {}
        }
        require(
            (1..=1_000).contains(&self.requests_in_flight),
            format!(
                "requests_in_flight is {}, not between 1 and 1000",
                self.requests_in_flight
            ),
        );
        let spans = [
            (
                "connect_within",
                self.connect_within,
                Duration::from_millis(100),
                Duration::from_mins(1),
            ),
            (
                "retention",
                self.retention,
                Duration::from_mins(10),
                Duration::from_hours(31 * 24),
            ),
        ];
        for (what, is, least, most) in spans {
            let (shown, low, high) = (
                duration::show(is),
                duration::show(least),
                duration::show(most),
            );
            require(
                (least..=most).contains(&is),
                format!("{what} is {shown}, not between {low} and {high}"),
            );
        }
        require(
            (5..=100).contains(&self.deliveries_most),
            format!(
                "deliveries_most is {}, not between 5 and 100",
                self.deliveries_most
            ),
        );
        require(
            !self.dead_suffix.is_empty() && self.dead_suffix.bytes().all(name::is_allowed),
            format!(
                "dead_suffix: `{}` cannot end a name of Pub/Sub",
                self.dead_suffix
            ),
        );
        problems
    }

    /// An endpoint of ours, else the emulator that the environment names, else Google's.
    pub(crate) fn place(&self, emulator: Option<&str>) -> Result<Place, String> {
        let emulator = emulator.map(str::trim).filter(|host| !host.is_empty());
        let (what, uri) = match (&self.endpoint, emulator) {
            (Some(endpoint), _) => ("endpoint", endpoint.clone()),
            (None, Some(host)) if host.contains("://") => (EMULATOR, host.to_owned()),
            (None, Some(host)) => (EMULATOR, format!("http://{host}")),
            (None, None) => ("endpoint", GOOGLE.to_owned()),
        };
        let uri = uri.trim_end_matches('/').to_owned();
        let parsed: Option<tonic::transport::Uri> = uri.parse().ok();
        let fits = parsed.as_ref().is_some_and(|uri| {
            let bare = uri.path_and_query().is_none_or(|path| path == "/");
            let authority = uri.authority().map_or("", |authority| authority.as_str());
            bare && !authority.is_empty() && !authority.contains('@')
        });
        let anonymous = uri.starts_with("http://");
        if !fits || !(anonymous || uri.starts_with("https://")) {
            return Err(format!(
                "{what}: `{uri}` is not https://HOST[:PORT], nor http://HOST:PORT of an emulator"
            ));
        }
        Ok(Place { uri, anonymous })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_is_ours_or_the_environments_emulator_or_googles() {
        let place = |endpoint: Option<&str>, emulator: Option<&str>| {
            let mut options = Options::new("p-1");
            options.endpoint = endpoint.map(Into::into);
            options
                .place(emulator)
                .map(|place| (place.uri, place.anonymous))
        };
        let is = |uri: &str, anonymous| Ok((uri.to_owned(), anonymous));
        assert_eq!(place(None, None), is(GOOGLE, false));
        assert_eq!(place(None, Some("")), is(GOOGLE, false));
        assert_eq!(
            place(None, Some("localhost:8085")),
            is("http://localhost:8085", true)
        );
        assert_eq!(
            place(None, Some("http://[::1]:1/")),
            is("http://[::1]:1", true)
        );
        assert_eq!(
            place(Some("https://x"), Some("localhost:8085")),
            is("https://x", false)
        );
        for bad in [
            "",
            "x:1",
            "ftp://x",
            "https://",
            "https://x/path",
            "https://x?q",
            "http://user:secret@x",
        ] {
            assert!(place(Some(bad), None).is_err(), "{bad}");
        }
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let mut options = Options::new("");
        options.endpoint = Some("http://pubsub.googleapis.com".into());
        options.credentials_file = Some("key.json".into());
        options.requests_in_flight = 0;
        options.deliveries_most = 4;
        options.retention = Duration::from_secs(1);
        options.dead_suffix = " dead".into();
        let problems = options.problems_with(None);
        let about = [
            "project",
            "credentials_file",
            "endpoint",
            "requests_in_flight",
            "retention",
            "deliveries_most",
            "dead_suffix",
        ];
        assert_eq!(problems.len(), about.len(), "{problems:#?}");
        for (problem, about) in problems.iter().zip(about) {
            assert!(problem.starts_with(about), "{problem}");
        }
        assert_eq!(
            Options::new("my-project").problems_with(None),
            Vec::<String>::new()
        );
    }

    #[test]
    fn an_unknown_option_is_refused_by_its_name() {
        let read = serde_json::from_str::<Options>(r#"{"project": "p-1", "anonymous": true}"#);
        let why = read.expect_err("there is no such option").to_string();
        assert!(why.contains("anonymous"), "{why}");
        let mut options = Options::new("p-1");
        options.connect_within = Duration::from_millis(1500);
        let text = serde_json::to_string(&options).expect("writes");
        assert_eq!(
            serde_json::from_str::<Options>(&text).expect("reads"),
            options
        );
    }
}
