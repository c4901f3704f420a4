//! Why the kernel dropped packets: the tracepoint `skb:kfree_skb` and its reasons (include/net/dropreason-core.h, from
//! Linux 5.17 on).
//!
//! A reason has one counter on each CPU: an event of perf_event_open(2) whose filter the kernel
//! evaluates (Documentation/trace/events.rst). A counter has no buffer, so that it loses nothing and wakes nobody. The
//! numbers of the reasons differ between kernels; their names are in the event's `format`. The counters stay open
//! while the program runs, because the kernel waits for all CPUs when the last one is closed, and are machine-wide.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io;
use std::sync::{Mutex, PoisonError};

use linerate_model::ids::CpuSet;
use linerate_model::known::{Cause, Gap, Known};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::Reading;
use crate::profile::sys::Hits;
use crate::root::HostRoot;

/// Below the root of tracefs.
const FORMAT: &str = "events/skb/kfree_skb/format";
/// Where distributions mount tracefs.
const MOUNTED: &str = "sys/kernel/tracing";
/// The source of the counters.
const PATH: &str = "tracepoint skb:kfree_skb";
/// The longest `format` that is read; today's has 5 KiB.
const FORMAT_BYTES_MAX: usize = 1 << 16;
/// The maximum number of counters, each of which is an open file.
const COUNTERS_MAX: usize = 512;
/// The key prefix of the counters.
const PREFIX: &str = "drop";

/// The reasons that are counted, each with those that later kernels split off from it; the most important first, since
/// with many CPUs not all have a counter. A drop costs about 0.4 us more with all of them, so they are few: those that
/// mean loss and are in no other counter that a trial reads (`CPU_BACKLOG` is in `softnet_stat`, `SOCKET_RCVBUFF` in
/// `/proc/net/snmp`). `NOT_SPECIFIED`, and the reasons of packets that brought nothing new (`TCP_OLD_DATA`), mean no
/// loss.
const REASONS: [&[&str]; 7] = [
    &["NETFILTER_DROP"],
    &["TC_INGRESS"],
    &[
        "QDISC_DROP",
        "QDISC_OVERLIMIT",
        "QDISC_CONGESTED",
        "CAKE_FLOOD",
        "FQ_BAND_LIMIT",
        "FQ_HORIZON_LIMIT",
        "FQ_FLOW_LIMIT",
        "DUALPI2_STEP_DROP",
    ],
    &["TC_EGRESS"],
    &["XDP"],
    &["SOCKET_FILTER"],
    &["BPF_CGROUP_EGRESS"],
];

/// The counters of a set of CPUs.
#[derive(Debug)]
struct Counters {
    online: CpuSet,
    reasons: Known<BTreeMap<String, Vec<Hits>>>,
    /// Reasons without a counter, because there would be too many.
    left_out: Vec<&'static [&'static str]>,
}

static COUNTERS: Mutex<Option<Counters>> = Mutex::new(None);

/// Adds `drop/REASON` for each of [`REASONS`]; without the permission to count them, a gap at `drop`.
pub(super) fn read(root: &HostRoot, online: &CpuSet, reading: &mut Reading) {
    let mut counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    // A CPU that came later would not be counted.
    let counters = match &mut *counters {
        Some(counters) if counters.online == *online => counters,
        other => other.insert(Counters::open(root, online)),
    };
    for reason in counters.left_out.iter().filter_map(|names| names.first()) {
        let why = format!(
            "{} CPUs would need more than {COUNTERS_MAX} counters",
            online.len()
        );
        let gap = Gap::new(Cause::NotAsked, PATH, why);
        reading.gaps.insert(format!("{PREFIX}/{reason}"), gap);
    }
    let reasons = match &counters.reasons {
        Known::Value(reasons) => reasons,
        Known::Unknown(gap) => {
            reading.gaps.insert(PREFIX.to_owned(), gap.clone());
            return;
        }
    };
    for (reason, hits) in reasons {
        let key = format!("{PREFIX}/{reason}");
        let counts: io::Result<Vec<u64>> = hits.iter().map(Hits::read).collect();
        match counts {
            Ok(counts) => {
                let sum = counts.into_iter().fold(0, u64::saturating_add);
                reading.counters.insert(key, (sum, PATH.to_owned()));
            }
            Err(error) => {
                let gap = Gap::new(Cause::Unreadable, PATH, error.to_string());
                reading.gaps.insert(key, gap);
            }
        }
    }
}

impl Counters {
    fn open(root: &HostRoot, online: &CpuSet) -> Self {
        let each = COUNTERS_MAX / online.len().max(1);
        let (counted, left_out) = REASONS.split_at(each.min(REASONS.len()));
        let reasons = read_format(root).and_then(|text| match parse_format(&text) {
            Ok(event) => match event.open(counted, online) {
                Ok(reasons) => Known::Value(reasons),
                Err(error) => Known::Unknown(refused(&error)),
            },
            Err(why) => Known::unknown(Cause::Absent, PATH, why),
        });
        let left_out = match reasons {
            Known::Value(_) => left_out.to_vec(),
            Known::Unknown(_) => Vec::new(),
        };
        Self {
            online: online.clone(),
            reasons,
            left_out,
        }
    }
}

