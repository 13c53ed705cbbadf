//! Where requests may go.

use std::net::IpAddr;

use super::{Net, Target, address::special};

/// Where requests may go: `https` to port 443 of the public internet, and what an operator has allowed besides.
///
/// In an allowed network every port is open, and `http` is enough: whoever allows it says that it is his own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    ports: Vec<u16>,
    allowed: Vec<Net>,
    /// Targets are those of the own program.
    own: bool,
}

/// Why a request may not go where it should. Says no address: whoever wrote the name down is not told what it leads to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Not encrypted.
    #[error("{host}: only https is allowed")]
    Plain {
        /// The host.
        host: String,
    },
    /// A port that is not in the list.
    #[error("{host}: port {port} is not allowed")]
    Port {
        /// The host.
        host: String,
        /// Its port.
        port: u16,
    },
    /// One of its addresses is not of the public internet.
    #[error("{host} leads to an address that is {what}, and such are not allowed")]
    Address {
        /// The host.
        host: String,
        /// What the address is.
        what: &'static str,
    },
}

impl Default for Rules {
    fn default() -> Self {
        Self::new()
    }
}

impl Rules {
    /// `https` to port 443 of the public internet.
    pub fn new() -> Self {
        Self {
            ports: vec![443],
            allowed: Vec::new(),
            own: false,
        }
    }

    /// For URLs that your own program or configuration says, never for those that somebody else writes down: every address and
    /// port, and `http` where all addresses are not of the public internet.
    pub fn own() -> Self {
        Self {
            own: true,
            ..Self::new()
        }
    }

    /// Allows this port too.
    pub fn port(mut self, port: u16) -> Self {
        self.ports.push(port);
        self
    }

    /// Allows this network though it is not of the public internet.
    pub fn allow(mut self, net: impl Into<Net>) -> Self {
        self.allowed.push(net.into());
        self
    }

    /// Judges a target by all addresses that its name has now.
    ///
    /// # Errors
    /// The first reason why it may not be reached.
    pub fn judge(&self, target: &Target, addresses: &[IpAddr]) -> Result<(), Refusal> {
        let host = || target.host().to_owned();
        if self.own {
            let is_inside =
                !addresses.is_empty() && addresses.iter().all(|one| special(*one).is_some());
            return match target.is_https() || is_inside {
                true => Ok(()),
                false => Err(Refusal::Plain { host: host() }),
            };
        }
        let is_allowed = |address: &IpAddr| self.allowed.iter().any(|net| net.contains(*address));
        let others: Vec<IpAddr> = addresses
            .iter()
            .copied()
            .filter(|address| !is_allowed(address))
            .collect();
        if let Some(what) = others.iter().find_map(|address| special(*address)) {
            return Err(Refusal::Address { host: host(), what });
        }
        // Own networks only, and at least one address: nothing more to ask.
        if others.is_empty() && !addresses.is_empty() {
            return Ok(());
        }
        if !target.is_https() {
            return Err(Refusal::Plain { host: host() });
        }
        let port = target.port();
        match self.ports.contains(&port) {
            true => Ok(()),
            false => Err(Refusal::Port { host: host(), port }),
        }
    }

    /// What can be said before a name is resolved: for whoever writes a target down.
    ///
    /// # Errors
    /// What no address could mend.
    pub fn judge_early(&self, target: &Target) -> Result<(), Refusal> {
        match target.address() {
            Some(address) => self.judge(target, &[address]),
            // Its addresses may turn out to be allowed ones.
            None if self.own || !self.allowed.is_empty() => Ok(()),
            None => self.judge(target, &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(rules: &Rules, url: &str, addresses: &[&str]) -> Result<(), String> {
        let target = Target::parse(url).unwrap();
        let addresses: Vec<IpAddr> = addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect();
        rules
            .judge(&target, &addresses)
            .map_err(|why| why.to_string())
    }

    #[test]
    fn one_address_that_is_not_public_refuses_them_all() {
        let rules = Rules::new();
        assert_eq!(
            judged(&rules, "https://a.example/", &["8.8.8.8", "2606:4700::1"]),
            Ok(())
        );
        let why = judged(&rules, "https://a.example/", &["8.8.8.8", "::1"]).unwrap_err();
        assert_eq!(
            why,
            "a.example leads to an address that is loopback, and such are not allowed"
        );
        let why = judged(&rules, "http://a.example/", &["8.8.8.8"]).unwrap_err();
        assert_eq!(why, "a.example: only https is allowed");
        let why = judged(&rules, "https://a.example:22/", &["8.8.8.8"]).unwrap_err();
        assert_eq!(why, "a.example: port 22 is not allowed");
        assert_eq!(
            judged(&rules.port(8443), "https://a.example:8443/", &["8.8.8.8"]),
            Ok(())
        );
    }

    #[test]
    fn an_allowed_network_is_open_and_opens_nothing_else() {
        let rules = Rules::new().allow("127.0.0.0/8".parse::<Net>().unwrap());
        assert_eq!(
            judged(&rules, "http://a.example:8080/", &["127.0.0.1"]),
            Ok(())
        );
        for (url, addresses) in [
            ("http://a.example:8080/", &["127.0.0.1", "8.8.8.8"][..]),
            ("https://a.example/", &["127.0.0.1", "10.0.0.1"]),
            ("https://a.example/", &["::ffff:127.0.0.1"]),
            ("http://a.example/", &[]),
        ] {
            assert!(
                judged(&rules, url, addresses).is_err(),
                "{url} {addresses:?}"
            );
        }
    }

    #[test]
    fn what_the_own_program_says_may_be_anywhere_but_not_in_plain_text_over_the_internet() {
        let own = Rules::own();
        for (url, address) in [
            ("https://a.example:8443/", "8.8.8.8"),
            ("https://a.example/", "10.0.0.1"),
            ("http://a.example:8080/", "10.0.0.1"),
            ("http://a.example/", "127.0.0.1"),
        ] {
            assert_eq!(judged(&own, url, &[address]), Ok(()), "{url} {address}");
        }
        for addresses in [&["8.8.8.8"][..], &["10.0.0.1", "8.8.8.8"], &[]] {
            let why = judged(&own, "http://a.example/", addresses).unwrap_err();
            assert_eq!(why, "a.example: only https is allowed", "{addresses:?}");
        }
        assert_eq!(
            own.judge_early(&Target::parse("http://a.example/").unwrap()),
            Ok(())
        );
        assert!(
            own.judge_early(&Target::parse("http://8.8.8.8/").unwrap())
                .is_err()
        );
    }

    #[test]
    fn a_literal_address_is_judged_when_it_is_written_down_however_it_is_spelt() {
        let rules = Rules::new();
        let early = |url: &str| rules.judge_early(&Target::parse(url).unwrap());
        for url in [
            "https://127.0.0.1/",
            "https://0x7f000001/",
            "https://2130706433/",
            "https://0177.1/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[64:ff9b::7f00:1]/",
            "https://169.254.169.254/latest/meta-data",
            "http://a.example/",
            "https://a.example:8443/",
        ] {
            assert!(early(url).is_err(), "{url}");
        }
        assert_eq!(early("https://a.example/"), Ok(()));
        assert_eq!(early("https://1.1.1.1/"), Ok(()));
    }
}
