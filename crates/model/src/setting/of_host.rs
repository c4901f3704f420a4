//! Settings and what was read of a host: taking a value out, and putting one in.

use super::{NicKnob, SettingKey, Value, fold_blanks};
use crate::host::{Host, Nic, Queue, QueueKind};
use crate::ids::CpuSet;
use crate::known::{Cause, Known};

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
