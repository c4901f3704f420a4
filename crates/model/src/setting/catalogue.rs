//! The catalogue: every setting with what it takes, how it can be taken back, what it belongs to, and
//! the kernel document that defines it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{NicKnob, SettingError, SettingKey, TrialKnob, Value, fold_blanks};
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
}

impl Domain {
    /// What the domain takes, in words.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Switch => "`on` or `off`",
            Self::Integer => "a whole number",
            Self::Text => "text without line breaks",
            Self::Cpus => "a CPU list such as `0-3,8`, or nothing",
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
    /// What it does, in one line.
    pub about: &'static str,
    /// The kernel document that defines it.
    pub source: &'static str,
}

macro_rules! spec {
    ($pattern:literal, $domain:ident, $class:ident, $scope:ident, $about:literal, $source:literal) => {
        SettingSpec {
            pattern: $pattern,
            domain: Domain::$domain,
            class: Class::$class,
            scope: Scope::$scope,
            about: $about,
            source: $source,
        }
    };
}

/// Every setting that linerate can read and write.
pub const CATALOGUE: &[SettingSpec] = &[
    spec!(
        "sysctl/net.NAME",
        Text,
        R1,
        Netns,
        "a network sysctl of the namespace",
        "Documentation/networking/ip-sysctl.rst"
    ),
    spec!(
        "sysctl/NAME",
        Text,
        R1,
        Machine,
        "a sysctl of the machine",
        "Documentation/admin-guide/sysctl"
    ),
    spec!(
        "nic/NAME/mtu",
        Integer,
        R3,
        Netns,
        "largest payload of a frame, bytes",
        "Documentation/networking/netdevices.rst"
    ),
    spec!(
        "nic/NAME/feature/FEATURE",
        Switch,
        R2,
        Netns,
        "an offload feature",
        "Documentation/networking/netdev-features.rst"
    ),
    spec!(
        "nic/NAME/coalesce/rx-usecs",
        Integer,
        R1,
        Netns,
        "delay of a receive interrupt, microseconds",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/coalesce/tx-usecs",
        Integer,
        R1,
        Netns,
        "delay of a transmit interrupt, microseconds",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/coalesce/adaptive-rx",
        Switch,
        R1,
        Netns,
        "whether the driver adapts the receive delay",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/ring/rx",
        Integer,
        R2,
        Netns,
        "receive ring, descriptors",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/ring/tx",
        Integer,
        R2,
        Netns,
        "transmit ring, descriptors",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/channels/combined",
        Integer,
        R2,
        Netns,
        "queues that receive and transmit",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/channels/rx",
        Integer,
        R2,
        Netns,
        "receive-only queues",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/channels/tx",
        Integer,
        R2,
        Netns,
        "transmit-only queues",
        "Documentation/networking/ethtool-netlink.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/irq-cpus",
        Cpus,
        R1,
        Machine,
        "CPUs that take the queue's interrupt",
        "Documentation/core-api/irq/irq-affinity.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/rps-cpus",
        Cpus,
        R1,
        Netns,
        "CPUs that take the queue's packets",
        "Documentation/networking/scaling.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/rps-flow-cnt",
        Integer,
        R1,
        Netns,
        "entries of the queue's flow table",
        "Documentation/networking/scaling.rst"
    ),
    spec!(
        "nic/NAME/queue/QUEUE/xps-cpus",
        Cpus,
        R1,
        Netns,
        "CPUs that send through the queue",
        "Documentation/networking/scaling.rst"
    ),
    spec!(
        "nic/NAME/qdisc",
        Qdisc,
        R2,
        Netns,
        "root queueing discipline",
        "tc(8)"
    ),
    spec!(
        "placement/sender-cpus",
        Cpus,
        R0,
        Trial,
        "CPUs of linerate's sending threads",
        "sched_setaffinity(2)"
    ),
    spec!(
        "placement/receiver-cpus",
        Cpus,
        R0,
        Trial,
        "CPUs of linerate's receiving threads",
        "sched_setaffinity(2)"
    ),
    spec!(
        "stream/congestion-control",
        Text,
        R0,
        Trial,
        "congestion control of the stream's own sockets",
        "tcp(7), TCP_CONGESTION"
    ),
];

impl SettingKey {
    /// The catalogue's entry for this setting.
    pub fn spec(&self) -> &'static SettingSpec {
        let pattern = match self {
            Self::Sysctl(name) if name.starts_with("net.") => "sysctl/net.NAME",
            Self::Sysctl(_) => "sysctl/NAME",
            Self::Trial(TrialKnob::SenderCpus) => "placement/sender-cpus",
            Self::Trial(TrialKnob::ReceiverCpus) => "placement/receiver-cpus",
            Self::Trial(TrialKnob::CongestionControl) => "stream/congestion-control",
            Self::Nic(_, knob) => match knob {
                NicKnob::Mtu => "nic/NAME/mtu",
                NicKnob::Feature(_) => "nic/NAME/feature/FEATURE",
                NicKnob::CoalesceRxUsecs => "nic/NAME/coalesce/rx-usecs",
                NicKnob::CoalesceTxUsecs => "nic/NAME/coalesce/tx-usecs",
                NicKnob::CoalesceAdaptiveRx => "nic/NAME/coalesce/adaptive-rx",
                NicKnob::RingRx => "nic/NAME/ring/rx",
                NicKnob::RingTx => "nic/NAME/ring/tx",
                NicKnob::ChannelsCombined => "nic/NAME/channels/combined",
                NicKnob::ChannelsRx => "nic/NAME/channels/rx",
                NicKnob::ChannelsTx => "nic/NAME/channels/tx",
                NicKnob::IrqCpus(..) => "nic/NAME/queue/QUEUE/irq-cpus",
                NicKnob::RpsCpus(_) => "nic/NAME/queue/QUEUE/rps-cpus",
                NicKnob::RpsFlowCnt(_) => "nic/NAME/queue/QUEUE/rps-flow-cnt",
                NicKnob::XpsCpus(_) => "nic/NAME/queue/QUEUE/xps-cpus",
                NicKnob::Qdisc => "nic/NAME/qdisc",
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
