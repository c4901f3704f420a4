//! How a peer is named: as people write it, and read back.

use std::fmt;
use std::str::FromStr;

use crate::pairing::{HostPort, Pairing};

/// How a peer is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerAddress {
    /// `[ssh://][user@]host[:port]`.
    Ssh {
        /// `user@host` or `host`, as ssh takes it.
        destination: String,
        /// The port, when it is not ssh's own choice.
        port: Option<u16>,
    },
    /// `netns:NAME`, a network namespace of this machine.
    Netns(String),
    /// `tls://host[:port]`, a listening agent that this host is paired with; or its pairing line.
    Tls {
        /// Where it listens.
        at: HostPort,
        /// How to pair with it first.
        pairing: Option<Box<Pairing>>,
    },
    /// `exec:COMMAND`, any command that starts `linerate agent --stdio` at the remote end.
    Exec(String),
    /// This host, in this namespace.
    Local,
}

impl PeerAddress {
    /// How a peer may be named.
    pub const FORMS: &'static str = "`[ssh://][user@]host[:port]`, `tls://host[:port]`, `netns:NAME`, `exec:COMMAND` or `local`";

    /// Why a text is no peer, and what is one.
    fn refused(why: &str) -> String {
        format!("{why}; a peer is {}", Self::FORMS)
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh {
                destination,
                port: None,
            } => write!(f, "ssh://{destination}"),
            Self::Ssh {
                destination,
                port: Some(port),
            } => {
                let host_at = destination.rfind('@').map_or(0, |at| at + 1);
                let (user, host) = destination.split_at(host_at);
                if host.contains(':') {
                    write!(f, "ssh://{user}[{host}]:{port}")
                } else {
                    write!(f, "ssh://{user}{host}:{port}")
                }
            }
            // Never the token of a pairing line: names are printed and stored.
            Self::Tls { at, .. } => write!(f, "tls://{at}"),
            Self::Netns(name) => write!(f, "netns:{name}"),
            Self::Exec(command) => write!(f, "exec:{command}"),
            Self::Local => f.write_str("local"),
        }
    }
}

impl FromStr for PeerAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "local" {
            return Ok(Self::Local);
        }
        if let Some(name) = text.strip_prefix("netns:") {
            let plain = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
            return if plain {
                Ok(Self::Netns(name.to_owned()))
            } else {
                Err(Self::refused(
                    "`netns:` needs the name of a network namespace",
                ))
            };
        }
        if let Some(command) = text.strip_prefix("exec:") {
            return if command.trim().is_empty() {
                Err(Self::refused("`exec:` needs a command"))
            } else {
                Ok(Self::Exec(command.to_owned()))
            };
        }
        if let Some(rest) = text.strip_prefix("tls://") {
            return match rest.contains('#').then(|| text.parse::<Pairing>()) {
                None => rest.parse().map(|at| Self::Tls { at, pairing: None }),
                Some(pairing) => pairing.map(|pairing| Self::Tls {
                    at: pairing.at.clone(),
                    pairing: Some(Box::new(pairing)),
                }),
            }
            .map_err(|why| Self::refused(&why));
        }
        let rest = text.strip_prefix("ssh://").unwrap_or(text);
        if let Some((scheme, _)) = rest.split_once("://") {
            return Err(Self::refused(&format!("`{scheme}://` is not supported")));
        }
        parse_ssh(rest)
    }
}

fn parse_ssh(rest: &str) -> Result<PeerAddress, String> {
    let (user, host) = rest
        .rsplit_once('@')
        .map_or((None, rest), |(user, host)| (Some(user), host));
    let (host, port) = match host
        .strip_prefix('[')
        .and_then(|inner| inner.split_once(']'))
    {
        Some((inner, "")) => (inner, None),
        Some((inner, port)) => (inner, port.strip_prefix(':')),
        None if host.matches(':').count() == 1 => host
            .split_once(':')
            .map_or((host, None), |(host, port)| (host, Some(port))),
        None => (host, None),
    };
    let port = match port.map(str::parse::<u16>) {
        None => None,
        Some(Ok(port)) => Some(port),
        Some(Err(_)) => return Err(PeerAddress::refused("the port must be 1 to 65535")),
    };
    // What ssh(1) itself refuses since OpenSSH 9.6: a `ProxyCommand` or `Match exec` of its configuration hands names to a
    // shell (CVE-2023-51385). A user may be `DOMAIN\user`.
    let steers = |c: char| c.is_whitespace() || c.is_control() || "'`\"$;&<>|(){}".contains(c);
    let odd = |part: &str| part.is_empty() || part.starts_with('-') || part.contains(steers);
    if odd(host) || host.contains('\\') || user.is_some_and(odd) {
        return Err(PeerAddress::refused("ssh does not accept this host name"));
    }
    let destination = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
    Ok(PeerAddress::Ssh { destination, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_host_means_ssh() {
        let ssh = |destination: &str, port| {
            Ok(PeerAddress::Ssh {
                destination: destination.to_owned(),
                port,
            })
        };
        assert_eq!("apricot".parse(), ssh("apricot", None));
        assert_eq!("me@apricot:2222".parse(), ssh("me@apricot", Some(2222)));
        assert_eq!("ssh://[fe80::1]:22".parse(), ssh("fe80::1", Some(22)));
        assert_eq!("fe80::1".parse(), ssh("fe80::1", None));
    }

    #[test]
    fn what_ssh_would_take_for_an_option_is_refused() {
        for text in [
            "-oProxyCommand=x",
            "me@-x",
            "`id`",
            "$(id)@b",
            "a;id",
            "a\\b",
            "a\u{1b}",
            "",
            "@",
            "a b",
            "http://x",
            "host:port",
            "x`id`",
            "$(id)@x",
            "x;id",
            "x\\",
            "x\u{1b}[2J",
        ] {
            assert!(text.parse::<PeerAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_name_of_a_peer_does_not_show_the_token_that_pairs_with_it() {
        let line = format!("tls://apricot#{}.{}.9", "a5".repeat(32), "0f".repeat(16));
        let peer: PeerAddress = line.parse().expect("a pairing line");
        assert!(matches!(
            peer,
            PeerAddress::Tls {
                pairing: Some(_),
                ..
            }
        ));
        assert_eq!(peer.to_string(), "tls://apricot:5210");
        assert!(
            format!("tls://apricot#{}", "a5".repeat(32))
                .parse::<PeerAddress>()
                .is_err()
        );
    }

    #[test]
    fn a_name_reads_back_as_it_was_written() {
        for text in [
            "netns:far",
            "exec:docker exec x linerate agent --stdio",
            "local",
            "ssh://a@b:7",
            "tls://apricot:5210",
            "tls://[fd00::1]:7",
        ] {
            assert_eq!(
                text.parse::<PeerAddress>().map(|peer| peer.to_string()),
                Ok(text.to_owned())
            );
        }
    }
}
