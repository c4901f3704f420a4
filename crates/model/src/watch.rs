//! Counters over an interval. A rule never uses a counter's absolute value, only its increase between two readings. A
//! counter without an increase is not proof of no errors: some firmware never counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::known::{self, Cause, Gap, Known};
use crate::units::{Nanoseconds, real};

/// Two readings of a host's counters and the time between them.
///
/// Keys are paths of nouns that end in the kernel's own name:
///
/// | key | what |
/// |---|---|
/// | `nic/NAME/stat/rx_missed_errors` | `struct rtnl_link_stats64`, also `carrier_changes` |
/// | `nic/NAME/driver/rx_out_of_buffer` | `ETH_SS_STATS` of the driver, by its own names |
/// | `nic/NAME/phy/SymbolErrorDuringCarrier`, `mac/...`, `ctrl/...`, `rmon/...` | standard groups of `ETHTOOL_MSG_STATS_GET` |
/// | `nic/NAME/fec/corrected`, `uncorrectable`, `corrected-bits` | `ETHTOOL_MSG_FEC_GET` statistics |
/// | `nic/NAME/pause/tx-frames`, `rx-frames` | `ETHTOOL_MSG_PAUSE_GET` statistics |
/// | `nic/NAME/queue/rx-3/packets` | netdev `qstats-get` by queue; `nic/NAME/qstat/rx-alloc-fail` by interface |
/// | `nic/NAME/queue/tx-0/tx_timeout`, `stall_cnt` | sysfs |
/// | `nic/NAME/qdisc/drops`, `requeues`, `overlimits` | sum over its qdiscs |
/// | `nic/NAME/class/1:10/bytes`, `packets`, `drops`, `overlimits` | each class of its qdiscs, by its handle |
/// | `nic/NAME/link/ext_down_cnt` | `ETHTOOL_MSG_LINKSTATE_GET` |
/// | `nic/NAME/health/tx/errors` | devlink health reporter |
/// | `nic/NAME/page-pool/alloc-slow` | netdev `page-pool-stats-get` |
/// | `pci/0000:17:00.0/aer_correctable`, `aer_nonfatal`, `aer_fatal` | totals of `aer_dev_*` |
/// | `cpu/3/softnet/dropped`, `time_squeeze`, `processed`, `flow_limit` | `/proc/net/softnet_stat` |
/// | `cpu/3/time/user`, `system`, `irq`, `softirq`, `steal`, `idle` | `/proc/stat`, nanoseconds |
/// | `cpu/3/throttle/core`, `package` | `thermal_throttle/*_count` |
/// | `cpu/3/idle/STATE/time_us`, `usage` | cpuidle |
/// | `irq/45/cpu/3` | `/sys/kernel/irq/45/per_cpu_count`, non-zero ones only |
/// | `netstat/TcpExt/ListenOverflows`, `netstat/IpExt/...` | `/proc/net/netstat` |
/// | `snmp/Udp/RcvbufErrors`, `snmp/Tcp/RetransSegs` | `/proc/net/snmp` |
/// | `vmstat/allocstall_normal`, `pgfault`, `pgmajfault` | `/proc/vmstat` |
/// | `stat/ctxt` | `/proc/stat`: context switches of all CPUs |
/// | `conntrack/drop`, `early_drop`, `insert_failed`, `search_restart` | `/proc/net/stat/nf_conntrack`, summed |
/// | `rdma/mlx5_0/1/counter/port_xmit_data`, `rdma/mlx5_0/1/hw/out_of_sequence` | sysfs; data in octets |
/// | `block/nvme0n1/...` | `/sys/block/NAME/stat` |
/// | `cgroup/0/nr_throttled`, `nr_periods`, `throttled_us` | `cpu.stat` of the process's control group (0) and of those above it |
/// | `nfs/calls`, `retransmits`; `nfs/mount/0/...` | `/proc/net/rpc/nfs`; `/proc/self/mountstats` of each NFS mount |
/// | `drop/NETFILTER_DROP`, ... | drops of the whole machine by reason, those that mean loss (`skb:kfree_skb`); trials only |
/// | `pressure/irq/total_us` | `/proc/pressure/irq` |
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The time between the readings.
    pub span_ns: Nanoseconds,
    /// Every counter in both readings.
    pub counters: BTreeMap<String, Counter>,
    /// Gaps, by the prefix of the missing keys (`nic/eth0/fec`).
    pub gaps: BTreeMap<String, Gap>,
}

/// One counter, read twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The first value.
    pub before: u64,
    /// The second value.
    pub after: u64,
    /// Its source.
    pub path: String,
}

impl Watch {
    /// The increase of the counter `key`. Unknown if it went backwards, since then it was reset.
    pub fn grown(&self, key: &str) -> Known<u64> {
        let Some(counter) = self.counters.get(key) else {
            return Known::Unknown(self.gap_of(key));
        };
        match counter.after.checked_sub(counter.before) {
            Some(grown) => Known::Value(grown),
            None => Known::unknown(
                Cause::Unreadable,
                &*counter.path,
                format!(
                    "the counter went backwards, from {} to {}: it was reset",
                    counter.before, counter.after
                ),
            ),
        }
    }

    /// Its increase per second.
    pub fn per_second(&self, key: &str) -> Known<f64> {
        let seconds = self.span_ns.as_secs_f64();
        self.grown(key).and_then(|grown| {
            if seconds > 0.0 {
                Known::Value(real(grown) / seconds)
            } else {
                Known::unknown(Cause::NotSaid, key, "no time passed between the readings")
            }
        })
    }

