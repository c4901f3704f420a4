//! Programs with TCP sockets, and their CPU affinity: `/proc/net/tcp` (proc_pid_net(5)) for the sockets,
//! `/proc/PID/fd` for their owners, `status`, `stat` and `numa_maps` for the owners' properties (proc_pid_stat(5),
//! proc_pid_status(5), proc_pid_numa_maps(5)).
//!
//! Read on a live machine only, separately from the host: it inspects every open file, and program names do not
//! belong in a capture.

use std::collections::BTreeMap;

use linerate_model::host::SocketOwner;
use linerate_model::known::{Cause, Gap, Known};

use super::owners::{kernel_threads, process_ids};
use crate::attributes::understood;
use crate::root::{HostRoot, LiveHost, absolute};

/// With more processes than this the search is skipped: it would take longer than a trial.
const PROCESSES_MAX: usize = 4096;
/// The maximum number of open files inspected, over all processes.
const FILES_MAX: usize = 1 << 18;
/// The maximum number of owners reported, those with most connections.
const OWNERS_MAX: usize = 64;
/// Enough of a process's memory map: a thousand areas and more.
const MAP_BYTES: u64 = 1 << 20;

/// Whether a socket listens or is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketKind {
    Established,
    Listening,
}

/// Reads the owners of established and listening TCP sockets; what cannot be inspected is reported in `gaps`.
pub fn read_socket_owners(live: &LiveHost, gaps: &mut Vec<Gap>) -> Known<Vec<SocketOwner>> {
    let root = live.root();
    let sockets = match read_sockets(root) {
        Ok(sockets) => sockets,
        Err(gap) => return Known::Unknown(gap),
    };
    let names = match root.list("proc") {
        Known::Value(names) => names,
        Known::Unknown(gap) => return Known::Unknown(gap),
    };
    let of_kernel = kernel_threads(root);
    let mut pids = process_ids(&names);
    pids.retain(|pid| !of_kernel.contains(pid));
    if pids.len() > PROCESSES_MAX {
        let reason = format!(
            "{} processes: at most {PROCESSES_MAX} are searched for sockets",
            pids.len()
        );
        return Known::unknown(Cause::NotAsked, "/proc/*/fd", reason);
    }
    let mut busiest = search(root, &pids, &sockets, gaps);
    busiest.sort_by_key(|(pid, connections)| (std::cmp::Reverse(*connections), *pid));
    if busiest.len() > OWNERS_MAX {
        let reason = format!(
            "{} programs hold sockets: the {OWNERS_MAX} with most connections are described",
            busiest.len()
        );
        gaps.push(Gap::new(Cause::NotAsked, "/proc/*/fd", reason));
        busiest.truncate(OWNERS_MAX);
    }
    let owners = busiest.into_iter();
    Known::Value(
        owners
            .filter_map(|(pid, connections)| describe(root, pid, connections))
            .collect(),
    )
}

fn read_sockets(root: &HostRoot) -> Result<BTreeMap<u64, SocketKind>, Gap> {
    let mut sockets = BTreeMap::new();
    for path in ["proc/net/tcp", "proc/net/tcp6"] {
        match root.read(path) {
            Known::Value(text) => sockets.extend(parse_sockets(&text)),
            // A kernel without IPv6.
            Known::Unknown(gap) if gap.cause == Cause::Absent && path.ends_with('6') => {}
            Known::Unknown(gap) => return Err(gap),
        }
    }
    Ok(sockets)
}

/// The processes with some of `sockets`, and the number of connections of each.
fn search(
    root: &HostRoot,
    pids: &[u32],
    sockets: &BTreeMap<u64, SocketKind>,
    gaps: &mut Vec<Gap>,
) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    let mut files = 0;
    let mut denied = 0;
    for pid in pids {
        let folder = format!("proc/{pid}/fd");
        let links = match root.links_unlogged(&folder) {
            Known::Value(links) => links,
            Known::Unknown(gap) => {
                // A process that has ended meanwhile is not a gap.
                denied += usize::from(gap.cause == Cause::Denied);
                continue;
            }
        };
        files += links.len();
        if files > FILES_MAX {
            let reason = format!("more than {FILES_MAX} open files: the rest was not searched");
            gaps.push(Gap::new(Cause::NotAsked, absolute(&folder), reason));
            break;
        }
        let kinds = links
            .iter()
            .filter_map(|link| sockets.get(&parse_socket_link(link)?).copied());
        let kinds: Vec<SocketKind> = kinds.collect();
        let established = kinds
            .iter()
            .filter(|kind| **kind == SocketKind::Established);
        let connections = u32::try_from(established.count()).unwrap_or(u32::MAX);
        if !kinds.is_empty() {
            found.push((*pid, connections));
        }
    }
    if denied > 0 {
        let reason = format!("the open files of {denied} processes are visible only to root");
        gaps.push(Gap::new(Cause::Denied, "/proc/*/fd", reason));
    }
    found
}

