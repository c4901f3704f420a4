//! Reads a setting's value from a host's description, and sets it there.

use super::fact::{Member, absent, part};
use super::{Fact, NicKnob, SettingKey, Value, fold_blanks};
use crate::host::{Host, Nic, Queue, QueueKind};
use crate::ids::{CpuSet, NicName};
use crate::known::Known;

/// The value of `key` in the description of `host`.
pub fn current(host: &Host, key: &SettingKey) -> Known<Value> {
    let value = match key {
        SettingKey::Sysctl(name) => host
            .sysctl(name)
            .map(|text| Value::Text(fold_blanks(&text))),
        SettingKey::Nic(name, knob) => match host.nic(name) {
            Some(nic) => of_nic(host, nic, knob),
            None => absent("no such interface"),
        },
        SettingKey::Machine(knob) => match knob.spec().fact {
            Fact::Host(field) => field.read(host, ""),
            _ => Known::not_asked(key.to_string()),
        },
        SettingKey::Cpu(id, knob) => match knob.spec().fact {
            Fact::Cpu(field) => {
                let cpu = host.cpus.iter().find(|cpu| cpu.id == *id);
                cpu.map_or_else(|| absent("no such CPU"), |cpu| field.read(cpu, ""))
            }
            _ => Known::not_asked(key.to_string()),
        },
        SettingKey::IrqCpus(number) => host
            .irq(*number)
            .map_or_else(|| absent("no such interrupt"), |irq| irq.requested.read()),
        SettingKey::Policy(number, knob) => part(&host.power.frequency, |policies| {
            let mut policies = policies.iter();
            let policy = policies.find(|policy| policy.number.get() == Some(*number));
            match (policy, knob.spec().fact) {
                (None, _) => absent("no such group of CPUs"),
                (Some(policy), Fact::Policy(field)) => field.read(policy, ""),
                _ => Known::not_asked(key.to_string()),
            }
        }),
        SettingKey::Block(name, knob) => {
            let device = host.block.iter().find(|device| device.name == *name);
            match (device, knob.spec().fact) {
                (None, _) => absent("no such block device"),
                (Some(device), Fact::Block(field)) => field.read(device, ""),
                _ => Known::not_asked(key.to_string()),
            }
        }
        SettingKey::RdmaDefaults(_) => Known::not_asked(key.to_string()),
        SettingKey::Rdma(name, port, knob) => match knob.spec().fact {
            Fact::RdmaPort(field) => {
                let devices = host.rdma.iter().filter(|device| device.name == *name);
                let mut ports = devices.flat_map(|device| &device.ports);
                let port = ports.find(|own| own.port == *port);
                port.map_or_else(|| absent("no such RDMA port"), |port| field.read(port, ""))
            }
            _ => Known::not_asked(key.to_string()),
        },
        SettingKey::Trial(_) => absent("it belongs to a measurement, not to a host"),
    };
    Fact::named(value, key)
}

/// The value of an interface's setting.
fn of_nic(host: &Host, nic: &Nic, knob: &NicKnob) -> Known<Value> {
    let word = knob.word().unwrap_or_default();
    let dispatch = &nic.dispatch;
    let queue = || {
        let (kind, index) = knob.queue()?;
        let mut queues = nic.queues.iter();
        queues.find(|queue| queue.kind == kind && queue.index == index)
    };
    let no_queue = || absent("no such queue");
    match knob.spec().fact {
        Fact::Nic(field) => field.read(nic, &word),
        Fact::Stack(field) => field.read(&nic.stack, &word),
        Fact::Features(field) => part(&nic.features, |all| field.read(all, &word)),
        Fact::PrivateFlags(field) => part(&dispatch.private_flags, |all| field.read(all, &word)),
        Fact::Coalesce(field) => part(&nic.coalesce, |all| field.read(all, &word)),
        Fact::Rings(field) => part(&nic.rings, |rings| field.read(rings, &word)),
        Fact::Channels(field) => part(&nic.channels, |channels| field.read(channels, &word)),
        Fact::LinkModes(field) => part(&nic.wire.modes, |modes| field.read(modes, &word)),
        Fact::Pause(field) => part(&nic.wire.pause, |pause| field.read(pause, &word)),
        Fact::Eee(field) => part(&nic.wire.eee, |eee| field.read(eee, &word)),
        Fact::Fec(field) => part(&nic.wire.fec, |fec| field.read(fec, &word)),
        Fact::Dcb(field) => part(&nic.shaping.dcb, |dcb| field.read(dcb, &word)),
        Fact::Rss(field) => part(&dispatch.rss, |rss| field.read(rss, &word)),
        Fact::Queue(field) => queue().map_or_else(no_queue, |queue| field.read(queue, &word)),
        Fact::QueueCoalesce(field) => part(&dispatch.queue_coalesce, |all| {
            let index = knob.queue().map(|(_, index)| index);
            let own = all.iter().find(|own| Some(own.queue) == index);
            own.map_or_else(no_queue, |own| field.read(own, &word))
        }),
        // The configured affinity, not the effective one: a rollback restores it.
        Fact::Interrupt => queue().map_or_else(no_queue, |queue| {
            queue.irq.clone().and_then(|number| match host.irq(number) {
                Some(irq) => irq.requested.read(),
                None => absent("the interrupt is not listed"),
            })
        }),
        // Reading a host does not read it: the RSS hash key is a secret.
        _ => Known::not_asked(format!("nic/{}/{knob}", nic.name)),
    }
}

