//! Counter readings: the activity between two readings is their difference. A counter that went backwards (a NIC was
//! reset, a CPU came back online) gives no difference rather than a wrong one.

use std::collections::BTreeMap;

use linerate_model::ids::{CpuId, NicName};
use linerate_model::known::{Cause, Known};
use linerate_model::sample::CpuTimes;
use linerate_model::units::Nanoseconds;

use crate::attributes::{number, parsed};
pub use crate::procfs::softnet::SoftnetLine;
use crate::procfs::softnet::parse_softnet;
use crate::procfs::stat::{CpuTicks, parse_stat};
use crate::root::{HostRoot, absolute};

const STAT: &str = "proc/stat";
const SOFTNET: &str = "proc/net/softnet_stat";

/// The times of every CPU since boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuCounters {
    cpus: BTreeMap<u32, CpuTicks>,
    tick_ns: u64,
}

impl CpuCounters {
    /// Reads `/proc/stat`.
    pub fn read(root: &HostRoot) -> Known<Self> {
        // USER_HZ is 100 on every architecture that a captured host may come from.
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        parsed(root, STAT, parse_stat).map(|cpus| Self {
            cpus,
            tick_ns: 1_000_000_000 / per_second,
        })
    }

    /// The times of each CPU since `earlier`, by number, with the kernel's resolution of one tick (usually 10 ms). A
    /// CPU that was not online all the time, or with a counter that went backwards, is left out. (iowait can go
    /// backwards; it is added to idle here, and the sum cannot.)
    pub fn since(&self, earlier: &Self) -> Vec<CpuTimes> {
        self.cpus
            .iter()
            .filter_map(|(cpu, now)| self.times(CpuId(*cpu), now, earlier.cpus.get(cpu)?))
            .collect()
    }

    fn times(&self, cpu: CpuId, now: &CpuTicks, then: &CpuTicks) -> Option<CpuTimes> {
        let spent = |of: fn(&CpuTicks) -> Option<u64>| {
            let ticks = of(now)?.checked_sub(of(then)?)?;
            ticks.checked_mul(self.tick_ns).map(Nanoseconds::new)
        };
        Some(CpuTimes {
            cpu,
            user_ns: spent(|t| t.user.checked_add(t.nice))?,
            system_ns: spent(|t| Some(t.system))?,
            irq_ns: spent(|t| Some(t.irq))?,
            softirq_ns: spent(|t| Some(t.softirq))?,
            steal_ns: spent(|t| Some(t.steal))?,
            idle_ns: spent(|t| t.idle.checked_add(t.iowait))?,
        })
    }
}

/// The current frequency of a CPU, kHz (Documentation/admin-guide/pm/cpufreq.rst).
pub fn read_frequency(root: &HostRoot, cpu: CpuId) -> Known<u64> {
    let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
    number(root, &path)
}

/// Reads `/proc/net/softnet_stat`.
pub fn read_softnet(root: &HostRoot) -> Known<Vec<SoftnetLine>> {
    parsed(root, SOFTNET, parse_softnet)
}

/// The statistics of one interface (`struct rtnl_link_stats64`), by the kernel's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicCounters {
    folder: String,
    values: BTreeMap<String, Known<u64>>,
}

impl NicCounters {
    /// Reads `/sys/class/net/NIC/statistics`.
    pub fn read(root: &HostRoot, nic: &NicName) -> Known<Self> {
        let folder = format!("sys/class/net/{nic}/statistics");
        root.list(&folder).map(|names| Self {
            folder: absolute(&folder),
            values: names
                .into_iter()
                .map(|name| {
                    let value = number(root, &format!("{folder}/{name}"));
                    (name, value)
                })
                .collect(),
        })
    }

    /// The counter called `name` (`rx_bytes`, `tx_dropped`, `rx_missed_errors` ...).
    pub fn get(&self, name: &str) -> Known<u64> {
        self.values.get(name).cloned().unwrap_or_else(|| {
            let path = format!("{}/{name}", self.folder);
            Known::unknown(Cause::Absent, path, "the kernel has no such counter")
        })
    }

    /// The increase since `earlier`.
    pub fn since(&self, earlier: &Self) -> BTreeMap<String, Known<u64>> {
        self.values
            .iter()
            .map(|(name, now)| {
                let grown = now.clone().and_then(|now| {
                    earlier
                        .get(name)
                        .and_then(|then| match now.checked_sub(then) {
                            Some(grown) => Known::Value(grown),
                            None => Known::unknown(
                                Cause::Unreadable,
                                format!("{}/{name}", self.folder),
                                format!(
                                    "the counter went backwards, from {then} to {now}: it was reset"
                                ),
                            ),
                        })
                });
                (name.clone(), grown)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(text: &str) -> CpuCounters {
        CpuCounters {
            cpus: parse_stat(text).expect(text),
            tick_ns: 10_000_000,
        }
    }

    #[test]
    fn cpu_time_is_the_difference_of_two_readings() {
        let then = counters("cpu0 10 1 5 100 7 1 2 3 0 0\ncpu1 0 0 0 9 0 0 0 0");
        let now =
            counters("cpu0 12 2 9 101 6 1 4 3 0 0\ncpu1 0 0 0 8 0 0 0 0\ncpu2 1 1 1 1 1 1 1 1");
        let times = now.since(&then);
        assert_eq!(
            times.len(),
            1,
            "CPU 1 ran backwards and CPU 2 is new: {times:?}"
        );
        let ms = Nanoseconds::from_millis;
        assert_eq!(
            times[0],
            CpuTimes {
                cpu: CpuId(0),
                user_ns: ms(30),
                system_ns: ms(40),
                irq_ns: ms(0),
                softirq_ns: ms(20),
                steal_ns: ms(0),
                idle_ns: ms(0),
            }
        );
    }

    #[test]
    fn a_nic_that_was_reset_counts_nothing_known() {
        let of = |bytes: u64| NicCounters {
            folder: "/sys/class/net/eth0/statistics".to_owned(),
            values: BTreeMap::from([("rx_bytes".to_owned(), Known::Value(bytes))]),
        };
        assert_eq!(of(7).since(&of(5))["rx_bytes"], Known::Value(2));
        assert!(of(5).since(&of(7))["rx_bytes"].value().is_none());
    }
}
