//! Settings: the knobs of a host, in one catalogue. Rules read settings, transactions write them,
//! experiments vary them; a key, a typed value, a domain, a reversibility class and a scope serve all.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::host::{Host, Nic, Qdisc, Queue, QueueKind};
use crate::ids::{CpuSet, NicName};
use crate::known::{Cause, Known};

/// The knob of a network interface that a key names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NicKnob {
    /// `mtu`, bytes.
    Mtu,
    /// `feature/NAME`, by the kernel's own name.
    Feature(String),
    /// `coalesce/rx-usecs`.
    CoalesceRxUsecs,
    /// `coalesce/tx-usecs`.
    CoalesceTxUsecs,
    /// `coalesce/adaptive-rx`.
    CoalesceAdaptiveRx,
    /// `ring/rx`, descriptors.
    RingRx,
    /// `ring/tx`, descriptors.
    RingTx,
    /// `channels/combined`.
    ChannelsCombined,
    /// `channels/rx`.
    ChannelsRx,
    /// `channels/tx`.
    ChannelsTx,
    /// `queue/rx-N/irq-cpus`.
    IrqCpus(QueueKind, u32),
    /// `queue/rx-N/rps-cpus`.
    RpsCpus(u32),
    /// `queue/rx-N/rps-flow-cnt`.
    RpsFlowCnt(u32),
    /// `queue/tx-N/xps-cpus`.
    XpsCpus(u32),
    /// `qdisc`, the root queueing discipline.
    Qdisc,
}

/// How linerate itself measures: where its threads run, what its sockets ask for. Settings of the trial,
/// not of the machine; an application has the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrialKnob {
    /// `sender-cpus`.
    SenderCpus,
    /// `receiver-cpus`.
    ReceiverCpus,
    /// `congestion-control` of the stream's own sockets.
    CongestionControl,
}

/// The stable key of a setting: a path of nouns with the kernel's own name at the end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SettingKey {
    /// `sysctl/net.ipv4.tcp_rmem`.
    Sysctl(String),
    /// `nic/eth2/...`.
    Nic(NicName, NicKnob),
    /// `placement/...` and `stream/...`.
    Trial(TrialKnob),
}

/// Why a key or a value was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The key is not in the catalogue.
    #[error("`{key}` is not a setting: {why}")]
    Key {
        /// The key as it was given.
        key: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The value does not fit the setting.
    #[error("`{value}` is not a value for {key}: expected {expected}")]
    Value {
        /// The setting.
        key: String,
        /// The value as it was given.
        value: String,
        /// What the setting takes.
        expected: &'static str,
    },
}

/// The short names that people type for a feature, and the kernel features they mean.
const FEATURE_ALIASES: [(&str, &str); 5] = [
    ("tso", "tx-tcp-segmentation"),
    ("gso", "tx-generic-segmentation"),
    ("gro", "rx-gro"),
    ("lro", "rx-lro"),
    ("ntuple", "rx-ntuple-filter"),
];

impl fmt::Display for SettingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nic, knob) = match self {
            Self::Sysctl(name) => return write!(f, "sysctl/{name}"),
            Self::Trial(TrialKnob::SenderCpus) => {
                return f.write_str("placement/sender-cpus");
            }
            Self::Trial(TrialKnob::ReceiverCpus) => {
                return f.write_str("placement/receiver-cpus");
            }
            Self::Trial(TrialKnob::CongestionControl) => {
                return f.write_str("stream/congestion-control");
            }
            Self::Nic(nic, knob) => (nic, knob),
        };
        write!(f, "nic/{nic}/")?;
        match knob {
            NicKnob::Mtu => f.write_str("mtu"),
            NicKnob::Feature(name) => write!(f, "feature/{name}"),
            NicKnob::CoalesceRxUsecs => f.write_str("coalesce/rx-usecs"),
            NicKnob::CoalesceTxUsecs => f.write_str("coalesce/tx-usecs"),
            NicKnob::CoalesceAdaptiveRx => f.write_str("coalesce/adaptive-rx"),
            NicKnob::RingRx => f.write_str("ring/rx"),
            NicKnob::RingTx => f.write_str("ring/tx"),
            NicKnob::ChannelsCombined => f.write_str("channels/combined"),
            NicKnob::ChannelsRx => f.write_str("channels/rx"),
            NicKnob::ChannelsTx => f.write_str("channels/tx"),
            NicKnob::IrqCpus(QueueKind::Rx, index) => write!(f, "queue/rx-{index}/irq-cpus"),
            NicKnob::IrqCpus(QueueKind::Tx, index) => write!(f, "queue/tx-{index}/irq-cpus"),
            NicKnob::RpsCpus(index) => write!(f, "queue/rx-{index}/rps-cpus"),
            NicKnob::RpsFlowCnt(index) => write!(f, "queue/rx-{index}/rps-flow-cnt"),
            NicKnob::XpsCpus(index) => write!(f, "queue/tx-{index}/xps-cpus"),
            NicKnob::Qdisc => f.write_str("qdisc"),
        }
    }
}

