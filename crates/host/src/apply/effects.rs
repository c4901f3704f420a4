//! The kernel's side effects of writing a setting: which settings to record before a write, and which value found
//! later may be a side effect.
//!
//! Sources: `netdev_fix_features` in net/core/dev.c (segmentation needs checksums and scatter-gather, so they change
//! together); `addrconf_notify` in net/ipv6/addrconf.c (an MTU change sets the IPv6 MTU);
//! `netif_set_real_num_tx_queues` (removed queues lose their XPS maps); drivers free and request the interrupts of
//! queues that they recreate, and one interrupt may serve two queues; an RSS indirection table that was never
//! configured follows the number of queues; `netif_set_gso_max_size` (up to 64 KiB the limit applies to IPv4 too);
//! `tcp_set_default_congestion_control` (the default becomes an allowed one, initial namespace); CPUs that go offline
//! (`cpus.rs`); `inet_forward_change` in net/ipv4/devinet.c and `addrconf_fixup_forwarding` (forwarding is copied to
//! every interface).

use linerate_model::host::QueueKind;
use linerate_model::ids::NicName;
use linerate_model::plan::Change;
use linerate_model::setting::{BlockKnob, MachineKnob, NicKnob, PolicyKnob, SettingKey, Value};

use super::cpus;
use super::files::queues_of_same_irq;
use super::nic_values::is_negotiated;
use super::settings::agrees;
use crate::nic_control::NicRead;
use crate::root::HostRoot;

const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";
const CONGESTION_ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";

/// The settings that writing `key` may change besides `key` itself.
pub fn disturbed_by(root: &HostRoot, nics: &dyn NicRead, key: &SettingKey) -> Vec<SettingKey> {
    let mut disturbed = match key {
        SettingKey::Sysctl(name) => disturbed_by_sysctl(root, name),
        SettingKey::Nic(nic, knob) => match knob {
            NicKnob::Feature(_) | NicKnob::PrivateFlag(_) => features(nics, nic),
            NicKnob::Mtu => {
                let mut keys = features(nics, nic);
                keys.push(ipv6_mtu(nic));
                keys
            }
            NicKnob::ChannelsCombined | NicKnob::ChannelsRx | NicKnob::ChannelsTx => {
                let mut keys = queues(root, nic);
                keys.extend(moderation_of_queues(root, nics, nic));
                keys
            }
            // The kernel reads the coalescing of all queues from the driver (usually that of queue 0) and sets it for
            // all, with the one value changed (`ethnl_set_coalesce`); which values the directions of a queue share,
            // and which delay goes with another adaptive mode, depends on the driver.
            knob if MODERATION.contains(knob) => {
                let all = MODERATION.map(|knob| SettingKey::Nic(nic.clone(), knob));
                let of_queues = moderation_of_queues(root, nics, nic);
                all.into_iter().chain(of_queues).collect()
            }
            NicKnob::QueueAdaptive(_, index)
            | NicKnob::QueueUsecs(_, index)
            | NicKnob::QueueFrames(_, index) => {
                let own = [QueueKind::Rx, QueueKind::Tx].map(|kind| moderation(kind, *index));
                let all = own.into_iter().flatten().chain(MODERATION);
                all.map(|knob| SettingKey::Nic(nic.clone(), knob)).collect()
            }
            // Autonegotiation and forced speed are parts of one request (`ETHTOOL_MSG_LINKMODES_SET`).
            NicKnob::LinkAutoneg => vec![SettingKey::Nic(nic.clone(), NicKnob::LinkSpeed)],
            NicKnob::LinkSpeed => vec![SettingKey::Nic(nic.clone(), NicKnob::LinkAutoneg)],
            // Drivers keep one of the two: global pause or PFC.
            NicKnob::DcbPfc if !is_negotiated(nics, nic) => {
                let knobs = [NicKnob::PauseRx, NicKnob::PauseTx];
                let key = |knob| SettingKey::Nic(nic.clone(), knob);
                knobs.into_iter().map(key).collect()
            }
            // Some have a set of queues for each class, and recreate them.
            NicKnob::DcbEts => queues(root, nic),
            NicKnob::GsoMaxBytes => vec![SettingKey::Nic(nic.clone(), NicKnob::GsoIpv4MaxBytes)],
            NicKnob::GroMaxBytes => vec![SettingKey::Nic(nic.clone(), NicKnob::GroIpv4MaxBytes)],
            // A negotiated result cannot be restored.
            NicKnob::PauseAutoneg | NicKnob::PauseRx | NicKnob::PauseTx
                if !is_negotiated(nics, nic) =>
            {
                let knobs = [NicKnob::PauseRx, NicKnob::PauseTx];
                let key = |knob| SettingKey::Nic(nic.clone(), knob);
                knobs.into_iter().map(key).collect()
            }
            NicKnob::IrqCpus(kind, index) => queues_of_same_irq(root, nics, nic, *kind, *index)
                .into_iter()
                .map(|(kind, index)| SettingKey::Nic(nic.clone(), NicKnob::IrqCpus(kind, index)))
                .collect(),
            _ => Vec::new(),
        },
        SettingKey::Machine(MachineKnob::Smt) => cpus::disturbed_by_smt(root, nics),
        SettingKey::Online(cpu) => cpus::disturbed_by_offline(root, nics, *cpu),
        // In active mode the governor performance sets the energy preference performance (intel_pstate.rst).
        SettingKey::Policy(number, PolicyKnob::Governor) => {
            vec![SettingKey::Policy(*number, PolicyKnob::EnergyPreference)]
        }
        // `elevator_switch`, block/elevator.c.
        SettingKey::Block(device, BlockKnob::Scheduler) => {
            vec![SettingKey::Block(device.clone(), BlockKnob::NrRequests)]
        }
        SettingKey::Trial(_)
        | SettingKey::ResumeLatency(_)
        | SettingKey::IrqCpus(_)
        | SettingKey::Policy(_, PolicyKnob::EnergyPreference)
        | SettingKey::Machine(_)
        | SettingKey::Block(..)
        | SettingKey::RdmaDefaults(_)
        | SettingKey::Rdma(..) => Vec::new(),
    };
    disturbed.retain(|other| other != key);
    disturbed
}

