//! Settings and what was read of a host: taking a value out, and putting one in.

use super::{BlockKnob, MachineKnob, NicKnob, SettingKey, Value, fold_blanks};
use crate::host::{BlockDevice, FrequencyPolicy, Host, Nic, Queue, QueueKind};
use crate::ids::CpuSet;
use crate::known::{Cause, Known};
use crate::units::Bytes;

/// The value that `key` has on `host`, from what was read of it.
pub fn current(host: &Host, key: &SettingKey) -> Known<Value> {
    let absent = |reason: &str| Known::unknown(Cause::Absent, key.to_string(), reason);
    match key {
        SettingKey::Sysctl(name) => host
            .sysctl(name)
            .map(|text| Value::Text(fold_blanks(&text))),
        SettingKey::Machine(knob) => current_of_machine(host, *knob),
        SettingKey::Block(name, knob) => {
            match host.block.iter().find(|device| device.name == *name) {
                Some(device) => current_of_block(device, *knob),
                None => absent("no such block device"),
            }
        }
        SettingKey::RdmaGidType(name, port) => host
            .rdma
            .iter()
            .filter(|device| device.name == *name)
            .flat_map(|device| &device.ports)
            .find(|own| own.port == *port)
            .map_or_else(
                || absent("no such RDMA port"),
                |own| own.default_gid_type.clone().map(Value::Text),
            ),
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
        NicKnob::XpsRxqs(index) => queue(QueueKind::Tx, *index).map_or_else(
            || absent("no such queue"),
            |q| q.xps_rxqs.clone().map(|queues| Value::Text(words(&queues))),
        ),
        NicKnob::CoalesceAdaptiveTx => nic
            .coalesce
            .clone()
            .and_then(|c| c.adaptive_tx.map(Value::Switch)),
        NicKnob::GroFlushTimeoutNs => {
            let timeout = nic.dispatch.gro_flush_timeout_ns.clone();
            timeout.map(Value::Integer)
        }
        NicKnob::DeferHardIrqs => count(nic.dispatch.defer_hard_irqs.clone()),
        NicKnob::Threaded => nic.dispatch.threaded.clone().map(Value::Switch),
        NicKnob::PauseRx => nic.wire.pause.clone().and_then(|p| p.rx.map(Value::Switch)),
        NicKnob::PauseTx => nic.wire.pause.clone().and_then(|p| p.tx.map(Value::Switch)),
        NicKnob::Eee => nic
            .wire
            .eee
            .clone()
            .and_then(|e| e.enabled.map(Value::Switch)),
        NicKnob::Fec => {
            let fec = nic.wire.fec.clone();
            fec.map(|fec| Value::Text(fec.configured.join(" ")))
        }
        NicKnob::RssTable => {
            let rss = nic.dispatch.rss.clone();
            rss.and_then(|rss| rss.table.map(|table| Value::Text(table_words(&table))))
        }
        NicKnob::RssFields(kind) => nic.dispatch.rss.clone().and_then(|rss| {
            rss.fields.and_then(|fields| match fields.get(kind) {
                Some(text) => Known::Value(Value::Text(text.clone())),
                None => absent("the driver hashes no such kind of flow"),
            })
        }),
        NicKnob::GsoMaxBytes => bytes(&nic.stack.gso_max_bytes),
        NicKnob::GsoIpv4MaxBytes => bytes(&nic.stack.gso_ipv4_max_bytes),
        NicKnob::GroMaxBytes => bytes(&nic.stack.gro_max_bytes),
        NicKnob::GroIpv4MaxBytes => bytes(&nic.stack.gro_ipv4_max_bytes),
        NicKnob::TcpDataSplit => nic.dispatch.tcp_data_split.clone().map(Value::Text),
        NicKnob::PrivateFlag(name) => {
            let flags = nic.dispatch.private_flags.clone();
            flags.and_then(|flags| match flags.get(name) {
                Some(on) => Known::Value(Value::Switch(*on)),
                None => absent("the driver has no such flag"),
            })
        }
        NicKnob::BondHashPolicy => match &nic.stack.bond {
            Some(bond) => bond.hash_policy.clone().map(Value::Text),
            None => absent("the interface is no bond"),
        },
        NicKnob::IpoibMode => match &nic.stack.ipoib_mode {
            Some(mode) => mode.clone().map(Value::Text),
            None => absent("the interface is not on InfiniBand"),
        },
        NicKnob::Aspm(state) => nic.pci.clone().and_then(|pci| {
            let file = state.replace('-', "_");
            pci.aspm
                .map(|enabled| Value::Switch(enabled.contains(&file)))
        }),
    }
}

fn bytes(size: &Known<Bytes>) -> Known<Value> {
    size.clone().map(|size| Value::Integer(size.as_u64()))
}

fn words(numbers: &[u32]) -> String {
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    words.join(" ")
}

/// `equal 8` for a table that goes round eight queues, else its queues one by one.
fn table_words(table: &[u32]) -> String {
    let queues = table.iter().max().map_or(0, |most| most.saturating_add(1));
    let goes_round = (0u32..)
        .zip(table)
        .all(|(at, queue)| *queue == at % queues.max(1));
    if goes_round {
        format!("equal {queues}")
    } else {
        words(table)
    }
}

fn current_of_machine(host: &Host, knob: MachineKnob) -> Known<Value> {
    let power = &host.power;
    let of_all = |what: fn(&FrequencyPolicy) -> &Known<String>| {
        power.frequency.clone().and_then(|policies| {
            let mut values: Vec<String> = Vec::new();
            for policy in &policies {
                match what(policy) {
                    Known::Value(value) if values.contains(value) => {}
                    Known::Value(value) => values.push(value.clone()),
                    Known::Unknown(gap) => return Known::Unknown(gap.clone()),
                }
            }
            Known::Value(Value::Text(values.join(", ")))
        })
    };
    match knob {
        MachineKnob::Turbo => power.turbo.clone().map(Value::Switch),
        MachineKnob::Smt => power.smt.clone().map(Value::Text),
        MachineKnob::Governor => of_all(|policy| &policy.governor),
        MachineKnob::EnergyPreference => of_all(|policy| &policy.energy_preference),
        MachineKnob::MaxLatencyUs => {
            let limit = power.latency_limit_us.clone();
            limit.map(|us| Value::Integer(u64::from(us)))
        }
        MachineKnob::Clocksource => host.kernel.clocksource.clone().map(Value::Text),
        MachineKnob::TransparentHugepages => {
            host.kernel.transparent_hugepages.clone().map(Value::Text)
        }
    }
}

fn current_of_block(device: &BlockDevice, knob: BlockKnob) -> Known<Value> {
    let count = |value: &Known<u32>| value.clone().map(|n| Value::Integer(u64::from(n)));
    match knob {
        BlockKnob::Scheduler => device.scheduler.clone().map(Value::Text),
        BlockKnob::Nomerges => count(&device.nomerges),
        BlockKnob::RqAffinity => count(&device.rq_affinity),
        BlockKnob::IoPolicy => device.io_policy.clone().map(Value::Text),
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
