//! The kernel's side effects of writing a setting: which settings to record before a write, and which value found
//! later may be a side effect. The row of a setting says which kind of side effects it has (`Effects`).
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
use linerate_model::setting::{CpuKnob, Effects, MachineKnob, NicKnob, SettingKey, Value};

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
    let mut disturbed = match (key, key.spec().effects) {
        (_, Effects::Nothing) => Vec::new(),
        (_, Effects::Siblings(patterns)) => {
            let others = patterns.iter().filter_map(|pattern| key.sibling(pattern));
            others.collect()
        }
        (SettingKey::Sysctl(name), _) => disturbed_by_sysctl(root, name),
        (SettingKey::Nic(nic, knob), _) => disturbed_by_nic(root, nics, nic, knob),
        (SettingKey::Cpu(cpu, _), Effects::Offline) => cpus::disturbed_by_offline(root, nics, *cpu),
        (_, Effects::Smt) => cpus::disturbed_by_smt(root, nics),
        _ => Vec::new(),
    };
    disturbed.retain(|other| other != key);
    disturbed
}

fn disturbed_by_nic(
    root: &HostRoot,
    nics: &dyn NicRead,
    nic: &NicName,
    knob: &NicKnob,
) -> Vec<SettingKey> {
    let effects = knob.spec().effects;
    let mut knobs = match effects {
        Effects::Features | Effects::Mtu => features(nics, nic),
        // Some have a set of queues for each class, and recreate them.
        Effects::Queues | Effects::Channels => recreated(root, nic),
        // The kernel reads the coalescing of all queues from the driver (usually that of queue 0) and sets it for all,
        // with the one value changed (`ethnl_set_coalesce`); which values the directions of a queue share, and which
        // delay goes with another adaptive mode, depends on the driver.
        Effects::Coalescing => COALESCING.to_vec(),
        Effects::QueueCoalescing => {
            let index = knob.queue().map_or(0, |(_, index)| index);
            let own = [QueueKind::Rx, QueueKind::Tx].map(|kind| coalescing(kind, index));
            own.into_iter().flatten().chain(COALESCING).collect()
        }
        // Drivers keep one of the two: global pause or PFC. A negotiated result cannot be restored.
        Effects::Pause if !is_negotiated(nics, nic) => vec![NicKnob::PauseRx, NicKnob::PauseTx],
        Effects::Interrupt => {
            let shared = knob
                .queue()
                .map(|(kind, index)| queues_of_same_irq(root, nics, nic, kind, index));
            let shared = shared.into_iter().flatten();
            shared
                .map(|(kind, index)| NicKnob::IrqCpus(kind, index))
                .collect()
        }
        _ => Vec::new(),
    };
    if matches!(effects, Effects::Channels | Effects::Coalescing) {
        knobs.extend(coalescing_of_queues(root, nics, nic));
    }
    if effects == Effects::Device {
        knobs.extend([
            NicKnob::Mtu,
            NicKnob::Up,
            NicKnob::Addresses,
            NicKnob::VlanEgress,
            NicKnob::Qdisc,
            NicKnob::ClassRules,
        ]);
    }
    let knobs = knobs.into_iter();
    let mut keys: Vec<SettingKey> = knobs
        .map(|knob| SettingKey::Nic(nic.clone(), knob))
        .collect();
    if effects == Effects::Mtu {
        keys.push(ipv6_mtu(nic));
    }
    if effects == Effects::Device {
        keys.extend(sysctls(root, nic));
    }
    keys
}

/// The sysctls of an interface; none before it exists. Those that are restored with its addresses and MTU are left out.
fn sysctls(root: &HostRoot, nic: &NicName) -> Vec<SettingKey> {
    let folders = ["ipv4/conf", "ipv6/conf", "ipv4/neigh", "ipv6/neigh"];
    let of = |folder: &str| {
        let listed = root.list(&format!("proc/sys/net/{folder}/{nic}"));
        let names = listed.value().cloned().unwrap_or_default().into_iter();
        let prefix = format!("net.{}.{nic}", folder.replace('/', "."));
        names.map(move |name| SettingKey::Sysctl(format!("{prefix}.{name}")))
    };
    folders.into_iter().flat_map(of).collect()
}

