//! Settings: the knobs of a host, in one catalogue. Rules read settings, transactions write them,
//! experiments vary them; a key, a typed value, a domain, a reversibility class and a scope serve all.

mod catalogue;
mod of_host;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use catalogue::{Access, CATALOGUE, Class, Domain, Scope, SettingSpec};
pub use of_host::{FEC_AUTO, current, fec_words, parse_table, put, table_words};

use crate::host::{Qdisc, QueueKind};
use crate::ids::{CpuId, NicName};

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
    /// `queue/tx-N/xps-rxqs`, receive queues in list form.
    XpsRxqs(u32),
    /// `qdisc`, the root queueing discipline.
    Qdisc,
    /// `coalesce/adaptive-tx`.
    CoalesceAdaptiveTx,
    /// `napi/gro-flush-timeout-ns`.
    GroFlushTimeoutNs,
    /// `napi/defer-hard-irqs`.
    DeferHardIrqs,
    /// `napi/threaded`.
    Threaded,
    /// `pause/autoneg`.
    PauseAutoneg,
    /// `pause/rx`.
    PauseRx,
    /// `pause/tx`.
    PauseTx,
    /// `eee`.
    Eee,
    /// `fec`, by the kernel's names.
    Fec,
    /// `rss/table`: `equal N`, or the queues one by one.
    RssTable,
    /// `rss/fields/KIND` as `ethtool -N DEV rx-flow-hash` names them.
    RssFields(String),
    /// `gso-max-bytes`.
    GsoMaxBytes,
    /// `gso-ipv4-max-bytes`.
    GsoIpv4MaxBytes,
    /// `gro-max-bytes`.
    GroMaxBytes,
    /// `gro-ipv4-max-bytes`.
    GroIpv4MaxBytes,
    /// `ring/tcp-data-split`.
    TcpDataSplit,
    /// `private-flag/NAME`, by the driver's own name.
    PrivateFlag(String),
    /// `bond/hash-policy`.
    BondHashPolicy,
    /// `ipoib/mode`.
    IpoibMode,
    /// `pci/STATE`, a power-saving state of its link: `l1-aspm` ...
    Aspm(String),
}

/// The knobs of an interface whose path has no parameter.
const NIC_PATHS: &[(&str, NicKnob)] = &[
    ("mtu", NicKnob::Mtu),
    ("qdisc", NicKnob::Qdisc),
    ("coalesce/rx-usecs", NicKnob::CoalesceRxUsecs),
    ("coalesce/tx-usecs", NicKnob::CoalesceTxUsecs),
    ("coalesce/adaptive-rx", NicKnob::CoalesceAdaptiveRx),
    ("coalesce/adaptive-tx", NicKnob::CoalesceAdaptiveTx),
    ("ring/rx", NicKnob::RingRx),
    ("ring/tx", NicKnob::RingTx),
    ("ring/tcp-data-split", NicKnob::TcpDataSplit),
    ("channels/combined", NicKnob::ChannelsCombined),
    ("channels/rx", NicKnob::ChannelsRx),
    ("channels/tx", NicKnob::ChannelsTx),
    ("napi/gro-flush-timeout-ns", NicKnob::GroFlushTimeoutNs),
    ("napi/defer-hard-irqs", NicKnob::DeferHardIrqs),
    ("napi/threaded", NicKnob::Threaded),
    ("pause/autoneg", NicKnob::PauseAutoneg),
    ("pause/rx", NicKnob::PauseRx),
    ("pause/tx", NicKnob::PauseTx),
    ("eee", NicKnob::Eee),
    ("fec", NicKnob::Fec),
    ("rss/table", NicKnob::RssTable),
    ("gso-max-bytes", NicKnob::GsoMaxBytes),
    ("gso-ipv4-max-bytes", NicKnob::GsoIpv4MaxBytes),
    ("gro-max-bytes", NicKnob::GroMaxBytes),
    ("gro-ipv4-max-bytes", NicKnob::GroIpv4MaxBytes),
    ("bond/hash-policy", NicKnob::BondHashPolicy),
    ("ipoib/mode", NicKnob::IpoibMode),
];

/// A knob of the machine's CPUs and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MachineKnob {
    /// `cpu/turbo`.
    Turbo,
    /// `cpu/smt`.
    Smt,
    /// `cpu/max-latency-us`: idle states that take longer to leave are not entered.
    MaxLatencyUs,
    /// `irqbalance/paused`: its process is stopped.
    IrqbalancePaused,
    /// `cpu/clocksource`.
    Clocksource,
    /// `memory/transparent-hugepages`.
    TransparentHugepages,
}

