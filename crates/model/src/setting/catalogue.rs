//! The catalogue: every setting with what it takes, how it can be taken back, what it belongs to, and
//! the kernel document that defines it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::of_host::{parse_table, round_words};
use super::{NicKnob, PolicyKnob, SettingError, SettingKey, Value, fold_blanks};
use crate::host::Qdisc;
use crate::ids::CpuSet;

/// What shape of value a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// On or off.
    Switch,
    /// A whole number.
    Integer,
    /// Words as the kernel prints them.
    Text,
    /// A CPU set in list form; empty for none.
    Cpus,
    /// A queueing discipline.
    Qdisc,
    /// The receive queues that a hash's table goes round.
    Queues,
}

impl Domain {
    /// What the domain takes, in words.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Switch => "`on` or `off`",
            Self::Integer => "a whole number",
            Self::Text => "text without line breaks",
            Self::Cpus => "a CPU list such as `0-3,8`, or nothing",
            Self::Queues => "`equal N`, or queues such as `0 3` and `0x32 1x32`",
            Self::Qdisc => {
                "`noqueue`, `fq`, `fq_codel`, `pfifo_fast`, or a table with `kind`, `handle`, `options`"
            }
        }
    }
}

/// How a change can be taken back (research/rules.md, 2.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    /// Released by closing a descriptor or ending the program.
    R0,
    /// Instant, no effect on traffic.
    R1,
    /// A short stall, drops or queue re-allocation.
    R2,
    /// The link drops, or both ends must change.
    R3,
    /// Needs a driver reload, reboot or firmware.
    R4,
    /// One way until reboot.
    R5,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What a setting belongs to. Two ends on one kernel share the machine's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The measurement only.
    Trial,
    /// One network namespace.
    Netns,
    /// The whole machine.
    Machine,
}

/// What linerate does with a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads it, judges it and writes it.
    Written,
    /// Reads and judges it, and cannot write it yet.
    Judged,
}

/// One entry of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingSpec {
    /// The key with placeholders, `nic/NAME/feature/FEATURE`.
    pub pattern: &'static str,
    /// What value it takes.
    pub domain: Domain,
    /// How it can be taken back.
    pub class: Class,
    /// What it belongs to.
    pub scope: Scope,
    /// What linerate does with it.
    pub access: Access,
    /// What it does, in one line.
    pub about: &'static str,
    /// The kernel document that defines it.
    pub source: &'static str,
}

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
        "root queueing discipline",
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
        Judged,
        "simultaneous multithreading: `on`, `off`",
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
        "rdma/NAME/PORT/default-gid-type",
        Text,
        R1,
        Machine,
        Judged,
        "the GID type that rdma_cm uses",
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

impl SettingKey {
    /// The catalogue's entry for this setting.
    pub fn spec(&self) -> &'static SettingSpec {
        let of_queue = |knob: &str| format!("nic/NAME/queue/QUEUE/{knob}");
        let pattern = match self {
            Self::Sysctl(name) if name.starts_with("net.") => "sysctl/net.NAME".to_owned(),
            Self::Sysctl(_) => "sysctl/NAME".to_owned(),
            Self::Block(_, knob) => Self::Block("NAME".to_owned(), *knob).to_string(),
            Self::RdmaGidType(..) => "rdma/NAME/PORT/default-gid-type".to_owned(),
            Self::ResumeLatency(_) => "cpu/CPU/resume-latency-us".to_owned(),
            Self::Policy(_, PolicyKnob::Governor) => "cpu/POLICY/governor".to_owned(),
            Self::Policy(_, PolicyKnob::EnergyPreference) => {
                "cpu/POLICY/energy-preference".to_owned()
            }
            Self::Machine(_) | Self::Trial(_) => self.to_string(),
            Self::Nic(_, knob) => match knob {
                NicKnob::Feature(_) => "nic/NAME/feature/FEATURE".to_owned(),
                NicKnob::PrivateFlag(_) => "nic/NAME/private-flag/FLAG".to_owned(),
                NicKnob::RssFields(_) => "nic/NAME/rss/fields/KIND".to_owned(),
                NicKnob::Aspm(_) => "nic/NAME/pci/STATE".to_owned(),
                NicKnob::IrqCpus(..) => of_queue("irq-cpus"),
                NicKnob::RpsCpus(_) => of_queue("rps-cpus"),
                NicKnob::RpsFlowCnt(_) => of_queue("rps-flow-cnt"),
                NicKnob::XpsCpus(_) => of_queue("xps-cpus"),
                NicKnob::XpsRxqs(_) => of_queue("xps-rxqs"),
                plain => format!("nic/NAME/{plain}"),
            },
        };
        CATALOGUE
            .iter()
            .find(|spec| spec.pattern == pattern)
            .expect("the test `every_key_has_an_entry` walks every variant")
    }

    /// Reads a value as people write it (`on`, `4096`, `0-3`, `4096 131072 6291456`).
    pub fn parse_value(&self, text: &str) -> Result<Value, SettingError> {
        let domain = self.spec().domain;
        let wrong = || SettingError::Value {
            key: self.to_string(),
            value: text.to_owned(),
            expected: domain.expected(),
        };
        match domain {
            Domain::Switch => match text.trim() {
                "on" | "true" | "1" => Ok(Value::Switch(true)),
                "off" | "false" | "0" => Ok(Value::Switch(false)),
                _ => Err(wrong()),
            },
            Domain::Integer => text.trim().parse().map(Value::Integer).map_err(|_| wrong()),
            Domain::Cpus => {
                let set: CpuSet = text.parse().map_err(|_| wrong())?;
                Ok(Value::Text(set.to_string()))
            }
            Domain::Queues => {
                let table = parse_table(text.trim()).ok_or_else(wrong)?;
                Ok(Value::Text(round_words(&table)))
            }
            Domain::Qdisc => match text.trim() {
                kind @ ("noqueue" | "fq" | "fq_codel" | "pfifo_fast") => {
                    Ok(Value::Qdisc(Qdisc::plain(kind)))
                }
                _ => Err(wrong()),
            },
            Domain::Text if text.contains(['\n', '\0']) => Err(wrong()),
            Domain::Text => Ok(Value::Text(fold_blanks(text))),
        }
    }
}
