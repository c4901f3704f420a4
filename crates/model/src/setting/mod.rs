//! Settings: the knobs of a host, in one catalog. Rules read settings, transactions write them, experiments vary
//! them; they all use the same key, typed value, domain, reversibility class and scope.

mod applications;
mod by_hand;
mod catalogue;
pub mod discipline;
mod file;
mod hash_key;
mod link;
pub mod needs;
mod nic_knob;
mod of_host;
mod priorities;
mod read_value;
mod rows;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

pub use applications::{Application, application_words, parse_applications};
pub use by_hand::by_hand;
pub use catalogue::{Access, Class, Domain, Keeping, Scope, SettingSpec};
pub use discipline::Discipline;
pub use file::{
    Form, SettingFile, fixed_file, parse_chosen, parse_scheduler, rdma_defaults_folder,
};
pub use hash_key::{key_words, parse_key};
pub use link::{LinkSpeed, is_speed, is_untold, link_words};
pub use nic_knob::NicKnob;
pub use of_host::{FEC_AUTO, current, dcb_value, fec_words, parse_table, put, table_words};
pub use priorities::{
    TrafficClasses, class_words, classes_of, egress_words, parse_classes, parse_egress,
    parse_priorities, parse_rates, priority_words, rate_words,
};
pub use rows::CATALOGUE;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use self::nic_knob::parse_nic_knob;
use crate::host::Qdisc;
use crate::ids::{CpuId, IrqNumber, NicName};

/// A knob of the machine's CPUs and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MachineKnob {
    /// `cpu/turbo`.
    Turbo,
    /// `cpu/smt`.
    Smt,
    /// `cpu/max-latency-us`: idle states with a longer exit latency are not entered.
    MaxLatencyUs,
    /// `irqbalance/paused`: its process is stopped.
    IrqbalancePaused,
    /// `irqbalance/banned-irqs`: the interrupts that irqbalance does not move.
    IrqbalanceBans,
    /// `cpu/clocksource`.
    Clocksource,
    /// `memory/transparent-hugepages`.
    TransparentHugepages,
    /// `cpu/mitigations`, as set at boot.
    Mitigations,
    /// `cpu/intel-idle-max-cstate`, as set at boot.
    IntelIdleMaxCstate,
    /// `cpu/acpi-max-cstate`, the same for the acpi_idle driver.
    AcpiMaxCstate,
    /// `netfilter/nft-rules`: the number of rules.
    NftRules,
    /// `netfilter/iptables-tables`: the tables in use.
    IptablesTables,
}

/// The paths of [`MachineKnob`].
const MACHINE_PATHS: &[(&str, MachineKnob)] = &[
    ("cpu/turbo", MachineKnob::Turbo),
    ("cpu/smt", MachineKnob::Smt),
    ("cpu/max-latency-us", MachineKnob::MaxLatencyUs),
    ("irqbalance/paused", MachineKnob::IrqbalancePaused),
    ("irqbalance/banned-irqs", MachineKnob::IrqbalanceBans),
    ("cpu/clocksource", MachineKnob::Clocksource),
    (
        "memory/transparent-hugepages",
        MachineKnob::TransparentHugepages,
    ),
    ("cpu/mitigations", MachineKnob::Mitigations),
    ("cpu/intel-idle-max-cstate", MachineKnob::IntelIdleMaxCstate),
    ("cpu/acpi-max-cstate", MachineKnob::AcpiMaxCstate),
    ("netfilter/nft-rules", MachineKnob::NftRules),
    ("netfilter/iptables-tables", MachineKnob::IptablesTables),
];

/// A knob of a cpufreq policy.
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

/// A knob of a port of an RDMA device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RdmaKnob {
    /// `default-gid-type`.
    DefaultGidType,
    /// `default-roce-tos`.
    DefaultRoceTos,
}

/// The paths of [`RdmaKnob`].
const RDMA_PATHS: &[(&str, RdmaKnob)] = &[
    ("default-gid-type", RdmaKnob::DefaultGidType),
    ("default-roce-tos", RdmaKnob::DefaultRoceTos),
];

