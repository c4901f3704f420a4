//! The management path, which must not be cut: the ssh connection that a process was started over, the interface it
//! uses, and that interface's lower interfaces.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};

use crate::apply::Boottime;
use crate::apply::identity::{ProcessStat, is_in_user_namespace};
use crate::nic_control::NicRead;
use crate::procfs::sockets::parse_socket_link;
use crate::root::HostRoot;

/// An ssh session of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// The ssh server process that serves it.
    pub pid: u32,
    /// The end of the clock tick in which that process started.
    pub began: Boottime,
}

/// The ssh session of a process, found through its ancestors. Multiplexed sessions share one ssh server process, as
/// old as the connection.
pub fn session_of(root: &HostRoot, mut pid: u32) -> Option<Session> {
    loop {
        let stat = root.read(&format!("proc/{pid}/stat")).value()?.clone();
        let stat = ProcessStat::parse(&stat)?;
        if stat.name == "sshd" || stat.name == "sshd-session" {
            let per_second = rustix::param::clock_ticks_per_second().max(1);
            let nanoseconds =
                (u128::from(stat.start_ticks) + 1) * 1_000_000_000 / u128::from(per_second);
            let since = Duration::from_nanos(u64::try_from(nanoseconds).ok()?);
            let began = Boottime::after(since);
            return Some(Session { pid, began });
        }
        pid = stat.parent;
    }
}

/// The interfaces of the connection of `session`, and their lower interfaces: a bond's ports, a bridge's ports, a
/// VLAN's parent, a VF's physical function. Empty for a session in another network namespace.
pub fn way_in(root: &HostRoot, nics: &dyn NicRead, session: Session) -> Known<BTreeSet<NicName>> {
    let its = session.pid;
    let netns = |pid: u32| root.link(&format!("proc/{pid}/ns/net"));
    let is_elsewhere = match (netns(std::process::id()), netns(its)) {
        (Known::Value(own), Known::Value(its)) => own != its,
        // A user with privileges only in a user namespace has none where the ssh server runs, and may not inspect it.
        _ => is_in_user_namespace(),
    };
    if is_elsewhere {
        return Known::Value(BTreeSet::new());
    }
    let addresses = connected(root, its).and_then(|addresses| {
        if addresses.is_empty() {
            let reason = "the ssh server's process has no connection";
            return Known::unknown(Cause::Absent, format!("/proc/{its}/fd"), reason);
        }
        Known::Value(addresses)
    });
    addresses.and_then(|addresses| {
        root.list("sys/class/net").map(|names| {
            let names = names.iter().filter_map(|name| name.parse::<NicName>().ok());
            let carries = |nic: &NicName| {
                let all = nics.addresses(nic);
                let all = all.value().into_iter().flatten();
                all.filter_map(|text| text.split('/').next()?.parse::<IpAddr>().ok())
                    .any(|address| addresses.contains(&address))
            };
            below(root, names.filter(carries).collect())
        })
    })
}

/// These interfaces, and all their lower interfaces.
fn below(root: &HostRoot, mut level: Vec<NicName>) -> BTreeSet<NicName> {
    let mut all = BTreeSet::new();
    while let Some(nic) = level.pop() {
        let folder = format!("sys/class/net/{nic}");
        let listed = root.list(&folder);
        let names = listed.value().into_iter().flatten();
        level.extend(names.filter_map(|name| name.strip_prefix("lower_")?.parse().ok()));
        let physical = root.list(&format!("{folder}/device/physfn/net"));
        let names = physical.value().into_iter().flatten();
        level.extend(names.filter_map(|name| name.parse().ok()));
        level.retain(|below| !all.contains(below));
        all.insert(nic);
    }
    all
}

/// The local addresses of a process's TCP connections.
fn connected(root: &HostRoot, pid: u32) -> Known<BTreeSet<IpAddr>> {
    let links = root.links_unlogged(&format!("proc/{pid}/fd"));
    links.map(|links| {
        let held: BTreeSet<u64> = links
            .iter()
            .filter_map(|link| parse_socket_link(link))
            .collect();
        let tables = ["tcp", "tcp6"].map(|table| root.read(&format!("proc/{pid}/net/{table}")));
        let tables = tables.iter().filter_map(Known::value);
        tables
            .flat_map(|text| parse_own_addresses(text))
            .filter(|(inode, _)| held.contains(inode))
            .map(|(_, address)| address)
            .collect()
    })
}

/// The inode and the local address of each established connection.
fn parse_own_addresses(text: &str) -> Vec<(u64, IpAddr)> {
    let connection = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_established = *words.get(3)? == "01";
        let inode = words.get(9)?.parse().ok()?;
        let (address, _) = words.get(1)?.split_once(':')?;
        is_established.then_some(())?;
        Some((inode, parse_address(address)?))
    };
    text.lines().skip(1).filter_map(connection).collect()
}

/// A hexadecimal address, each four bytes as a number in host byte order (net/ipv4/tcp_ipv4.c, net/ipv6/tcp_ipv6.c).
fn parse_address(hex: &str) -> Option<IpAddr> {
    let words = (0..hex.len()).step_by(8).map(|at| {
        let word = u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let words: Vec<[u8; 4]> = words.collect::<Option<_>>()?;
    match words.as_slice() {
        [four] => Some(Ipv4Addr::from(*four).into()),
        [_, _, _, _] => {
            let sixteen: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(sixteen).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn own_addresses_of_connections_are_read_as_the_kernel_prints_them() {
        let tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 20482 1\n\
            1: 0200640A:0016 0100640A:1F91 01 00000000:00000000 00:00000000 00000000     0        0 20483 1\n";
        let own = parse_own_addresses(tcp);
        assert_eq!(own, [(20483, "10.100.0.2".parse().expect("an address"))]);
        let six = parse_address("0000000000000000FFFF00000200640A");
        assert_eq!(six, Some("10.100.0.2".parse().expect("an address")));
        let six = parse_address("000080FE00000000FF005450B4F1C2FE").expect("16 bytes");
        assert_eq!(six.to_string(), "fe80::5054:ff:fec2:f1b4");
    }

    #[test]
    fn the_first_process_belongs_to_no_session() {
        let root = crate::root::LiveHost::open().expect("this machine");
        assert_eq!(session_of(root.root(), 1), None);
        assert_eq!(session_of(root.root(), 0), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(.{0,20}\n)?([ 0-9A-F:]{0,80}|.{0,40})") {
            let _ = (parse_own_addresses(&text), parse_address(&text));
        }
    }
}
