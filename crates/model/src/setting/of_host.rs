//! Reads a setting's value from a host's description, and sets it there.

use super::fact::{absent, cpus, part};
use super::{Fact, NicKnob, SettingKey, Value, fold_blanks};
use crate::host::{Fec, Host, Nic, Queue, QueueKind};
use crate::ids::{CpuSet, NicName};
use crate::known::Known;

/// The FEC mode `auto`.
pub const FEC_AUTO: &str = "auto";

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
            Fact::Host(of) => of(host),
            _ => Known::not_asked(key.to_string()),
        },
        SettingKey::Cpu(id, knob) => match knob.spec().fact {
            Fact::Cpu(of) => {
                let cpu = host.cpus.iter().find(|cpu| cpu.id == *id);
                cpu.map_or_else(|| absent("no such CPU"), of)
            }
            _ => Known::not_asked(key.to_string()),
        },
        SettingKey::IrqCpus(number) => host
            .irq(*number)
            .map_or_else(|| absent("no such interrupt"), |irq| cpus(&irq.requested)),
        SettingKey::Policy(number, knob) => part(&host.power.frequency, |policies| {
            let mut policies = policies.iter();
            let policy = policies.find(|policy| policy.number.get() == Some(*number));
            match (policy, knob.spec().fact) {
                (None, _) => absent("no such group of CPUs"),
                (Some(policy), Fact::Policy(of)) => of(policy),
                _ => Known::not_asked(key.to_string()),
            }
        }),
        SettingKey::Block(name, knob) => {
            let device = host.block.iter().find(|device| device.name == *name);
            match (device, knob.spec().fact) {
                (None, _) => absent("no such block device"),
                (Some(device), Fact::Block(of)) => of(device),
                _ => Known::not_asked(key.to_string()),
            }
        }
        SettingKey::RdmaDefaults(_) => Known::not_asked(key.to_string()),
        SettingKey::Rdma(name, port, knob) => match knob.spec().fact {
            Fact::RdmaPort(of) => {
                let devices = host.rdma.iter().filter(|device| device.name == *name);
                let mut ports = devices.flat_map(|device| &device.ports);
                let port = ports.find(|own| own.port == *port);
                port.map_or_else(|| absent("no such RDMA port"), of)
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
        Fact::Nic(of) => of(nic),
        Fact::PciLink(of) => of(nic, &word),
        Fact::Stack(of) => of(&nic.stack),
        Fact::Features(of) => part(&nic.features, |all| of(all, &word)),
        Fact::PrivateFlags(of) => part(&dispatch.private_flags, |all| of(all, &word)),
        Fact::Coalesce(of) => part(&nic.coalesce, of),
        Fact::Rings(of) => part(&nic.rings, of),
        Fact::Channels(of) => part(&nic.channels, of),
        Fact::LinkModes(of) => part(&nic.wire.modes, of),
        Fact::Pause(of) => part(&nic.wire.pause, of),
        Fact::Eee(of) => part(&nic.wire.eee, of),
        Fact::Fec(of) => part(&nic.wire.fec, of),
        Fact::Dcb(of) => part(&nic.shaping.dcb, of),
        Fact::Rss(of) => part(&dispatch.rss, |rss| of(rss, &word)),
        Fact::Queue(of) => queue().map_or_else(no_queue, of),
        Fact::QueueCoalesce(of) => part(&dispatch.queue_coalesce, |all| {
            let index = knob.queue().map(|(_, index)| index);
            let own = all.iter().find(|own| Some(own.queue) == index);
            own.map_or_else(no_queue, of)
        }),
        // The configured affinity, not the effective one: a rollback restores it.
        Fact::Interrupt => queue().map_or_else(no_queue, |queue| {
            queue.irq.clone().and_then(|number| match host.irq(number) {
                Some(irq) => cpus(&irq.requested),
                None => absent("the interrupt is not listed"),
            })
        }),
        // Reading a host does not read it: the RSS hash key is a secret.
        _ => Known::not_asked(format!("nic/{}/{knob}", nic.name)),
    }
}

