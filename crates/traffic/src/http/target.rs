//! The URL or address of the server to load.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::TrafficError;

/// A server of HTTP/1.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// The requests' `Host`: the name as it was given, with the port if there was one.
    pub host: String,
}

impl Target {
    /// Reads `http://host[:port][/path]`, resolves the host, and returns the target and the path that goes into
    /// the workload. Of several addresses the first is taken, as the resolver orders them.
    pub fn parse(url: &str) -> Result<(Self, String), TrafficError> {
        let Parts {
            host,
            name,
            port,
            path,
        } = split(url).map_err(|why| TrafficError::Target {
            given: url.to_owned(),
            why,
        })?;
        let address = look_up(name, port).map_err(|source| TrafficError::Lookup {
            host: name.to_owned(),
            source,
        })?;
        let host = host.to_owned();
        Ok((Self { address, host }, path))
    }
}

/// The parts of a URL, before name resolution.
pub(super) struct Parts<'a> {
    /// The name and the port as they were given.
    pub(super) host: &'a str,
    /// The name or address, without brackets.
    pub(super) name: &'a str,
    port: u16,
    pub(super) path: String,
}

/// Reads a URL without asking the network anything; an error is the reason why it is not a target.
pub(super) fn split(url: &str) -> Result<Parts<'_>, &'static str> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err("it does not begin with `http://`");
    };
    if scheme.eq_ignore_ascii_case("https") {
        return Err(
            "linerate speaks HTTP without TLS: load the server's plain port, or the backend \
             behind its TLS proxy",
        );
    }
    if !scheme.eq_ignore_ascii_case("http") {
        return Err("its scheme is not `http`");
    }
    // A fragment is the browser's, and never sent (RFC 3986, 3.5).
    let rest = rest.split('#').next().unwrap_or(rest);
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let path = match path.as_bytes().first() {
        None => "/".to_owned(),
        Some(b'?') => format!("/{path}"),
        Some(_) => path.to_owned(),
    };
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(
            "its path has spaces or characters beyond ASCII: write them as %20 and the like",
        );
    }
    let (name, port) = split_port(host)?;
    Ok(Parts {
        host,
        name,
        port,
        path,
    })
}

/// The name or address, without brackets, and the port.
fn split_port(host: &str) -> Result<(&str, u16), &'static str> {
    let (name, port) = if let Some(rest) = host.strip_prefix('[') {
        let (name, after) = rest.split_once(']').ok_or("its `[` has no `]`")?;
        if !after.is_empty() && !after.starts_with(':') {
            return Err("between `]` and the path only a port may stand");
        }
        (name, after.strip_prefix(':'))
    } else {
        match host.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address needs brackets: `http://[::1]:8080/`");
            }
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        }
    };
    if name.contains('@') {
        return Err("it has a user's name, and linerate logs in nowhere");
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
    if name.is_empty() || name.len() > 255 || !name.bytes().all(plain) {
        return Err("its host is not a name or an address");
    }
    let port = match port {
        None => 80,
        Some(port) => port
            .parse()
            .ok()
            .filter(|&number| number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or("its port is not a number from 1 to 65535")?,
    };
    Ok((name, port))
}

fn look_up(name: &str, port: u16) -> std::io::Result<SocketAddr> {
    let mut found = (name, port).to_socket_addrs()?;
    found
        .next()
        .ok_or_else(|| std::io::Error::other("the name has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_a_port_and_a_path() {
        for (url, address, host, path) in [
            ("http://127.0.0.1", "127.0.0.1:80", "127.0.0.1", "/"),
            (
                "http://127.0.0.1:8080/a/b?c=d#e",
                "127.0.0.1:8080",
                "127.0.0.1:8080",
                "/a/b?c=d",
            ),
            ("HTTP://127.0.0.1?q", "127.0.0.1:80", "127.0.0.1", "/?q"),
            ("http://[::1]:81/", "[::1]:81", "[::1]:81", "/"),
            ("http://[::1]", "[::1]:80", "[::1]", "/"),
        ] {
            let (target, found) = Target::parse(url).expect(url);
            assert_eq!(target.address.to_string(), address, "{url}");
            assert_eq!(
                (target.host.as_str(), found.as_str()),
                (host, path),
                "{url}"
            );
        }
    }

    #[test]
    fn what_is_no_target_is_refused_with_the_reason() {
        for (url, why) in [
            ("127.0.0.1:80", "http://"),
            ("https://127.0.0.1/", "TLS"),
            ("ftp://127.0.0.1/", "scheme"),
            ("http://", "host"),
            ("http:///path", "host"),
            ("http://a b/", "host"),
            ("http://user@127.0.0.1/", "user"),
            ("http://127.0.0.1:0/", "port"),
            ("http://127.0.0.1:+80/", "port"),
            ("http://127.0.0.1:99999/", "port"),
            ("http://127.0.0.1:/", "port"),
            ("http://::1/", "brackets"),
            ("http://[::1/", "`]`"),
            ("http://[::1]x/", "port"),
            ("http://127.0.0.1/a b", "%20"),
            ("http://127.0.0.1/\r\nX: y", "%20"),
        ] {
            let error = Target::parse(url).expect_err(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