fn features(nics: &dyn NicRead, nic: &NicName) -> Vec<SettingKey> {
    let all = nics.features(nic);
    all.value().map_or_else(Vec::new, |all| {
        // A fixed feature cannot be written back, so it is not recorded.
        all.iter()
            .filter(|(_, feature)| feature.changeable)
            .map(|(name, _)| SettingKey::Nic(nic.clone(), NicKnob::Feature(name.clone())))
            .collect()
    })
}

fn queues(root: &HostRoot, nic: &NicName) -> Vec<SettingKey> {
    let names = root.list(&format!("sys/class/net/{nic}/queues"));
    let mut knobs = vec![
        NicKnob::ChannelsCombined,
        NicKnob::ChannelsRx,
        NicKnob::ChannelsTx,
    ];
    for name in names.value().into_iter().flatten() {
        let Some((kind, index)) = name.split_once('-') else {
            continue;
        };
        match (kind, index.parse()) {
            ("rx", Ok(index)) => {
                knobs.extend([
                    NicKnob::RpsCpus(index),
                    NicKnob::RpsFlowCnt(index),
                    NicKnob::IrqCpus(QueueKind::Rx, index),
                ]);
            }
            ("tx", Ok(index)) => knobs.extend([
                NicKnob::XpsCpus(index),
                NicKnob::XpsRxqs(index),
                NicKnob::IrqCpus(QueueKind::Tx, index),
            ]),
            _ => {}
        }
    }
    knobs.extend(MODERATION);
    knobs.extend([NicKnob::RssKey, NicKnob::RssTable, NicKnob::Qdisc]);
    let key = |knob| SettingKey::Nic(nic.clone(), knob);
    knobs.into_iter().map(key).collect()
}

/// The interrupt coalescing of all queues; the adaptive modes come first, as some drivers set the others with them.
const MODERATION: [NicKnob; 6] = [
    NicKnob::CoalesceAdaptiveRx,
    NicKnob::CoalesceAdaptiveTx,
    NicKnob::CoalesceRxUsecs,
    NicKnob::CoalesceTxUsecs,
    NicKnob::CoalesceRxFrames,
    NicKnob::CoalesceTxFrames,
];