fn path_of<K: PartialEq>(table: &'static [(&'static str, K)], knob: &K) -> Option<&'static str> {
    let found = table.iter().find(|(_, own)| own == knob);
    found.map(|(path, _)| *path)
}

fn knob_of<K: Clone>(table: &[(&str, K)], path: &str) -> Option<K> {
    let found = table.iter().find(|(own, _)| *own == path);
    found.map(|(_, knob)| knob.clone())
}

/// How linerate itself measures: where its threads run, and its socket options. Settings of the trial, not of the
/// machine; an application has equivalent ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrialKnob {
    /// `sender-cpus`.
    SenderCpus,
    /// `receiver-cpus`.
    ReceiverCpus,
    /// `congestion-control` of the stream's sockets.
    CongestionControl,
}

/// The stable key of a setting: a path of nouns that ends in the kernel's own name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SettingKey {
    /// `sysctl/net.ipv4.tcp_rmem`.
    Sysctl(String),
    /// `nic/eth2/...`.
    Nic(NicName, NicKnob),
    /// `cpu/...` and `memory/...`.
    Machine(MachineKnob),
    /// `cpu/cpu3/resume-latency-us`: this CPU does not enter idle states with a longer exit latency.
    ResumeLatency(CpuId),
    /// `cpu/cpu3/online`.
    Online(CpuId),
    /// `irq/42/cpus`: an interrupt by its number, which is valid until the next boot.
    IrqCpus(IrqNumber),
    /// `cpu/policy0/...`: cpufreq policies, by number.
    Policy(u32, PolicyKnob),
    /// `block/nvme0n1/...`.
    Block(String, BlockKnob),
    /// `rdma/mlx5_0/cm-defaults`: whether configfs has the settings of the device's ports.
    RdmaDefaults(String),
    /// `rdma/mlx5_0/1/...`.
    Rdma(String, u32, RdmaKnob),
    /// `placement/...` and `stream/...`.
    Trial(TrialKnob),
}

/// Why a key or a value was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The key is not in the catalog.
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
        /// The values that the setting accepts.
        expected: &'static str,
    },
}

impl SettingKey {
    /// Whether linerate can write it; the others are read, checked and recommended.
    pub fn is_writable(&self) -> bool {
        self.spec().access == Access::Written
    }

    /// The name of its interface, also for a sysctl that contains one. `all` and `default` are not interfaces.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Nic(nic, _) => Some(nic.as_str()),
            Self::Sysctl(name) => sysctl_of_interface(name).map(|(_, nic, _)| nic),
            _ => None,
        }
    }

    /// The same setting of the interface `nic`; the setting itself if it does not belong to an interface.
    #[must_use]
    pub fn of_interface(&self, nic: &NicName) -> Self {
        match self {
            Self::Nic(_, knob) => Self::Nic(nic.clone(), knob.clone()),
            Self::Sysctl(name) => match sysctl_of_interface(name) {
                Some((folder, _, last)) => Self::Sysctl(format!("{folder}{nic}.{last}")),
                None => self.clone(),
            },
            other => other.clone(),
        }
    }
}

/// A sysctl of one interface, split into prefix, interface name and own name: `net.ipv6.conf.`, `eth0.100`, `mtu`.
fn sysctl_of_interface(name: &str) -> Option<(&str, &str, &str)> {
    const FOLDERS: [&str; 4] = [
        "net.ipv4.conf.",
        "net.ipv6.conf.",
        "net.ipv4.neigh.",
        "net.ipv6.neigh.",
    ];
    let folder = FOLDERS.iter().find(|folder| name.starts_with(**folder))?;
    let (folder, rest) = name.split_at(folder.len());
    // Interface names may contain dots, the names below them do not.
    let (nic, last) = rest.rsplit_once('.')?;
    (!matches!(nic, "all" | "default")).then_some((folder, nic, last))
}

