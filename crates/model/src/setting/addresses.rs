//! The static addresses of an interface as text: `12.0.10.2/24 2001:db8::1/64`, with the words of ip-address(8) for what
//! is not the default.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// An address that somebody set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticAddress {
    /// The address.
    pub address: IpAddr,
    /// The prefix length.
    pub prefix: u8,
    /// The address of the other end of a point-to-point link.
    pub peer: Option<IpAddr>,
    /// The broadcast address.
    pub broadcast: Option<Ipv4Addr>,
    /// The label, if it is not the interface's name.
    pub label: Option<String>,
    /// The metric of its prefix route; 0 is the default.
    pub metric: u32,
    /// Whether the kernel adds no route to its prefix.
    pub no_prefix_route: bool,
    /// Whether it is used without duplicate address detection (IPv6).
    pub no_dad: bool,
}

/// The maximum length of a label (`IFNAMSIZ`).
const LABEL_BYTES_MAX: usize = 15;

impl StaticAddress {
    fn parse(word: &str) -> Option<Self> {
        let (address, prefix) = word.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let is_link_local = match address {
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
            IpAddr::V4(_) => false,
        };
        let is_own = !address.is_unspecified() && !address.is_multicast() && !is_link_local;
        let prefix = prefix
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| prefix.parse().ok())?;
        Some(Self {
            address,
            prefix: prefix.filter(|prefix| *prefix <= longest && is_own)?,
            peer: None,
            broadcast: None,
            label: None,
            metric: 0,
            no_prefix_route: false,
            no_dad: false,
        })
    }

    /// Takes a word that follows the address, with its value.
    fn take<'w>(&mut self, word: &str, mut rest: impl Iterator<Item = &'w str>) -> Option<()> {
        match word {
            "noprefixroute" => {
                self.no_prefix_route = true;
                return Some(());
            }
            "nodad" if self.address.is_ipv6() => {
                self.no_dad = true;
                return Some(());
            }
            "peer" => {
                let peer: IpAddr = rest.next()?.parse().ok()?;
                (peer.is_ipv4() == self.address.is_ipv4()).then_some(())?;
                self.peer = Some(peer);
            }
            "broadcast" if self.address.is_ipv4() => {
                self.broadcast = Some(rest.next()?.parse().ok()?);
            }
            "label" if self.address.is_ipv4() => {
                let label = rest.next()?;
                (label.len() <= LABEL_BYTES_MAX).then_some(())?;
                self.label = Some(label.to_owned());
            }
            "metric" => self.metric = rest.next()?.parse().ok()?,
            _ => return None,
        }
        Some(())
    }

    /// Whether they are the same address of an interface, whatever else differs.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.address, self.prefix) == (other.address, other.prefix)
            && (self.peer.is_none() || other.peer.is_none() || self.peer == other.peer)
    }

    /// Whether one that was read has everything that this one names.
    pub fn is_met_by(&self, found: &Self) -> bool {
        fn named<T: PartialEq>(asked: Option<&T>, found: Option<&T>) -> bool {
            asked.is_none() || asked == found
        }
        self.is_same(found)
            && named(self.peer.as_ref(), found.peer.as_ref())
            && named(self.broadcast.as_ref(), found.broadcast.as_ref())
            && named(self.label.as_ref(), found.label.as_ref())
            && [0, found.metric].contains(&self.metric)
            && (!self.no_prefix_route || found.no_prefix_route)
    }
}

impl fmt::Display for StaticAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)?;
        if let Some(peer) = self.peer {
            write!(f, " peer {peer}")?;
        }
        if let Some(broadcast) = self.broadcast {
            write!(f, " broadcast {broadcast}")?;
        }
        if let Some(label) = &self.label {
            write!(f, " label {label}")?;
        }
        if self.metric != 0 {
            write!(f, " metric {}", self.metric)?;
        }
        if self.no_prefix_route {
            f.write_str(" noprefixroute")?;
        }
        if self.no_dad {
            f.write_str(" nodad")?;
        }
        Ok(())
    }
}

/// Addresses as text; empty without any.
pub fn address_words(addresses: &[StaticAddress]) -> String {
    let words: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    words.join(" ")
}