/// `None` when the process has ended meanwhile.
fn describe(root: &HostRoot, pid: u32, connections: u32) -> Option<SocketOwner> {
    let of = |file: &str| format!("proc/{pid}/{file}");
    let (status_path, stat_path, maps_path) = (of("status"), of("stat"), of("numa_maps"));
    let name = root.read(&of("comm")).value()?.clone();
    let status = root.read(&status_path);
    let field = |key: &str| {
        let status = status.clone();
        status.and_then(|text| understood(&status_path, &text, |text| parse_status(text, key)))
    };
    Some(SocketOwner {
        pid,
        name,
        cpus_allowed: field("Cpus_allowed_list"),
        last_cpu: root
            .read(&stat_path)
            .and_then(|text| understood(&stat_path, &text, parse_last_cpu)),
        node_pages: root
            .read_start(&maps_path, MAP_BYTES)
            .map(|text| parse_node_pages(&text)),
        connections,
        threads: field("Threads").and_then(|text| understood(&status_path, &text, str::parse)),
    })
}

/// The inodes of established (01) and listening (0A) sockets; the state is column 4, the inode column 10. Lines that
/// cannot be parsed are ignored.
pub(crate) fn parse_sockets(text: &str) -> BTreeMap<u64, SocketKind> {
    let socket = |line: &str| {
        let mut words = line.split_whitespace();
        let kind = match words.nth(3)? {
            "01" => SocketKind::Established,
            "0A" => SocketKind::Listening,
            _ => return None,
        };
        match words.nth(5)?.parse().ok()? {
            0 => None,
            inode => Some((inode, kind)),
        }
    };
    text.lines().skip(1).filter_map(socket).collect()
}

/// `socket:[20482]`.
pub(crate) fn parse_socket_link(target: &str) -> Option<u64> {
    let inode = target.strip_prefix("socket:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

/// A field of `status`, `Threads:\t4`.
pub(crate) fn parse_status(text: &str, key: &str) -> Result<String, String> {
    let value = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| *name == key);
    value
        .map(|(_, value)| value.trim().to_owned())
        .ok_or_else(|| format!("no line `{key}:`"))
}

/// The CPU on which a process last ran: field 39 of `stat`. Field 2 is a name in parentheses that may contain
/// anything.
pub(crate) fn parse_last_cpu(text: &str) -> Result<u32, String> {
    const AFTER_NAME: usize = 39 - 3;
    let (_, rest) = text.rsplit_once(')').ok_or("no name in brackets")?;
    let word = rest.split_whitespace().nth(AFTER_NAME);
    let word = word.ok_or("it has fewer than 39 fields")?;
    word.parse().map_err(|error| format!("`{word}`: {error}"))
}

/// The pages on each node: the sum of `N0=17` over every line of `numa_maps`.
pub(crate) fn parse_node_pages(text: &str) -> Vec<(u32, u64)> {
    let mut pages: BTreeMap<u32, u64> = BTreeMap::new();
    for word in text.split_whitespace() {
        let counted = word.strip_prefix('N').and_then(|rest| {
            let (node, count) = rest.split_once('=')?;
            Some((node.parse::<u32>().ok()?, count.parse::<u64>().ok()?))
        });
        if let Some((node, count)) = counted {
            let sum = pages.entry(node).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    pages.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_kernels_own_forms_are_read() {
        let tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 20482 1\n\
            1: 0100007F:1F90 0100007F:1F91 01 00000000:00000000 00:00000000 00000000     0        0 20483 1\n\
            2: 0100007F:1F90 0100007F:1F92 06 00000000:00000000 00:00000000 00000000     0        0 0 1";
        let sockets = parse_sockets(tcp);
        assert_eq!(sockets.get(&20482), Some(&SocketKind::Listening));
        assert_eq!(sockets.get(&20483), Some(&SocketKind::Established));
        assert_eq!(sockets.len(), 2);
        assert_eq!(parse_socket_link("socket:[20482]"), Some(20482));
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("7 (a) (b c) {}", fields.join(" "));
        assert_eq!(parse_last_cpu(&stat), Ok(39));
        let status = "Name:\tx\nThreads:\t4\nCpus_allowed_list:\t0-3";
        assert_eq!(
            parse_status(status, "Cpus_allowed_list").as_deref(),
            Ok("0-3")
        );
        let maps =
            "7f00 default anon=3 N0=2 N1=1\n7f01 default file=/N2=x N1=4 kernelpagesize_kB=4";
        assert_eq!(parse_node_pages(maps), [(0, 2), (1, 5)]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(.{0,20}\n)?([ 0-9A:()N=]{0,60}|.{0,40})") {
            let _ = (parse_sockets(&text), parse_socket_link(&text), parse_last_cpu(&text));
            let _ = (parse_status(&text, "Threads"), parse_node_pages(&text));
        }
    }
}
