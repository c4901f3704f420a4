//! Settings and what was read of a host: taking a value out, and putting one in.

use super::{BlockKnob, MachineKnob, NicKnob, SettingKey, Value, fold_blanks};
use crate::host::{BlockDevice, FrequencyPolicy, Host, Nic, Queue, QueueKind};
use crate::ids::{CpuSet, NicName};
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
        SettingKey::Nic(name, NicKnob::IrqCpus(kind, index)) => {
            let queue = host.nic(name).and_then(|nic| {
                let mut queues = nic.queues.iter();
                queues.find(|queue| queue.kind == *kind && queue.index == *index)
            });
            let Some(queue) = queue else {
                return absent("no such queue");
            };
            // What was asked for, not where the chip delivers it now: that is what is put back.
            queue.irq.clone().and_then(|number| match host.irq(number) {
                Some(irq) => cpus(&irq.requested),
                None => absent("the interrupt is not listed"),
            })
        }
        SettingKey::Nic(name, knob) => match host.nic(name) {
            Some(nic) => current_of_nic(nic, key, knob),
            None => absent("no such interface"),
        },
    }
}

fn current_of_nic(nic: &Nic, key: &SettingKey, knob: &NicKnob) -> Known<Value> {
    let absent = |reason: &str| Known::unknown(Cause::Absent, key.to_string(), reason);
    let queue = |kind: QueueKind, index: u32, what: fn(&Queue) -> Known<Value>| {
        let mut queues = nic.queues.iter();
        queues
            .find(|queue| queue.kind == kind && queue.index == index)
            .map_or_else(|| absent("no such queue"), what)
    };
    let named = |switches: Option<bool>, reason| {
        switches.map_or_else(|| absent(reason), |on| Known::Value(Value::Switch(on)))
    };
    let (dispatch, stack, wire) = (&nic.dispatch, &nic.stack, &nic.wire);
    match knob {
        NicKnob::Mtu => count(&nic.mtu),
        NicKnob::Feature(name) => part(&nic.features, |all| {
            let feature = all.get(name).map(|feature| feature.active);
            named(feature, "the driver has no such feature")
        }),
        NicKnob::CoalesceRxUsecs => part(&nic.coalesce, |c| count(&c.rx_usecs)),
        NicKnob::CoalesceTxUsecs => part(&nic.coalesce, |c| count(&c.tx_usecs)),
        NicKnob::CoalesceAdaptiveRx => part(&nic.coalesce, |c| switch(&c.adaptive_rx)),
        NicKnob::CoalesceAdaptiveTx => part(&nic.coalesce, |c| switch(&c.adaptive_tx)),
        NicKnob::RingRx => part(&nic.rings, |rings| count(&rings.rx)),
        NicKnob::RingTx => part(&nic.rings, |rings| count(&rings.tx)),
        NicKnob::ChannelsCombined => part(&nic.channels, |c| count(&c.combined)),
        NicKnob::ChannelsRx => part(&nic.channels, |c| count(&c.rx)),
        NicKnob::ChannelsTx => part(&nic.channels, |c| count(&c.tx)),
        NicKnob::Qdisc => nic.qdisc.clone().map(Value::Qdisc),
        NicKnob::IrqCpus(..) => absent("it is the interrupt's"),
        NicKnob::RpsCpus(index) => queue(QueueKind::Rx, *index, |queue| cpus(&queue.rps_cpus)),
        NicKnob::RpsFlowCnt(index) => queue(QueueKind::Rx, *index, |queue| {
            queue.rps_flow_cnt.clone().map(Value::Integer)
        }),
        NicKnob::XpsCpus(index) => queue(QueueKind::Tx, *index, |queue| cpus(&queue.xps_cpus)),
        NicKnob::XpsRxqs(index) => queue(QueueKind::Tx, *index, |queue| {
            part(&queue.xps_rxqs, |own| Known::Value(Value::Text(words(own))))
        }),
        NicKnob::GroFlushTimeoutNs => dispatch.gro_flush_timeout_ns.clone().map(Value::Integer),
        NicKnob::DeferHardIrqs => count(&dispatch.defer_hard_irqs),
        NicKnob::Threaded => switch(&dispatch.threaded),
        NicKnob::PauseRx => part(&wire.pause, |pause| switch(&pause.rx)),
        NicKnob::PauseTx => part(&wire.pause, |pause| switch(&pause.tx)),
        NicKnob::Eee => part(&wire.eee, |eee| switch(&eee.enabled)),
        NicKnob::Fec => part(&wire.fec, |fec| {
            Known::Value(Value::Text(fec.configured.join(" ")))
        }),
        NicKnob::RssTable | NicKnob::RssFields(_) => current_of_hash(nic, key, knob),
        NicKnob::GsoMaxBytes => bytes(&stack.gso_max_bytes),
        NicKnob::GsoIpv4MaxBytes => bytes(&stack.gso_ipv4_max_bytes),
        NicKnob::GroMaxBytes => bytes(&stack.gro_max_bytes),
        NicKnob::GroIpv4MaxBytes => bytes(&stack.gro_ipv4_max_bytes),
        NicKnob::TcpDataSplit => text(&dispatch.tcp_data_split),
        NicKnob::PrivateFlag(name) => part(&dispatch.private_flags, |flags| {
            named(flags.get(name).copied(), "the driver has no such flag")
        }),
        NicKnob::BondHashPolicy => {
            let policy = stack.bond.as_ref().map(|bond| text(&bond.hash_policy));
            policy.unwrap_or_else(|| absent("the interface is no bond"))
        }
        NicKnob::IpoibMode => {
            let mode = stack.ipoib_mode.as_ref().map(text);
            mode.unwrap_or_else(|| absent("the interface is not on InfiniBand"))
        }
        NicKnob::Aspm(state) => part(&nic.pci, |pci| {
            let file = state.replace('-', "_");
            part(&pci.aspm, |on| {
                Known::Value(Value::Switch(on.contains(&file)))
            })
        }),
    }
}