/// Parses the text of [`address_words`], or `none`; each address once.
pub fn parse_addresses(text: &str) -> Option<Vec<StaticAddress>> {
    if text.trim() == "none" {
        return Some(Vec::new());
    }
    let mut all: Vec<StaticAddress> = Vec::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        if let Some(next) = StaticAddress::parse(word) {
            all.push(next);
        } else {
            all.last_mut()?.take(word, &mut words)?;
        }
    }
    let is_new = |(at, one): (usize, &StaticAddress)| {
        !all[..at]
            .iter()
            .any(|other| other.address == one.address && other.is_same(one))
    };
    all.iter().enumerate().all(is_new).then_some(all)
}

/// Whether the texts are lists of the same addresses, in any order: the kernel chooses where it lists a new one.
pub(super) fn is_met(asked: &str, found: &str) -> bool {
    let lists = (parse_addresses(asked), parse_addresses(found));
    let (Some(asked), Some(found)) = lists else {
        return false;
    };
    !asked.is_empty()
        && asked.len() == found.len()
        && asked
            .iter()
            .all(|one| found.iter().any(|other| one.is_met_by(other)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_printed_as_they_are_parsed() {
        let whole = "12.0.10.2/24 broadcast 12.0.10.255 label eth1:1 metric 5 10.0.0.1/32 peer 10.0.0.2 \
            2001:db8::1/64 noprefixroute nodad";
        let parsed = parse_addresses(whole).expect("addresses");
        assert_eq!(address_words(&parsed), whole);
        assert_eq!(parse_addresses("none"), Some(Vec::new()));
        assert_eq!(parse_addresses(""), Some(Vec::new()));
        for wrong in [
            "12.0.10.2",
            "12.0.10.2/33",
            "12.0.10.2/+4",
            "2001:db8::1/129",
            "fe80::1/64",
            "224.0.0.1/4",
            "0.0.0.0/0",
            "::/0",
            "12.0.10.2/24 12.0.10.2/24",
            "12.0.10.2/24 none",
            "12.0.10.2/24 peer ::1",
            "2001:db8::1/64 broadcast 1.2.3.4",
            "metric 5",
            "12.0.10.2/24 metric",
        ] {
            assert_eq!(parse_addresses(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_same_addresses_in_another_order_are_the_same() {
        for (asked, found, met) in [
            ("10.0.0.1/24 10.0.1.1/24", "10.0.1.1/24 10.0.0.1/24", true),
            ("10.0.0.1/24", "10.0.0.1/24 broadcast 10.0.0.255", true),
            ("10.0.0.1/24 metric 7", "10.0.0.1/24", false),
            ("10.0.0.1/24", "10.0.0.1/25", false),
            ("10.0.0.1/24", "10.0.0.1/24 10.0.0.2/24", false),
            ("10.0.0.1/24 10.0.0.2/24", "10.0.0.1/24", false),
            ("bbr", "bbr", false),
            ("", "", false),
        ] {
            assert_eq!(is_met(asked, found), met, "{asked} / {found}");
        }
    }

    proptest! {
        #[test]
        fn addresses_read_back_as_they_were_printed(
            v4 in any::<[u8; 4]>(),
            v6 in any::<[u8; 16]>(),
            prefix in 0u8..33,
            broadcast in any::<Option<[u8; 4]>>(),
            metric in any::<u32>(),
            no_prefix_route: bool,
        ) {
            let addresses = [IpAddr::from(v4), IpAddr::from(v6)].map(|address| StaticAddress {
                address,
                prefix,
                peer: None,
                broadcast: broadcast.filter(|_| address.is_ipv4()).map(Ipv4Addr::from),
                label: None,
                metric,
                no_prefix_route,
                no_dad: false,
            });
            for one in addresses {
                prop_assume!(StaticAddress::parse(&format!("{}/{prefix}", one.address)).is_some());
                prop_assert_eq!(parse_addresses(&one.to_string()), Some(vec![one]));
            }
        }

        #[test]
        fn no_words_panic(words in "[0-9a-f:./]{0,12}( [a-z]{1,13}| [0-9.:/]{1,9}){0,5}") {
            let _ = parse_addresses(&words);
        }
    }
}
