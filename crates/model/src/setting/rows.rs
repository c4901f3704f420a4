//! The rows of the catalog: one for each setting.

use super::catalogue::{Access, Class, Domain, Scope, SettingSpec};

macro_rules! spec {
    ($pattern:literal, $domain:ident, $class:ident, $scope:ident, $access:ident, $about:literal, $source:literal) => {
        SettingSpec {
            pattern: $pattern,
            domain: Domain::$domain,
            class: Class::$class,
            scope: Scope::$scope,
            access: Access::$access,
            about: $about,
            source: $source,
        }
    };
}

/// Every setting that linerate knows.
pub const CATALOGUE: &[SettingSpec] = &[
    spec!(
        "sysctl/net.NAME",
        Text,
        R1,
        Netns,
        Written,
        "a network sysctl of the namespace",
        "Documentation/networking/ip-sysctl.rst"
    ),
    spec!(
        "sysctl/NAME",
        Text,
        R1,
        Machine,
        Written,
        "a sysctl of the machine",
        "Documentation/admin-guide/sysctl"
    ),
    spec!(
        "nic/NAME/mtu",
        Integer,
        R3,
        Netns,
        Written,
        "MTU, bytes",
        "Documentation/networking/netdevices.rst"
    ),
    spec!(
        "nic/NAME/feature/FEATURE",
        Switch,
        R2,
        Netns,
        Written,
        "an offload feature",
        "Documentation/networking/netdev-features.rst"
    ),
    spec!(
        "nic/NAME/coalesce/rx-usecs",
        Integer,
        R1,
        Netns,
        Written,
        "rx-usecs: delay of an RX interrupt after a packet, microseconds",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/coalesce/tx-usecs",
        Integer,
        R1,
        Netns,
        Written,
        "tx-usecs: delay of a TX interrupt after a packet, microseconds",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/coalesce/adaptive-rx",
        Switch,
        R1,
        Netns,
        Written,
        "adaptive RX interrupt coalescing",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/ring/rx",
        Integer,
        R2,
        Netns,
        Written,
        "RX ring size, descriptors",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/ring/tx",
        Integer,
        R2,
        Netns,
        Written,
        "TX ring size, descriptors",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/channels/combined",
        Integer,
        R2,
        Netns,
        Written,
        "combined channels",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/channels/rx",
        Integer,
        R2,
        Netns,
        Written,
        "RX channels",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/channels/tx",
        Integer,
        R2,
        Netns,
        Written,
        "TX channels",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/irq-cpus",
        Cpus,
        R1,
        Machine,
        Written,
        "CPU affinity of the queue's interrupt",
        "Documentation/core-api/irq/irq-affinity.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/rps-cpus",
        Cpus,
        R1,
        Netns,
        Written,
        "RPS CPUs of the RX queue",
        "Documentation/networking/scaling.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/rps-flow-cnt",
        Integer,
        R1,
        Netns,
        Written,
        "RFS flow table entries of the RX queue",
        "Documentation/networking/scaling.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/xps-cpus",
        Cpus,
        R1,
        Netns,
        Written,
        "XPS CPUs of the TX queue",
        "Documentation/networking/scaling.rst"
    ),
    spec!(
        "nic/NAME/qdisc",
        Qdisc,
        R2,
        Netns,
        Written,
        "root qdisc, with parameters in tc(8) syntax: `tbf rate 1gbit burst 128k latency 50ms`",
        "tc(8)"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/xps-rxqs",
        Text,
        R1,
        Netns,
        Written,
        "RX queues mapped to the TX queue (XPS)",
        "Documentation/networking/scaling.rst"
    ),
    spec!(
        "nic/NAME/coalesce/adaptive-tx",
        Switch,
        R1,
        Netns,
        Written,
        "adaptive TX interrupt coalescing",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/rx-usecs",
        Integer,
        R1,
        Netns,
        Written,
        "rx-usecs of one queue; `coalesce/rx-usecs` sets all queues",
        "ethtool(8), --per-queue"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/tx-usecs",
        Integer,
        R1,
        Netns,
        Written,
        "tx-usecs of one queue; `coalesce/tx-usecs` sets all queues",
        "ethtool(8), --per-queue"
    ),
    spec!(
        "nic/NAME/coalesce/rx-frames",
        Integer,
        R1,
        Netns,
        Written,
        "rx-frames: packets before an RX interrupt fires",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/coalesce/tx-frames",
        Integer,
        R1,
        Netns,
        Written,
        "tx-frames: packets before a TX interrupt fires",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/rx-frames",
        Integer,
        R1,
        Netns,
        Written,
        "rx-frames of one queue; `coalesce/rx-frames` sets all queues",
        "ethtool(8), --per-queue"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/tx-frames",
        Integer,
        R1,
        Netns,
        Written,
        "tx-frames of one queue; `coalesce/tx-frames` sets all queues",
        "ethtool(8), --per-queue"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/adaptive-rx",
        Switch,
        R1,
        Netns,
        Written,
        "adaptive RX coalescing of one queue; `coalesce/adaptive-rx` sets all queues",
        "ethtool(8), --per-queue"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/adaptive-tx",
        Switch,
        R1,
        Netns,
        Written,
        "adaptive TX coalescing of one queue; `coalesce/adaptive-tx` sets all queues",
        "ethtool(8), --per-queue"
    ),
    spec!(
        "nic/NAME/napi/gro-flush-timeout-ns",
        Integer,
        R1,
        Netns,
        Written,
        "GRO flush timeout before interrupts are re-enabled, nanoseconds",
        "Documentation/networking/napi.rst"
    ),
    spec!(
        "nic/NAME/napi/defer-hard-irqs",
        Integer,
        R1,
        Netns,
        Written,
        "empty polls before interrupts are re-enabled",
        "Documentation/networking/napi.rst"
    ),
    spec!(
        "nic/NAME/napi/threaded",
        Switch,
        R2,
        Netns,
        Written,
        "threaded NAPI",
        "Documentation/networking/napi.rst"
    ),
    spec!(
        "nic/NAME/pause/rx",
        Switch,
        R3,
        Netns,
        Written,
        "honor received pause frames (802.3x)",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/pause/tx",
        Switch,
        R3,
        Netns,
        Written,
        "send pause frames (802.3x)",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/link/autoneg",
        Switch,
        R3,
        Netns,
        Written,
        "link autonegotiation",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/link/speed",
        LinkSpeed,
        R3,
        Netns,
        Written,
        "advertised link modes, or a forced speed in Mb/s and duplex",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/pause/autoneg",
        Switch,
        R3,
        Netns,
        Written,
        "pause frame autonegotiation",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/eee",
        Switch,
        R3,
        Netns,
        Written,
        "Energy-Efficient Ethernet (EEE)",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/fec",
        Text,
        R3,
        Netns,
        Written,
        "allowed FEC modes: `RS BASER`, `auto`",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/rss/key",
        HashKey,
        R2,
        Netns,
        Written,
        "RSS hash key; an attacker who knows it can steer flows to one queue",
        "ethtool(8), hkey"
    ),
    spec!(
        "nic/NAME/rss/table",
        Queues,
        R2,
        Netns,
        Written,
        "RSS indirection table: `equal N` or its queues",
        "Documentation/networking/scaling.rst"
    ),
    spec!(
        "nic/NAME/rss/fields/KIND",
        Text,
        R1,
        Netns,
        Written,
        "RSS hash fields of a flow type (`sdfn`)",
        "ethtool(8), rx-flow-hash"
    ),
    spec!(
        "nic/NAME/gso-max-bytes",
        Integer,
        R1,
        Netns,
        Written,
        "maximum GSO size, IPv6 and others",
        "ip-link(8)"
    ),
    spec!(
        "nic/NAME/gso-ipv4-max-bytes",
        Integer,
        R1,
        Netns,
        Written,
        "maximum GSO size, IPv4",
        "ip-link(8)"
    ),
    spec!(
        "nic/NAME/gro-max-bytes",
        Integer,
        R1,
        Netns,
        Written,
        "maximum GRO size",
        "ip-link(8)"
    ),
    spec!(
        "nic/NAME/gro-ipv4-max-bytes",
        Integer,
        R1,
        Netns,
        Written,
        "maximum GRO size, IPv4",
        "ip-link(8)"
    ),
    spec!(
        "nic/NAME/ring/tcp-data-split",
        Text,
        R2,
        Netns,
        Written,
        "TCP header-data split: `on`, `off`, `auto`",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/private-flag/FLAG",
        Switch,
        R2,
        Netns,
        Written,
        "a private flag of the driver",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/vlan/egress",
        EgressMap,
        R1,
        Netns,
        Written,
        "egress priority map of a VLAN, socket priority to PCP: `0:1 3:3`; unlisted priorities \
         map to 0",
        "ip-link(8), egress-qos-map"
    ),
    spec!(
        "nic/NAME/dcb/pfc",
        Priorities,
        R3,
        Netns,
        Written,
        "PFC priorities (lossless); the link partner must use the same",
        "dcb-pfc(8)"
    ),
    spec!(
        "nic/NAME/dcb/ets",
        Classes,
        R2,
        Netns,
        Written,
        "ETS: traffic class of each priority, bandwidth share and algorithm of each class",
        "dcb-ets(8)"
    ),
    spec!(
        "nic/NAME/dcb/maxrate",
        ClassRates,
        R2,
        Netns,
        Written,
        "maximum rate of each traffic class, bit/s",
        "dcb-maxrate(8)"
    ),
    spec!(
        "nic/NAME/dcb/app",
        Applications,
        R2,
        Netns,
        Written,
        "application priorities by EtherType, port, DSCP or PCP",
        "dcb-app(8)"
    ),
    spec!(
        "nic/NAME/bond/hash-policy",
        Text,
        R2,
        Netns,
        Written,
        "bond transmit hash policy",
        "Documentation/networking/bonding.rst"
    ),
    spec!(
        "nic/NAME/ipoib/mode",
        Text,
        R3,
        Netns,
        Written,
        "`datagram` or `connected`",
        "Documentation/infiniband/ipoib.rst"
    ),
    spec!(
        "nic/NAME/pci/STATE",
        Switch,
        R1,
        Machine,
        Written,
        "ASPM state of the NIC's PCIe link",
        "Documentation/ABI/testing/sysfs-bus-pci"
    ),
    spec!(
        "cpu/turbo",
        Switch,
        R1,
        Machine,
        Written,
        "turbo boost",
        "Documentation/admin-guide/pm/cpufreq.rst"
    ),
    spec!(
        "cpu/smt",
        Text,
        R4,
        Machine,
        Written,
        "SMT: `on`, `off`; threads pinned to removed CPUs stay unpinned when they return",
        "Documentation/ABI/testing/sysfs-devices-system-cpu"
    ),
    spec!(
        "cpu/POLICY/governor",
        Text,
        R1,
        Machine,
        Written,
        "cpufreq governor of a policy",
        "Documentation/admin-guide/pm/cpufreq.rst"
    ),
    spec!(
        "cpu/POLICY/energy-preference",
        Text,
        R1,
        Machine,
        Written,
        "energy performance preference of a policy",
        "Documentation/admin-guide/pm/intel_pstate.rst"
    ),
    spec!(
        "cpu/CPU/resume-latency-us",
        Text,
        R1,
        Machine,
        Written,
        "maximum C-state exit latency of one CPU, microseconds; 0: no limit, `n/a`: no idle states",
        "Documentation/ABI/testing/sysfs-devices-power"
    ),
    spec!(
        "cpu/CPU/online",
        Switch,
        R4,
        Machine,
        Written,
        "whether a CPU is online; threads pinned only to it stay unpinned when it returns",
        "Documentation/core-api/cpu_hotplug.rst"
    ),
    spec!(
        "irq/NUMBER/cpus",
        Cpus,
        R1,
        Machine,
        Written,
        "CPU affinity of an interrupt; its number is valid until the next boot",
        "Documentation/core-api/irq/irq-affinity.rst"
    ),
    spec!(
        "cpu/max-latency-us",
        Integer,
        R0,
        Machine,
        Judged,
        "maximum C-state exit latency, microseconds; held while linerate runs",
        "Documentation/power/pm_qos_interface.rst"
    ),
    spec!(
        "irqbalance/paused",
        Switch,
        R1,
        Machine,
        Written,
        "whether irqbalance is stopped (SIGSTOP), so that it moves no interrupt",
        "irqbalance(1)"
    ),
    spec!(
        "irqbalance/banned-irqs",
        Text,
        R1,
        Machine,
        Written,
        "interrupts banned from irqbalance: `24 25`; until it restarts",
        "irqbalance.c, sock_handle"
    ),
    spec!(
        "cpu/clocksource",
        Text,
        R1,
        Machine,
        Written,
        "the kernel's clocksource",
        "Documentation/ABI/testing/sysfs-devices-system-clocksource"
    ),
    spec!(
        "memory/transparent-hugepages",
        Text,
        R1,
        Machine,
        Written,
        "transparent huge pages: `always`, `madvise`, `never`",
        "Documentation/admin-guide/mm/transhuge.rst"
    ),
    spec!(
        "cpu/mitigations",
        Text,
        R4,
        Machine,
        Told,
        "CPU vulnerability mitigations from the kernel command line: `auto`, `off`, `auto,nosmt`",
        "Documentation/admin-guide/kernel-parameters.txt"
    ),
    spec!(
        "cpu/intel-idle-max-cstate",
        Integer,
        R4,
        Machine,
        Told,
        "intel_idle.max_cstate from the kernel command line; 0 disables intel_idle",
        "Documentation/admin-guide/kernel-parameters.txt"
    ),
    spec!(
        "cpu/acpi-max-cstate",
        Integer,
        R4,
        Machine,
        Told,
        "processor.max_cstate from the kernel command line",
        "Documentation/admin-guide/kernel-parameters.txt"
    ),
    spec!(
        "netfilter/nft-rules",
        Integer,
        R1,
        Netns,
        Told,
        "number of nf_tables rules in all tables; reading requires CAP_NET_ADMIN",
        "nft(8)"
    ),
    spec!(
        "netfilter/iptables-tables",
        Text,
        R1,
        Netns,
        Told,
        "legacy iptables tables in use: `filter nat`; reading requires root",
        "iptables(8)"
    ),
    spec!(
        "block/NAME/scheduler",
        Text,
        R1,
        Machine,
        Written,
        "the I/O scheduler",
        "Documentation/ABI/stable/sysfs-block"
    ),
    spec!(
        "block/NAME/nomerges",
        Integer,
        R1,
        Machine,
        Written,
        "request merging: 0 all, 1 simple, 2 none",
        "Documentation/ABI/stable/sysfs-block"
    ),
    spec!(
        "block/NAME/rq-affinity",
        Integer,
        R1,
        Machine,
        Written,
        "completion CPU of requests: 1 same group, 2 the submitting CPU",
        "Documentation/ABI/stable/sysfs-block"
    ),
    spec!(
        "block/NAME/nr-requests",
        Integer,
        R1,
        Machine,
        Written,
        "requests per queue; a scheduler change resets it",
        "Documentation/ABI/stable/sysfs-block"
    ),
    spec!(
        "block/NAME/io-policy",
        Text,
        R1,
        Machine,
        Written,
        "NVMe multipath I/O policy",
        "Documentation/admin-guide/nvme-multipath.rst"
    ),
    spec!(
        "rdma/NAME/cm-defaults",
        Switch,
        R1,
        Machine,
        Written,
        "whether configfs has a folder for what rdma_cm takes by default on a device: the next two are read and written in it",
        "Documentation/ABI/testing/configfs-rdma_cm"
    ),
    spec!(
        "rdma/NAME/PORT/default-gid-type",
        Text,
        R1,
        Machine,
        Written,
        "the GID type that rdma_cm uses: `IB/RoCE v1`, `RoCE v2`",
        "Documentation/ABI/testing/configfs-rdma_cm"
    ),
    spec!(
        "rdma/NAME/PORT/default-roce-tos",
        Integer,
        R1,
        Machine,
        Written,
        "the type of service (DSCP and ECN bits) that rdma_cm gives to connections over RoCE",
        "Documentation/ABI/testing/configfs-rdma_cm"
    ),
    spec!(
        "placement/sender-cpus",
        Cpus,
        R0,
        Trial,
        Written,
        "CPUs of linerate's sending threads",
        "sched_setaffinity(2)"
    ),
    spec!(
        "placement/receiver-cpus",
        Cpus,
        R0,
        Trial,
        Written,
        "CPUs of linerate's receiving threads",
        "sched_setaffinity(2)"
    ),
    spec!(
        "stream/congestion-control",
        Text,
        R0,
        Trial,
        Written,
        "congestion control of the stream's own sockets",
        "tcp(7), TCP_CONGESTION"
    ),
];