/// Sets a value in a host's description: the host as it would be read after the change. False if the host has no such
/// setting, or the value is invalid for it.
pub fn put(host: &mut Host, key: &SettingKey, value: &Value) -> bool {
    if current(host, key).value().is_none() {
        return false;
    }
    let done = match (key, key.spec().fact) {
        (SettingKey::Sysctl(name), _) => {
            let Value::Text(text) = value else {
                return false;
            };
            let text = Known::Value(text.clone());
            host.sysctls.insert(name.clone(), text);
            Some(())
        }
        (SettingKey::Nic(name, NicKnob::IrqCpus(kind, index)), _) => {
            put_irq_cpus(host, name, *kind, *index, value)
        }
        (SettingKey::Nic(name, knob), _) => {
            let mut nics = host.nics.iter_mut();
            let nic = nics.find(|nic| nic.name == *name);
            nic.and_then(|nic| put_into_nic(nic, knob, value))
        }
        (SettingKey::Machine(_), Fact::Host(field)) => field.put(host, "", value),
        (SettingKey::Cpu(id, _), Fact::Cpu(field)) => {
            let mut cpus = host.cpus.iter_mut();
            let cpu = cpus.find(|cpu| cpu.id == *id);
            cpu.and_then(|cpu| field.put(cpu, "", value))
        }
        (SettingKey::Policy(number, _), Fact::Policy(field)) => {
            let mut policies = known(&mut host.power.frequency).into_iter().flatten();
            let policy = policies.find(|policy| policy.number.get() == Some(*number));
            policy.and_then(|policy| field.put(policy, "", value))
        }
        (SettingKey::Block(name, _), Fact::Block(field)) => {
            let mut devices = host.block.iter_mut();
            let device = devices.find(|device| device.name == *name);
            device.and_then(|device| field.put(device, "", value))
        }
        _ => None,
    };
    done.is_some()
}

fn known<T>(fact: &mut Known<T>) -> Option<&mut T> {
    match fact {
        Known::Value(value) => Some(value),
        Known::Unknown(_) => None,
    }
}

/// Moves an interrupt, and so every queue that it serves.
fn put_irq_cpus(
    host: &mut Host,
    name: &NicName,
    kind: QueueKind,
    index: u32,
    value: &Value,
) -> Option<()> {
    let Value::Text(text) = value else {
        return None;
    };
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
    let word = knob.word().unwrap_or_default();
    match knob.spec().fact {
        Fact::Nic(field) => field.put(nic, &word, value),
        Fact::Stack(field) => field.put(&mut nic.stack, &word, value),
        Fact::Features(field) => field.put(known(&mut nic.features)?, &word, value),
        Fact::PrivateFlags(field) => {
            field.put(known(&mut nic.dispatch.private_flags)?, &word, value)
        }
        Fact::Coalesce(field) => field.put(known(&mut nic.coalesce)?, &word, value),
        Fact::Rings(field) => field.put(known(&mut nic.rings)?, &word, value),
        Fact::Channels(field) => field.put(known(&mut nic.channels)?, &word, value),
        Fact::LinkModes(field) => field.put(known(&mut nic.wire.modes)?, &word, value),
        Fact::Pause(field) => field.put(known(&mut nic.wire.pause)?, &word, value),
        Fact::Eee(field) => field.put(known(&mut nic.wire.eee)?, &word, value),
        Fact::Queue(field) => {
            let (kind, index) = knob.queue()?;
            field.put(queue_of(nic, kind, index)?, &word, value)
        }
        Fact::QueueCoalesce(field) => {
            let (_, index) = knob.queue()?;
            let all = known(&mut nic.dispatch.queue_coalesce)?;
            let own = all.iter_mut().find(|own| own.queue == index)?;
            field.put(own, &word, value)
        }
        _ => None,
    }
}

fn queue_of(nic: &mut Nic, kind: QueueKind, index: u32) -> Option<&mut Queue> {
    nic.queues
        .iter_mut()
        .find(|queue| queue.kind == kind && queue.index == index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    #[test]
    fn a_value_that_is_put_is_the_current_one_and_one_that_does_not_fit_is_not_put() {
        let mut host = build::host().nic("eth2", |nic| nic.queues(&[0, 1])).build();
        let knobs = NicKnob::all_of(&host.nics[0]);
        let mut changed = 0;
        for knob in knobs {
            let key = SettingKey::Nic(host.nics[0].name.clone(), knob);
            let to = match current(&host, &key) {
                Known::Value(Value::Switch(on)) => Value::Switch(!on),
                Known::Value(Value::Integer(count)) => Value::Integer(count + 1),
                _ => continue,
            };
            assert!(
                !put(&mut host, &key, &Value::Text("no such".to_owned())),
                "{key}"
            );
            if put(&mut host, &key, &to) {
                assert_eq!(current(&host, &key), Known::Value(to), "{key}");
                changed += 1;
            }
        }
        assert!(changed > 10, "only {changed}");
    }
}