/// The configured FEC modes, or `auto`.
pub fn fec_words(fec: &Fec) -> String {
    match fec.auto.get() {
        Some(true) => FEC_AUTO.to_owned(),
        _ => fec.configured.join(" "),
    }
}

/// An indirection table in short form: `equal 8` for eight queues in turn, otherwise queue by queue, with a repeat
/// count, `0x32 1x32`.
pub fn table_words(table: &[u32]) -> String {
    round_words(round_of(table))
}

/// The same for a table to be set.
pub(super) fn round_words(table: &[u32]) -> String {
    let mut words: Vec<String> = Vec::new();
    if (0u32..).zip(table).all(|(at, queue)| at == *queue) {
        return format!("equal {}", table.len());
    }
    for run in table.chunk_by(|one, next| one == next) {
        words.push(match run {
            [queue] => queue.to_string(),
            several => format!("{}x{}", several[0], several.len()),
        });
    }
    words.join(" ")
}

/// The shortest prefix whose repetition is the whole table.
fn round_of(table: &[u32]) -> &[u32] {
    let goes_round = |round: &usize| {
        table
            .iter()
            .zip(&table[*round..])
            .all(|(one, next)| one == next)
    };
    let round = (1..table.len()).find(goes_round).unwrap_or(table.len());
    &table[..round]
}

/// Parses the text of [`table_words`]: the queues of one repetition.
pub fn parse_table(words: &str) -> Option<Vec<u32>> {
    /// More entries than any NIC's table has.
    const ENTRIES_MAX: usize = 65_536;
    if let Some(count) = words.strip_prefix("equal ") {
        let count: u32 = count.trim().parse().ok()?;
        let is_table = count > 0 && count as usize <= ENTRIES_MAX;
        return is_table.then(|| (0..count).collect());
    }
    let mut table = Vec::new();
    for word in words.split_whitespace() {
        let (queue, count) = word.split_once('x').unwrap_or((word, "1"));
        let count: usize = count.parse().ok()?;
        if count == 0 || count > ENTRIES_MAX - table.len() {
            return None;
        }
        table.resize(table.len() + count, queue.parse().ok()?);
    }
    let is_whole = |round: &usize| {
        let (first, rest) = table.split_at(*round);
        table.len() % round == 0 && rest.chunks(*round).all(|next| next == first)
    };
    let round = (1..=table.len()).find(is_whole)?;
    table.truncate(round);
    Some(table)
}

/// Sets a value in a host's description: the host as it would be read after the change. False if the host has no such
/// setting, or the value is invalid for it.
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

/// Moves an interrupt, and so every queue that it serves.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_table_is_told_shortly() {
        let blocks: Vec<u32> = (0..128).map(|entry| entry / 32).collect();
        assert_eq!(table_words(&blocks), "0x32 1x32 2x32 3x32");
        let in_turn: Vec<u32> = (0..128).map(|entry| entry % 3).collect();
        assert_eq!(table_words(&in_turn), "equal 3");
        assert_eq!(table_words(&[0; 128]), "equal 1");
        assert_eq!(table_words(&[0, 3, 0, 3, 0]), "0 3");
        assert_eq!(table_words(&[2, 2]), "2");
        for wrong in ["", "equal 0", "equal x", "0 y", "0x0", "1x99999999", "-1"] {
            assert_eq!(parse_table(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_table_is_what_its_words_go_round(table in prop::collection::vec(0u32..4, 1..40)) {
            let round = parse_table(&table_words(&table)).expect("our own words");
            let again: Vec<u32> = round.iter().copied().cycle().take(table.len()).collect();
            prop_assert_eq!(&again, &table);
            // A requested value has the same text once the NIC has it.
            let asked = parse_table(&round_words(&table)).expect("our own words");
            let card: Vec<u32> = asked.iter().copied().cycle().take(128).collect();
            prop_assert_eq!(table_words(&card), round_words(&asked));
        }

        #[test]
        fn no_words_panic(words in "[0-9x a-z-]{0,20}") {
            let _ = parse_table(&words);
        }
    }
}