fn features(nics: &dyn NicRead, nic: &NicName) -> Vec<NicKnob> {
    let all = nics.features(nic);
    all.value().map_or_else(Vec::new, |all| {
        // A fixed feature cannot be written back, so it is not recorded.
        all.iter()
            .filter(|(_, feature)| feature.changeable)
            .map(|(name, _)| NicKnob::Feature(name.clone()))
            .collect()
    })
}

/// Its queues.
fn queues(root: &HostRoot, nic: &NicName) -> Vec<(QueueKind, u32)> {
    let names = root.list(&format!("sys/class/net/{nic}/queues"));
    let names = names.value().into_iter().flatten();
    let queue = |name: &String| {
        let (kind, index) = name.split_once('-')?;
        let kind = match kind {
            "rx" => QueueKind::Rx,
            "tx" => QueueKind::Tx,
            _ => return None,
        };
        Some((kind, index.parse().ok()?))
    };
    names.filter_map(queue).collect()
}

/// What changes when the queues are recreated.
fn recreated(root: &HostRoot, nic: &NicName) -> Vec<NicKnob> {
    let mut knobs = vec![
        NicKnob::ChannelsCombined,
        NicKnob::ChannelsRx,
        NicKnob::ChannelsTx,
    ];
    let queues = queues(root, nic).into_iter();
    let of_queues = queues.flat_map(|(kind, index)| NicKnob::of_queue(kind, index));
    knobs.extend(
        of_queues.filter(|knob| knob.is_file_of_queue() || matches!(knob, NicKnob::IrqCpus(..))),
    );
    knobs.extend(COALESCING);
    knobs.extend([NicKnob::RssKey, NicKnob::RssTable, NicKnob::Qdisc]);
    knobs
}

/// The interrupt coalescing of all queues; the adaptive modes come first, as some drivers set the others with them.
const COALESCING: [NicKnob; 6] = [
    NicKnob::CoalesceAdaptiveRx,
    NicKnob::CoalesceAdaptiveTx,
    NicKnob::CoalesceRxUsecs,
    NicKnob::CoalesceTxUsecs,
    NicKnob::CoalesceRxFrames,
    NicKnob::CoalesceTxFrames,
];

/// The interrupt coalescing of one queue.
fn coalescing(kind: QueueKind, index: u32) -> impl Iterator<Item = NicKnob> {
    let knobs = NicKnob::of_queue(kind, index).into_iter();
    knobs.filter(|knob| knob.spec().effects == Effects::QueueCoalescing)
}

