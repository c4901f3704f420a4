//! Builders of hosts and samples for the tests of every crate. Nothing here reads a machine: what a test does not set
//! has a plain, healthy default, so that a test states only what it is about.
//!
//! ```
//! use linerate_model::build;
//!
//! let server = build::host().nodes(2, 6).nic("eth2", |nic| nic.gbit(40).node(1)).build();
//! assert_eq!(server.online_cpus().to_string(), "0-11");
//! let (near, far) = build::veth_pair();
//! assert_eq!(near.identity.boot_id, far.identity.boot_id);
//! ```

mod block;
mod machine;
mod nic;
mod rdma;
mod same;
mod trial;
mod verbs;
mod watch;

use std::collections::BTreeMap;

pub use block::block;
pub use nic::{NicBuilder, cable, pcie_link, tbf};
pub use rdma::{infiniband, iwarp, roce};
pub use same::assert_same;
pub use trial::{SampleBuilder, cpu_times, sample};
pub use verbs::{over_verbs, rdma};
pub use watch::{WatchBuilder, watch};

use crate::host::{Cpu, CpuKind, Host, Identity, Node};
use crate::ids::{CpuId, CpuSet, NicName, NodeId};
use crate::known::{Cause, Known};
use crate::units::Bytes;

/// A builder of a host; see [`host`].
#[derive(Debug, Clone)]
pub struct HostBuilder {
    host: Host,
}