    /// Every counter below `prefix` (ending in `/`) with the rest of its key and its increase; those that went
    /// backwards are left out. What could not be read there is noted for [`known::missed`].
    pub fn below<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, u64, &'a Counter)> {
        for (missing, gap) in &self.gaps {
            let above = prefix.strip_prefix(missing.as_str());
            if missing.starts_with(prefix) || above.is_some_and(|rest| rest.starts_with('/')) {
                known::miss(gap);
            }
        }
        self.counters
            .range(prefix.to_owned()..)
            .map_while(move |(key, counter)| key.strip_prefix(prefix).map(|rest| (rest, counter)))
            .filter_map(|(rest, counter)| {
                Some((rest, counter.after.checked_sub(counter.before)?, counter))
            })
    }

    /// Leaves out unchanged counters if there are more than `most`, with a gap that says so. Those that are needed
    /// even if unchanged are kept: the statistics of interfaces, of their qdiscs and classes, of each CPU, of RDMA ports, of control
    /// groups and of NFS, and the drop reasons.
    #[must_use]
    pub fn without_still(mut self, most: usize) -> Self {
        if self.counters.len() <= most {
            return self;
        }
        let mut left_out = BTreeMap::new();
        self.counters.retain(|key, counter| {
            let mut words = key.split('/');
            let (kind, group) = (words.next(), words.nth(1));
            let stays = matches!(
                (kind, group),
                (Some("nic"), Some("stat" | "qdisc" | "class"))
                    | (Some("cpu"), Some("softnet" | "time"))
                    | (Some("rdma" | "drop" | "cgroup" | "nfs"), _)
            );
            let moved = counter.before != counter.after;
            if !stays && !moved {
                left_out.insert(kind.unwrap_or_default().to_owned(), counter.path.clone());
            }
            stays || moved
        });
        for (kind, path) in left_out {
            let why = "it stood still, or is not counted here: what stood still was left out";
            let gap = Gap::new(Cause::NotSaid, path, why);
            self.gaps.entry(kind).or_insert(gap);
        }
        self
    }

    /// The source of the counter `key`; the key itself if it was not read.
    pub fn path(&self, key: &str) -> String {
        self.counters
            .get(key)
            .map_or_else(|| key.to_owned(), |counter| counter.path.clone())
    }

    /// Why `key` is missing: the gap of its longest prefix, or no such counter on this host.
    fn gap_of(&self, key: &str) -> Gap {
        let mut prefix = key;
        loop {
            if let Some(gap) = self.gaps.get(prefix) {
                return gap.clone();
            }
            match prefix.rsplit_once('/') {
                Some((above, _)) => prefix = above,
                None => {
                    return Gap::new(Cause::Absent, key, "no such counter on this host");
                }
            }
        }
    }
}

/// The sum of counters, saturating: values from a capture or a peer may overflow it.
pub fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        let counter = |before, after| Counter {
            before,
            after,
            path: "/proc/x".to_owned(),
        };
        Watch {
            span_ns: Nanoseconds::from_millis(2_000),
            counters: BTreeMap::from([
                ("nic/eth0/stat/rx_bytes".to_owned(), counter(5, 25)),
                ("nic/eth0/stat/rx_packets".to_owned(), counter(7, 3)),
                ("nic/eth1/stat/rx_bytes".to_owned(), counter(0, 1)),
            ]),
            gaps: BTreeMap::from([(
                "nic/eth0/fec".to_owned(),
                Gap::new(Cause::Denied, "netlink/ethtool/eth0/fec", "needs root"),
            )]),
        }
    }

    #[test]
    fn a_counter_tells_its_growth_and_its_rate() {
        let watch = watch();
        assert_eq!(watch.grown("nic/eth0/stat/rx_bytes"), Known::Value(20));
        assert_eq!(
            watch.per_second("nic/eth0/stat/rx_bytes"),
            Known::Value(10.0)
        );
        let below: Vec<_> = watch
            .below("nic/eth0/")
            .map(|(key, by, _)| (key, by))
            .collect();
        assert_eq!(below, [("stat/rx_bytes", 20)]);
    }

    #[test]
    fn what_stood_still_is_left_out_of_many_and_never_called_absent() {
        let still = |key: &str| {
            let counter = Counter {
                before: 4,
                after: 4,
                path: "/proc/net/netstat".to_owned(),
            };
            (key.to_owned(), counter)
        };
        let mut watch = watch();
        watch.counters.extend([
            still("netstat/TcpExt/ListenDrops"),
            still("nic/eth0/stat/rx_dropped"),
            still("rdma/mlx5_0/1/hw/out_of_sequence"),
        ]);
        assert_eq!(watch.clone().without_still(6), watch, "they are few");
        let less = watch.without_still(4);
        assert_eq!(less.grown("nic/eth0/stat/rx_dropped"), Known::Value(0));
        let sent_again = less.grown("rdma/mlx5_0/1/hw/out_of_sequence");
        assert_eq!(sent_again, Known::Value(0));
        assert_eq!(less.grown("nic/eth0/stat/rx_bytes"), Known::Value(20));
        let gone = less.grown("netstat/TcpExt/ListenDrops");
        assert_eq!(gone.gap().map(|gap| gap.cause), Some(Cause::NotSaid));
    }

    #[test]
    fn what_was_reset_or_not_read_is_not_known() {
        let watch = watch();
        let cause = |key: &str| watch.grown(key).gap().map(|gap| gap.cause);
        assert_eq!(cause("nic/eth0/stat/rx_packets"), Some(Cause::Unreadable));
        assert_eq!(cause("nic/eth0/fec/corrected"), Some(Cause::Denied));
        assert_eq!(cause("nic/eth0/phy/SymbolError"), Some(Cause::Absent));
    }
}
