//! The owner of a TCP connection on this machine: `/proc/net/tcp` and `tcp6` (proc_pid_net(5)), one line per socket
//! with both addresses and its user.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use linerate_model::known::{Cause, Known};

use crate::root::{HostRoot, absolute};

/// IPv4 first. An IPv6 socket may have an IPv4 connection, with IPv4-mapped addresses (RFC 4291, 2.5.5.2).
const TABLES: [&str; 2] = ["proc/net/tcp", "proc/net/tcp6"];

/// The user id of the socket at `near` that is connected to `far`, in this process's network namespace.
pub fn user_of_connection(root: &HostRoot, near: SocketAddr, far: SocketAddr) -> Known<u32> {
    for path in TABLES {
        match root.read(path) {
            Known::Value(text) => {
                if let Some(user) = parse_user(&text, near, far) {
                    return Known::Value(user);
                }
            }
            // A kernel without IPv6.
            Known::Unknown(gap) if gap.cause == Cause::Absent => {}
            Known::Unknown(gap) => return Known::Unknown(gap),
        }
    }
    let reason = format!("no socket at {near} is connected to {far}");
    Known::unknown(Cause::Absent, absolute(TABLES[0]), reason)
}

/// The user, in column 8, of the line with these addresses, in columns 2 and 3. A socket closed by its process has no
/// inode, in column 10, and its user is not meaningful.
pub(crate) fn parse_user(text: &str, near: SocketAddr, far: SocketAddr) -> Option<u32> {
    let is_it = |word: Option<&str>, address: SocketAddr| {
        let told = word.and_then(parse_address);
        told == Some((address.ip().to_canonical(), address.port()))
    };
    text.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let both = is_it(words.next(), near) && is_it(words.next(), far);
        let user = both.then(|| words.nth(4)?.parse().ok()).flatten()?;
        (words.nth(1)? != "0").then_some(user)
    })
}

/// `0100007F:1F90`: an address in words of 32 bits, each a number in host byte order, and a port.
pub(crate) fn parse_address(word: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = word.split_once(':')?;
    let number = |at: usize| {
        let digits = address.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(number(0)?)),
        32 => {
            let words = [number(0)?, number(1)?, number(2)?, number(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((address.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;

    use super::*;
    use crate::root::LiveHost;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "what the kernel says of a connection takes a connection"
    )]
    fn the_user_of_a_connection_of_this_process_is_ours_from_either_end() {
        let live = LiveHost::open().expect("the machine");
        let own = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue; // no IPv6 here
            };
            let there = listener.local_addr().expect("bound");
            let stream = TcpStream::connect(there).expect("it listens");
            let here = stream.local_addr().expect("connected");
            let found = user_of_connection(live.root(), here, there);
            assert_eq!(found.value(), Some(&own), "{found:?}");
            let nobody = SocketAddr::new(here.ip(), 1);
            assert_eq!(user_of_connection(live.root(), nobody, there).value(), None);
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn addresses_of_both_families_are_read_and_mapped_ones_are_those_of_ipv4() {
        let four: IpAddr = "127.0.0.1".parse().expect("an address");
        for (word, address) in [
            ("0100007F:1F90", Some((four, 8080))),
            ("0000000000000000FFFF00000100007F:0050", Some((four, 80))),
            (
                "00000000000000000000000001000000:FFFF",
                Some(("::1".parse().expect("an address"), 65_535)),
            ),
            ("0100007F", None),
            ("0100007:1F90", None),
            ("0100007F:1F901", None),
        ] {
            assert_eq!(parse_address(word), address, "{word}");
        }
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 20482 1\n\
            1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 20483 1\n\
            2: 0100007F:1F92 0100007F:1F90 04 00000000:00000000 00:00000000 00000000     0        0 0 1";
        let at = |port| SocketAddr::new(four, port);
        assert_eq!(parse_user(table, at(0x1F91), at(0x1F90)), Some(1000));
        assert_eq!(parse_user(table, at(0x1F90), at(0x1F91)), None);
        assert_eq!(parse_user(table, at(0x1F92), at(0x1F90)), None, "closed");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(.{0,20}\n)?([ 0-9A-F:]{0,80}|.{0,40})") {
            let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1);
            let _ = (parse_user(&text, any, any), parse_address(&text));
        }
    }
}
