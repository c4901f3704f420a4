//! The kinds of settings that a host in a namespace has, a change of each, and how other tools see it.

/// A setting that is changed back and forth.
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

/// Each kind with its own writer that a veth in a namespace supports.
pub(crate) const VETH: &[Kind] = &[
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
    kind(
        "qdisc hierarchy",
        "nic/near0/qdisc",
        "\"htb default 30 class 1 rate 10gbit quantum 60000 class 10 parent 1 rate 50mbit leaf pfifo limit 100 class 30 parent 1 rate 5gbit ceil 10gbit quantum 60000\"",
    ),
    kind(
        "class rules",
        "nic/near0/class-rules",
        "\"priority 1 -> 1:10; dscp af21 -> 1:10; port 5001 -> 1:30\"",
    ),
    kind("super-packets", "nic/near0/gso-max-bytes", "30000"),
    kind("NAPI flush", "nic/near0/napi/gro-flush-timeout-ns", "20000"),
    kind("NAPI deferral", "nic/near0/napi/defer-hard-irqs", "2"),
];

/// Changes that were made before, of settings that are changed again.
pub(crate) const EARLIER: &[Kind] = &[
    kind(
        "sysctl, three numbers",
        "sysctl/net.ipv4.tcp_rmem",
        "\"4096 131072 6500000\"",
    ),
    kind("MTU", "nic/near0/mtu", "1450"),
    kind(
        "qdisc hierarchy",
        "nic/near0/qdisc",
        "\"htb default 30 class 1 rate 10gbit quantum 60000 class 30 parent 1 rate 1gbit leaf pfifo limit 9\"",
    ),
    kind("RFS", "nic/near0/queue/rx-0/rps-flow-cnt", "2048"),
];

/// Prints the settings above, and what writing them may disturb, with sysctl, ip, tc, ethtool and sysfs.
pub(crate) const LOOK: &str = "cd /proc/sys/net/ipv4
cat tcp_sack tcp_rmem tcp_congestion_control
ip link show near0 | grep -o 'mtu [0-9]*'
ip -d link show near0 | grep -o 'g[rs]o[^ ]*max_size [0-9]*'
tc -d qdisc show dev near0 | sed 's/ [0-9a-f]*: / /' | sort
tc -d class show dev near0 | sort
nft list ruleset
ethtool -k near0
ethtool -l near0
cd /sys/class/net/near0
for file in queues/*/*_cpus queues/*/rps_flow_cnt gro_flush_timeout napi_defer_hard_irqs threaded; do
    echo \"$file $(cat $file 2>/dev/null)\"
done";

/// Further kinds with their own writer, in the virtual machine: igb (n0 and n1), virtio (n2), VLANs, fake0, which only
/// stores what is written, and the machine itself.
pub(crate) const CARD: &[Kind] = &[
    kind("threaded NAPI", "nic/n0/napi/threaded", "true"),
    kind("interrupt's CPUs", "nic/n0/queue/rx-0/irq-cpus", "\"2\""),
    kind("private flag", "nic/n0/private-flag/legacy-rx", "true"),
    kind(
        "qdisc with parameters",
        "nic/n0/qdisc",
        "\"fq_codel limit 900 flows 64 target 7ms\"",
    ),
    kind(
        "mqprio",
        "nic/n1/qdisc",
        "\"mqprio num_tc 3 map 0 1 0 2 queues 2@0 1@2 1@3 hw 0 leaf 3 tbf rate 10mbit burst 128k latency 50ms leaf 4 fq\"",
    ),
    kind(
        "class rules, mqprio",
        "nic/n1/class-rules",
        "\"vlan 10 -> 0:1; dscp af21 -> 0:3\"",
    ),
    kind(
        "qdisc hierarchy, htb",
        "nic/vlan5/qdisc",
        "\"htb default 30 class 1 rate 1gbit quantum 60000 class 10 parent 1 rate 10mbit leaf fq_codel class 30 parent 1 rate 470mbit ceil 1gbit quantum 60000 leaf fq\"",
    ),
    kind(
        "class rules, htb",
        "nic/vlan5/class-rules",
        "\"priority 1 -> 1:10; dscp af21 -> 1:10; port 5001 -> 1:30; mark 7 -> 1:10\"",
    ),
    kind("VLAN egress map", "nic/vlan5/vlan/egress", "\"3:5 6:6\""),
    kind("VLAN device", "nic/vlan6/vlan/link", "\"n0 id 6\""),
    kind(
        "VLAN device, egress map",
        "nic/vlan6/vlan/egress",
        "\"0:3 1:3 2:3 3:3\"",
    ),
    kind("state", "nic/vlan6/up", "true"),
    kind("addresses", "nic/vlan6/addresses", "\"12.0.6.2/24\""),
    kind("RSS fields", "nic/n2/rss/fields/tcp4", "\"sd\""),
    kind(
        "coalescing of a queue",
        "nic/fake0/queue/rx-1/rx-usecs",
        "20",
    ),
    kind(
        "DCB ETS",
        "nic/fake0/dcb/ets",
        "\"prio-tc 0:0 1:1 2:0 3:2 4:0 5:3 6:0 7:0 tc-bw 0:40 1:60 2:0 3:0 4:0 5:0 6:0 7:0 tc-tsa 0:ets 1:ets 2:strict 3:strict 4:strict 5:strict 6:strict 7:strict\"",
    ),
    kind(
        "DCB maxrate",
        "nic/fake0/dcb/maxrate",
        "\"none 10mbit 50mbit\"",
    ),
    kind(
        "DCB applications",
        "nic/fake0/dcb/app",
        "\"ethtype-prio 0x8915:3 dscp-prio 26:3\"",
    ),
    kind("governor", "cpu/policy2/governor", "\"powersave\""),
    kind("CPU offline", "cpu/cpu1/online", "false"),
    kind("block device", "block/vda/nomerges", "2"),
];

/// The same, as other programs print it. Qdiscs come in the order of a hash of their handles, which are new each time.
pub(crate) const LOOK_CARD: &str = "cd /sys/class/net/n0
ethtool --show-priv-flags n0; ethtool -n n2 rx-flow-hash tcp4
grep -H '' queues/*/*_cpus threaded
for irq in $(ls device/msi_irqs); do
    echo irq $(cat /sys/kernel/irq/$irq/actions) $(cat /proc/irq/$irq/smp_affinity_list)
done
for nic in n0 n1 vlan5; do
    echo $nic; tc -d qdisc show dev $nic | sed -E 's/ [0-9a-f]+:([0-9a-f]*)/ \\1/g' | sort
done
tc -d class show dev vlan5 | sed 's/ [89a-f][0-9a-f]*:/ /g' | sort; nft list ruleset
ip -d link show vlan5 | grep -A 1 'vlan protocol'
ip -d addr show vlan6 2>/dev/null | grep -o -e vlan6@n0 -e UP -e 'vlan protocol .* id [0-9]*' -e 'inet 12[^ ]*' -e '[0-9]:3' || true
ethtool -Q fake0 queue_mask 0xf --show-coalesce
for what in app ets maxrate; do dcb $what show dev fake0; done; cat /sys/module/fakenic/parameters/maxrate_kbit
cd /sys/devices/system/cpu; cat online; grep -H '' cpufreq/policy*/scaling_governor /sys/block/vda/queue/*merges";