/// The interrupt coalescing of each queue, if the driver has it.
fn coalescing_of_queues(root: &HostRoot, nics: &dyn NicRead, nic: &NicName) -> Vec<NicKnob> {
    if nics.queue_coalesce(nic, 0).value().is_none() {
        return Vec::new();
    }
    let queues = queues(root, nic).into_iter();
    queues
        .flat_map(|(kind, index)| coalescing(kind, index))
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
                (NicKnob::Feature(_), NicKnob::Feature(_))
                | (NicKnob::IrqCpus(..), NicKnob::IrqCpus(..)) => *found == change.to,
                // One queue's value is reported for the whole NIC, and both directions of a queue may be one.
                (NicKnob::QueueRxUsecs(_) | NicKnob::QueueTxUsecs(_), other) if is_usecs(other) => {
                    *found == change.to
                }
                (NicKnob::QueueRxFrames(_) | NicKnob::QueueTxFrames(_), other)
                    if is_frames(other) =>
                {
                    *found == change.to
                }
                // A large MTU makes drivers turn off LRO; a small one turns it on again.
                (NicKnob::Mtu, NicKnob::Feature(_)) => matches!(found, Value::Switch(_)),
                // Recreated queues have no maps, and the kernel's default table and qdisc. Their interrupts are freed
                // and requested again; the kernel then chooses their affinity, and the driver their coalescing.
                (knob, other) if makes_queues_anew(knob) => match (other, found) {
                    (other, Value::Text(set)) if other.is_file_of_queue() => set.is_empty(),
                    (other, Value::Integer(count)) if other.is_file_of_queue() => *count == 0,
                    (NicKnob::RssTable, Value::Text(table)) => table.starts_with("equal "),
                    (NicKnob::Qdisc, Value::Qdisc(root)) => root.handle == 0,
                    (NicKnob::IrqCpus(..), _) => true,
                    (other, _) => is_coalescing(other),
                },
                // Each queue gets the values of queue 0, and some drivers choose the delay that goes with an adaptive
                // mode. Global pause changes with PFC. A port without autonegotiation reports its actual speed once
                // it has one.
                (knob, other) if COALESCING.contains(knob) => is_coalescing(other),
                (NicKnob::QueueAdaptiveRx(_) | NicKnob::QueueAdaptiveTx(_), other) => {
                    is_coalescing(other)
                }
                // A device that was made, or went: its settings have the kernel's defaults.
                (NicKnob::VlanLink, NicKnob::Qdisc) => {
                    matches!(found, Value::Qdisc(root) if root.handle == 0)
                }
                (NicKnob::VlanLink, other) if *other != NicKnob::Mtu => {
                    other.when_made().is_some_and(|made| made == *found)
                }
                // The kernel removes IPv6 addresses from an interface that goes down.
                (NicKnob::Up, NicKnob::Addresses) => matches!(found, Value::Text(_)),
                (NicKnob::DcbPfc, NicKnob::PauseRx | NicKnob::PauseTx)
                | (NicKnob::LinkAutoneg, NicKnob::LinkSpeed)
                | (NicKnob::LinkSpeed, NicKnob::LinkAutoneg)
                | (NicKnob::VlanLink, NicKnob::Mtu) => true,
                _ => false,
            }
        }
        (SettingKey::Nic(nic, NicKnob::Mtu), SettingKey::Sysctl(_)) => {
            *key == ipv6_mtu(nic) && *found == Value::Text(change.to.to_string())
        }
        (SettingKey::Nic(nic, NicKnob::VlanLink), SettingKey::Sysctl(_)) => {
            key.interface() == Some(nic.as_str())
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
        (SettingKey::Cpu(_, CpuKnob::Online), other) => {
            is_interrupts(other) || matches!(other, SettingKey::Policy(..))
        }
        (SettingKey::Machine(MachineKnob::Smt), other) => {
            is_interrupts(other)
                || matches!(
                    other,
                    SettingKey::Policy(..) | SettingKey::Cpu(_, CpuKnob::Online)
                )
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
        NicKnob::QueueRxUsecs(_) => NicKnob::CoalesceRxUsecs,
        NicKnob::QueueTxUsecs(_) => NicKnob::CoalesceTxUsecs,
        NicKnob::QueueRxFrames(_) => NicKnob::CoalesceRxFrames,
        NicKnob::QueueTxFrames(_) => NicKnob::CoalesceTxFrames,
        NicKnob::QueueAdaptiveRx(_) => NicKnob::CoalesceAdaptiveRx,
        NicKnob::QueueAdaptiveTx(_) => NicKnob::CoalesceAdaptiveTx,
        _ => return false,
    };
    nic == other && *of_all == is_of_all && agrees(&later.setting, &later.to, found)
}

/// Whether some drivers recreate a NIC's queues when it is written.
fn makes_queues_anew(knob: &NicKnob) -> bool {
    matches!(knob.spec().effects, Effects::Channels | Effects::Queues)
}

fn is_coalescing(knob: &NicKnob) -> bool {
    let effects = knob.spec().effects;
    matches!(effects, Effects::Coalescing | Effects::QueueCoalescing)
}

fn is_usecs(knob: &NicKnob) -> bool {
    matches!(
        knob,
        NicKnob::CoalesceRxUsecs
            | NicKnob::CoalesceTxUsecs
            | NicKnob::QueueRxUsecs(_)
            | NicKnob::QueueTxUsecs(_)
    )
}

fn is_frames(knob: &NicKnob) -> bool {
    matches!(
        knob,
        NicKnob::CoalesceRxFrames
            | NicKnob::CoalesceTxFrames
            | NicKnob::QueueRxFrames(_)
            | NicKnob::QueueTxFrames(_)
    )
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