/// The receive hash: its table, or what it takes of one kind of flow.
fn current_of_hash(nic: &Nic, key: &SettingKey, knob: &NicKnob) -> Known<Value> {
    let reason = "the driver hashes no such kind of flow";
    let absent = || Known::unknown(Cause::Absent, key.to_string(), reason);
    let said = |words: &String| Known::Value(Value::Text(words.clone()));
    part(&nic.dispatch.rss, |rss| match knob {
        NicKnob::RssFields(kind) => part(&rss.fields, |fields| {
            fields.get(kind).map_or_else(absent, said)
        }),
        _ => part(&rss.table, |table| said(&table_words(table))),
    })
}

/// A value that stands within a fact.
fn part<T>(whole: &Known<T>, of: impl FnOnce(&T) -> Known<Value>) -> Known<Value> {
    match whole {
        Known::Value(whole) => of(whole),
        Known::Unknown(gap) => Known::Unknown(gap.clone()),
    }
}

fn count(number: &Known<u32>) -> Known<Value> {
    number
        .clone()
        .map(|number| Value::Integer(u64::from(number)))
}

fn switch(on: &Known<bool>) -> Known<Value> {
    on.clone().map(Value::Switch)
}

fn cpus(set: &Known<CpuSet>) -> Known<Value> {
    set.clone().map(|set| Value::Text(set.to_string()))
}

fn text(word: &Known<String>) -> Known<Value> {
    word.clone().map(Value::Text)
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
        (SettingKey::Nic(name, NicKnob::IrqCpus(kind, index)), Value::Text(text)) => {
            put_irq_cpus(host, name, *kind, *index, text).is_some()
        }
        (SettingKey::Nic(name, knob), value) => host
            .nics
            .iter_mut()
            .find(|nic| nic.name == *name)
            .is_some_and(|nic| put_into_nic(nic, knob, value).is_some()),
        _ => false,
    }
}

/// Moves an interrupt, and with it every queue that it serves.
fn put_irq_cpus(
    host: &mut Host,
    name: &NicName,
    kind: QueueKind,
    index: u32,
    text: &str,
) -> Option<()> {
    let cpus: CpuSet = text.parse().ok()?;
    let nic = host.nics.iter_mut().find(|nic| nic.name == *name)?;
    let number = queue_of(nic, kind, index)?.irq.get()?;
    let queues = host.nics.iter_mut().flat_map(|nic| &mut nic.queues);
    for queue in queues.filter(|queue| queue.irq.get() == Some(number)) {
        queue.cpus = Known::Value(cpus.clone());
    }
    let irq = host.irqs.iter_mut().find(|irq| irq.number == number)?;
    irq.requested = Known::Value(cpus.clone());
    irq.effective = Known::Value(cpus);
    Some(())
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
