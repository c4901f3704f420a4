//! What captures of other projects lack: a network adapter and the files of the network stack, written as a kernel
//! of that age writes them, so that a machine of the corpus can be checked as a network host.
//!
//! Sources: Documentation/ABI/testing/sysfs-class-net*, sysfs-bus-pci,
//! Documentation/filesystems/proc.rst, Documentation/admin-guide/sysctl/net.rst, net/core/net-procfs.c
//! (columns of `softnet_stat`), net/ipv4/proc.c (`snmp`, `netstat`).

use std::collections::BTreeMap;

use linerate_host::capture::Archive;
use serde::Deserialize;
use serde_json::{Value, json};

/// A network adapter that is added to a capture.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Adapter {
    /// The interface.
    name: String,
    driver: String,
    /// Its device, below `/sys/devices`: the PCI bridges and the function, or the folder of another bus.
    device: String,
    /// `numa_node`; the file is missing without it.
    #[serde(default)]
    node: Option<i64>,
    /// The CPUs that are local to it; its interrupts are spread over them.
    cpus: String,
    /// The rate of the port in Mb/s.
    speed: u32,
    /// Receive and transmit queues, one interrupt each.
    queues: u32,
    /// The number of the first interrupt; none without it.
    #[serde(default)]
    irq: Option<u32>,
    /// Speed and width of every PCIe link from the root port to it, such as `16.0 GT/s PCIe x16`.
    #[serde(default)]
    link: Option<String>,
    #[serde(default = "ethernet_mtu")]
    mtu: u32,
    /// Whether netlink and the ethtool ioctl were asked. Old kernels have only a part of them.
    #[serde(default)]
    answers: bool,
}

fn ethernet_mtu() -> u32 {
    1500
}

/// The kernel of a capture, with the files of its network stack at values for a fast network.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct System {
    /// `uname -r`.
    kernel: String,
    /// The CPUs that are online.
    cpus: String,
    /// `uname -m`.
    arch: String,
}

/// The numbers of a list such as `0-3,8`.
fn list(text: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse(), last.trim().parse::<u32>()) {
            numbers.extend(first..=last);
        }
    }
    numbers
}

/// A mask of one CPU in groups of 32 bits, as the kernel prints it for a machine with `cpus` CPUs.
fn mask(cpu: u32, cpus: u32) -> String {
    let groups = cpus.max(cpu + 1).div_ceil(32);
    let group = |index: u32| {
        let bit = if cpu / 32 == index {
            1u32 << (cpu % 32)
        } else {
            0
        };
        format!("{bit:08x}")
    };
    let text: Vec<String> = (0..groups).rev().map(group).collect();
    text.join(",")
}

/// `up` folders up.
fn up(count: usize) -> String {
    vec![".."; count].join("/")
}

impl Adapter {
    /// Adds it to a capture.
    pub(crate) fn add(&self, mut archive: Archive, system: Option<&System>) -> Archive {
        let device = format!("sys/devices/{}", self.device);
        let steps = self.device.split('/').count();
        let name = &self.name;
        let net = format!("{device}/net/{name}");
        archive = archive
            .with_folder(&device)
            .with_folder("sys/kernel/irq")
            .with_folder("proc/irq")
            .linked(
                &format!("sys/class/net/{name}"),
                &format!("../../devices/{}/net/{name}", self.device),
            )
            .linked(&format!("{net}/device"), "../..");
        let bus = if self.is_pci() { "pci" } else { "platform" };
        let driver = format!("{}/bus/{bus}/drivers/{}", up(steps + 1), self.driver);
        archive = archive.linked(&format!("{device}/driver"), &driver);
        if self.is_pci() {
            let mut path = String::new();
            for part in self.device.split('/') {
                path = if path.is_empty() {
                    part.to_owned()
                } else {
                    format!("{path}/{part}")
                };
                if !part.starts_with("pci") {
                    archive = archive.linked(
                        &format!("sys/bus/pci/devices/{part}"),
                        &format!("../../../devices/{path}"),
                    );
                }
            }
        }
        for (path, text) in self.files(&device, &net, system) {
            archive = archive.edited(&path, Some(&text));
        }
        archive
    }

    fn is_pci(&self) -> bool {
        self.device.starts_with("pci")
    }