impl FromStr for SettingKey {
    type Err = SettingError;
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let wrong = |why| SettingError::Key {
            key: text.to_owned(),
            why,
        };
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            ["sysctl", name] => {
                let plain = !name.is_empty()
                    && name
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
                    && !name.split('.').any(str::is_empty);
                if plain {
                    Ok(Self::Sysctl((*name).to_owned()))
                } else {
                    Err(wrong("a sysctl is named by words with dots between"))
                }
            }
            ["placement", "sender-cpus"] => Ok(Self::Trial(TrialKnob::SenderCpus)),
            ["placement", "receiver-cpus"] => Ok(Self::Trial(TrialKnob::ReceiverCpus)),
            ["stream", "congestion-control"] => Ok(Self::Trial(TrialKnob::CongestionControl)),
            ["nic", nic, knob @ ..] => {
                let nic: NicName = nic
                    .parse()
                    .map_err(|_| wrong("its second part is not an interface name"))?;
                let knob = parse_nic_knob(knob)
                    .ok_or_else(|| wrong("an interface has no such setting in the catalogue"))?;
                Ok(Self::Nic(nic, knob))
            }
            _ => Err(wrong(
                "a key begins with `sysctl/`, `nic/`, `placement/` or `stream/`",
            )),
        }
    }
}

fn parse_nic_knob(parts: &[&str]) -> Option<NicKnob> {
    Some(match parts {
        ["mtu"] => NicKnob::Mtu,
        ["qdisc"] => NicKnob::Qdisc,
        ["feature", name] if !name.is_empty() => {
            let alias = FEATURE_ALIASES.iter().find(|(short, _)| short == name);
            NicKnob::Feature(alias.map_or(*name, |(_, long)| *long).to_owned())
        }
        ["coalesce", "rx-usecs"] => NicKnob::CoalesceRxUsecs,
        ["coalesce", "tx-usecs"] => NicKnob::CoalesceTxUsecs,
        ["coalesce", "adaptive-rx"] => NicKnob::CoalesceAdaptiveRx,
        ["ring", "rx"] => NicKnob::RingRx,
        ["ring", "tx"] => NicKnob::RingTx,
        ["channels", "combined"] => NicKnob::ChannelsCombined,
        ["channels", "rx"] => NicKnob::ChannelsRx,
        ["channels", "tx"] => NicKnob::ChannelsTx,
        ["queue", queue, knob] => {
            let (kind, index) = match queue.split_once('-')? {
                ("rx", index) => (QueueKind::Rx, index.parse().ok()?),
                ("tx", index) => (QueueKind::Tx, index.parse().ok()?),
                _ => return None,
            };
            match (kind, *knob) {
                (_, "irq-cpus") => NicKnob::IrqCpus(kind, index),
                (QueueKind::Rx, "rps-cpus") => NicKnob::RpsCpus(index),
                (QueueKind::Rx, "rps-flow-cnt") => NicKnob::RpsFlowCnt(index),
                (QueueKind::Tx, "xps-cpus") => NicKnob::XpsCpus(index),
                _ => return None,
            }
        }
        _ => return None,
    })
}

impl Serialize for SettingKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SettingKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// On or off.
    Switch(bool),
    /// A count, in the setting's own unit.
    Integer(u64),
    /// A queueing discipline with the kernel's own parameters.
    Qdisc(Qdisc),
    /// Text as the kernel prints it, white space folded to single blanks; CPU sets in list form.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(true) => f.write_str("on"),
            Self::Switch(false) => f.write_str("off"),
            Self::Integer(count) => write!(f, "{count}"),
            Self::Qdisc(qdisc) => match qdisc.rate_bit_per_s {
                Some(rate) => write!(f, "{} {rate}", qdisc.kind),
                None => f.write_str(&qdisc.kind),
            },
            Self::Text(text) if text.is_empty() => f.write_str("none"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

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

impl Qdisc {
    /// A queueing discipline with the kernel's defaults.
    pub fn plain(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            handle: 0,
            rate_bit_per_s: None,
            options: String::new(),
        }
    }
}

