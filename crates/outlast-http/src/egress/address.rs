//! Addresses: which are of the public internet, and networks of them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// IANA's registry of special addresses, and what clouds answer on besides. All that is not for everybody.
const V4: &[(&str, &str)] = &[
    ("0.0.0.0/8", "unspecified"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared by a carrier (CGNAT)"),
    ("127.0.0.0/8", "loopback"),
    ("168.63.129.16/32", "a cloud's metadata"),
    ("169.254.0.0/16", "link-local, or a cloud's metadata"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "for documentation"),
    ("192.88.99.0/24", "a 6to4 relay"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
];

const V6: &[(&str, &str)] = &[
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::ffff:0:0/96", "an IPv4 address in disguise"),
    ("::/96", "an IPv4 address in disguise"),
    ("64:ff9b::/96", "an IPv4 address behind NAT64"),
    ("64:ff9b:1::/48", "an IPv4 address behind NAT64"),
    ("100::/64", "discarded"),
    ("2001::/32", "a Teredo tunnel"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "for documentation"),
    ("2002::/16", "a 6to4 tunnel"),
    ("3fff::/20", "for documentation"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
];

/// All that IANA has given to anybody so far.
const GLOBAL_V6: &str = "2000::/3";

/// What an address is, if it is not of the public internet.
///
/// ```
/// use outlast_http::egress::special;
///
/// assert_eq!(special("169.254.169.254".parse()?), Some("link-local, or a cloud's metadata"));
/// assert_eq!(special("::ffff:8.8.8.8".parse()?), Some("an IPv4 address in disguise"));
/// assert_eq!(special("8.8.8.8".parse()?), None);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn special(address: IpAddr) -> Option<&'static str> {
    let table = if address.is_ipv4() { V4 } else { V6 };
    let among =
        |(net, what): &(&'static str, &'static str)| known(net).contains(address).then_some(*what);
    let outside =
        || (address.is_ipv6() && !known(GLOBAL_V6).contains(address)).then_some("reserved");
    table.iter().find_map(among).or_else(outside)
}

fn known(net: &str) -> Net {
    net.parse().expect("the tables hold networks")
}

/// A network: an address and how many of its bits count. Written `10.1.0.0/16`, `fd00::/8`, `127.0.0.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    address: IpAddr,
    bits: u8,
}

/// A text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no network such as 10.1.0.0/16, fd00::/8 or 127.0.0.1")]
pub struct BadNet(String);

impl Net {
    /// Whether it holds this address.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(net), IpAddr::V4(address)) => {
                (net.to_bits() ^ address.to_bits()) & mask_v4(self.bits) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(address)) => {
                (net.to_bits() ^ address.to_bits()) & mask_v6(self.bits) == 0
            }
            _ => false,
        }
    }
}

fn mask_v4(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

fn mask_v6(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Net {
    type Err = BadNet;

    fn from_str(text: &str) -> Result<Self, BadNet> {
        let bad = || BadNet(outlast_core::text::clean(text, 100));
        let (address, bits) = text
            .split_once('/')
            .map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= most)
                .ok_or_else(bad)?,
            None => most,
        };
        // Bits beyond the mask are a slip: nobody knows which of both was meant.
        let beyond = match address {
            IpAddr::V4(net) => net.to_bits() & !mask_v4(bits) != 0,
            IpAddr::V6(net) => net.to_bits() & !mask_v6(bits) != 0,
        };
        if beyond {
            Err(bad())
        } else {
            Ok(Self { address, bits })
        }
    }
}

impl From<Ipv4Addr> for Net {
    fn from(address: Ipv4Addr) -> Self {
        Self {
            address: address.into(),
            bits: 32,
        }
    }
}

impl From<Ipv6Addr> for Net {
    fn from(address: Ipv6Addr) -> Self {
        Self {
            address: address.into(),
            bits: 128,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_of_the_public_internet_is_known_in_every_disguise() {
        let refused = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.0.170",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::a00:1",
            "100::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff::1",
            "5f00::1",
            "4000::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "1::1",
        ];
        for address in refused {
            assert!(special(address.parse().unwrap()).is_some(), "{address}");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "223.255.255.255",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700:4700::1111",
            "2a00:1450:4001:831::200e",
            "3ffe::1",
        ] {
            assert_eq!(special(address.parse().unwrap()), None, "{address}");
        }
    }

    #[test]
    fn a_network_holds_what_it_says_and_nothing_of_the_other_family() {
        let net = |text: &str| text.parse::<Net>();
        let holds = |net: Net, address: &str| net.contains(address.parse().unwrap());
        let ten = net("10.1.0.0/16").unwrap();
        assert!(
            holds(ten, "10.1.255.255") && !holds(ten, "10.2.0.0") && !holds(ten, "::ffff:10.1.0.1")
        );
        let all = net("0.0.0.0/0").unwrap();
        assert!(holds(all, "8.8.8.8") && !holds(all, "::1"));
        let one = net("::1").unwrap();
        assert!(holds(one, "::1") && !holds(one, "::2"));
        assert_eq!(net("fd00::/8").unwrap().to_string(), "fd00::/8");
        for text in [
            "",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "fd00::/129",
            "10.0.0.0/",
            "localhost",
            "10.0.0",
            "::1/0",
        ] {
            assert!(net(text).is_err(), "{text}");
        }
    }
}
