//! The settings of a network interface, by their paths.

use std::fmt;

use super::{is_device, knob_of, path_of};
use crate::host::QueueKind;

/// A knob of a network interface, in the order in which a plan changes them: knobs that recreate others come first,
/// private flags and queue counts before the settings of queues, settings of all queues before those of a single
/// queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NicKnob {
    /// `private-flag/NAME`, by the driver's own name.
    PrivateFlag(String),
    /// `mtu`, bytes.
    Mtu,
    /// `feature/NAME`, by the kernel's own name.
    Feature(String),
    /// `link/autoneg`.
    LinkAutoneg,
    /// `link/speed`: the advertised modes, or the forced speed.
    LinkSpeed,
    /// `channels/combined`.
    ChannelsCombined,
    /// `channels/rx`.
    ChannelsRx,
    /// `channels/tx`.
    ChannelsTx,
    /// `ring/rx`, descriptors.
    RingRx,
    /// `ring/tx`, descriptors.
    RingTx,
    /// `ring/tcp-data-split`.
    TcpDataSplit,
    /// `dcb/pfc`: the priorities with PFC.
    DcbPfc,
    /// `dcb/ets`: the traffic class of each priority, the shares, and the selection algorithms.
    DcbEts,
    /// `dcb/maxrate`: the rate limit of each class.
    DcbMaxRate,
    /// `dcb/app`: the application priority table.
    DcbApp,
    /// `coalesce/adaptive-rx`.
    CoalesceAdaptiveRx,
    /// `coalesce/adaptive-tx`.
    CoalesceAdaptiveTx,
    /// `coalesce/rx-usecs`.
    CoalesceRxUsecs,
    /// `coalesce/tx-usecs`.
    CoalesceTxUsecs,
    /// `coalesce/rx-frames`.
    CoalesceRxFrames,
    /// `coalesce/tx-frames`.
    CoalesceTxFrames,
    /// `rss/key`: the RSS hash key.
    RssKey,
    /// `rss/table`: `equal N`, or a queue for each entry.
    RssTable,
    /// `rss/fields/KIND` as `ethtool -N DEV rx-flow-hash` names them.
    RssFields(String),
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
    /// `queue/rx-N/adaptive-rx` and `queue/tx-N/adaptive-tx`.
    QueueAdaptive(QueueKind, u32),
    /// `queue/rx-N/rx-usecs` and `queue/tx-N/tx-usecs`.
    QueueUsecs(QueueKind, u32),
    /// `queue/rx-N/rx-frames` and `queue/tx-N/tx-frames`.
    QueueFrames(QueueKind, u32),
    /// `qdisc`, the root qdisc.
    Qdisc,
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
    /// `gso-max-bytes`.
    GsoMaxBytes,
    /// `gso-ipv4-max-bytes`.
    GsoIpv4MaxBytes,
    /// `gro-max-bytes`.
    GroMaxBytes,
    /// `gro-ipv4-max-bytes`.
    GroIpv4MaxBytes,
    /// `vlan/egress`: `PRIORITY:PCP`, by socket priorities.
    VlanEgress,
    /// `bond/hash-policy`.
    BondHashPolicy,
    /// `ipoib/mode`.
    IpoibMode,
    /// `pci/STATE`, an ASPM state of its link: `l1-aspm` ...
    Aspm(String),
}

/// The knobs of an interface without a parameter in their path.
const NIC_PATHS: &[(&str, NicKnob)] = &[
    ("mtu", NicKnob::Mtu),
    ("qdisc", NicKnob::Qdisc),
    ("coalesce/rx-usecs", NicKnob::CoalesceRxUsecs),
    ("coalesce/tx-usecs", NicKnob::CoalesceTxUsecs),
    ("coalesce/adaptive-rx", NicKnob::CoalesceAdaptiveRx),
    ("coalesce/adaptive-tx", NicKnob::CoalesceAdaptiveTx),
    ("coalesce/rx-frames", NicKnob::CoalesceRxFrames),
    ("coalesce/tx-frames", NicKnob::CoalesceTxFrames),
    ("ring/rx", NicKnob::RingRx),
    ("ring/tx", NicKnob::RingTx),
    ("ring/tcp-data-split", NicKnob::TcpDataSplit),
    ("channels/combined", NicKnob::ChannelsCombined),
    ("channels/rx", NicKnob::ChannelsRx),
    ("channels/tx", NicKnob::ChannelsTx),
    ("napi/gro-flush-timeout-ns", NicKnob::GroFlushTimeoutNs),
    ("napi/defer-hard-irqs", NicKnob::DeferHardIrqs),
    ("napi/threaded", NicKnob::Threaded),
    ("link/autoneg", NicKnob::LinkAutoneg),
    ("link/speed", NicKnob::LinkSpeed),
    ("pause/autoneg", NicKnob::PauseAutoneg),
    ("pause/rx", NicKnob::PauseRx),
    ("pause/tx", NicKnob::PauseTx),
    ("eee", NicKnob::Eee),
    ("fec", NicKnob::Fec),
    ("rss/key", NicKnob::RssKey),
    ("rss/table", NicKnob::RssTable),
    ("gso-max-bytes", NicKnob::GsoMaxBytes),
    ("gso-ipv4-max-bytes", NicKnob::GsoIpv4MaxBytes),
    ("gro-max-bytes", NicKnob::GroMaxBytes),
    ("gro-ipv4-max-bytes", NicKnob::GroIpv4MaxBytes),
    ("vlan/egress", NicKnob::VlanEgress),
    ("dcb/pfc", NicKnob::DcbPfc),
    ("dcb/ets", NicKnob::DcbEts),
    ("dcb/maxrate", NicKnob::DcbMaxRate),
    ("dcb/app", NicKnob::DcbApp),
    ("bond/hash-policy", NicKnob::BondHashPolicy),
    ("ipoib/mode", NicKnob::IpoibMode),
];