/// The paths of [`MachineKnob`].
const MACHINE_PATHS: &[(&str, MachineKnob)] = &[
    ("cpu/turbo", MachineKnob::Turbo),
    ("cpu/smt", MachineKnob::Smt),
    ("cpu/max-latency-us", MachineKnob::MaxLatencyUs),
    ("irqbalance/paused", MachineKnob::IrqbalancePaused),
    ("cpu/clocksource", MachineKnob::Clocksource),
    (
        "memory/transparent-hugepages",
        MachineKnob::TransparentHugepages,
    ),
];

/// A knob of CPUs that change frequency together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKnob {
    /// `governor`.
    Governor,
    /// `energy-preference`.
    EnergyPreference,
}

/// The paths of [`PolicyKnob`].
const POLICY_PATHS: &[(&str, PolicyKnob)] = &[
    ("governor", PolicyKnob::Governor),
    ("energy-preference", PolicyKnob::EnergyPreference),
];

/// A knob of a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockKnob {
    /// `scheduler`.
    Scheduler,
    /// `nomerges`.
    Nomerges,
    /// `rq-affinity`.
    RqAffinity,
    /// `nr-requests`, of each hardware queue.
    NrRequests,
    /// `io-policy` of an NVMe subsystem.
    IoPolicy,
}

/// The paths of [`BlockKnob`].
const BLOCK_PATHS: &[(&str, BlockKnob)] = &[
    ("scheduler", BlockKnob::Scheduler),
    ("nomerges", BlockKnob::Nomerges),
    ("rq-affinity", BlockKnob::RqAffinity),
    ("nr-requests", BlockKnob::NrRequests),
    ("io-policy", BlockKnob::IoPolicy),
];

fn path_of<K: PartialEq>(table: &'static [(&'static str, K)], knob: &K) -> Option<&'static str> {
    let found = table.iter().find(|(_, own)| own == knob);
    found.map(|(path, _)| *path)
}

fn knob_of<K: Clone>(table: &[(&str, K)], path: &str) -> Option<K> {
    let found = table.iter().find(|(own, _)| *own == path);
    found.map(|(_, knob)| knob.clone())
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
    /// `cpu/...` and `memory/...`.
    Machine(MachineKnob),
    /// `cpu/cpu3/resume-latency-us`: idle states that this CPU takes longer to leave are not entered.
    ResumeLatency(CpuId),
    /// `cpu/policy0/...`: cpufreq's policies, by their numbers.
    Policy(u32, PolicyKnob),
    /// `block/nvme0n1/...`.
    Block(String, BlockKnob),
    /// `rdma/mlx5_0/1/default-gid-type`.
    RdmaGidType(String, u32),
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

impl SettingKey {
    /// Whether linerate can write it by now; the others are read, judged and advised.
    pub fn is_writable(&self) -> bool {
        self.spec().access == Access::Written
    }
}

impl fmt::Display for SettingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl(name) => write!(f, "sysctl/{name}"),
            Self::Machine(knob) => f.write_str(path_of(MACHINE_PATHS, knob).unwrap_or_default()),
            Self::ResumeLatency(cpu) => write!(f, "cpu/cpu{}/resume-latency-us", cpu.0),
            Self::Policy(number, knob) => {
                let path = path_of(POLICY_PATHS, knob).unwrap_or_default();
                write!(f, "cpu/policy{number}/{path}")
            }
            Self::Block(device, knob) => {
                let path = path_of(BLOCK_PATHS, knob).unwrap_or_default();
                write!(f, "block/{device}/{path}")
            }
            Self::RdmaGidType(device, port) => write!(f, "rdma/{device}/{port}/default-gid-type"),
            Self::Trial(TrialKnob::SenderCpus) => f.write_str("placement/sender-cpus"),
            Self::Trial(TrialKnob::ReceiverCpus) => f.write_str("placement/receiver-cpus"),
            Self::Trial(TrialKnob::CongestionControl) => f.write_str("stream/congestion-control"),
            Self::Nic(nic, knob) => write!(f, "nic/{nic}/{knob}"),
        }
    }
}

