//! The catalogue of rules (research/rules.md, 2.S): all eighty, and what became of each. `docs/rules/README.md` and `linerate explain rules` show it.

/// What became of a rule of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It judges; see its file.
    Implemented,
    /// It judges, and what it finds only people can mend: hardware, firmware, a provider, a fabric.
    AdviceOnly,
    /// It judges but for one part: which, and why.
    InPart(&'static str),
}

/// One entry of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub number: u8,
    /// Its kebab-case id.
    pub id: &'static str,
    /// What is wrong when it fires.
    pub wrong: &'static str,
    /// What became of it.
    pub status: Status,
}

const fn built(number: u8, id: &'static str, wrong: &'static str) -> Entry {
    Entry {
        number,
        id,
        wrong,
        status: Status::Implemented,
    }
}

const fn advice(number: u8, id: &'static str, wrong: &'static str) -> Entry {
    Entry {
        number,
        id,
        wrong,
        status: Status::AdviceOnly,
    }
}

const fn in_part(
    number: u8,
    id: &'static str,
    wrong: &'static str,
    missing: &'static str,
) -> Entry {
    Entry {
        number,
        id,
        wrong,
        status: Status::InPart(missing),
    }
}

/// All eighty.
pub const CATALOGUE: &[Entry] = &[
    built(
        1,
        "nic-numa-unknown",
        "firmware gives no node; tools guess 0",
    ),
    built(2, "irq-remote-numa", "queue IRQs on a remote node"),
    in_part(
        3,
        "app-remote-numa",
        "socket owner or its memory remote",
        "where busy programs run is judged; a measured comparison of nodes waits for the traffic workloads",
    ),
    built(4, "irq-single-cpu", "every queue on one CPU"),
    built(
        5,
        "irq-cpu-collision",
        "two hot queues, or queue+app siblings, share a core",
    ),
    built(
        6,
        "irq-on-isolated-cpu",
        "interrupts on isolated/nohz_full CPUs",
    ),
    built(
        7,
        "irqbalance-or-managed-irq-conflict",
        "another owner or the kernel decides",
    ),
    built(8, "queues-too-few", "fewer queues than useful cores"),
    built(9, "queues-too-many", "queues share CPUs"),
    built(
        10,
        "rss-table-uneven",
        "indirection table skips or overweights queues",
    ),
    built(11, "rss-fields-narrow", "hash without ports"),
    built(12, "rps-wrong", "RPS redundant, missing, or on bad CPUs"),
    in_part(
        13,
        "rfs-half-configured",
        "one of the two tables is 0; aRFS off",
        "aRFS (`rx-ntuple-filter`) is not judged",
    ),
    built(
        14,
        "xps-misaligned",
        "TX queue chosen away from its IRQ CPU",
    ),
    built(
        15,
        "coalesce-profile-mismatch",
        "moderation set for another goal",
    ),
    built(16, "napi-time-squeeze", "poll budget ends with work left"),
    built(17, "backlog-drops", "per-CPU input queue overflows"),
    built(18, "softirq-saturated", "one CPU is the limit"),
    in_part(
        19,
        "busy-poll-incomplete",
        "polling half set, or IRQ suspension unused",
        "`irq-suspend-timeout` is not judged: no fact tells which program asks for it",
    ),
    built(
        20,
        "gro-flush-defer-mismatch",
        "the pair is half set or too long",
    ),
    built(21, "threaded-napi-unpinned", "napi threads float"),
    built(
        22,
        "ring-size",
        "too small with drops / too large for latency",
    ),
    advice(23, "nic-discards-before-host", "host/PCIe cannot absorb"),
    built(
        24,
        "rx-alloc-fail-or-page-pool-slow",
        "RX buffers unavailable",
    ),
    built(25, "tx-queue-stalls", "completions late, queue stopped"),
    advice(26, "cloud-allowance-exceeded", "provider's shaper"),
    built(27, "gro-off", "per-packet stack cost"),
    built(
        28,
        "tx-segmentation-or-csum-off",
        "segmentation in software",
    ),
    built(29, "lro-on-forwarder", "merged frames cannot be forwarded"),
    in_part(
        30,
        "rx-hw-assist-off",
        "HW-GRO / header split unused",
        "only hardware GRO is judged; nothing tells who would use header split",
    ),
    built(31, "big-tcp-off", "64 kB limit on super-packets"),
    built(32, "tunnel-offload-missing", "inner traffic not offloaded"),
    built(33, "mtu-mismatch", "layers or peers differ"),
    built(34, "mtu-not-jumbo", "1500 on a jumbo path"),
    in_part(
        35,
        "pmtu-blackhole",
        "ICMP filtered",
        "judged by counters; the DF probe waits for the traffic workloads",
    ),
    built(
        36,
        "link-speed-below-capability",
        "negotiated below common best",
    ),
    advice(37, "link-ext-state", "link down without a reason shown"),
    in_part(
        38,
        "fec-health",
        "FEC off/mismatched or uncorrectable",
        "the FEC modes of two ends are not compared",
    ),
    advice(39, "phy-errors", "CRC/symbol errors, flaps"),
    advice(40, "module-fault", "optic alarms, low power, not ready"),
    built(41, "pause-storm", "one side stops the other"),
    built(42, "eee-on", "LPI wake time"),
    advice(
        43,
        "pcie-link-degraded",
        "fewer lanes or lower GT/s than max",
    ),
    advice(
        44,
        "pcie-ceiling-below-port-rate",
        "slot cannot feed the port(s)",
    ),
    built(45, "pcie-mps-mrrs", "small payload or read request"),
    built(46, "pcie-relaxed-ordering", "strict ordering throttles DMA"),
    built(47, "pcie-aspm", "link sleeps"),
    advice(48, "pcie-aer", "replays and bad TLPs"),
    advice(49, "pcie-acs-p2p", "GPU-NIC traffic goes via root"),
    built(50, "iommu-strict", "per-unmap flush or IOTLB misses"),
    in_part(
        51,
        "cpu-frequency-low",
        "governor/EPP/throttle",
        "the frequency under load is not judged",
    ),
    in_part(
        52,
        "cpu-deep-cstates",
        "wake-up latency",
        "the states that are allowed are judged, not the time spent in them",
    ),
    advice(53, "cpu-mitigations", "syscall/indirect-branch cost"),
    built(54, "clock-and-timestamps", "slow clocksource, no HW stamps"),
    built(55, "isolation-misuse", "isolated CPUs unused or crowded"),
    in_part(
        56,
        "numa-memory-policy",
        "balancing/reclaim/THP stalls",
        "huge pages set aside are shown by the map, not judged",
    ),
    built(57, "tcp-buffer-below-bdp", "window cannot cover the path"),
    in_part(
        58,
        "tcp-limited-by",
        "classifies the limit",
        "judges trials of linerate; an application's own sockets wait for the traffic workloads",
    ),
    built(59, "tcp-cc-qdisc", "CC or qdisc unfit for the path"),
    built(60, "tcp-options-off", "no wscale/SACK/timestamps"),
    built(61, "tcp-idle-and-lowat", "cwnd reset; deep unsent queue"),
    in_part(
        62,
        "socket-drops",
        "reader slow or queue short",
        "drops of single sockets (inet_diag) are not judged",
    ),
    advice(
        63,
        "sysctl-legacy-or-harmful",
        "blog sysctls with no or bad effect",
    ),
    in_part(
        64,
        "conntrack-cost",
        "tracking on bulk flows, table near full",
        "the number of rules of a firewall is not read",
    ),
    built(65, "packet-tap-or-generic-xdp", "a copy per packet"),
    built(
        66,
        "lag-hash-imbalance",
        "one slave carries all; LACP split",
    ),
    built(
        67,
        "qos-map-conflict",
        "priorities, ETS, rates or owners disagree",
    ),
    built(68, "rdma-gid-type", "wrong GID index/type"),
    built(69, "rdma-mtu", "active MTU below max"),
    built(70, "rdma-limits-and-caps", "memlock, ODP, netns"),
    in_part(
        71,
        "roce-pfc-ecn-mismatch",
        "lossless class not end to end",
        "DCQCN's own switches are not readable by a stable interface",
    ),
    built(
        72,
        "roce-congestion-signals",
        "CNPs ignored, pause with ECN off",
    ),
    advice(
        73,
        "rdma-retransmit",
        "loss, reordering, slow receiver, corruption",
    ),
    advice(74, "ib-port-health", "cable/SM/width faults"),
    built(75, "ipoib-mode-mtu", "mode/MTU unfit"),
    in_part(
        76,
        "blk-mq-config",
        "scheduler/queues cost IOPS",
        "what fits a workload is measured, not judged; a queue's scheduler and CPUs are",
    ),
    built(77, "nvme-path-numa", "path policy ignores NUMA"),
    built(78, "virtio-single-queue", "one queue, userspace net"),
    advice(79, "vm-host-limits", "steal, VF caps, flat NUMA"),
    advice(
        80,
        "driver-firmware-health-and-owners",
        "old/failed firmware; other tuners active",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::RULES;

    #[test]
    fn the_catalogue_and_the_rules_agree() {
        assert_eq!(CATALOGUE.len(), 80);
        for (place, entry) in (1u8..).zip(CATALOGUE) {
            assert_eq!(entry.number, place, "{}", entry.id);
            let rule = RULES.iter().find(|rule| rule.id == entry.id);
            assert_eq!(rule.map(|rule| rule.number), Some(place), "{}", entry.id);
        }
        for rule in RULES.iter().filter(|rule| rule.number <= 80) {
            assert!(
                CATALOGUE.iter().any(|entry| entry.id == rule.id),
                "{}",
                rule.id
            );
        }
    }
}
