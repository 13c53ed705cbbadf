//! What a process has to know of NATS: where it is, who we are, and what `ensure` makes.

use std::{fmt, path::PathBuf, time::Duration};

use async_nats::ServerAddr;
use outlast_core::duration;
use serde::{Deserialize, Serialize};

/// Settings of the connection, and of what [`ensure`](outlast_core::broker::Broker::ensure) makes.
///
/// ```
/// let settings: outlast_nats::NatsSettings = toml::from_str(r#"
///     urls = ["nats://10.0.0.1:4222", "nats://10.0.0.2:4222"]
///     credentials_file = "/etc/outlast/nats.creds"
///     monitor = "http://10.0.0.1:8222"
///     replicas = 3
/// "#).unwrap();
/// assert_eq!(settings.problems(), Vec::<String>::new());
/// ```
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct NatsSettings {
    /// The servers of one cluster: `nats://host:4222`, or `tls://`.
    pub urls: Vec<String>,
    /// What the server shows of us in its lists of connections.
    pub name: String,
    /// A file with a user's JWT and its seed.
    pub credentials_file: Option<PathBuf>,
    /// A file with the seed of a user's nkey, which begins with `SU`.
    pub nkey_file: Option<PathBuf>,
    /// A token. A secret.
    pub token: Option<String>,
    /// A user's name, with [`password`](Self::password).
    pub user: Option<String>,
    /// Its password. A secret.
    pub password: Option<String>,
    /// Refuses a connection without TLS. So does an address that begins with `tls://`, and each of the other settings of TLS.
    pub tls_required: bool,
    /// Begins with TLS, before the server has said a word: for one with `handshake_first`.
    pub tls_first: bool,
    /// A file with the certificates of the authority, in PEM. Without it the system's are taken. The server's certificate is
    /// checked in either case, and has to be for the name in its address.
    pub tls_ca: Option<PathBuf>,
    /// A file with our certificate, in PEM, with [`tls_key`](Self::tls_key).
    pub tls_certificate: Option<PathBuf>,
    /// A file with its key, in PEM.
    pub tls_key: Option<PathBuf>,
    /// Begins the subjects of replies, for accounts that restrict them. `_INBOX` if it is not said.
    pub inbox_prefix: Option<String>,
    /// The JetStream domain, if it is not the server's own.
    pub domain: Option<String>,
    /// The address of the monitoring of a server, `http://host:8222`: it tells what no client is told, such as how
    /// often the store is synced.
    pub monitor: Option<String>,
    /// On how many servers a stream made by us is kept. If it is not said: 3 in a cluster, else 1.
    pub replicas: Option<usize>,
    /// How long a stream made by us keeps a message, read or not. 0: for ever.
    #[serde(with = "duration")]
    pub max_age: Duration,
    /// How much a stream made by us takes. When it is full it refuses. 0: as much as the server has.
    pub max_bytes: u64,
    /// How long a stream made by us knows a message's id, to drop a copy.
    #[serde(with = "duration")]
    pub duplicate_window: Duration,
    /// After how many deliveries a message is put aside as dead.
    pub deliveries: u32,
    /// How many deliveries of one consumer made by us may be unsettled at once, over all processes.
    pub max_ack_pending: u32,
    /// The stream in which dead messages are kept until somebody takes them over.
    pub dead_stream: String,
}

impl Default for NatsSettings {
    fn default() -> Self {
        Self {
            urls: vec!["nats://127.0.0.1:4222".into()],
            name: "outlast".into(),
            credentials_file: None,
            nkey_file: None,
            token: None,
            user: None,
            password: None,
            tls_required: false,
            tls_first: false,
            tls_ca: None,
            tls_certificate: None,
            tls_key: None,
            inbox_prefix: None,
            domain: None,
            monitor: None,
            replicas: None,
            max_age: Duration::ZERO,
            max_bytes: 0,
            duplicate_window: Duration::from_mins(2),
            deliveries: 10,
            max_ack_pending: 10_000,
            dead_stream: "outlast-dead".into(),
        }
    }
}