impl fmt::Display for SettingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl(name) => write!(f, "sysctl/{name}"),
            Self::Machine(knob) => f.write_str(path_of(MACHINE_PATHS, knob).unwrap_or_default()),
            Self::ResumeLatency(cpu) => write!(f, "cpu/cpu{}/resume-latency-us", cpu.0),
            Self::Online(cpu) => write!(f, "cpu/cpu{}/online", cpu.0),
            Self::IrqCpus(irq) => write!(f, "irq/{irq}/cpus"),
            Self::Policy(number, knob) => {
                let path = path_of(POLICY_PATHS, knob).unwrap_or_default();
                write!(f, "cpu/policy{number}/{path}")
            }
            Self::Block(device, knob) => {
                let path = path_of(BLOCK_PATHS, knob).unwrap_or_default();
                write!(f, "block/{device}/{path}")
            }
            Self::RdmaDefaults(device) => write!(f, "rdma/{device}/cm-defaults"),
            Self::Rdma(device, port, knob) => {
                let path = path_of(RDMA_PATHS, knob).unwrap_or_default();
                write!(f, "rdma/{device}/{port}/{path}")
            }
            Self::Trial(TrialKnob::SenderCpus) => f.write_str("placement/sender-cpus"),
            Self::Trial(TrialKnob::ReceiverCpus) => f.write_str("placement/receiver-cpus"),
            Self::Trial(TrialKnob::CongestionControl) => f.write_str("stream/congestion-control"),
            Self::Nic(nic, knob) => write!(f, "nic/{nic}/{knob}"),
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
            ["cpu" | "memory" | "irqbalance" | "netfilter", _] => knob_of(MACHINE_PATHS, text)
                .map(Self::Machine)
                .ok_or_else(|| wrong("the machine has no such setting in the catalogue")),
            ["cpu", cpu, knob @ ("resume-latency-us" | "online")] => {
                let number = cpu.strip_prefix("cpu").unwrap_or_default();
                let number = number.parse().map_err(|_| wrong("one CPU is `cpuN`"))?;
                Ok(match *knob {
                    "online" => Self::Online(CpuId(number)),
                    _ => Self::ResumeLatency(CpuId(number)),
                })
            }
            ["irq", number, "cpus"] => number
                .parse()
                .map(|number| Self::IrqCpus(IrqNumber(number)))
                .map_err(|_| wrong("an interrupt is named by its number")),
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
            ["rdma", device, rest @ ..] if is_device(device) => {
                parse_rdma(device, rest).map_err(wrong)
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
                "a key begins with `sysctl/`, `nic/`, `cpu/`, `irq/`, `irqbalance/`, `memory/`, `netfilter/`, `block/`, `rdma/`, `placement/` or `stream/`",
            )),
        }
    }
}

/// A key of an RDMA device, or its error.
fn parse_rdma(device: &str, rest: &[&str]) -> Result<SettingKey, &'static str> {
    let device = device.to_owned();
    match rest {
        ["cm-defaults"] => Ok(SettingKey::RdmaDefaults(device)),
        [port, knob] => {
            let port = port.parse();
            let port = port.map_err(|_| "its third part is not the number of a port")?;
            let knob = knob_of(RDMA_PATHS, knob);
            knob.map(|knob| SettingKey::Rdma(device, port, knob))
                .ok_or("an RDMA port has no such setting in the catalogue")
        }
        _ => Err("an RDMA device has no such setting in the catalogue"),
    }
}

/// A name that is used in a sysfs path.
fn is_device(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-!:".contains(&b);
    !name.is_empty() && name.bytes().all(plain) && name != "." && name != ".."
}

impl Serialize for SettingKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SettingKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// On or off.
    Switch(bool),
    /// A count, in the setting's own unit.
    Integer(u64),
    /// A qdisc with the kernel's own parameters.
    Qdisc(Qdisc),
    /// Text as the kernel prints it, white space reduced to single spaces; CPU sets in list form.
    Text(String),
}

