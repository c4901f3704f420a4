//! The catalogue itself: a row for each setting.

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
        "largest payload of a frame, bytes",
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
        "delay of a receive interrupt, microseconds",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/coalesce/tx-usecs",
        Integer,
        R1,
        Netns,
        Written,
        "delay of a transmit interrupt, microseconds",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/coalesce/adaptive-rx",
        Switch,
        R1,
        Netns,
        Written,
        "whether the driver adapts the receive delay",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/ring/rx",
        Integer,
        R2,
        Netns,
        Written,
        "receive ring, descriptors",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/ring/tx",
        Integer,
        R2,
        Netns,
        Written,
        "transmit ring, descriptors",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/channels/combined",
        Integer,
        R2,
        Netns,
        Written,
        "queues that receive and transmit",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/channels/rx",
        Integer,
        R2,
        Netns,
        Written,
        "receive-only queues",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/channels/tx",
        Integer,
        R2,
        Netns,
        Written,
        "transmit-only queues",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/irq-cpus",
        Cpus,
        R1,
        Machine,
        Written,
        "CPUs that take the queue's interrupt",
        "Documentation/core-api/irq/irq-affinity.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/rps-cpus",
        Cpus,
        R1,
        Netns,
        Written,
        "CPUs that take the queue's packets",
        "Documentation/networking/scaling.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/rps-flow-cnt",
        Integer,
        R1,
        Netns,
        Written,
        "entries of the queue's flow table",
        "Documentation/networking/scaling.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/xps-cpus",
        Cpus,
        R1,
        Netns,
        Written,
        "CPUs that send through the queue",
        "Documentation/networking/scaling.rst"
    ),
    spec!(
        "nic/NAME/qdisc",
        Qdisc,
        R2,
        Netns,
        Written,
        "root queueing discipline, with parameters in the words of tc(8): `tbf rate 1gbit burst 128k latency 50ms`",
        "tc(8)"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/xps-rxqs",
        Text,
        R1,
        Netns,
        Written,
        "receive queues whose connections send through the queue",
        "Documentation/networking/scaling.rst"
    ),
    spec!(
        "nic/NAME/coalesce/adaptive-tx",
        Switch,
        R1,
        Netns,
        Written,
        "whether the driver adapts the transmit delay",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/rx-usecs",
        Integer,
        R1,
        Netns,
        Written,
        "delay of one queue's receive interrupt, microseconds; `coalesce/rx-usecs` sets it for all",
        "ethtool(8), --per-queue"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/tx-usecs",
        Integer,
        R1,
        Netns,
        Written,
        "delay of one queue's transmit interrupt, microseconds; `coalesce/tx-usecs` sets it for all",
        "ethtool(8), --per-queue"
    ),
    spec!(
        "nic/NAME/coalesce/rx-frames",
        Integer,
        R1,
        Netns,
        Written,
        "frames received that end the delay of their interrupt",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/coalesce/tx-frames",
        Integer,
        R1,
        Netns,
        Written,
        "frames sent that end the delay of their interrupt",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/rx-frames",
        Integer,
        R1,
        Netns,
        Written,
        "frames received by one queue that end the delay of its interrupt; `coalesce/rx-frames` sets it for all",
        "ethtool(8), --per-queue"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/tx-frames",
        Integer,
        R1,
        Netns,
        Written,
        "frames sent by one queue that end the delay of its interrupt; `coalesce/tx-frames` sets it for all",
        "ethtool(8), --per-queue"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/adaptive-rx",
        Switch,
        R1,
        Netns,
        Written,
        "whether the driver adapts one queue's receive delay; `coalesce/adaptive-rx` sets it for all",
        "ethtool(8), --per-queue"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/adaptive-tx",
        Switch,
        R1,
        Netns,
        Written,
        "whether the driver adapts one queue's transmit delay; `coalesce/adaptive-tx` sets it for all",
        "ethtool(8), --per-queue"
    ),
    spec!(
        "nic/NAME/napi/gro-flush-timeout-ns",
        Integer,
        R1,
        Netns,
        Written,
        "how long polling without work goes on before interrupts come back, nanoseconds",
        "Documentation/networking/napi.rst"
    ),
    spec!(
        "nic/NAME/napi/defer-hard-irqs",
        Integer,
        R1,
        Netns,
        Written,
        "empty polls before interrupts come back",
        "Documentation/networking/napi.rst"
    ),
    spec!(
        "nic/NAME/napi/threaded",
        Switch,
        R2,
        Netns,
        Written,
        "whether polling runs in threads of its own",
        "Documentation/networking/napi.rst"
    ),
    spec!(
        "nic/NAME/pause/rx",
        Switch,
        R3,
        Netns,
        Written,
        "whether frames that ask for a pause are obeyed",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/pause/tx",
        Switch,
        R3,
        Netns,
        Written,
        "whether frames that ask for a pause are sent",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/link/autoneg",
        Switch,
        R3,
        Netns,
        Written,
        "whether the speed is agreed on with the other end",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/link/speed",
        LinkSpeed,
        R3,
        Netns,
        Written,
        "the modes that are offered to the other end, or Mb/s and duplex that both ends are told",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/pause/autoneg",
        Switch,
        R3,
        Netns,
        Written,
        "whether pauses are negotiated with the other end",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/eee",
        Switch,
        R3,
        Netns,
        Written,
        "energy-efficient Ethernet",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/fec",
        Text,
        R3,
        Netns,
        Written,
        "forward error corrections that may be used: `RS BASER`, `auto`",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/rss/key",
        HashKey,
        R2,
        Netns,
        Written,
        "the receive hash's key; who knows it can make flows meet in one queue",
        "ethtool(8), hkey"
    ),
    spec!(
        "nic/NAME/rss/table",
        Queues,
        R2,
        Netns,
        Written,
        "the receive hash's table: `equal N` or its queues",
        "Documentation/networking/scaling.rst"
    ),
    spec!(
        "nic/NAME/rss/fields/KIND",
        Text,
        R1,
        Netns,
        Written,
        "what of a kind of flow is hashed (`sdfn`)",
        "ethtool(8), rx-flow-hash"
    ),
    spec!(
        "nic/NAME/gso-max-bytes",
        Integer,
        R1,
        Netns,
        Written,
        "largest super-packet sent, IPv6 and others",
        "ip-link(8)"
    ),
    spec!(
        "nic/NAME/gso-ipv4-max-bytes",
        Integer,
        R1,
        Netns,
        Written,
        "largest super-packet sent, IPv4",
        "ip-link(8)"
    ),
    spec!(
        "nic/NAME/gro-max-bytes",
        Integer,
        R1,
        Netns,
        Written,
        "largest super-packet made of what is received",
        "ip-link(8)"
    ),
    spec!(
        "nic/NAME/gro-ipv4-max-bytes",
        Integer,
        R1,
        Netns,
        Written,
        "the same for IPv4",
        "ip-link(8)"
    ),
    spec!(
        "nic/NAME/ring/tcp-data-split",
        Text,
        R2,
        Netns,
        Written,
        "whether the card splits headers from data: `on`, `off`, `auto`",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/private-flag/FLAG",
        Switch,
        R2,
        Netns,
        Written,
        "a flag of the driver's own",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/vlan/egress",
        EgressMap,
        R1,
        Netns,
        Written,
        "which priority a VLAN's tag gets by the socket's: `0:1 3:3`; all others get 0",
        "ip-link(8), egress-qos-map"
    ),
    spec!(
        "nic/NAME/dcb/pfc",
        Priorities,
        R3,
        Netns,
        Written,
        "the priorities that are paused rather than dropped; the other end must pause the same",
        "dcb-pfc(8)"
    ),
    spec!(
        "nic/NAME/dcb/ets",
        Classes,
        R2,
        Netns,
        Written,
        "the class of each priority, the share of each class and how it is served",
        "dcb-ets(8)"
    ),
    spec!(
        "nic/NAME/dcb/maxrate",
        ClassRates,
        R2,
        Netns,
        Written,
        "the most that each class may send, bit/s",
        "dcb-maxrate(8)"
    ),
    spec!(
        "nic/NAME/dcb/app",
        Applications,
        R2,
        Netns,
        Written,
        "which priority the packets of applications get, by Ethernet type, port, DSCP or PCP",
        "dcb-app(8)"
    ),
    spec!(
        "nic/NAME/bond/hash-policy",
        Text,
        R2,
        Netns,
        Written,
        "by what a bond chooses the slave",
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
        "a power-saving state of the card's PCIe link",
        "Documentation/ABI/testing/sysfs-bus-pci"
    ),
    spec!(
        "cpu/turbo",
        Switch,
        R1,
        Machine,
        Written,
        "whether CPUs may run above their base frequency",
        "Documentation/admin-guide/pm/cpufreq.rst"
    ),
    spec!(
        "cpu/smt",
        Text,
        R4,
        Machine,
        Written,
        "simultaneous multithreading: `on`, `off`; threads bound to CPUs that go stay unbound when these come back",
        "Documentation/ABI/testing/sysfs-devices-system-cpu"
    ),
    spec!(
        "cpu/POLICY/governor",
        Text,
        R1,
        Machine,
        Written,
        "the cpufreq governor of CPUs that change frequency together",
        "Documentation/admin-guide/pm/cpufreq.rst"
    ),
    spec!(
        "cpu/POLICY/energy-preference",
        Text,
        R1,
        Machine,
        Written,
        "energy-performance preference of such CPUs",
        "Documentation/admin-guide/pm/intel_pstate.rst"
    ),
    spec!(
        "cpu/CPU/resume-latency-us",
        Text,
        R1,
        Machine,
        Written,
        "longest wake-up allowed to one CPU, microseconds; 0 any, `n/a` none",
        "Documentation/ABI/testing/sysfs-devices-power"
    ),
    spec!(
        "cpu/CPU/online",
        Switch,
        R4,
        Machine,
        Written,
        "whether the kernel uses a CPU; threads bound to it alone stay unbound when it comes back",
        "Documentation/core-api/cpu_hotplug.rst"
    ),
    spec!(
        "irq/NUMBER/cpus",
        Cpus,
        R1,
        Machine,
        Written,
        "CPUs that take an interrupt; its number holds until the next boot",
        "Documentation/core-api/irq/irq-affinity.rst"
    ),
    spec!(
        "cpu/max-latency-us",
        Integer,
        R0,
        Machine,
        Judged,
        "longest wake-up allowed, microseconds; held while linerate runs",
        "Documentation/power/pm_qos_interface.rst"
    ),
    spec!(
        "irqbalance/paused",
        Switch,
        R1,
        Machine,
        Written,
        "whether irqbalance is stopped, so that it moves no interrupt",
        "irqbalance(1)"
    ),
    spec!(
        "irqbalance/banned-irqs",
        Text,
        R1,
        Machine,
        Written,
        "interrupts that irqbalance was told to leave alone: `24 25`; until it is started again",
        "irqbalance.c, sock_handle"
    ),
    spec!(
        "cpu/clocksource",
        Text,
        R1,
        Machine,
        Written,
        "the kernel's clock",
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
        "protections against the processor's own faults, as the machine was booted: `auto`, `off`, `auto,nosmt`",
        "Documentation/admin-guide/kernel-parameters.txt"
    ),
    spec!(
        "cpu/intel-idle-max-cstate",
        Integer,
        R4,
        Machine,
        Told,
        "the deepest idle state that intel_idle was booted with; 0 leaves idle states to ACPI",
        "Documentation/admin-guide/kernel-parameters.txt"
    ),
    spec!(
        "cpu/acpi-max-cstate",
        Integer,
        R4,
        Machine,
        Told,
        "the deepest idle state that ACPI's driver was booted with",
        "Documentation/admin-guide/kernel-parameters.txt"
    ),
    spec!(
        "netfilter/nft-rules",
        Integer,
        R1,
        Netns,
        Told,
        "how many rules nf_tables has, of all tables; read by the administrator of the network",
        "nft(8)"
    ),
    spec!(
        "netfilter/iptables-tables",
        Text,
        R1,
        Netns,
        Told,
        "the tables of iptables' own kernel code that are in use: `filter nat`; read by root",
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
        "merging of requests: 0 all, 1 simple, 2 none",
        "Documentation/ABI/stable/sysfs-block"
    ),
    spec!(
        "block/NAME/rq-affinity",
        Integer,
        R1,
        Machine,
        Written,
        "where requests complete: 1 near, 2 on the CPU that asked",
        "Documentation/ABI/stable/sysfs-block"
    ),
    spec!(
        "block/NAME/nr-requests",
        Integer,
        R1,
        Machine,
        Written,
        "requests that a queue holds; a change of the scheduler sets it anew",
        "Documentation/ABI/stable/sysfs-block"
    ),
    spec!(
        "block/NAME/io-policy",
        Text,
        R1,
        Machine,
        Written,
        "how an NVMe subsystem chooses a path",
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