/// The sysctls of [`host`].
const SYSCTLS: &[(&str, &str)] = &[
    ("net.ipv4.tcp_rmem", "4096 131072 33554432"),
    ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
    ("net.ipv4.tcp_limit_output_bytes", "1048576"),
    ("net.core.rmem_max", "212992"),
    ("net.core.wmem_max", "212992"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_congestion_control", "cubic"),
    (
        "net.ipv4.tcp_available_congestion_control",
        "reno bbr cubic",
    ),
    ("net.ipv4.tcp_allowed_congestion_control", "reno bbr cubic"),
    ("kernel.numa_balancing", "0"),
    ("net.core.busy_poll", "0"),
    ("net.core.busy_read", "0"),
    ("net.core.default_qdisc", "fq_codel"),
    ("net.core.dev_weight", "64"),
    ("net.core.netdev_budget", "300"),
    ("net.core.netdev_budget_usecs", "2000"),
    ("net.core.netdev_max_backlog", "1000"),
    ("net.core.rps_default_mask", "0"),
    ("net.core.rps_sock_flow_entries", "0"),
    ("net.core.somaxconn", "4096"),
    ("net.ipv4.fib_multipath_use_neigh", "0"),
    ("net.ipv4.ip_forward", "0"),
    ("net.ipv4.ip_no_pmtu_disc", "0"),
    ("net.ipv4.tcp_dsack", "1"),
    ("net.ipv4.tcp_mem", "383000 510000 766000"),
    ("net.ipv4.tcp_moderate_rcvbuf", "1"),
    ("net.ipv4.tcp_mtu_probing", "0"),
    ("net.ipv4.tcp_notsent_lowat", "4294967295"),
    ("net.ipv4.tcp_sack", "1"),
    ("net.ipv4.tcp_slow_start_after_idle", "1"),
    ("net.ipv4.tcp_window_scaling", "1"),
    ("net.ipv6.conf.all.forwarding", "0"),
    ("net.ipv4.udp_mem", "766000 1020000 1532000"),
    ("vm.min_free_kbytes", "67584"),
    ("vm.swappiness", "60"),
    ("vm.zone_reclaim_mode", "0"),
];

/// A machine with one node and two CPUs, without interfaces, with the sysctls of Linux 6.18 (cubic, 4 MiB to send, 32
/// MiB to receive).
pub fn host() -> HostBuilder {
    let known = |text: &str| Known::Value(text.to_owned());
    let host = Host {
        identity: Identity {
            hostname: known("host"),
            kernel_release: known("6.18.0"),
            architecture: known("x86_64"),
            boot_id: known("00000000-0000-4000-8000-000000000001"),
            command_line: known(""),
            cpu_model: known("a CPU"),
            irq_time_accounting: Known::Value(true),
        },
        cpus: Vec::new(),
        power: machine::power(),
        isolation: machine::isolation(),
        kernel: machine::kernel(),
        process: machine::process(),
        software: machine::software(),
        routing: machine::routing(),
        nodes: Vec::new(),
        nics: Vec::new(),
        irqs: Vec::new(),
        rdma: Vec::new(),
        block: Vec::new(),
        sysctls: SYSCTLS
            .iter()
            .map(|(name, text)| ((*name).to_owned(), known(text)))
            .collect::<BTreeMap<_, _>>(),
        gaps: Vec::new(),
    };
    HostBuilder { host }.nodes(1, 2)
}

impl HostBuilder {
    /// `nodes` NUMA nodes of `cpus` CPUs each, numbered node by node, with 16 GiB each.
    #[must_use]
    pub fn nodes(mut self, nodes: u32, cpus: u32) -> Self {
        let of_node =
            |node: u32| -> CpuSet { (node * cpus..(node + 1) * cpus).map(CpuId).collect() };
        self.host.nodes = (0..nodes)
            .map(|node| Node {
                id: NodeId(node),
                cpus: Known::Value(of_node(node)),
                memory_bytes: Known::Value(Bytes::mib(16 << 10)),
                distances: Known::Value(
                    (0..nodes)
                        .map(|other| if other == node { 10 } else { 21 })
                        .collect(),
                ),
                memory_free_bytes: Known::Value(Bytes::mib(12 << 10)),
                hugepages: Known::Value(Vec::new()),
            })
            .collect();
        self.host.cpus = (0..nodes * cpus)
            .map(|cpu| Cpu {
                id: CpuId(cpu),
                online: Known::Value(true),
                node: Known::Value(NodeId(cpu / cpus)),
                package: Known::Value(cpu / cpus),
                die: Known::Value(0),
                last_level_cache: Known::Value(of_node(cpu / cpus)),
                kind: Known::Value(CpuKind::Uniform),
                core: Known::Value(cpu % cpus),
                siblings: Known::Value(CpuSet::one(CpuId(cpu))),
                governor: Known::Value("performance".to_owned()),
            })
            .collect();
        self.host.process.cpus_allowed = Known::Value((0..nodes * cpus).map(CpuId).collect());
        if let Known::Value(policies) = &mut self.host.power.frequency {
            for policy in policies {
                policy.cpus = Known::Value((0..nodes * cpus).map(CpuId).collect());
            }
        }
        self
    }

    /// The memory of every node.
    #[must_use]
    pub fn memory(mut self, memory: Bytes) -> Self {
        for node in &mut self.host.nodes {
            node.memory_bytes = Known::Value(memory);
        }
        self
    }

    /// Another machine: another boot ID (by default, all hosts have the same one).
    #[must_use]
    pub fn boot_id(mut self, id: &str) -> Self {
        self.host.identity.boot_id = Known::Value(id.to_owned());
        self
    }

    /// A sysctl.
    #[must_use]
    pub fn sysctl(mut self, name: &str, text: &str) -> Self {
        let text = Known::Value(text.to_owned());
        self.host.sysctls.insert(name.to_owned(), text);
        self
    }

    /// Removes a sysctl.
    #[must_use]
    pub fn without_sysctl(mut self, name: &str) -> Self {
        let gap = Known::unknown(
            Cause::Absent,
            crate::buffers::path(name),
            "the kernel has no such sysctl",
        );
        self.host.sysctls.insert(name.to_owned(), gap);
        self
    }

    /// Whether the kernel accounts interrupt time exactly.
    #[must_use]
    pub fn irq_time_accounting(mut self, exact: bool) -> Self {
        self.host.identity.irq_time_accounting = Known::Value(exact);
        self
    }

    /// An interface: a PCI NIC of 10 Gb/s on node 0 with one queue pair, unless `change` sets something else.
    #[must_use]
    pub fn nic(mut self, name: &str, change: impl FnOnce(NicBuilder) -> NicBuilder) -> Self {
        let name: NicName = name.parse().expect("a test names its interfaces well");
        let builder = NicBuilder::card(name, &self.host);
        let nic = change(builder).build(&mut self.host.irqs);
        self.host.nics.push(nic);
        self
    }

    /// Changes anything that has no method here.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Host)) -> Self {
        change(&mut self.host);
        self
    }

    /// Builds the host.
    pub fn build(self) -> Host {
        self.host
    }
}

/// Two hosts on one kernel of two CPUs, joined by the veth pair `near0` - `far0`, with nothing wrong.
pub fn veth_pair() -> (Host, Host) {
    let end = |name: &str, address: &str| {
        let address = address.to_owned();
        host()
            .nic(name, |nic| {
                nic.veth().with(|nic| nic.addresses = vec![address].into())
            })
            .build()
    };
    (end("near0", "10.0.0.1/24"), end("far0", "10.0.0.2/24"))
}