impl fmt::Display for NicKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feature(name) => write!(f, "feature/{name}"),
            Self::PrivateFlag(name) => write!(f, "private-flag/{name}"),
            Self::RssFields(kind) => write!(f, "rss/fields/{kind}"),
            Self::Aspm(state) => write!(f, "pci/{state}"),
            Self::IrqCpus(QueueKind::Rx, index) => write!(f, "queue/rx-{index}/irq-cpus"),
            Self::IrqCpus(QueueKind::Tx, index) => write!(f, "queue/tx-{index}/irq-cpus"),
            Self::RpsCpus(index) => write!(f, "queue/rx-{index}/rps-cpus"),
            Self::RpsFlowCnt(index) => write!(f, "queue/rx-{index}/rps-flow-cnt"),
            Self::XpsCpus(index) => write!(f, "queue/tx-{index}/xps-cpus"),
            Self::XpsRxqs(index) => write!(f, "queue/tx-{index}/xps-rxqs"),
            plain => f.write_str(path_of(NIC_PATHS, plain).unwrap_or_default()),
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
            ["cpu" | "memory" | "irqbalance", _] => knob_of(MACHINE_PATHS, text)
                .map(Self::Machine)
                .ok_or_else(|| wrong("the machine has no such setting in the catalogue")),
            ["cpu", cpu, "resume-latency-us"] => {
                let number = cpu.strip_prefix("cpu").unwrap_or_default();
                let number = number.parse().map_err(|_| wrong("one CPU is `cpuN`"))?;
                Ok(Self::ResumeLatency(CpuId(number)))
            }
            ["cpu", policy, knob] => {
                let number = policy.strip_prefix("policy").unwrap_or_default();
                let number = number
                    .parse()
                    .map_err(|_| wrong("CPUs that change frequency together are `policyN`"))?;
                knob_of(POLICY_PATHS, knob)
                    .map(|knob| Self::Policy(number, knob))
                    .ok_or_else(|| wrong("they have no such setting in the catalogue"))
            }
            ["block", device, knob] if is_device(device) => knob_of(BLOCK_PATHS, knob)
                .map(|knob| Self::Block((*device).to_owned(), knob))
                .ok_or_else(|| wrong("a block device has no such setting in the catalogue")),
            ["rdma", device, port, "default-gid-type"] if is_device(device) => port
                .parse()
                .map(|port| Self::RdmaGidType((*device).to_owned(), port))
                .map_err(|_| wrong("its third part is not the number of a port")),
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
                "a key begins with `sysctl/`, `nic/`, `cpu/`, `memory/`, `block/`, `rdma/`, `placement/` or `stream/`",
            )),
        }
    }
}

/// A name that stands in a path of sysfs.
fn is_device(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-!:".contains(&b);
    !name.is_empty() && name.bytes().all(plain) && name != "." && name != ".."
}

fn parse_nic_knob(parts: &[&str]) -> Option<NicKnob> {
    if let Some(knob) = knob_of(NIC_PATHS, &parts.join("/")) {
        return Some(knob);
    }
    Some(match parts {
        ["feature", name] if !name.is_empty() => {
            let alias = FEATURE_ALIASES.iter().find(|(short, _)| short == name);
            NicKnob::Feature(alias.map_or(*name, |(_, long)| *long).to_owned())
        }
        ["private-flag", name] if !name.is_empty() => NicKnob::PrivateFlag((*name).to_owned()),
        ["rss", "fields", kind] if is_device(kind) => NicKnob::RssFields((*kind).to_owned()),
        ["pci", state] if is_device(state) => NicKnob::Aspm((*state).to_owned()),
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
                (QueueKind::Tx, "xps-rxqs") => NicKnob::XpsRxqs(index),
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

impl Value {
    /// Whether a setting that has `found` has what this asks for. A queueing discipline asked for without
    /// handle or options is met by any of its kind: the kernel gives it those.
    pub fn is_met_by(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::Qdisc(asked), Self::Qdisc(found)) => {
                asked.kind == found.kind
                    && (asked.handle == 0 || asked.handle == found.handle)
                    && (asked.options.is_empty() || asked.options == found.options)
            }
            _ => self == found,
        }
    }
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
        "nic/eth2/queue/tx-0/xps-rxqs",
        "nic/eth2/coalesce/adaptive-tx",
        "nic/eth2/napi/gro-flush-timeout-ns",
        "nic/eth2/napi/defer-hard-irqs",
        "nic/eth2/napi/threaded",
        "nic/eth2/pause/autoneg",
        "nic/eth2/pause/rx",
        "nic/eth2/pause/tx",
        "nic/eth2/eee",
        "nic/eth2/fec",
        "nic/eth2/rss/table",
        "nic/eth2/rss/fields/udp4",
        "nic/eth2/gso-max-bytes",
        "nic/eth2/gso-ipv4-max-bytes",
        "nic/eth2/gro-max-bytes",
        "nic/eth2/gro-ipv4-max-bytes",
        "nic/eth2/ring/tcp-data-split",
        "nic/eth2/private-flag/rx_cqe_compress",
        "nic/bond0/bond/hash-policy",
        "nic/ib0/ipoib/mode",
        "nic/eth2/pci/l1-aspm",
        "cpu/turbo",
        "cpu/smt",
        "cpu/cpu3/resume-latency-us",
        "cpu/policy0/governor",
        "cpu/policy0/energy-preference",
        "cpu/max-latency-us",
        "cpu/clocksource",
        "memory/transparent-hugepages",
        "block/nvme0n1/nr-requests",
        "block/nvme0n1/scheduler",
        "block/nvme0n1/nomerges",
        "block/nvme0n1/rq-affinity",
        "block/nvme0n1/io-policy",
        "rdma/mlx5_0/1/default-gid-type",
        "irqbalance/paused",
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
            "cpu/warp",
            "block/../scheduler",
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