/// The event's `format`: from tracefs where it is mounted, otherwise from a mount without a place in any tree, which
/// ends with its descriptor.
fn read_format(root: &HostRoot) -> Known<String> {
    if let Known::Value(text) = root.read(&format!("{MOUNTED}/{FORMAT}")) {
        return Known::Value(text);
    }
    match read_detached() {
        Ok(text) => Known::Value(text),
        Err(error) => Known::Unknown(refused(&error)),
    }
}

fn read_detached() -> io::Result<String> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let tree: OwnedFd = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let file = openat(
        &tree,
        FORMAT,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut text = vec![0; FORMAT_BYTES_MAX];
    let mut length = 0;
    while let Some(rest) = text.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(&file, rest)? {
            0 => break,
            read => length += read,
        }
    }
    text.truncate(length);
    String::from_utf8(text).map_err(io::Error::other)
}

fn refused(error: &io::Error) -> Gap {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Gap::new(
            Cause::Denied,
            PATH,
            "counting drop reasons needs root, or CAP_PERFMON and a readable tracefs",
        ),
        Some(libc::ENOENT | libc::ENODEV | libc::ENOSYS) => Gap::new(
            Cause::Absent,
            PATH,
            format!("this kernel has no such tracepoint: {error}"),
        ),
        _ => Gap::new(Cause::Unreadable, PATH, error.to_string()),
    }
}

/// The tracepoint as its `format` describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DropEvent {
    id: u64,
    /// The number of each reason, by its name.
    reasons: BTreeMap<String, u32>,
}

impl DropEvent {
    fn open(&self, wanted: &[&[&str]], online: &CpuSet) -> io::Result<BTreeMap<String, Vec<Hits>>> {
        let mut counters = BTreeMap::new();
        for names in wanted {
            // Kernels differ in which reasons they have.
            let numbers = names.iter().filter_map(|name| self.reasons.get(*name));
            let terms: Vec<String> = numbers
                .map(|number| format!("reason == {number}"))
                .collect();
            let Some(name) = names.first().filter(|_| !terms.is_empty()) else {
                continue;
            };
            let filter = CString::new(terms.join(" || "))?;
            let hits: io::Result<Vec<Hits>> = online
                .iter()
                .map(|cpu| Hits::open(self.id, cpu.0, &filter))
                .collect();
            counters.insert((*name).to_owned(), hits?);
        }
        Ok(counters)
    }
}

/// Reads the event's number (`ID: 2310`) and its reasons, which end its text: `{ 12, "NETFILTER_DROP" }, ...`.
pub(crate) fn parse_format(text: &str) -> Result<DropEvent, String> {
    let id = text.lines().find_map(|line| line.strip_prefix("ID:"));
    let id = id.and_then(|id| id.trim().parse().ok());
    let id = id.ok_or("the event's format has no ID")?;
    let old = "the kernel gives no drop reasons (Linux 5.17 and later do)";
    let (_, table) = text.split_once("REC->reason,").ok_or(old)?;
    let entry = |entry: &str| {
        let (number, rest) = entry.split_once(',')?;
        let name = rest.split('"').nth(1)?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    let reasons: BTreeMap<String, u32> = table.split('{').filter_map(entry).collect();
    let known: BTreeSet<&str> = REASONS.into_iter().flatten().copied().collect();
    if !reasons.keys().any(|name| known.contains(name.as_str())) {
        return Err(old.to_owned());
    }
    Ok(DropEvent { id, reasons })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Linux 6.18, shortened.
    const FORMAT_6_18: &str = "name: kfree_skb\nID: 2310\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:enum skb_drop_reason reason;\toffset:36;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"skbaddr=%p location=%pS reason: %s\", REC->skbaddr, REC->location, \
        __print_symbolic(REC->reason, { 2, \"NOT_SPECIFIED\" }, { 12, \"NETFILTER_DROP\" }, { 128, \"MAX\" })\n";

    #[test]
    fn the_numbers_of_the_reasons_come_from_the_kernel() {
        let event = parse_format(FORMAT_6_18).expect("a format");
        assert_eq!(event.id, 2310);
        assert_eq!(event.reasons.get("NETFILTER_DROP"), Some(&12));
        assert_eq!(event.reasons.len(), 3);
    }

    #[test]
    fn a_kernel_without_reasons_is_not_one_without_drops() {
        let old = "name: kfree_skb\nID: 1279\nformat:\n\nprint fmt: \"skbaddr=%p protocol=%u location=%p\", \
            REC->skbaddr, REC->protocol, REC->location\n";
        let why = parse_format(old).expect_err("no reasons");
        assert!(why.contains("5.17"), "{why}");
        assert!(parse_format("").is_err());
        assert!(parse_format("ID: 7\nREC->reason, { X, \"NETFILTER_DROP\" }").is_err());
    }

    #[test]
    fn a_denied_counter_is_unknown_and_not_zero() {
        let denied = io::Error::from_raw_os_error(libc::EACCES);
        assert_eq!(refused(&denied).cause, Cause::Denied);
        let absent = io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(refused(&absent).cause, Cause::Absent);
    }
}