    fn files(&self, device: &str, net: &str, system: Option<&System>) -> Vec<(String, String)> {
        let mut files = self.net_files(net);
        let cpus = list(&self.cpus);
        let all = system.map_or_else(|| cpus.clone(), |system| list(&system.cpus));
        let count = all.iter().max().map_or(1, |last| last + 1);
        let cpu_of = |queue: u32| {
            let index = usize::try_from(queue).unwrap_or(0) % cpus.len().max(1);
            cpus.get(index).copied().unwrap_or(0)
        };
        for queue in 0..self.queues {
            let rx = format!("{net}/queues/rx-{queue}");
            let tx = format!("{net}/queues/tx-{queue}");
            files.push((format!("{rx}/rps_cpus"), zeros(count)));
            files.push((format!("{rx}/rps_flow_cnt"), "0".to_owned()));
            files.push((format!("{tx}/xps_cpus"), mask(cpu_of(queue), count)));
            files.push((format!("{tx}/tx_timeout"), "0".to_owned()));
        }
        if self.is_pci() {
            if let Some(node) = self.node {
                files.push((format!("{device}/numa_node"), node.to_string()));
            }
            files.push((format!("{device}/local_cpulist"), self.cpus.clone()));
            files.push((format!("{device}/class"), "0x020000".to_owned()));
        }
        if let Some((speed, width)) = self.link.as_deref().and_then(|link| link.rsplit_once(" x")) {
            let mut bridge = device;
            loop {
                for end in ["current", "max"] {
                    files.push((format!("{bridge}/{end}_link_speed"), speed.to_owned()));
                    files.push((format!("{bridge}/{end}_link_width"), width.to_owned()));
                }
                match bridge.rsplit_once('/') {
                    Some((above, _))
                        if above
                            .rsplit('/')
                            .next()
                            .is_some_and(|part| !part.starts_with("pci") && part != "devices") =>
                    {
                        bridge = above;
                    }
                    _ => break,
                }
            }
        }
        if let Some(first) = self.irq {
            let row = |name: &str, cell: &dyn Fn(u32) -> String| {
                let cells: Vec<String> = all.iter().map(|cpu| cell(*cpu)).collect();
                format!("{name:>5} {}", cells.join(" "))
            };
            let mut table = vec![row("", &|cpu| format!("{:>10}", format!("CPU{cpu}")))];
            for queue in 0..self.queues {
                let (irq, cpu) = (first + queue, cpu_of(queue));
                let text = cpu.to_string();
                files.push((format!("{device}/msi_irqs/{irq}"), "msix".to_owned()));
                files.push((format!("proc/irq/{irq}/smp_affinity_list"), text.clone()));
                files.push((format!("proc/irq/{irq}/effective_affinity_list"), text));
                let action = format!("{}-TxRx-{queue}", self.name);
                files.push((format!("sys/kernel/irq/{irq}/actions"), action.clone()));
                let counts = row(&format!("{irq}:"), &|other| {
                    format!("{:>10}", if other == cpu { 100_000 } else { 0 })
                });
                table.push(format!("{counts}   PCI-MSI-edge      {action}"));
            }
            files.push(("proc/interrupts".to_owned(), table.join("\n")));
        }
        files
    }

    fn net_files(&self, net: &str) -> Vec<(String, String)> {
        let mut files = Vec::new();
        let mut put =
            |name: &str, text: &str| files.push((format!("{net}/{name}"), text.to_owned()));
        put("mtu", &self.mtu.to_string());
        put("type", "1");
        put("operstate", "up");
        put("carrier", "1");
        put("carrier_changes", "2");
        put("duplex", "full");
        put("speed", &self.speed.to_string());
        put("ifindex", "2");
        put("tx_queue_len", "1000");
        put("uevent", &format!("INTERFACE={}\nIFINDEX=2", self.name));
        for counter in STATISTICS {
            let text = match *counter {
                "rx_packets" | "tx_packets" => "50000000",
                "rx_bytes" | "tx_bytes" => "60000000000",
                _ => "0",
            };
            put(&format!("statistics/{counter}"), text);
        }
        files
    }