/// The interrupt coalescing of one queue.
fn moderation(kind: QueueKind, index: u32) -> [NicKnob; 3] {
    [
        NicKnob::QueueAdaptive(kind, index),
        NicKnob::QueueUsecs(kind, index),
        NicKnob::QueueFrames(kind, index),
    ]
}

/// The same for all single queues, on the few NICs that have it.
fn moderation_of_queues(root: &HostRoot, nics: &dyn NicRead, nic: &NicName) -> Vec<SettingKey> {
    if nics.queue_coalesce(nic, 0).value().is_none() {
        return Vec::new();
    }
    let names = root.list(&format!("sys/class/net/{nic}/queues"));
    let names = names.value().into_iter().flatten();
    let of_queue = |name: &String| {
        let (kind, index) = name.split_once('-')?;
        let kind = match kind {
            "rx" => QueueKind::Rx,
            "tx" => QueueKind::Tx,
            _ => return None,
        };
        Some(moderation(kind, index.parse().ok()?))
    };
    let knobs = names.filter_map(of_queue).flatten();
    knobs
        .map(|knob| SettingKey::Nic(nic.clone(), knob))
        .collect()
}

fn ipv6_mtu(nic: &NicName) -> SettingKey {
    SettingKey::Sysctl(format!("net.ipv6.conf.{nic}.mtu"))
}

fn is_forwarding(name: &str) -> bool {
    name == "net.ipv4.ip_forward" || (name.starts_with("net.ipv") && name.ends_with(".forwarding"))
}

fn disturbed_by_sysctl(root: &HostRoot, name: &str) -> Vec<SettingKey> {
    if name == CONGESTION_CONTROL {
        return vec![SettingKey::Sysctl(CONGESTION_ALLOWED.to_owned())];
    }
    if !is_forwarding(name) {
        return Vec::new();
    }
    let family = if name.starts_with("net.ipv6.") {
        "ipv6"
    } else {
        "ipv4"
    };
    let nics = root.list(&format!("proc/sys/net/{family}/conf"));
    let sysctl = |nic: &String, leaf| SettingKey::Sysctl(format!("net.{family}.conf.{nic}.{leaf}"));
    let mut keys: Vec<SettingKey> = nics
        .value()
        .into_iter()
        .flatten()
        .flat_map(|nic| [sysctl(nic, "forwarding"), sysctl(nic, "accept_redirects")])
        .collect();
    if family == "ipv4" {
        keys.push(SettingKey::Sysctl("net.ipv4.ip_forward".to_owned()));
    }
    keys
}