/// Sysctls separate their numbers by tabs when read and take blanks when written: one form for both.
pub fn fold_blanks(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Settings and their values, as one end of a path has them.
pub type Settings = BTreeMap<SettingKey, Value>;

/// The value that `key` has on `host`, from what was read of it.
pub fn current(host: &Host, key: &SettingKey) -> Known<Value> {
    let absent = |reason: &str| Known::unknown(Cause::Absent, key.to_string(), reason);
    match key {
        SettingKey::Sysctl(name) => host
            .sysctl(name)
            .map(|text| Value::Text(fold_blanks(&text))),
        SettingKey::Trial(_) => absent("it belongs to a measurement, not to a host"),
        SettingKey::Nic(name, knob) => match host.nic(name) {
            Some(nic) => current_of_nic(nic, key, knob),
            None => absent("no such interface"),
        },
    }
}

fn current_of_nic(nic: &Nic, key: &SettingKey, knob: &NicKnob) -> Known<Value> {
    let count = |value: Known<u32>| value.map(|n| Value::Integer(u64::from(n)));
    let cpus = |value: Known<CpuSet>| value.map(|set| Value::Text(set.to_string()));
    let queue = |kind: QueueKind, index: u32| {
        nic.queues
            .iter()
            .find(|queue| queue.kind == kind && queue.index == index)
    };
    let absent = |reason: &str| Known::unknown(Cause::Absent, key.to_string(), reason);
    match knob {
        NicKnob::Mtu => count(nic.mtu.clone()),
        NicKnob::Feature(name) => nic.features.clone().and_then(|all| match all.get(name) {
            Some(feature) => Known::Value(Value::Switch(feature.active)),
            None => absent("the driver has no such feature"),
        }),
        NicKnob::CoalesceRxUsecs => nic.coalesce.clone().and_then(|c| count(c.rx_usecs)),
        NicKnob::CoalesceTxUsecs => nic.coalesce.clone().and_then(|c| count(c.tx_usecs)),
        NicKnob::CoalesceAdaptiveRx => nic
            .coalesce
            .clone()
            .and_then(|c| c.adaptive_rx.map(Value::Switch)),
        NicKnob::RingRx => nic.rings.clone().and_then(|r| count(r.rx)),
        NicKnob::RingTx => nic.rings.clone().and_then(|r| count(r.tx)),
        NicKnob::ChannelsCombined => nic.channels.clone().and_then(|c| count(c.combined)),
        NicKnob::ChannelsRx => nic.channels.clone().and_then(|c| count(c.rx)),
        NicKnob::ChannelsTx => nic.channels.clone().and_then(|c| count(c.tx)),
        NicKnob::Qdisc => nic.qdisc.clone().map(Value::Qdisc),
        NicKnob::IrqCpus(kind, index) => {
            queue(*kind, *index).map_or_else(|| absent("no such queue"), |q| cpus(q.cpus.clone()))
        }
        NicKnob::RpsCpus(index) => queue(QueueKind::Rx, *index)
            .map_or_else(|| absent("no such queue"), |q| cpus(q.rps_cpus.clone())),
        NicKnob::RpsFlowCnt(index) => queue(QueueKind::Rx, *index).map_or_else(
            || absent("no such queue"),
            |q| q.rps_flow_cnt.clone().map(Value::Integer),
        ),
        NicKnob::XpsCpus(index) => queue(QueueKind::Tx, *index)
            .map_or_else(|| absent("no such queue"), |q| cpus(q.xps_cpus.clone())),
    }
}

/// Puts a value into what was read of a host: the host as it would be read after the change. False when
/// the host has no such setting, or the value does not fit it.
pub fn put(host: &mut Host, key: &SettingKey, value: &Value) -> bool {
    if current(host, key).value().is_none() {
        return false;
    }
    match (key, value) {
        (SettingKey::Sysctl(name), Value::Text(text)) => {
            host.sysctls
                .insert(name.clone(), Known::Value(text.clone()));
            true
        }
        (SettingKey::Nic(name, knob), value) => host
            .nics
            .iter_mut()
            .find(|nic| nic.name == *name)
            .is_some_and(|nic| put_into_nic(nic, knob, value).is_some()),
        _ => false,
    }
}

fn put_into_nic(nic: &mut Nic, knob: &NicKnob, value: &Value) -> Option<()> {
    fn known<T>(fact: &mut Known<T>) -> Option<&mut T> {
        match fact {
            Known::Value(value) => Some(value),
            Known::Unknown(_) => None,
        }
    }
    let count: Option<&mut Known<u32>> = match (knob, value) {
        (NicKnob::Feature(name), Value::Switch(on)) => {
            known(&mut nic.features)?.get_mut(name)?.active = *on;
            return Some(());
        }
        (NicKnob::CoalesceAdaptiveRx, Value::Switch(on)) => {
            known(&mut nic.coalesce)?.adaptive_rx = Known::Value(*on);
            return Some(());
        }
        (NicKnob::Qdisc, Value::Qdisc(qdisc)) => {
            nic.qdisc = Known::Value(qdisc.clone());
            return Some(());
        }
        (NicKnob::IrqCpus(kind, index), Value::Text(cpus)) => {
            queue_of(nic, *kind, *index)?.cpus = Known::Value(cpus.parse().ok()?);
            return Some(());
        }
        (NicKnob::RpsCpus(index), Value::Text(cpus)) => {
            queue_of(nic, QueueKind::Rx, *index)?.rps_cpus = Known::Value(cpus.parse().ok()?);
            return Some(());
        }
        (NicKnob::XpsCpus(index), Value::Text(cpus)) => {
            queue_of(nic, QueueKind::Tx, *index)?.xps_cpus = Known::Value(cpus.parse().ok()?);
            return Some(());
        }
        (NicKnob::RpsFlowCnt(index), Value::Integer(entries)) => {
            queue_of(nic, QueueKind::Rx, *index)?.rps_flow_cnt = Known::Value(*entries);
            return Some(());
        }
        (NicKnob::Mtu, _) => Some(&mut nic.mtu),
        (NicKnob::RingRx, _) => known(&mut nic.rings).map(|rings| &mut rings.rx),
        (NicKnob::RingTx, _) => known(&mut nic.rings).map(|rings| &mut rings.tx),
        (NicKnob::ChannelsCombined, _) => known(&mut nic.channels).map(|c| &mut c.combined),
        (NicKnob::ChannelsRx, _) => known(&mut nic.channels).map(|c| &mut c.rx),
        (NicKnob::ChannelsTx, _) => known(&mut nic.channels).map(|c| &mut c.tx),
        (NicKnob::CoalesceRxUsecs, _) => known(&mut nic.coalesce).map(|c| &mut c.rx_usecs),
        (NicKnob::CoalesceTxUsecs, _) => known(&mut nic.coalesce).map(|c| &mut c.tx_usecs),
        _ => None,
    };
    let Value::Integer(number) = value else {
        return None;
    };
    *count? = Known::Value(u32::try_from(*number).ok()?);
    Some(())
}

fn queue_of(nic: &mut Nic, kind: QueueKind, index: u32) -> Option<&mut Queue> {
    nic.queues
        .iter_mut()
        .find(|queue| queue.kind == kind && queue.index == index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &[&str] = &[
        "sysctl/net.ipv4.tcp_rmem",
        "sysctl/vm.swappiness",
        "nic/eth2/mtu",
        "nic/eth2/feature/tx-tcp-segmentation",
        "nic/eth2/coalesce/rx-usecs",
        "nic/eth2/coalesce/tx-usecs",
        "nic/eth2/coalesce/adaptive-rx",
        "nic/eth2/ring/rx",
        "nic/eth2/ring/tx",
        "nic/eth2/channels/combined",
        "nic/eth2/channels/rx",
        "nic/eth2/channels/tx",
        "nic/eth2/queue/rx-0/irq-cpus",
        "nic/eth2/queue/tx-3/irq-cpus",
        "nic/eth2/queue/rx-0/rps-cpus",
        "nic/eth2/queue/rx-0/rps-flow-cnt",
        "nic/eth2/queue/tx-0/xps-cpus",
        "nic/eth2/qdisc",
        "placement/sender-cpus",
        "placement/receiver-cpus",
        "stream/congestion-control",
    ];

    #[test]
    fn a_key_reads_back_as_it_was_written() {
        for text in KEYS {
            let key: SettingKey = text.parse().expect(text);
            assert_eq!(key.to_string(), *text);
        }
    }

    #[test]
    fn every_key_has_an_entry() {
        let used: std::collections::BTreeSet<&str> = KEYS
            .iter()
            .map(|k| k.parse::<SettingKey>().expect(k).spec().pattern)
            .collect();
        assert_eq!(
            used.len(),
            CATALOGUE.len(),
            "an entry of the catalogue is never reached"
        );
    }

    #[test]
    fn the_short_names_of_features_are_the_kernels() {
        let key: SettingKey = "nic/eth2/feature/tso".parse().expect("an alias");
        assert_eq!(key.to_string(), "nic/eth2/feature/tx-tcp-segmentation");
    }

    #[test]
    fn what_is_not_in_the_catalogue_is_refused() {
        for text in [
            "",
            "sysctl/",
            "sysctl/net..x",
            "sysctl/../etc",
            "nic/eth0",
            "nic/a b/mtu",
            "cpu/turbo",
        ] {
            assert!(text.parse::<SettingKey>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_with_what_would() {
        let key: SettingKey = "nic/eth2/feature/tso".parse().expect("a key");
        let error = key.parse_value("maybe").expect_err("not a switch");
        assert_eq!(
            error.to_string(),
            "`maybe` is not a value for nic/eth2/feature/tx-tcp-segmentation: expected `on` or `off`"
        );
    }
}
