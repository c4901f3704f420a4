//! What an agent prints so that another host may reach it over TLS: where it listens, its public key, a one-time token,
//! and until when that can be used.
//!
//! ```text
//! tls://HOST:PORT#KEY.TOKEN.EXPIRES
//! KEY      Ed25519 public key (RFC 8032), 64 hexadecimal digits
//! TOKEN    16 random bytes, 32 hexadecimal digits
//! EXPIRES  seconds since the Unix epoch, decimal
//! ```

use std::fmt::{self, Write as _};
use std::str::FromStr;

/// The port that an agent listens on by default, and that a `tls://` address without a port means.
pub const DEFAULT_PORT: u16 = 5210;

/// The maximum length of a host name (RFC 1035, section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// An Ed25519 public key: who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

/// What may pair a host once. Never shown but in a pairing line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PairingToken(pub [u8; 16]);

/// `host:port` of a listening agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// A name or an IP address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// A pairing line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pairing {
    /// Where the agent listens.
    pub at: HostPort,
    /// The agent's key: a connection to any other is refused.
    pub key: PublicKey,
    /// What proves that this host was invited.
    pub token: PairingToken,
    /// Seconds since the Unix epoch.
    pub expires_unix_s: u64,
}

impl PublicKey {
    /// The first digits, by which people recognize a key.
    pub fn short(&self) -> String {
        self.to_string()[..16].to_owned()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Debug for PairingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairingToken(..)")
    }
}

impl FromStr for PublicKey {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        from_hex(text)
            .map(Self)
            .ok_or_else(|| "a key is 64 hexadecimal digits".to_owned())
    }
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for HostPort {
    type Err = String;
    /// Reads `host`, `host:port`, `[IPv6]` or `[IPv6]:port`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = match text.strip_prefix('[') {
            Some(inner) => {
                let (host, rest) = (inner.split_once(']')).ok_or("a `]` is missing")?;
                if host.parse::<std::net::Ipv6Addr>().is_err() {
                    return Err(format!("`{host}` is no IPv6 address"));
                }
                match rest {
                    "" => (host, None),
                    _ => (
                        host,
                        Some(rest.strip_prefix(':').ok_or("expected `:PORT`")?),
                    ),
                }
            }
            None => match text.split_once(':') {
                None => (text, None),
                Some((_, port)) if port.contains(':') => {
                    return Err("an IPv6 address needs brackets: `[ADDRESS]:PORT`".to_owned());
                }
                Some((host, port)) => (host, Some(port)),
            },
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
        let fits = (1..=HOST_BYTES_MAX).contains(&host.len());
        if !fits || host.starts_with('-') || !host.chars().all(is_name) {
            return Err("a host is a name or an IP address".to_owned());
        }
        let port = match port.map(str::parse::<u16>) {
            None => DEFAULT_PORT,
            Some(Ok(port)) if port > 0 => port,
            Some(_) => return Err("the port must be 1 to 65535".to_owned()),
        };
        let host = host.to_owned();
        Ok(Self { host, port })
    }
}

impl fmt::Display for Pairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tls://{}#{}.", self.at, self.key)?;
        self.token
            .0
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_char('.')?;
        write!(f, "{}", self.expires_unix_s)
    }
}

impl FromStr for Pairing {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "a pairing line is `tls://HOST:PORT#KEY.TOKEN.EXPIRES`, as `linerate agent --listen` prints it";
        let parts = text
            .trim()
            .strip_prefix("tls://")
            .and_then(|rest| rest.split_once('#'));
        let (at, secrets) = parts.ok_or(FORM)?;
        let mut words = secrets.split('.');
        let (Some(key), Some(token), Some(expires), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(FORM.to_owned());
        };
        let is_decimal =
            (1..=12).contains(&expires.len()) && expires.bytes().all(|byte| byte.is_ascii_digit());
        let expires_unix_s = is_decimal
            .then(|| expires.parse().ok())
            .flatten()
            .ok_or(FORM)?;
        Ok(Self {
            at: at.parse()?,
            key: key.parse()?,
            token: from_hex(token).map(PairingToken).ok_or(FORM)?,
            expires_unix_s,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairing(host: &str, port: u16) -> Pairing {
        let host = host.to_owned();
        Pairing {
            at: HostPort { host, port },
            key: PublicKey([0xA5; 32]),
            token: PairingToken([0x0F; 16]),
            expires_unix_s: 1_795_000_000,
        }
    }

    #[test]
    fn a_pairing_line_reads_back_as_it_was_written() {
        for host in ["10.0.0.1", "apricot.example", "fd00::1"] {
            let line = pairing(host, 5210);
            assert_eq!(line.to_string().parse(), Ok(line.clone()), "{line}");
        }
    }

    #[test]
    fn a_line_that_is_cut_anywhere_is_refused() {
        let line = pairing("10.0.0.1", 5210).to_string();
        // The expiry has no fixed length: without its last digits it is another time, long past.
        let expires = line.rfind('.').expect("it has one") + 1;
        for length in 0..=expires {
            assert!(line[..length].parse::<Pairing>().is_err(), "{length}");
        }
    }

    #[test]
    fn a_host_without_a_port_means_the_default_and_strange_ones_are_refused() {
        let read = |text: &str| text.parse::<HostPort>().map(|at| (at.host, at.port));
        assert_eq!(read("apricot"), Ok(("apricot".to_owned(), DEFAULT_PORT)));
        assert_eq!(read("[fd00::1]:7"), Ok(("fd00::1".to_owned(), 7)));
        for text in [
            "", ":1", "a:0", "a:65536", "fd00::1", "[fd00::1", "[x]:1", "-a", "a b", "a/b",
            "[::1]x",
        ] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_printed_for_debugging_has_no_token() {
        let text = format!("{:?}", pairing("a", 1));
        assert!(!text.contains("0f0f") && !text.contains("15, 15"), "{text}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(tls://)?.{0,40}(#[0-9a-f]{60,66}\\.[0-9a-f]{30,34}\\.[0-9]{0,14})?") {
            let _ = text.parse::<Pairing>();
        }
    }
}
