//! All counters of a host at one time; two such readings make a [`Watch`]. The caller sleeps between them.
//!
//! A reading is quick (a few milliseconds on an ordinary host) and bounded: of numerous objects (interfaces, CPUs
//! with idle states) only a limited number is read, with a gap for the rest. Counters that a kernel does not have are
//! left out; those that could not be read leave a gap at the prefix of their keys.

mod cpus;
pub(crate) mod devices;
pub(crate) mod drop_reasons;
pub(crate) mod interrupts;
mod nics;
pub mod scope;

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::host::Host;
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::units::Nanoseconds;
use linerate_model::watch::{Counter, Watch};
use serde::{Deserialize, Serialize};

use crate::attributes::{parsed, understood};
use crate::nic_control::NicRead;
use crate::procfs::conntrack_stat::parse_conntrack_stat;
use crate::procfs::netstat::parse_netstat;
use crate::procfs::nfs;
use crate::procfs::pressure::parse_full_total;
use crate::procfs::vmstat::parse_vmstat;
use crate::root::{HostRoot, absolute};
use crate::sysfs::cgroups::read_throttled;

/// The counters of a host at one time, by the keys of [`Watch`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// The uptime (`/proc/uptime`, hundredths of a second).
    pub uptime_ns: Known<Nanoseconds>,
    /// Each counter's value and source.
    pub counters: BTreeMap<String, (u64, String)>,
    /// The counts of each NIC queue interrupt, by its number.
    pub interrupts: BTreeMap<u32, Interrupts>,
    /// Gaps, by the prefix of the missing keys.
    pub gaps: BTreeMap<String, Gap>,
}

/// The counts of one interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Interrupts {
    /// Its source.
    pub path: String,
    /// The count on each CPU, by its number; zeros are left out.
    pub cpus: BTreeMap<u32, u64>,
}

/// Reads every counter of `host` from files below `root` and from `nics`.
pub fn read_counters(root: &HostRoot, nics: &dyn NicRead, host: &Host) -> Reading {
    let mut reading = Reading {
        uptime_ns: parsed(root, "proc/uptime", parse_uptime),
        ..Reading::default()
    };
    nics::read(root, nics, host, &mut reading);
    devices::read_aer(root, host, &mut reading);
    devices::read_rdma(root, nics.rdma(), host, &mut reading);
    devices::read_block(root, host, &mut reading);
    cpus::read(root, host, &mut reading);
    interrupts::read(root, host, &mut reading);
    reading.take_stack(root);
    reading.take_throttled(root);
    reading.take_nfs(root);
    let conntrack = "proc/net/stat/nf_conntrack";
    reading.take_table("conntrack", root, conntrack, parse_conntrack_stat);
    reading.take_table("pressure/irq", root, "proc/pressure/irq", |text| {
        parse_full_total(text).map(|total| BTreeMap::from([("total_us".to_owned(), total)]))
    });
    reading
}

impl Reading {
    /// The increase from the reading `earlier` to this one, `span` apart. Counters in only one of them (of a removed
    /// queue, or a new NIC) are left out.
    pub fn since(&self, earlier: &Self, span: Nanoseconds) -> Watch {
        let mut counters = BTreeMap::new();
        let mut gaps = earlier.gaps.clone();
        gaps.extend(self.gaps.clone());
        for (key, (after, path)) in &self.counters {
            let Some((before, _)) = earlier.counters.get(key) else {
                let why = "missing in the first reading";
                gaps.insert(key.clone(), Gap::new(Cause::Absent, path, why));
                continue;
            };
            let counter = Counter {
                before: *before,
                after: unwrapped(key, *before, *after),
                path: path.clone(),
            };
            counters.insert(key.clone(), counter);
        }
        for (key, (_, path)) in &earlier.counters {
            if !self.counters.contains_key(key) {
                let why = "missing in the second reading";
                gaps.entry(key.clone())
                    .or_insert_with(|| Gap::new(Cause::Absent, path, why));
            }
        }
        for (irq, after) in &self.interrupts {
            let Some(before) = earlier.interrupts.get(irq) else {
                continue;
            };
            let cpus: BTreeSet<&u32> = before.cpus.keys().chain(after.cpus.keys()).collect();
            for cpu in cpus {
                let counter = Counter {
                    before: before.cpus.get(cpu).copied().unwrap_or(0),
                    after: after.cpus.get(cpu).copied().unwrap_or(0),
                    path: after.path.clone(),
                };
                counters.insert(format!("irq/{irq}/cpu/{cpu}"), counter);
            }
        }
        Watch {
            span_ns: span,
            counters,
            gaps,
        }
    }

