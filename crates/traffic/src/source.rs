//! Whom a server's client is counted with, so that one party does not take all places.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// Where a client comes from, as far as one party can have many addresses: an IPv4 address, or the /64 network that a
/// host chooses its IPv6 addresses from (RFC 7421). All link-local addresses are of one such network, so each counts
/// for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_unicast_link_local() && !address.is_loopback() => {
                Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into()
            }
            other => other,
        })
    }
}

/// How many places each source holds.
#[derive(Debug)]
pub(crate) struct Shares {
    held: HashMap<Source, usize>,
    most: usize,
}

impl Shares {
    /// Each source may hold `most`.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            held: HashMap::new(),
            most,
        }
    }

    /// Takes a place for `source`; false when it holds all that it may.
    pub(crate) fn take(&mut self, source: Source) -> bool {
        let held = self.held.entry(source).or_default();
        let is_free = *held < self.most;
        *held += usize::from(is_free);
        is_free
    }

    /// Returns one.
    pub(crate) fn give(&mut self, source: Source) {
        if let Some(held) = self.held.get_mut(&source) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.held.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str) -> Source {
        Source::from(address.parse::<IpAddr>().expect("an address"))
    }

    #[test]
    fn the_addresses_that_one_host_may_choose_from_are_one_source() {
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:0:0:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
        assert_ne!(source("fe80::1"), source("fe80::2"));
    }

    #[test]
    fn no_source_holds_more_than_its_share_and_none_is_remembered_in_vain() {
        let mut shares = Shares::new(2);
        let (one, other) = (source("10.0.0.1"), source("10.0.0.2"));
        assert!(shares.take(one) && shares.take(one) && !shares.take(one));
        assert!(shares.take(other));
        shares.give(one);
        assert!(shares.take(one) && !shares.take(one));
        for source in [one, one, other, other] {
            shares.give(source);
        }
        assert!(shares.held.is_empty());
    }
}