impl Value {
    /// Whether a setting with the value `found` satisfies this one. A requested qdisc without handle or options
    /// matches any of its kind, since the kernel assigns those; one requested with parameters matches if those
    /// parameters match.
    pub fn is_met_by(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::Qdisc(asked), Self::Qdisc(found)) => {
                asked.kind == found.kind
                    && (asked.handle == 0 || asked.handle == found.handle)
                    && (asked.options.is_empty() || asked.options == found.options)
                    && asked.words_are_met_by(found)
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
                // The requested value, word by word; the value found may have more words than fit a line.
                None if qdisc.options.is_empty() && !qdisc.words.is_empty() => {
                    f.write_str(&qdisc.words)
                }
                None => f.write_str(&qdisc.kind),
            },
            Self::Text(text) if text.is_empty() => f.write_str("none"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Qdisc {
    /// A qdisc with the kernel's defaults.
    pub fn plain(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            handle: 0,
            rate_bit_per_s: None,
            options: String::new(),
            words: String::new(),
        }
    }

    /// One that is requested with parameters.
    pub fn asked(discipline: &Discipline) -> Self {
        Self {
            words: discipline.to_string(),
            ..Self::plain(discipline.kind())
        }
    }

    /// Its parsed parameters; none if they are incomplete or missing.
    pub fn discipline(&self) -> Option<Discipline> {
        Discipline::parse(&self.words)
    }

    fn words_are_met_by(&self, found: &Self) -> bool {
        let same = self.words.is_empty() || self.words == found.words;
        same || match (self.discipline(), found.discipline()) {
            (Some(asked), Some(found)) => asked.is_met_by(&found),
            _ => false,
        }
    }
}

/// Sysctls print their numbers with tabs and accept spaces: one form for both.
pub fn fold_blanks(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Settings with their values, for one end of a path.
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
        "nic/eth2/queue/rx-2/rx-usecs",
        "nic/eth2/queue/tx-2/tx-usecs",
        "nic/eth2/queue/rx-2/rx-frames",
        "nic/eth2/queue/tx-2/tx-frames",
        "nic/eth2/queue/rx-2/adaptive-rx",
        "nic/eth2/queue/tx-2/adaptive-tx",
        "nic/eth2/coalesce/rx-frames",
        "nic/eth2/coalesce/tx-frames",
        "nic/eth2/qdisc",
        "nic/eth2/queue/tx-0/xps-rxqs",
        "nic/eth2/coalesce/adaptive-tx",
        "nic/eth2/napi/gro-flush-timeout-ns",
        "nic/eth2/napi/defer-hard-irqs",
        "nic/eth2/napi/threaded",
        "nic/eth2/link/autoneg",
        "nic/eth2/link/speed",
        "nic/eth2/pause/autoneg",
        "nic/eth2/pause/rx",
        "nic/eth2/pause/tx",
        "nic/eth2/eee",
        "nic/eth2/fec",
        "nic/eth2/rss/key",
        "nic/eth2/rss/table",
        "nic/eth2/rss/fields/udp4",
        "nic/eth2/gso-max-bytes",
        "nic/eth2/gso-ipv4-max-bytes",
        "nic/eth2/gro-max-bytes",
        "nic/eth2/gro-ipv4-max-bytes",
        "nic/eth2/ring/tcp-data-split",
        "nic/eth2/private-flag/rx_cqe_compress",
        "nic/bond0/bond/hash-policy",
        "nic/eth2/dcb/pfc",
        "nic/eth2/dcb/ets",
        "nic/eth2/dcb/maxrate",
        "nic/eth2/dcb/app",
        "nic/eth2.100/vlan/egress",
        "nic/ib0/ipoib/mode",
        "nic/eth2/pci/l1-aspm",
        "cpu/turbo",
        "cpu/smt",
        "cpu/cpu3/resume-latency-us",
        "cpu/cpu3/online",
        "irq/42/cpus",
        "cpu/policy0/governor",
        "cpu/policy0/energy-preference",
        "cpu/max-latency-us",
        "cpu/clocksource",
        "memory/transparent-hugepages",
        "cpu/mitigations",
        "cpu/intel-idle-max-cstate",
        "cpu/acpi-max-cstate",
        "netfilter/nft-rules",
        "netfilter/iptables-tables",
        "block/nvme0n1/nr-requests",
        "block/nvme0n1/scheduler",
        "block/nvme0n1/nomerges",
        "block/nvme0n1/rq-affinity",
        "block/nvme0n1/io-policy",
        "rdma/mlx5_0/cm-defaults",
        "rdma/mlx5_0/1/default-gid-type",
        "irqbalance/paused",
        "irqbalance/banned-irqs",
        "rdma/mlx5_0/1/default-roce-tos",
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
    fn a_setting_is_of_the_interface_whose_name_it_bears() {
        for (key, nic) in [
            ("nic/eth2/mtu", Some("eth2")),
            ("sysctl/net.ipv6.conf.eth2.mtu", Some("eth2")),
            (
                "sysctl/net.ipv4.neigh.eth2.100.gc_stale_time",
                Some("eth2.100"),
            ),
            ("sysctl/net.ipv4.conf.all.forwarding", None),
            ("sysctl/net.ipv4.tcp_rmem", None),
            ("cpu/turbo", None),
        ] {
            let key: SettingKey = key.parse().expect(key);
            assert_eq!(key.interface(), nic, "{key}");
        }
    }

    #[test]
    fn a_setting_of_an_interface_has_the_same_one_of_another() {
        let nic: NicName = "lan0.7".parse().expect("a name");
        for (key, renamed) in [
            ("nic/eth2/mtu", "nic/lan0.7/mtu"),
            (
                "nic/eth2/queue/rx-0/irq-cpus",
                "nic/lan0.7/queue/rx-0/irq-cpus",
            ),
            (
                "sysctl/net.ipv4.neigh.eth2.100.gc_stale_time",
                "sysctl/net.ipv4.neigh.lan0.7.gc_stale_time",
            ),
            (
                "sysctl/net.ipv4.conf.all.forwarding",
                "sysctl/net.ipv4.conf.all.forwarding",
            ),
            ("cpu/turbo", "cpu/turbo"),
        ] {
            let key: SettingKey = key.parse().expect(key);
            assert_eq!(key.of_interface(&nic).to_string(), renamed);
        }
    }

    #[test]
    fn what_can_be_written_outlives_a_boot_but_for_what_a_boot_numbers_anew() {
        let never = CATALOGUE.iter().filter(|spec| {
            spec.access == Access::Written && matches!(spec.keeping(), Keeping::Never(_))
        });
        let never: Vec<&str> = never.map(|spec| spec.pattern).collect();
        assert_eq!(
            never,
            [
                "irq/NUMBER/cpus",
                "placement/sender-cpus",
                "placement/receiver-cpus",
                "stream/congestion-control"
            ]
        );
        let told = CATALOGUE.iter().filter(|spec| spec.access == Access::Told);
        assert!(told.clone().all(|spec| spec.keeping() != Keeping::Persist));
        assert!(
            told.clone()
                .any(|spec| spec.keeping() == Keeping::CommandLine)
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
            "cpu/policy3/online",
            "nic/eth2/queue/rx-0/tx-usecs",
            "irq/x/cpus",
            "block/../scheduler",
            "rdma/../cm-defaults",
            "rdma/mlx5_0/x/default-roce-tos",
        ] {
            assert!(text.parse::<SettingKey>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_discipline_is_asked_for_in_words_and_met_by_one_that_has_what_they_name() {
        let key: SettingKey = "nic/eth2/qdisc".parse().expect("a key");
        let asked = key.parse_value("fq limit 500").expect("words of tc");
        assert_eq!(asked.to_string(), "fq limit 500");
        let found = |words: &str| {
            Value::Qdisc(Qdisc {
                handle: 0x8001_0000,
                options: "0800".to_owned(),
                words: words.to_owned(),
                ..Qdisc::plain("fq")
            })
        };
        assert_eq!(found("fq limit 500 pacing").to_string(), "fq");
        assert!(asked.is_met_by(&found("fq limit 500 pacing")));
        assert!(!asked.is_met_by(&found("fq limit 501 pacing")));
        assert!(!asked.is_met_by(&found("")));
        let plain = key.parse_value("fq").expect("a kind");
        assert!(plain.is_met_by(&found("")));
        let queues = key.parse_value("mq").expect("a kind");
        assert_eq!(queues, Value::Qdisc(Qdisc::plain("mq")));
        for wrong in ["htb", "tbf rate 1gbit", "cake", "fq limit", ""] {
            assert!(key.parse_value(wrong).is_err(), "{wrong}");
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