    /// The time since the reading `earlier` by the machine's own clock, for two captures; unknown if the machine was
    /// rebooted in between.
    pub fn span_since(&self, earlier: &Self) -> Known<Nanoseconds> {
        let ends = (self.uptime_ns.clone(), earlier.uptime_ns.clone());
        let (after, before) = match ends {
            (Known::Value(after), Known::Value(before)) => (after.as_u64(), before.as_u64()),
            (Known::Unknown(gap), _) | (_, Known::Unknown(gap)) => return Known::Unknown(gap),
        };
        match after.checked_sub(before) {
            Some(span) if span > 0 => Known::Value(Nanoseconds::new(span)),
            _ => Known::unknown(
                Cause::Unreadable,
                "/proc/uptime",
                "the host rebooted between the readings, or both are the same reading",
            ),
        }
    }

    /// Adds the counters of the network stack and of memory.
    fn take_stack(&mut self, root: &HostRoot) {
        self.take_table("netstat", root, "proc/net/netstat", parse_netstat);
        self.take_table("snmp", root, "proc/net/snmp", parse_netstat);
        self.take_table("vmstat", root, "proc/vmstat", parse_vmstat);
    }

    /// Adds `cgroup/N/nr_periods`, `nr_throttled` and `throttled_us` of this process's control group and those above it.
    fn take_throttled(&mut self, root: &HostRoot) {
        let (groups, unread) = read_throttled(root);
        for (above, path, counters) in groups {
            for (name, value) in counters {
                self.take(format!("cgroup/{above}/{name}"), value, &path);
            }
        }
        if let Some(gap) = unread {
            self.miss("cgroup".to_owned(), gap);
        }
    }

    /// Adds the calls of the NFS client, and of each mount.
    fn take_nfs(&mut self, root: &HostRoot) {
        self.take_table("nfs", root, nfs::CLIENT, nfs::parse_client);
        let stats = root.read_used(nfs::MOUNT_STATS, nfs::used_mount_stats);
        match stats {
            Known::Value(text) => {
                let counters = nfs::parse_mount_stats(&text);
                for (name, value) in counters {
                    self.take(format!("nfs/mount/{name}"), value, nfs::MOUNT_STATS);
                }
            }
            Known::Unknown(gap) => self.miss("nfs/mount".to_owned(), gap),
        }
    }

    fn take(&mut self, key: String, value: u64, path: &str) {
        self.counters.insert(key, (value, absolute(path)));
    }

    /// Adds a counter that has its own file. Missing files are ignored.
    fn take_file(&mut self, key: String, root: &HostRoot, path: &str) {
        let number = |text: &str| text.trim().parse::<u64>();
        match root.read(path) {
            Known::Value(text) => match understood(path, &text, number) {
                Known::Value(value) => self.take(key, value, path),
                Known::Unknown(gap) => self.miss(key, gap),
            },
            Known::Unknown(gap) => self.miss(key, gap),
        }
    }

    /// Adds the counters of a file with many, below `prefix`.
    fn take_table(
        &mut self,
        prefix: &str,
        root: &HostRoot,
        path: &str,
        parse: impl FnOnce(&str) -> Result<BTreeMap<String, u64>, String>,
    ) {
        match parsed(root, path, parse) {
            Known::Value(counters) => {
                for (name, value) in counters {
                    self.take(format!("{prefix}/{name}"), value, path);
                }
            }
            Known::Unknown(gap) => self.miss(prefix.to_owned(), gap),
        }
    }

    /// Records a gap; something absent needs none.
    fn miss(&mut self, prefix: String, gap: Gap) {
        if gap.cause != Cause::Absent {
            self.gaps.insert(prefix, gap);
        }
    }
}

/// The counters of `/proc/net/softnet_stat` have 32 bits and are never reset: one that went backwards has wrapped.
fn unwrapped(key: &str, before: u64, after: u64) -> u64 {
    let is_short = key.starts_with("cpu/") && key.contains("/softnet/");
    if is_short && after < before && u32::try_from(before).is_ok() {
        after + (1 << 32)
    } else {
        after
    }
}

/// `1785.02 2898.26`: seconds since boot, and idle seconds summed over CPUs.
pub(crate) fn parse_uptime(text: &str) -> Result<Nanoseconds, String> {
    let first = text.split_whitespace().next().unwrap_or_default();
    let (seconds, hundredths) = first.split_once('.').unwrap_or((first, "00"));
    let wrong = || format!("`{first}` is not a time in seconds");
    if hundredths.len() != 2 {
        return Err(wrong());
    }
    let seconds: u64 = seconds.parse().map_err(|_| wrong())?;
    let hundredths: u64 = hundredths.parse().map_err(|_| wrong())?;
    let whole = seconds.checked_mul(1_000_000_000);
    whole
        .and_then(|whole| whole.checked_add(hundredths * 10_000_000))
        .map(Nanoseconds::new)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests;
