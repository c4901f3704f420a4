//! Settings: the knobs of a host, in one catalogue. Rules read settings, transactions write them,
//! experiments vary them; a key, a typed value, a domain, a reversibility class and a scope serve all.

mod catalogue;
mod of_host;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use catalogue::{CATALOGUE, Class, Domain, Scope, SettingSpec};
pub use of_host::{current, put};

use crate::host::{Qdisc, QueueKind};
use crate::ids::NicName;

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