    /// What netlink and the ethtool ioctl answer about it.
    #[expect(clippy::too_many_lines, reason = "a list")]
    pub(crate) fn answers(&self) -> Option<BTreeMap<String, Value>> {
        if !self.answers {
            return None;
        }
        let on = |changeable: bool| json!({ "active": true, "changeable": changeable });
        let features: BTreeMap<&str, Value> =
            FEATURES.iter().map(|name| (*name, on(true))).collect();
        let bits = u64::from(self.speed) * 1_000_000;
        let mode = match self.speed {
            100 => "100baseT/Full",
            1000 => "1000baseT/Full",
            2500 => "2500baseT/Full",
            10_000 => "10000baseSR/Full",
            25_000 => "25000baseCR/Full",
            40_000 => "40000baseCR4/Full",
            _ => "100000baseCR4/Full",
        };
        let table: Vec<u32> = (0..128).map(|slot| slot % self.queues.max(1)).collect();
        let mut tree = vec![qdisc("mq", u32::MAX)];
        tree.extend((1..=self.queues).map(|queue| qdisc("fq_codel", queue)));
        let none = |reason: &str| json!({ "unknown": "absent", "path": "", "reason": reason });
        let pairs = [
            (
                "/kind",
                json!({ "unknown": "not-said", "path": "", "reason": "the kernel names no kind" }),
            ),
            ("/addresses", json!(["192.168.10.1/24"])),
            ("/features", json!(features)),
            (
                "/rings",
                json!({ "rx": 1024, "rx_max": 8192, "tx": 1024, "tx_max": 8192 }),
            ),
            (
                "/channels",
                json!({ "rx": none("not offered"), "tx": none("not offered"), "combined": self.queues,
                "rx_max": none("not offered"), "tx_max": none("not offered"), "combined_max": self.queues }),
            ),
            (
                "/coalesce",
                json!({ "rx_usecs": 8, "tx_usecs": 16, "adaptive_rx": true, "adaptive_tx": true,
                "rx_frames": 64, "tx_frames": 64 }),
            ),
            (
                "/qdisc",
                json!({ "kind": "mq", "handle": 0, "rate_bit_per_s": null, "options": "" }),
            ),
            ("/card/driver", json!(self.driver)),
            (
                "/wire/modes",
                json!({ "autoneg": true, "speed_bit_per_s": bits, "duplex": "full", "lanes": none("not offered"),
                "supported": [mode], "advertised": [mode], "partner": [mode], "port": "Direct Attach Copper" }),
            ),
            (
                "/wire/pause",
                json!({ "autoneg": false, "rx": false, "tx": false }),
            ),
            ("/wire/eee", none("not offered")),
            ("/wire/fec", none("not offered")),
            ("/stack/upper", json!([])),
            ("/stack/mtu_max", json!(9978)),
            ("/stack/tx_queue_len", json!(1000)),
            ("/stack/xdp", json!("none")),
            ("/stack/promiscuity", json!(0)),
            (
                "/dispatch/rss",
                json!({ "table": table, "function": "toeplitz", "key_bytes": 40, "symmetric": false,
                "fields": { "tcp4": "sdfn", "tcp6": "sdfn", "udp4": "sdfn", "udp6": "sdfn" } }),
            ),
            ("/shaping/tree", json!(tree)),
            ("/shaping/classes", json!([])),
        ];
        Some(
            pairs
                .into_iter()
                .map(|(pointer, value)| (pointer.to_owned(), value))
                .collect(),
        )
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

fn qdisc(kind: &str, parent: u32) -> Value {
    json!({ "kind": kind, "handle": 0, "parent": parent, "drops": 0, "requeues": 0, "overlimits": 0, "offloaded": false })
}

/// An empty mask.
fn zeros(cpus: u32) -> String {
    vec!["00000000"; usize::try_from(cpus.div_ceil(32)).unwrap_or(1)].join(",")
}

/// struct rtnl_link_stats64 in sysfs (net/core/net-sysfs.c).
const STATISTICS: &[&str] = &[
    "collisions",
    "multicast",
    "rx_bytes",
    "rx_compressed",
    "rx_crc_errors",
    "rx_dropped",
    "rx_errors",
    "rx_fifo_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "rx_missed_errors",
    "rx_over_errors",
    "rx_packets",
    "tx_aborted_errors",
    "tx_bytes",
    "tx_carrier_errors",
    "tx_compressed",
    "tx_dropped",
    "tx_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_packets",
    "tx_window_errors",
];

/// The offloads of an ordinary fast adapter.
const FEATURES: &[&str] = &[
    "highdma",
    "rx-checksum",
    "rx-gro",
    "rx-hashing",
    "rx-vlan-hw-parse",
    "tx-checksum-ip-generic",
    "tx-generic-segmentation",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp_tnl-segmentation",
    "tx-vlan-hw-insert",
];

impl System {
    fn version(&self) -> (u32, u32) {
        let mut parts = self.kernel.split(['.', '-']);
        let mut number = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
        (number(), number())
    }

    /// Adds the files to a capture.
    pub(crate) fn add(&self, mut archive: Archive) -> Archive {
        for (path, text) in self.files() {
            archive = archive.edited(&path, Some(&text));
        }
        archive
    }

    fn files(&self) -> Vec<(String, String)> {
        let version = self.version();
        let mut files = vec![
            ("proc/sys/kernel/osrelease".to_owned(), self.kernel.clone()),
            ("proc/sys/kernel/hostname".to_owned(), "made".to_owned()),
            ("proc/uptime".to_owned(), "864000.00 3456000.00".to_owned()),
            ("proc/net/snmp".to_owned(), snmp()),
            ("proc/net/netstat".to_owned(), netstat()),
            ("proc/net/packet".to_owned(), "sk               RefCnt Type Proto  Iface R Rmem   User   Inode".to_owned()),
            ("proc/net/ptype".to_owned(), "Type Device      Function\n0800          ip_rcv\n0806          arp_rcv\n86dd          ipv6_rcv".to_owned()),
        ];
        if version >= (6, 1) {
            files.push(("proc/sys/kernel/arch".to_owned(), self.arch.clone()));
        }
        for (since, name, text) in SYSCTLS {
            if version >= *since {
                files.push((format!("proc/sys/{name}"), (*text).to_owned()));
            }
        }
        // net/core/net-procfs.c: 9 columns, received_rps from 2.6.35, flow_limit_count from 3.10, the length of the
        // backlog and the CPU from 5.10.
        let columns = match version {
            (6.., _) | (5, 10..) => 13,
            (4.., _) | (3, 10..) => 11,
            _ => 10,
        };
        let cpus = list(&self.cpus);
        let rows: Vec<String> = cpus
            .iter()
            .map(|cpu| {
                let mut row = vec!["00000000".to_owned(); columns];
                if let Some(first) = row.first_mut() {
                    "0098a680".clone_into(first);
                }
                if columns == 13
                    && let Some(last) = row.last_mut()
                {
                    *last = format!("{cpu:08x}");
                }
                row.join(" ")
            })
            .collect();
        files.push(("proc/net/softnet_stat".to_owned(), rows.join("\n")));
        files
    }
}

/// `/proc/net/snmp` of a host with traffic.
fn snmp() -> String {
    "Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos InDiscards InDelivers OutRequests OutDiscards OutNoRoutes ReasmTimeout ReasmReqds ReasmOKs ReasmFails FragOKs FragFails FragCreates\n\
     Ip: 2 64 50000000 0 0 0 0 0 50000000 50000000 0 0 0 0 0 0 0 0 0\n\
     Icmp: InMsgs InErrors InDestUnreachs InTimeExcds InParmProbs InSrcQuenchs InRedirects InEchos InEchoReps InTimestamps InTimestampReps InAddrMasks InAddrMaskReps OutMsgs OutErrors OutDestUnreachs OutTimeExcds OutParmProbs OutSrcQuenchs OutRedirects OutEchos OutEchoReps OutTimestamps OutTimestampReps OutAddrMasks OutAddrMaskReps\n\
     Icmp: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
     Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts\n\
     Tcp: 1 200 120000 -1 1000 1000 0 0 12 50000000 50000000 1000 0 0\n\
     Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
     Udp: 10000 0 0 10000 0 0"
        .to_owned()
}

/// `/proc/net/netstat` of a host with traffic.
fn netstat() -> String {
    let names = [
        "SyncookiesSent",
        "SyncookiesRecv",
        "SyncookiesFailed",
        "EmbryonicRsts",
        "PruneCalled",
        "RcvPruned",
        "OfoPruned",
        "OutOfWindowIcmps",
        "LockDroppedIcmps",
        "ArpFilter",
        "TW",
        "TWRecycled",
        "TWKilled",
        "PAWSActive",
        "PAWSEstab",
        "DelayedACKs",
        "DelayedACKLocked",
        "DelayedACKLost",
        "ListenOverflows",
        "ListenDrops",
        "TCPHPHits",
        "TCPPureAcks",
        "TCPHPAcks",
        "TCPRenoRecovery",
        "TCPSackRecovery",
        "TCPSACKReneging",
        "TCPLossUndo",
        "TCPLostRetransmit",
        "TCPFastRetrans",
        "TCPTimeouts",
        "TCPRcvCollapsed",
        "TCPAbortOnMemory",
        "TCPMemoryPressures",
        "TCPBacklogDrop",
    ];
    let zeros = vec!["0"; names.len()].join(" ");
    format!(
        "TcpExt: {}\nTcpExt: {zeros}\nIpExt: InNoRoutes InTruncatedPkts InMcastPkts OutMcastPkts InBcastPkts OutBcastPkts InOctets OutOctets InMcastOctets OutMcastOctets InBcastOctets OutBcastOctets\nIpExt: 0 0 0 0 0 0 60000000000 60000000000 0 0 0 0",
        names.join(" ")
    )
}

/// Settings of a host that is tuned for a fast network, with the first kernel that has them.
const SYSCTLS: &[((u32, u32), &str, &str)] = &[
    ((2, 6), "kernel/sched_rt_runtime_us", "950000"),
    ((2, 6), "net/core/dev_weight", "64"),
    ((2, 6), "net/core/netdev_budget", "300"),
    ((4, 12), "net/core/netdev_budget_usecs", "8000"),
    ((2, 6), "net/core/netdev_max_backlog", "5000"),
    ((2, 6), "net/core/optmem_max", "81920"),
    ((2, 6), "net/core/rmem_default", "212992"),
    ((2, 6), "net/core/rmem_max", "268435456"),
    ((2, 6), "net/core/wmem_default", "212992"),
    ((2, 6), "net/core/wmem_max", "268435456"),
    ((2, 6), "net/core/somaxconn", "4096"),
    ((3, 12), "net/core/default_qdisc", "fq_codel"),
    ((3, 11), "net/core/busy_poll", "0"),
    ((3, 11), "net/core/busy_read", "0"),
    ((2, 6), "net/core/rps_sock_flow_entries", "0"),
    ((2, 6), "net/ipv4/ip_forward", "0"),
    ((2, 6), "net/ipv4/ip_no_pmtu_disc", "0"),
    (
        (2, 6),
        "net/ipv4/tcp_available_congestion_control",
        "reno cubic",
    ),
    (
        (2, 6),
        "net/ipv4/tcp_allowed_congestion_control",
        "reno cubic",
    ),
    ((2, 6), "net/ipv4/tcp_congestion_control", "cubic"),
    ((2, 6), "net/ipv4/tcp_dsack", "1"),
    ((2, 6), "net/ipv4/tcp_ecn", "2"),
    ((2, 6), "net/ipv4/tcp_mem", "3087456\t4116608\t6174912"),
    ((2, 6), "net/ipv4/tcp_moderate_rcvbuf", "1"),
    ((2, 6), "net/ipv4/tcp_mtu_probing", "1"),
    ((2, 6), "net/ipv4/tcp_no_metrics_save", "0"),
    ((2, 6), "net/ipv4/tcp_rmem", "4096\t131072\t134217728"),
    ((2, 6), "net/ipv4/tcp_sack", "1"),
    ((2, 6), "net/ipv4/tcp_slow_start_after_idle", "1"),
    ((2, 6), "net/ipv4/tcp_timestamps", "1"),
    ((2, 6), "net/ipv4/tcp_window_scaling", "1"),
    ((2, 6), "net/ipv4/tcp_wmem", "4096\t65536\t134217728"),
    ((2, 6), "net/ipv4/udp_mem", "6174915\t8233221\t12349830"),
    ((2, 6), "vm/min_free_kbytes", "270336"),
    ((2, 6), "vm/swappiness", "60"),
    ((2, 6), "vm/zone_reclaim_mode", "0"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_of_a_high_cpu_has_groups_of_32_bits() {
        assert_eq!(mask(3, 8), "00000008");
        assert_eq!(mask(33, 128), "00000000,00000000,00000002,00000000");
        assert_eq!(zeros(40), "00000000,00000000");
        assert_eq!(list("0-2,8"), [0, 1, 2, 8]);
    }
}
