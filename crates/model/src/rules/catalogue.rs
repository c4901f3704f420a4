//! The catalogue of rules (research/rules.md, 2.S): all eighty, each implemented here or with the reason
//! why it is not. `docs/rules/README.md` and `linerate explain rules` show it.

/// What became of a rule of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It judges; see its file.
    Implemented,
    /// It is not built: why.
    NotBuilt(&'static str),
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

const fn waits(number: u8, id: &'static str, wrong: &'static str, why: &'static str) -> Entry {
    Entry {
        number,
        id,
        wrong,
        status: Status::NotBuilt(why),
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
    built(3, "app-remote-numa", "socket owner or its memory remote"),
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
    built(
        13,
        "rfs-half-configured",
        "one of the two tables is 0; aRFS off",
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
    built(
        19,
        "busy-poll-incomplete",
        "polling half set, or IRQ suspension unused",
    ),
    built(
        20,
        "gro-flush-defer-mismatch",
        "the pair is half set or too long",
    ),
    built(21, "threaded-napi-unpinned", "napi threads float"),
    waits(
        22,
        "ring-size",
        "too small with drops / too large for latency",
        "not built yet",
    ),
    waits(
        23,
        "nic-discards-before-host",
        "host/PCIe cannot absorb",
        "not built yet",
    ),
    waits(
        24,
        "rx-alloc-fail-or-page-pool-slow",
        "RX buffers unavailable",
        "not built yet",
    ),
    waits(
        25,
        "tx-queue-stalls",
        "completions late, queue stopped",
        "not built yet",
    ),
    waits(
        26,
        "cloud-allowance-exceeded",
        "provider's shaper",
        "not built yet",
    ),
    waits(27, "gro-off", "per-packet stack cost", "not built yet"),
    built(
        28,
        "tx-segmentation-or-csum-off",
        "segmentation in software",
    ),
    waits(
        29,
        "lro-on-forwarder",
        "merged frames cannot be forwarded",
        "not built yet",
    ),
    waits(
        30,
        "rx-hw-assist-off",
        "HW-GRO / header split unused",
        "not built yet",
    ),
    waits(
        31,
        "big-tcp-off",
        "64 kB limit on super-packets",
        "not built yet",
    ),
    waits(
        32,
        "tunnel-offload-missing",
        "inner traffic not offloaded",
        "not built yet",
    ),
    waits(
        33,
        "mtu-mismatch",
        "layers or peers differ",
        "not built yet",
    ),
    waits(34, "mtu-not-jumbo", "1500 on a jumbo path", "not built yet"),
    waits(35, "pmtu-blackhole", "ICMP filtered", "not built yet"),
    waits(
        36,
        "link-speed-below-capability",
        "negotiated below common best",
        "not built yet",
    ),
    waits(
        37,
        "link-ext-state",
        "link down without a reason shown",
        "not built yet",
    ),
    waits(
        38,
        "fec-health",
        "FEC off/mismatched or uncorrectable",
        "not built yet",
    ),
    waits(
        39,
        "phy-errors",
        "CRC/symbol errors, flaps",
        "not built yet",
    ),
    waits(
        40,
        "module-fault",
        "optic alarms, low power, not ready",
        "not built yet",
    ),
    waits(
        41,
        "pause-storm",
        "one side stops the other",
        "not built yet",
    ),
    waits(42, "eee-on", "LPI wake time", "not built yet"),
    built(
        43,
        "pcie-link-degraded",
        "fewer lanes or lower GT/s than max",
    ),
    waits(
        44,
        "pcie-ceiling-below-port-rate",
        "slot cannot feed the port(s)",
        "not built yet",
    ),
    waits(
        45,
        "pcie-mps-mrrs",
        "small payload or read request",
        "not built yet",
    ),
    waits(
        46,
        "pcie-relaxed-ordering",
        "strict ordering throttles DMA",
        "not built yet",
    ),
    waits(47, "pcie-aspm", "link sleeps", "not built yet"),
    waits(48, "pcie-aer", "replays and bad TLPs", "not built yet"),
    waits(
        49,
        "pcie-acs-p2p",
        "GPU-NIC traffic goes via root",
        "not built yet",
    ),
    waits(
        50,
        "iommu-strict",
        "per-unmap flush or IOTLB misses",
        "not built yet",
    ),
    waits(
        51,
        "cpu-frequency-low",
        "governor/EPP/throttle",
        "not built yet",
    ),
    waits(52, "cpu-deep-cstates", "wake-up latency", "not built yet"),
    waits(
        53,
        "cpu-mitigations",
        "syscall/indirect-branch cost",
        "not built yet",
    ),
    waits(
        54,
        "clock-and-timestamps",
        "slow clocksource, no HW stamps",
        "not built yet",
    ),
    waits(
        55,
        "isolation-misuse",
        "isolated CPUs unused or crowded",
        "not built yet",
    ),
    waits(
        56,
        "numa-memory-policy",
        "balancing/reclaim/THP stalls",
        "not built yet",
    ),
    built(57, "tcp-buffer-below-bdp", "window cannot cover the path"),
    waits(
        58,
        "tcp-limited-by",
        "classifies the limit",
        "not built yet",
    ),
    built(59, "tcp-cc-qdisc", "CC or qdisc unfit for the path"),
    waits(
        60,
        "tcp-options-off",
        "no wscale/SACK/timestamps",
        "not built yet",
    ),
    waits(
        61,
        "tcp-idle-and-lowat",
        "cwnd reset; deep unsent queue",
        "not built yet",
    ),
    waits(
        62,
        "socket-drops",
        "reader slow or queue short",
        "not built yet",
    ),
    waits(
        63,
        "sysctl-legacy-or-harmful",
        "blog sysctls with no or bad effect",
        "not built yet",
    ),
    waits(
        64,
        "conntrack-cost",
        "tracking on bulk flows, table near full",
        "not built yet",
    ),
    waits(
        65,
        "packet-tap-or-generic-xdp",
        "a copy per packet",
        "not built yet",
    ),
    waits(
        66,
        "lag-hash-imbalance",
        "one slave carries all; LACP split",
        "not built yet",
    ),
    waits(
        67,
        "qos-map-conflict",
        "priorities, ETS, rates or owners disagree",
        "not built yet",
    ),
    waits(68, "rdma-gid-type", "wrong GID index/type", "not built yet"),
    waits(69, "rdma-mtu", "active MTU below max", "not built yet"),
    waits(
        70,
        "rdma-limits-and-caps",
        "memlock, ODP, netns",
        "not built yet",
    ),
    waits(
        71,
        "roce-pfc-ecn-mismatch",
        "lossless class not end to end",
        "not built yet",
    ),
    waits(
        72,
        "roce-congestion-signals",
        "CNPs ignored, pause with ECN off",
        "not built yet",
    ),
    waits(
        73,
        "rdma-retransmit",
        "loss, reordering, slow receiver, corruption",
        "not built yet",
    ),
    waits(
        74,
        "ib-port-health",
        "cable/SM/width faults",
        "not built yet",
    ),
    waits(75, "ipoib-mode-mtu", "mode/MTU unfit", "not built yet"),
    waits(
        76,
        "blk-mq-config",
        "scheduler/queues cost IOPS",
        "not built yet",
    ),
    waits(
        77,
        "nvme-path-numa",
        "path policy ignores NUMA",
        "not built yet",
    ),
    waits(
        78,
        "virtio-single-queue",
        "one queue, userspace net",
        "not built yet",
    ),
    waits(
        79,
        "vm-host-limits",
        "steal, VF caps, flat NUMA",
        "not built yet",
    ),
    waits(
        80,
        "driver-firmware-health-and-owners",
        "old/failed firmware; other tuners active",
        "not built yet",
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
            let built = entry.status == Status::Implemented;
            assert_eq!(
                rule.map(|rule| rule.number),
                built.then_some(place),
                "{}",
                entry.id
            );
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
