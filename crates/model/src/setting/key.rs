//! The stable keys of settings, as text and back.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::path::{filled, is_plain};
use super::rows::{BlockKnob, CpuKnob, MachineKnob, NicKnob, PolicyKnob, RdmaKnob, TrialKnob};
use crate::ids::{CpuId, IrqNumber, NicName};

/// The short names of features, as in ethtool(8), and the kernel features they stand for.
const FEATURE_ALIASES: [(&str, &str); 5] = [
    ("tso", "tx-tcp-segmentation"),
    ("gso", "tx-generic-segmentation"),
    ("gro", "rx-gro"),
    ("lro", "rx-lro"),
    ("ntuple", "rx-ntuple-filter"),
];

/// The stable key of a setting: a path of nouns that ends in the kernel's own name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SettingKey {
    /// `sysctl/net.ipv4.tcp_rmem`.
    Sysctl(String),
    /// `nic/eth2/...`.
    Nic(NicName, NicKnob),
    /// `cpu/...` and `memory/...`.
    Machine(MachineKnob),
    /// `cpu/cpu3/...`.
    Cpu(CpuId, CpuKnob),
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
        self.spec().access.is_written()
    }

    /// The setting of the same subject with that pattern.
    pub fn sibling(&self, pattern: &str) -> Option<Self> {
        filled(pattern, |placeholder| self.word(placeholder))
            .parse()
            .ok()
    }

    /// The word of its key for a placeholder of its pattern.
    pub(super) fn word(&self, placeholder: &str) -> Option<String> {
        Some(match (self, placeholder) {
            (Self::Sysctl(name), _) => name.strip_prefix("net.").unwrap_or(name).to_owned(),
            (Self::Nic(nic, _), "NAME") => nic.to_string(),
            (Self::Nic(_, knob), _) => knob.word()?,
            (Self::Cpu(cpu, _), _) => format!("cpu{}", cpu.0),
            (Self::IrqCpus(irq), _) => irq.to_string(),
            (Self::Policy(number, _), _) => format!("policy{number}"),
            (Self::Rdma(_, port, _), "PORT") => port.to_string(),
            (Self::Block(device, _) | Self::RdmaDefaults(device) | Self::Rdma(device, ..), _) => {
                device.clone()
            }
            (Self::Machine(_) | Self::Trial(_), _) => return None,
        })
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
        let pattern = self.spec().pattern;
        f.write_str(&filled(pattern, |placeholder| self.word(placeholder)))
    }
}

impl FromStr for SettingKey {
    type Err = SettingError;
    fn from_str(text: &str) -> Result<Self, SettingError> {
        parse(text).map_err(|why| SettingError::Key {
            key: text.to_owned(),
            why,
        })
    }
}

/// The key, or what is wrong with it.
fn parse(text: &str) -> Result<SettingKey, &'static str> {
    let parts: Vec<&str> = text.split('/').collect();
    match parts.as_slice() {
        ["sysctl", name] => {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
            let is_name = name.bytes().all(plain) && !name.split('.').any(str::is_empty);
            is_name
                .then(|| SettingKey::Sysctl((*name).to_owned()))
                .ok_or("a sysctl is named by words with dots between")
        }
        ["cpu" | "memory" | "irqbalance" | "netfilter", _] => MachineKnob::parse(text)
            .map(SettingKey::Machine)
            .ok_or("the machine has no such setting in the catalog"),
        ["cpu", subject, knob] => parse_cpu(subject, knob),
        ["irq", number, "cpus"] => number
            .parse()
            .map(|number| SettingKey::IrqCpus(IrqNumber(number)))
            .map_err(|_| "an interrupt is named by its number"),
        ["block", device, knob] if is_plain(device) => BlockKnob::parse(knob)
            .map(|knob| SettingKey::Block((*device).to_owned(), knob))
            .ok_or("a block device has no such setting in the catalog"),
        ["rdma", device, rest @ ..] if is_plain(device) => parse_rdma(device, rest),
        ["placement" | "stream", _] if let Some(knob) = TrialKnob::parse(text) => {
            Ok(SettingKey::Trial(knob))
        }
        ["nic", nic, knob @ ..] => {
            let nic: NicName = nic
                .parse()
                .map_err(|_| "its second part is not an interface name")?;
            let path = match knob {
                ["feature", short] => {
                    let alias = FEATURE_ALIASES.iter().find(|(own, _)| own == short);
                    format!("feature/{}", alias.map_or(*short, |(_, long)| *long))
                }
                parts => parts.join("/"),
            };
            NicKnob::parse(&path)
                .map(|knob| SettingKey::Nic(nic, knob))
                .ok_or("an interface has no such setting in the catalog")
        }
        _ => Err(
            "a key begins with `sysctl/`, `nic/`, `cpu/`, `irq/`, `irqbalance/`, `memory/`, `netfilter/`, `block/`, `rdma/`, `placement/` or `stream/`",
        ),
    }
}

/// A key of one CPU or of a cpufreq policy, or its error.
fn parse_cpu(subject: &str, knob: &str) -> Result<SettingKey, &'static str> {
    if let Some(knob) = CpuKnob::parse(knob) {
        let number = subject.strip_prefix("cpu").unwrap_or_default();
        let number = number.parse().map_err(|_| "one CPU is `cpuN`")?;
        return Ok(SettingKey::Cpu(CpuId(number), knob));
    }
    let number = subject.strip_prefix("policy").unwrap_or_default();
    let number = number
        .parse()
        .map_err(|_| "CPUs that change frequency together are `policyN`")?;
    PolicyKnob::parse(knob)
        .map(|knob| SettingKey::Policy(number, knob))
        .ok_or("they have no such setting in the catalog")
}

/// A key of an RDMA device, or its error.
fn parse_rdma(device: &str, rest: &[&str]) -> Result<SettingKey, &'static str> {
    let device = device.to_owned();
    match rest {
        ["cm-defaults"] => Ok(SettingKey::RdmaDefaults(device)),
        [port, knob] => {
            let port = port.parse();
            let port = port.map_err(|_| "its third part is not the number of a port")?;
            RdmaKnob::parse(knob)
                .map(|knob| SettingKey::Rdma(device, port, knob))
                .ok_or("an RDMA port has no such setting in the catalog")
        }
        _ => Err("an RDMA device has no such setting in the catalog"),
    }
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