/// Whether `found` in `key` may be a side effect of writing `change`. Used only for the interval between a write and
/// its record, when a crash left no reading of the result; a value that it does not expect was set by another
/// process.
pub(super) fn could_be_effect(change: &Change, key: &SettingKey, found: &Value) -> bool {
    match (&change.setting, key) {
        (SettingKey::Nic(nic, knob), SettingKey::Nic(other_nic, other)) if nic == other_nic => {
            match (knob, other) {
                // Features are turned off with their dependencies, and on again with them; one interrupt serves two
                // queues.
                // One queue's value is reported for the whole NIC, and both directions of a queue may be one.
                (NicKnob::Feature(_), NicKnob::Feature(_))
                | (NicKnob::IrqCpus(..), NicKnob::IrqCpus(..))
                | (
                    NicKnob::QueueUsecs(..),
                    NicKnob::QueueUsecs(..) | NicKnob::CoalesceRxUsecs | NicKnob::CoalesceTxUsecs,
                )
                | (
                    NicKnob::QueueFrames(..),
                    NicKnob::QueueFrames(..)
                    | NicKnob::CoalesceRxFrames
                    | NicKnob::CoalesceTxFrames,
                ) => *found == change.to,
                // A large MTU makes drivers turn off LRO; a small one turns it on again.
                (NicKnob::Mtu, NicKnob::Feature(_)) => matches!(found, Value::Switch(_)),
                // Recreated queues have no maps, and the kernel's default table and qdisc. Their interrupts are freed
                // and requested again; the kernel then chooses their affinity, and the driver their coalescing.
                (knob, other) if makes_queues_anew(knob) => match (other, found) {
                    (
                        NicKnob::RpsCpus(_) | NicKnob::XpsCpus(_) | NicKnob::XpsRxqs(_),
                        Value::Text(cpus),
                    ) => cpus.is_empty(),
                    (NicKnob::RpsFlowCnt(_), Value::Integer(entries)) => *entries == 0,
                    (NicKnob::RssTable, Value::Text(table)) => table.starts_with("equal "),
                    (NicKnob::Qdisc, Value::Qdisc(root)) => root.handle == 0,
                    (NicKnob::IrqCpus(..), _) => true,
                    (other, _) => is_moderation(other),
                },
                // Each queue gets the values of queue 0, and some drivers choose the delay that goes with an adaptive
                // mode. Global pause changes with PFC. A port without autonegotiation reports its actual speed once
                // it has one.
                (knob, other) if MODERATION.contains(knob) => is_moderation(other),
                (NicKnob::QueueAdaptive(..), other) => is_moderation(other),
                (NicKnob::DcbPfc, NicKnob::PauseRx | NicKnob::PauseTx)
                | (NicKnob::LinkAutoneg, NicKnob::LinkSpeed)
                | (NicKnob::LinkSpeed, NicKnob::LinkAutoneg) => true,
                _ => false,
            }
        }
        (SettingKey::Nic(nic, NicKnob::Mtu), SettingKey::Sysctl(_)) => {
            *key == ipv6_mtu(nic) && *found == Value::Text(change.to.to_string())
        }
        (SettingKey::Sysctl(name), SettingKey::Sysctl(other)) if name == CONGESTION_CONTROL => {
            let default = change.to.to_string();
            other == CONGESTION_ALLOWED
                && matches!(found, Value::Text(all) if all.split(' ').any(|one| one == default))
        }
        (SettingKey::Sysctl(name), SettingKey::Sysctl(other)) if is_forwarding(name) => {
            // Redirects are accepted by hosts and not by routers.
            if other.ends_with(".accept_redirects") {
                *found != change.to
            } else {
                is_forwarding(other) && *found == change.to
            }
        }
        // Interrupts move off CPUs that go offline; the kernel chooses where. SMT siblings go offline and online with
        // SMT, and cpufreq policies with their last CPU.
        (SettingKey::Online(_), other) => {
            is_interrupts(other) || matches!(other, SettingKey::Policy(..))
        }
        (SettingKey::Machine(MachineKnob::Smt), other) => {
            is_interrupts(other) || matches!(other, SettingKey::Policy(..) | SettingKey::Online(_))
        }
        _ => false,
    }
}

/// Whether `found` in `key` is not a loss but the result of `later`: a NIC reports one queue's value for all queues.
pub(super) fn is_asked_of_one_queue(key: &SettingKey, found: &Value, later: &Change) -> bool {
    let (SettingKey::Nic(nic, of_all), SettingKey::Nic(other, of_one)) = (key, &later.setting)
    else {
        return false;
    };
    let is_of_all = match of_one {
        NicKnob::QueueUsecs(QueueKind::Rx, _) => NicKnob::CoalesceRxUsecs,
        NicKnob::QueueUsecs(QueueKind::Tx, _) => NicKnob::CoalesceTxUsecs,
        NicKnob::QueueFrames(QueueKind::Rx, _) => NicKnob::CoalesceRxFrames,
        NicKnob::QueueFrames(QueueKind::Tx, _) => NicKnob::CoalesceTxFrames,
        NicKnob::QueueAdaptive(QueueKind::Rx, _) => NicKnob::CoalesceAdaptiveRx,
        NicKnob::QueueAdaptive(QueueKind::Tx, _) => NicKnob::CoalesceAdaptiveTx,
        _ => return false,
    };
    nic == other && *of_all == is_of_all && agrees(&later.setting, &later.to, found)
}

