//! Networks that may call: an address, or `ADDRESS/PREFIX`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Network {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = match text.split_once('/') {
            None => (text, None),
            Some((address, prefix)) => (address, Some(prefix)),
        };
        let address: IpAddr = (address.parse())
            .map_err(|_| format!("`{address}` is no IP address; a network is `ADDRESS/PREFIX`"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix.map(str::parse::<u8>) {
            None => most,
            Some(Ok(prefix)) if prefix <= most => prefix,
            Some(_) => return Err(format!("the prefix length must be 0 to {most}")),
        };
        Ok(Self { address, prefix })
    }
}

impl Network {
    /// Whether an address is in the network; an IPv4 address that arrives on an IPv6 socket is one of IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX
                    .checked_shl(u32::from(32 - self.prefix))
                    .unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX
                    .checked_shl(u32::from(128 - self.prefix))
                    .unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_its_network_and_in_no_other() {
        let within = |network: &str, address: &str| {
            let network: Network = network.parse().expect(network);
            network.contains(address.parse().expect(address))
        };
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.200.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.6", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "fd00::1", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("fd00::/8", "fd12::1", true),
            ("::/0", "fe80::1", true),
        ] {
            assert_eq!(within(network, address), expected, "{network} {address}");
        }
        for text in ["", "10.0.0.0/33", "::/129", "x/8", "10.0.0.0/"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