impl NatsSettings {
    /// Those of a server without authentication.
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            ..Self::default()
        }
    }

    /// Whether a connection without TLS is refused. If one address asks for it, for all: a cluster names its other servers
    /// without saying how.
    pub(crate) fn wants_tls(&self) -> bool {
        let named = self.urls.iter().any(|url| url.starts_with("tls://"));
        let files = self.tls_ca.is_some() || self.tls_certificate.is_some();
        self.tls_required || self.tls_first || files || named
    }

    /// Everything that is wrong, at once. Opens no file and no connection.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, problem: &str| {
            if !holds {
                problems.push(problem.to_owned());
            }
        };
        require(!self.urls.is_empty(), "urls is empty: where is NATS?");
        for (n, url) in self.urls.iter().enumerate() {
            // Not shown: there may be a password in it.
            let reads = url.parse::<ServerAddr>().is_ok();
            let n = n + 1;
            require(
                reads,
                &format!("urls: the address number {n} is none, as nats://host:4222 is"),
            );
        }
        let ways = [
            self.credentials_file.is_some(),
            self.nkey_file.is_some(),
            self.token.is_some(),
            self.user.is_some() || self.password.is_some(),
        ];
        let ways = ways.into_iter().filter(|way| *way).count();
        require(
            ways <= 1,
            "credentials_file, nkey_file, token, user: at most one of them",
        );
        let both = self.user.is_some() == self.password.is_some();
        require(both, "user and password: both or none");
        let both = self.tls_certificate.is_some() == self.tls_key.is_some();
        require(both, "tls_certificate and tls_key: both or none");
        let replicas = self.replicas.is_none_or(|n| matches!(n, 1 | 3 | 5));
        require(replicas, "replicas is 1, 3 or 5");
        let monitor = self.monitor.as_deref();
        let plain = monitor.is_none_or(|url| url.starts_with("http://"));
        require(plain, "monitor is an address such as http://host:8222");
        require(
            self.deliveries > 0,
            "deliveries is 0: every message would be dead",
        );
        require(
            self.max_ack_pending > 0,
            "max_ack_pending is 0: nothing would be delivered",
        );
        let short = self.duplicate_window < Duration::from_millis(100);
        require(!short, "duplicate_window is shorter than 100ms");
        let longer = !self.max_age.is_zero() && self.max_age < self.duplicate_window;
        require(!longer, "max_age is shorter than duplicate_window");
        let plain = crate::names::is_plain(&self.dead_stream);
        require(plain, "dead_stream: letters, digits, - and _ only");
        for (what, prefix) in [
            ("inbox_prefix", &self.inbox_prefix),
            ("domain", &self.domain),
        ] {
            let fits = prefix
                .as_deref()
                .is_none_or(|prefix| crate::names::check_subject(prefix).is_ok());
            require(fits, &format!("{what} is no subject"));
        }
        problems
    }
}

impl fmt::Debug for NatsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |secret: &Option<String>| secret.as_ref().map(|_| "***");
        f.debug_struct("NatsSettings")
            .field("urls", &self.urls.len())
            .field("name", &self.name)
            .field("credentials_file", &self.credentials_file)
            .field("nkey_file", &self.nkey_file)
            .field("token", &hidden(&self.token))
            .field("user", &self.user)
            .field("password", &hidden(&self.password))
            .field("tls_required", &self.tls_required)
            .field("tls_first", &self.tls_first)
            .field("tls_ca", &self.tls_ca)
            .field("tls_certificate", &self.tls_certificate)
            .field("tls_key", &self.tls_key)
            .field("domain", &self.domain)
            .field("monitor", &self.monitor)
            .field("replicas", &self.replicas)
            .field("max_age", &self.max_age)
            .field("max_bytes", &self.max_bytes)
            .field("duplicate_window", &self.duplicate_window)
            .field("deliveries", &self.deliveries)
            .field("max_ack_pending", &self.max_ack_pending)
            .field("dead_stream", &self.dead_stream)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_told_at_once_and_no_secret() {
        let bad = NatsSettings {
            urls: vec!["nats://joe:s3cret@h:x".into()],
            token: Some("t0ken".into()),
            user: Some("joe".into()),
            replicas: Some(2),
            monitor: Some("https://h".into()),
            deliveries: 0,
            dead_stream: "a b".into(),
            tls_key: Some("k".into()),
            ..NatsSettings::default()
        };
        let problems = bad.problems();
        assert_eq!(problems.len(), 8, "{problems:?}");
        let told = format!("{problems:?} {bad:?}");
        for secret in ["s3cret", "t0ken"] {
            assert!(!told.contains(secret), "{told}");
        }
        assert_eq!(NatsSettings::default().problems(), Vec::<String>::new());
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let read = toml::from_str::<NatsSettings>("url = 'nats://h:4222'");
        assert!(read.is_err_and(|why| why.to_string().contains("url")));
    }
}