/// Whether some drivers recreate a NIC's queues when it is written.
fn makes_queues_anew(knob: &NicKnob) -> bool {
    matches!(
        knob,
        NicKnob::ChannelsCombined | NicKnob::ChannelsRx | NicKnob::ChannelsTx | NicKnob::DcbEts
    )
}

fn is_moderation(knob: &NicKnob) -> bool {
    let of_queue = matches!(
        knob,
        NicKnob::QueueAdaptive(..) | NicKnob::QueueUsecs(..) | NicKnob::QueueFrames(..)
    );
    of_queue || MODERATION.contains(knob)
}

fn is_interrupts(key: &SettingKey) -> bool {
    matches!(
        key,
        SettingKey::IrqCpus(_) | SettingKey::Nic(_, NicKnob::IrqCpus(..))
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use linerate_model::host::{Channels, Coalesce, Feature, NicKind, Qdisc, QueueCoalesce, Rings};
    use linerate_model::known::Known;

    use super::*;
    use crate::apply::fake::NoNics;

    #[test]
    fn cutting_queues_may_empty_the_maps_of_queues_and_nothing_else() {
        let cut = Change {
            setting: "nic/eth0/channels/combined".parse().expect("a key"),
            from: Value::Integer(4),
            to: Value::Integer(1),
        };
        let xps: SettingKey = "nic/eth0/queue/tx-0/xps-cpus".parse().expect("a key");
        assert!(could_be_effect(&cut, &xps, &Value::Text(String::new())));
        assert!(!could_be_effect(&cut, &xps, &Value::Text("3".to_owned())));
        let on_card = |knob: &str, found: &str| {
            let key: SettingKey = format!("nic/eth0/{knob}").parse().expect("a key");
            let found = key.parse_value(found).expect("a value");
            could_be_effect(&cut, &key, &found)
        };
        assert!(on_card("coalesce/rx-frames", "32"));
        assert!(on_card("rss/table", "equal 1"));
        assert!(!on_card("rss/table", "0x3 1"));
        assert!(on_card("qdisc", "fq_codel"));
        assert!(!on_card("ring/rx", "256"));
        assert!(!on_card("feature/tso", "off"));
        let elsewhere: SettingKey = "nic/eth1/queue/tx-0/xps-cpus".parse().expect("a key");
        assert!(!could_be_effect(
            &cut,
            &elsewhere,
            &Value::Text(String::new())
        ));
    }

    fn could_be(setting: &str, to: Value, other: &str, found: &Value) -> bool {
        let change = Change {
            setting: setting.parse().expect("a key"),
            from: Value::Text("whatever it was".to_owned()),
            to,
        };
        could_be_effect(&change, &other.parse().expect("a key"), found)
    }

    #[test]
    fn a_cpu_that_goes_may_move_interrupts_and_change_no_interface() {
        let text = |text: &str| Value::Text(text.to_owned());
        let moved =
            |other, found: Value| could_be("cpu/cpu2/online", Value::Switch(false), other, &found);
        assert!(moved("irq/7/cpus", text("0-1")));
        assert!(moved("nic/eth0/queue/rx-0/irq-cpus", text("0-1")));
        assert!(moved("cpu/policy2/governor", text("schedutil")));
        assert!(!moved("nic/eth0/queue/rx-0/rps-cpus", text("0-1")));
        assert!(!moved("cpu/cpu3/online", Value::Switch(false)));
        let went = Value::Switch(false);
        assert!(could_be("cpu/smt", text("off"), "cpu/cpu3/online", &went));
    }

    /// A NIC with per-queue coalescing.
    struct Moderated;

    impl NicRead for Moderated {
        fn kind(&self, nic: &NicName) -> Known<NicKind> {
            NoNics.kind(nic)
        }
        fn addresses(&self, nic: &NicName) -> Known<Vec<String>> {
            NoNics.addresses(nic)
        }
        fn features(&self, nic: &NicName) -> Known<BTreeMap<String, Feature>> {
            NoNics.features(nic)
        }
        fn rings(&self, nic: &NicName) -> Known<Rings> {
            NoNics.rings(nic)
        }
        fn channels(&self, nic: &NicName) -> Known<Channels> {
            NoNics.channels(nic)
        }
        fn coalesce(&self, nic: &NicName) -> Known<Coalesce> {
            NoNics.coalesce(nic)
        }
        fn qdisc(&self, nic: &NicName) -> Known<Qdisc> {
            NoNics.qdisc(nic)
        }
        fn queue_coalesce(&self, _: &NicName, queue: u32) -> Known<QueueCoalesce> {
            Known::Value(QueueCoalesce {
                queue,
                rx_usecs: Known::Value(8),
                tx_usecs: Known::Value(16),
                adaptive_rx: Known::Value(false),
                adaptive_tx: Known::Value(false),
                rx_frames: Known::Value(32),
                tx_frames: Known::Value(64),
            })
        }
    }

    #[test]
    fn a_delay_for_all_disturbs_those_of_single_queues_where_there_are_any() {
        let folder = tempfile::tempdir().expect("a folder");
        for queue in ["rx-0", "rx-1", "tx-0"] {
            let path = folder.path().join("sys/class/net/eth0/queues").join(queue);
            std::fs::create_dir_all(path).expect("a folder");
        }
        let root = HostRoot::open(folder.path()).expect("the folder that was just made");
        let disturbed = |nics: &dyn NicRead, name: &str| -> Vec<String> {
            let keys = disturbed_by(&root, nics, &name.parse().expect("a key"));
            keys.iter().map(ToString::to_string).collect()
        };
        let all = "nic/eth0/coalesce/rx-usecs";
        let of_all = [
            "nic/eth0/coalesce/adaptive-rx",
            "nic/eth0/coalesce/adaptive-tx",
            "nic/eth0/coalesce/tx-usecs",
            "nic/eth0/coalesce/rx-frames",
            "nic/eth0/coalesce/tx-frames",
        ];
        let of_queues = [
            "nic/eth0/queue/rx-0/adaptive-rx",
            "nic/eth0/queue/rx-0/rx-usecs",
            "nic/eth0/queue/rx-0/rx-frames",
            "nic/eth0/queue/rx-1/adaptive-rx",
            "nic/eth0/queue/rx-1/rx-usecs",
            "nic/eth0/queue/rx-1/rx-frames",
            "nic/eth0/queue/tx-0/adaptive-tx",
            "nic/eth0/queue/tx-0/tx-usecs",
            "nic/eth0/queue/tx-0/tx-frames",
        ];
        let of_either = of_all.iter().chain(&of_queues);
        assert!(disturbed(&Moderated, all).iter().eq(of_either));
        assert_eq!(disturbed(&NoNics, all), of_all);
        let of_one = disturbed(&Moderated, of_queues[1]);
        for other in [of_queues[0], of_queues[2], of_queues[7], all, of_all[4]] {
            assert!(of_one.iter().any(|one| one == other), "{other}: {of_one:?}");
        }
        assert!(!of_one.iter().any(|one| one == of_queues[4]), "{of_one:?}");
        let found = Value::Integer(64);
        assert!(could_be(all, found.clone(), of_queues[4], &found));
        let frames = of_queues[2];
        assert!(could_be(frames, found.clone(), of_all[3], &found));
        assert!(!could_be(frames, Value::Integer(32), of_all[3], &found));
        let adapted = Value::Switch(true);
        assert!(could_be(of_queues[0], adapted, of_queues[1], &found));
    }

    #[test]
    fn forwarding_disturbs_every_interface_of_its_family() {
        let folder = tempfile::tempdir().expect("a folder");
        for nic in ["all", "eth0"] {
            std::fs::create_dir_all(folder.path().join("proc/sys/net/ipv4/conf").join(nic))
                .expect("a folder");
        }
        let root = HostRoot::open(folder.path()).expect("the folder that was just made");
        let key: SettingKey = "sysctl/net.ipv4.ip_forward".parse().expect("a key");
        let disturbed: Vec<String> = disturbed_by(&root, &NoNics, &key)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            disturbed,
            [
                "sysctl/net.ipv4.conf.all.forwarding",
                "sysctl/net.ipv4.conf.all.accept_redirects",
                "sysctl/net.ipv4.conf.eth0.forwarding",
                "sysctl/net.ipv4.conf.eth0.accept_redirects",
            ]
        );
    }
}
