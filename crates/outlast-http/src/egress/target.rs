//! Targets: URLs that requests may be sent to.

use std::{fmt, net::IpAddr};

use url::{Host, Url};

/// The longest URL.
const LONGEST: usize = 2048;

/// A URL with a host, without a password, read as browsers read it: `0x7f000001` is an address, not a name.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    host: String,
    port: u16,
}

/// Why a text is no target. Says nothing of the text but what is wrong with it: it may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadUrl {
    /// Not a URL.
    #[error("not a URL: {0}")]
    Unreadable(url::ParseError),
    /// Neither https nor http.
    #[error("only https:// can be sent to")]
    Scheme,
    /// It names no host.
    #[error("it names no host")]
    NoHost,
    /// Passwords in URLs end up in logs.
    #[error("a user or password in a URL is refused: put it into a header")]
    Credentials,
    /// Over 2048 bytes.
    #[error("longer than 2048 bytes")]
    TooLong,
    /// A path that leads out of the URL that it should be below.
    #[error("the path leads out of the URL that it is below")]
    Outside,
}

impl fmt::Debug for Target {
    /// Without path and query, which may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.authority())
    }
}

impl Target {
    /// Reads a URL.
    ///
    /// # Errors
    /// Why nothing can be sent there.
    pub fn parse(url: &str) -> Result<Self, BadUrl> {
        if url.len() > LONGEST {
            return Err(BadUrl::TooLong);
        }
        let url = Url::parse(url.trim()).map_err(BadUrl::Unreadable)?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err(BadUrl::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BadUrl::Credentials);
        }
        let host = match url.host().ok_or(BadUrl::NoHost)? {
            Host::Domain(name) => name.trim_end_matches('.').to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        if host.is_empty() {
            return Err(BadUrl::NoHost);
        }
        let port = url.port_or_known_default().ok_or(BadUrl::Scheme)?;
        Ok(Self { url, host, port })
    }

    /// The name, or the address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The address, if the URL names one instead of a host.
    pub fn address(&self) -> Option<IpAddr> {
        match self.url.host()? {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is encrypted.
    pub fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Host and, where it is not the usual one, port: what the header `host` says.
    pub fn authority(&self) -> String {
        let host = match self.address() {
            Some(IpAddr::V6(address)) => format!("[{address}]"),
            _ => self.host.clone(),
        };
        match self.url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }

    /// This path below it. Whatever the path holds, it stays one: `?` and `#` are encoded, and none leads out of here.
    ///
    /// # Errors
    /// [`BadUrl::Outside`], [`BadUrl::TooLong`].
    pub(crate) fn below(&self, path: &str) -> Result<Self, BadUrl> {
        let mut url = self.url.clone();
        let base = self.url.path().trim_end_matches('/');
        match path.trim_start_matches('/') {
            "" => {}
            path => url.set_path(&format!("{base}/{path}")),
        }
        let inside = url.path().strip_prefix(base);
        if !inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            return Err(BadUrl::Outside);
        }
        self.with(url)
    }

    /// The same with one more parameter.
    ///
    /// # Errors
    /// [`BadUrl::TooLong`].
    pub(crate) fn query(&self, name: &str, value: &str) -> Result<Self, BadUrl> {
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair(name, value);
        self.with(url)
    }

    /// Invariant: only path and query of the URL are others.
    fn with(&self, url: Url) -> Result<Self, BadUrl> {
        if url.as_str().len() > LONGEST {
            return Err(BadUrl::TooLong);
        }
        Ok(Self {
            url,
            ..self.clone()
        })
    }

    /// What the request line says.
    pub(super) fn path(&self) -> String {
        match self.url.query() {
            Some(query) => format!("{}?{query}", self.url.path()),
            None => self.url.path().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_as_browsers_read_it() {
        let target = Target::parse(" https://HOOKS.example.com/in/%C3%BC?a=1#not-sent ").unwrap();
        assert_eq!(
            (
                target.host(),
                target.port(),
                target.authority().as_str(),
                target.path().as_str()
            ),
            (
                "hooks.example.com",
                443,
                "hooks.example.com",
                "/in/%C3%BC?a=1"
            )
        );
        let target = Target::parse("http://[::1]:80x".replace('x', "80").as_str()).unwrap();
        assert_eq!(
            (target.host(), target.authority().as_str()),
            ("::1", "[::1]:8080")
        );
        let hex = Target::parse("https://0x7f000001/").unwrap();
        assert_eq!(hex.address(), Some(IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn a_path_below_a_url_stays_below_it_and_a_path() {
        let base = Target::parse("https://api.example/v1/?tenant=7").unwrap();
        let below = |path: &str| base.below(path).map(|target| target.path());
        for (path, whole) in [
            ("charges", "/v1/charges?tenant=7"),
            ("/charges/ch 1", "/v1/charges/ch%201?tenant=7"),
            ("charges/a?b#c", "/v1/charges/a%3Fb%23c?tenant=7"),
            ("charges/../refunds", "/v1/refunds?tenant=7"),
            ("//evil.example/x", "/v1/evil.example/x?tenant=7"),
            ("", "/v1/?tenant=7"),
        ] {
            assert_eq!(below(path).as_deref(), Ok(whole), "{path}");
        }
        for path in ["../admin", "%2e%2e/admin", "charges/../../v10/x"] {
            assert_eq!(below(path), Err(BadUrl::Outside), "{path}");
        }
        assert_eq!(below(&"x".repeat(3000)), Err(BadUrl::TooLong));
        let asked = base.query("key", "a&b=ü").unwrap();
        assert_eq!(asked.path(), "/v1/?tenant=7&key=a%26b%3D%C3%BC");
        assert_eq!((asked.host(), asked.port()), ("api.example", 443));
    }

    #[test]
    fn what_cannot_be_a_target_is_refused_without_showing_it() {
        for (url, why) in [
            ("ftp://a.example/", BadUrl::Scheme),
            ("file:///etc/passwd", BadUrl::Scheme),
            ("gopher://a.example/", BadUrl::Scheme),
            ("https://user:hunter2@a.example/", BadUrl::Credentials),
            ("https://user@a.example/", BadUrl::Credentials),
            ("https://.../", BadUrl::NoHost),
        ] {
            let said = Target::parse(url).unwrap_err();
            assert_eq!(said, why, "{url}");
            assert!(!said.to_string().contains("hunter2"));
        }
        for url in [
            "",
            "a.example",
            "https://",
            "https://a b/",
            "https://a.example:99999/",
            "https://%00/",
        ] {
            assert!(
                matches!(Target::parse(url), Err(BadUrl::Unreadable(_))),
                "{url}"
            );
        }
        assert_eq!(
            Target::parse(&format!("https://a.example/{}", "x".repeat(3000))),
            Err(BadUrl::TooLong)
        );
        let shown = format!(
            "{:?}",
            Target::parse("https://a.example/s3cret?t=s3cret").unwrap()
        );
        assert_eq!(shown, "Target(a.example)");
    }
}
