//! Counter readings for tests.

use std::collections::BTreeMap;

use crate::host::Host;
use crate::known::{Cause, Gap};
use crate::units::Nanoseconds;
use crate::watch::{Counter, Watch};

/// A builder of two readings; see [`watch`].
#[derive(Debug, Clone)]
pub struct WatchBuilder {
    watch: Watch,
}

/// The kernel counters that exist on every host.
const OF_NIC: [&str; 24] = [
    "stat/rx_packets",
    "stat/tx_packets",
    "stat/rx_bytes",
    "stat/tx_bytes",
    "stat/rx_errors",
    "stat/tx_errors",
    "stat/rx_dropped",
    "stat/tx_dropped",
    "stat/rx_missed_errors",
    "stat/rx_fifo_errors",
    "stat/rx_crc_errors",
    "stat/rx_length_errors",
    "stat/rx_frame_errors",
    "stat/rx_over_errors",
    "stat/tx_carrier_errors",
    "stat/carrier_changes",
    "fec/corrected",
    "fec/uncorrectable",
    "fec/corrected-bits",
    "pause/rx-frames",
    "pause/tx-frames",
    "qdisc/drops",
    "qdisc/requeues",
    "qdisc/overlimits",
];
const OF_CPU: [&str; 10] = [
    "softnet/processed",
    "softnet/dropped",
    "softnet/time_squeeze",
    "softnet/flow_limit",
    "time/user",
    "time/system",
    "time/irq",
    "time/softirq",
    "time/steal",
    "time/idle",
];
const OF_RDMA_PORT: [&str; 6] = [
    "counter/link_downed",
    "counter/link_error_recovery",
    "counter/symbol_error",
    "counter/port_rcv_errors",
    "counter/port_xmit_discards",
    "counter/VL15_dropped",
];
const OF_HOST: [&str; 32] = [
    "netstat/TcpExt/ListenOverflows",
    "netstat/TcpExt/ListenDrops",
    "netstat/TcpExt/TCPReqQFullDrop",
    "netstat/TcpExt/TCPBacklogDrop",
    "netstat/TcpExt/PruneCalled",
    "netstat/TcpExt/RcvPruned",
    "netstat/TcpExt/TCPRcvCollapsed",
    "netstat/TcpExt/TCPOFODrop",
    "netstat/TcpExt/TCPZeroWindowDrop",
    "netstat/TcpExt/TCPRcvQDrop",
    "netstat/TcpExt/TCPMemoryPressures",
    "netstat/TcpExt/TCPToZeroWindowAdv",
    "netstat/TcpExt/TCPMTUPFail",
    "netstat/TcpExt/TCPMTUPSuccess",
    "netstat/TcpExt/TCPSpuriousRtxHostQueues",
    "netstat/TcpExt/BusyPollRxPackets",
    "netstat/TcpExt/TCPTimeouts",
    "snmp/Tcp/RetransSegs",
    "snmp/Tcp/OutSegs",
    "snmp/Udp/RcvbufErrors",
    "snmp/Udp/SndbufErrors",
    "snmp/Udp/MemErrors",
    "conntrack/drop",
    "conntrack/early_drop",
    "conntrack/insert_failed",
    "conntrack/search_restart",
    "vmstat/allocstall_normal",
    "pressure/irq/total_us",
    "drop/NETFILTER_DROP",
    "drop/QDISC_DROP",
    "drop/TC_EGRESS",
    "drop/TC_INGRESS",
];

/// The counters of `host` over ten seconds in which none of them increased and every CPU was idle.
pub fn watch(host: &Host) -> WatchBuilder {
    let mut builder = WatchBuilder {
        watch: Watch {
            span_ns: Nanoseconds::from_millis(10_000),
            counters: BTreeMap::new(),
            gaps: BTreeMap::new(),
        },
    };
    for nic in &host.nics {
        for name in OF_NIC {
            builder = builder.grew(&format!("nic/{}/{name}", nic.name), 0);
        }
        if let Some(address) = nic.pci_address.value() {
            for name in ["aer_correctable", "aer_nonfatal", "aer_fatal"] {
                builder = builder.grew(&format!("pci/{address}/{name}"), 0);
            }
        }
    }
    for device in &host.rdma {
        for port in &device.ports {
            for name in OF_RDMA_PORT {
                builder = builder.grew(&format!("rdma/{}/{}/{name}", device.name, port.port), 0);
            }
        }
    }
    for cpu in &host.cpus {
        for name in OF_CPU {
            builder = builder.grew(&format!("cpu/{}/{name}", cpu.id), 0);
        }
        builder = builder.grew(&format!("cpu/{}/time/idle", cpu.id), 10_000_000_000);
    }
    for name in OF_HOST {
        builder = builder.grew(name, 0);
    }
    builder
}

impl WatchBuilder {
    /// Increases the counter `key` by `by`.
    #[must_use]
    pub fn grew(mut self, key: &str, by: u64) -> Self {
        let counter = Counter {
            before: 1000,
            after: 1000 + by,
            path: format!("counter {key}"),
        };
        self.watch.counters.insert(key.to_owned(), counter);
        self
    }

    /// `cpu` spent `share` of the time in softirqs, the rest idle.
    #[must_use]
    pub fn softirq(self, cpu: u32, share: f64) -> Self {
        let whole = self.watch.span_ns.as_secs_f64() * 1e9;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a test names a share between 0 and 1"
        )]
        let busy = (whole * share) as u64;
        let idle = self.watch.span_ns.as_u64() - busy;
        self.grew(&format!("cpu/{cpu}/time/softirq"), busy)
            .grew(&format!("cpu/{cpu}/time/idle"), idle)
    }

    /// No counter with this prefix could be read.
    #[must_use]
    pub fn without(mut self, prefix: &str) -> Self {
        self.watch
            .counters
            .retain(|key, _| !key.starts_with(prefix));
        let gap = Gap::new(Cause::Absent, prefix, "the driver has no such counter");
        self.watch.gaps.insert(prefix.to_owned(), gap);
        self
    }

    /// Permission was denied for every counter with this prefix.
    #[must_use]
    pub fn denied(mut self, prefix: &str) -> Self {
        self = self.without(prefix);
        let gap = Gap::new(Cause::Denied, prefix, "it needs root");
        self.watch.gaps.insert(prefix.to_owned(), gap);
        self
    }

    /// Changes anything that has no method here.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Watch)) -> Self {
        change(&mut self.watch);
        self
    }

    /// Builds the readings.
    pub fn build(self) -> Watch {
        self.watch
    }
}
