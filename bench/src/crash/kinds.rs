//! The kinds of settings that a host in a namespace has, a change of each, and how other tools see it.

/// A setting that is changed to and fro.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// What it is, in the table.
    pub(crate) name: &'static str,
    /// Its key.
    pub(crate) key: &'static str,
    /// What it is changed to, as a plan file writes it.
    pub(crate) to: &'static str,
}

const fn kind(name: &'static str, key: &'static str, to: &'static str) -> Kind {
    Kind { name, key, to }
}

/// Each kind that has a writer of its own and that a veth in a namespace knows.
pub(crate) const KINDS: &[Kind] = &[
    kind("sysctl, a switch", "sysctl/net.ipv4.tcp_sack", "0"),
    kind(
        "sysctl, three numbers",
        "sysctl/net.ipv4.tcp_rmem",
        "\"4096 131072 7000000\"",
    ),
    kind(
        "sysctl, a word",
        "sysctl/net.ipv4.tcp_congestion_control",
        "\"reno\"",
    ),
    kind("MTU", "nic/near0/mtu", "1400"),
    kind(
        "feature that others need",
        "nic/near0/feature/tx-checksum-ip-generic",
        "false",
    ),
    kind("feature", "nic/near0/feature/gro", "OTHER"),
    kind("channels", "nic/near0/channels/rx", "2"),
    kind("RPS", "nic/near0/queue/rx-0/rps-cpus", "\"0\""),
    kind("RFS", "nic/near0/queue/rx-0/rps-flow-cnt", "4096"),
    kind("XPS", "nic/near0/queue/tx-0/xps-cpus", "\"0\""),
    kind("qdisc", "nic/near0/qdisc", "\"pfifo_fast\""),
    kind("super-packets", "nic/near0/gso-max-bytes", "30000"),
    kind("NAPI flush", "nic/near0/napi/gro-flush-timeout-ns", "20000"),
    kind("NAPI deferral", "nic/near0/napi/defer-hard-irqs", "2"),
];

/// What the settings above are, and what writing them may disturb, told by sysctl, ip, tc, ethtool and sysfs.
pub(crate) const LOOK: &str = "cd /proc/sys/net/ipv4
cat tcp_sack tcp_rmem tcp_congestion_control
ip link show near0 | grep -o 'mtu [0-9]*'
ip -d link show near0 | grep -o 'g[rs]o[^ ]*max_size [0-9]*'
tc qdisc show dev near0 | sed 's/ [0-9a-f]*: / /'
ethtool -k near0
ethtool -l near0
cd /sys/class/net/near0
for file in queues/*/*_cpus queues/*/rps_flow_cnt gro_flush_timeout napi_defer_hard_irqs threaded; do
    echo \"$file $(cat $file 2>/dev/null)\"
done";