/// The short names of features, as in ethtool(8), and the kernel features they stand for.
const FEATURE_ALIASES: [(&str, &str); 5] = [
    ("tso", "tx-tcp-segmentation"),
    ("gso", "tx-generic-segmentation"),
    ("gro", "rx-gro"),
    ("lro", "rx-lro"),
    ("ntuple", "rx-ntuple-filter"),
];

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
            Self::QueueUsecs(QueueKind::Rx, index) => write!(f, "queue/rx-{index}/rx-usecs"),
            Self::QueueUsecs(QueueKind::Tx, index) => write!(f, "queue/tx-{index}/tx-usecs"),
            Self::QueueFrames(QueueKind::Rx, index) => write!(f, "queue/rx-{index}/rx-frames"),
            Self::QueueFrames(QueueKind::Tx, index) => write!(f, "queue/tx-{index}/tx-frames"),
            Self::QueueAdaptive(QueueKind::Rx, index) => write!(f, "queue/rx-{index}/adaptive-rx"),
            Self::QueueAdaptive(QueueKind::Tx, index) => write!(f, "queue/tx-{index}/adaptive-tx"),
            plain => f.write_str(path_of(NIC_PATHS, plain).unwrap_or_default()),
        }
    }
}

/// The knob of a key without its interface.
pub(super) fn parse_nic_knob(parts: &[&str]) -> Option<NicKnob> {
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
                (QueueKind::Rx, "rx-usecs") | (QueueKind::Tx, "tx-usecs") => {
                    NicKnob::QueueUsecs(kind, index)
                }
                (QueueKind::Rx, "rx-frames") | (QueueKind::Tx, "tx-frames") => {
                    NicKnob::QueueFrames(kind, index)
                }
                (QueueKind::Rx, "adaptive-rx") | (QueueKind::Tx, "adaptive-tx") => {
                    NicKnob::QueueAdaptive(kind, index)
                }
                (QueueKind::Tx, "xps-cpus") => NicKnob::XpsCpus(index),
                (QueueKind::Tx, "xps-rxqs") => NicKnob::XpsRxqs(index),
                _ => return None,
            }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_for_all_queues_is_set_before_what_is_set_for_one() {
        let one = NicKnob::QueueUsecs(QueueKind::Rx, 0);
        for all in [
            NicKnob::CoalesceRxUsecs,
            NicKnob::CoalesceTxUsecs,
            NicKnob::CoalesceAdaptiveRx,
            NicKnob::CoalesceAdaptiveTx,
            NicKnob::CoalesceRxFrames,
            NicKnob::ChannelsCombined,
        ] {
            assert!(all < one, "{all}");
        }
    }

    #[test]
    fn what_makes_others_anew_is_set_before_them() {
        for (first, second) in [
            (NicKnob::ChannelsCombined, NicKnob::CoalesceRxUsecs),
            (NicKnob::ChannelsCombined, NicKnob::RssTable),
            (NicKnob::ChannelsCombined, NicKnob::XpsCpus(0)),
            (NicKnob::ChannelsCombined, NicKnob::Qdisc),
            (NicKnob::DcbEts, NicKnob::IrqCpus(QueueKind::Rx, 0)),
            (NicKnob::DcbPfc, NicKnob::PauseRx),
            (
                NicKnob::PrivateFlag("a".to_owned()),
                NicKnob::Feature("b".to_owned()),
            ),
            (NicKnob::Mtu, NicKnob::Feature("b".to_owned())),
            (NicKnob::GsoMaxBytes, NicKnob::GsoIpv4MaxBytes),
        ] {
            assert!(first < second, "{first} {second}");
        }
    }
}
