//! Reads a setting's value from a host's description, and sets it there.

use super::applications::applications_of;
use super::link::link_words;
use super::priorities::{classes_of, egress_words, priority_words, rate_words};
use super::{
    BlockKnob, MachineKnob, NicKnob, PolicyKnob, RdmaKnob, SettingKey, Value, fold_blanks,
};
use crate::host::{BlockDevice, Dcb, Fec, Host, Nic, Queue, QueueCoalesce, QueueKind, Wire};
use crate::ids::{CpuSet, NicName};
use crate::known::{Cause, Known};
use crate::units::Bytes;

/// The FEC mode `auto`.
pub const FEC_AUTO: &str = "auto";

/// The value of `key` in the description of `host`.
pub fn current(host: &Host, key: &SettingKey) -> Known<Value> {
    let absent = |reason: &str| Known::unknown(Cause::Absent, key.to_string(), reason);
    match key {
        SettingKey::Sysctl(name) => host
            .sysctl(name)
            .map(|text| Value::Text(fold_blanks(&text))),
        SettingKey::Machine(knob) => current_of_machine(host, *knob),
        // No rule checks these.
        SettingKey::ResumeLatency(_)
        | SettingKey::RdmaDefaults(_)
        | SettingKey::Rdma(_, _, RdmaKnob::DefaultRoceTos) => Known::not_asked(key.to_string()),
        SettingKey::Online(id) => {
            let cpu = host.cpus.iter().find(|cpu| cpu.id == *id);
            cpu.map_or_else(|| absent("no such CPU"), |cpu| switch(&cpu.online))
        }
        SettingKey::IrqCpus(number) => host
            .irq(*number)
            .map_or_else(|| absent("no such interrupt"), |irq| cpus(&irq.requested)),
        SettingKey::Policy(number, knob) => part(&host.power.frequency, |policies| {
            let mut policies = policies.iter();
            let policy = policies.find(|policy| policy.number.get() == Some(*number));
            policy.map_or_else(
                || absent("no such group of CPUs"),
                |policy| match knob {
                    PolicyKnob::Governor => text(&policy.governor),
                    PolicyKnob::EnergyPreference => text(&policy.energy_preference),
                },
            )
        }),
        SettingKey::Block(name, knob) => {
            match host.block.iter().find(|device| device.name == *name) {
                Some(device) => current_of_block(device, *knob),
                None => absent("no such block device"),
            }
        }
        SettingKey::Rdma(name, port, RdmaKnob::DefaultGidType) => host
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
            // The configured affinity, not the effective one: a rollback restores it.
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
    let named = |switches: Option<bool>, reason| {
        switches.map_or_else(|| absent(reason), |on| Known::Value(Value::Switch(on)))
    };
    let dispatch = &nic.dispatch;
    match knob {
        NicKnob::Mtu => count(&nic.mtu),
        NicKnob::Feature(name) => part(&nic.features, |all| {
            let feature = all.get(name).map(|feature| feature.active);
            named(feature, "not supported by the driver")
        }),
        NicKnob::CoalesceRxUsecs => part(&nic.coalesce, |c| count(&c.rx_usecs)),
        NicKnob::CoalesceTxUsecs => part(&nic.coalesce, |c| count(&c.tx_usecs)),
        NicKnob::CoalesceAdaptiveRx => part(&nic.coalesce, |c| switch(&c.adaptive_rx)),
        NicKnob::CoalesceAdaptiveTx => part(&nic.coalesce, |c| switch(&c.adaptive_tx)),
        NicKnob::CoalesceRxFrames => part(&nic.coalesce, |c| count(&c.rx_frames)),
        NicKnob::CoalesceTxFrames => part(&nic.coalesce, |c| count(&c.tx_frames)),
        NicKnob::RingRx => part(&nic.rings, |rings| count(&rings.rx)),
        NicKnob::RingTx => part(&nic.rings, |rings| count(&rings.tx)),
        NicKnob::ChannelsCombined => part(&nic.channels, |c| count(&c.combined)),
        NicKnob::ChannelsRx => part(&nic.channels, |c| count(&c.rx)),
        NicKnob::ChannelsTx => part(&nic.channels, |c| count(&c.tx)),
        NicKnob::Qdisc => nic.qdisc.clone().map(Value::Qdisc),
        NicKnob::IrqCpus(..) => absent("it is the interrupt's"),
        NicKnob::RpsCpus(index) | NicKnob::RpsFlowCnt(index) => {
            current_of_queue(nic, key, knob, QueueKind::Rx, *index)
        }
        NicKnob::XpsCpus(index) | NicKnob::XpsRxqs(index) => {
            current_of_queue(nic, key, knob, QueueKind::Tx, *index)
        }
        NicKnob::QueueUsecs(_, index)
        | NicKnob::QueueFrames(_, index)
        | NicKnob::QueueAdaptive(_, index) => part(&dispatch.queue_coalesce, |all| {
            let own = all.iter().find(|own| own.queue == *index);
            own.map_or_else(|| absent("no such queue"), |own| of_queue(own, key, knob))
        }),
        NicKnob::GroFlushTimeoutNs => dispatch.gro_flush_timeout_ns.clone().map(Value::Integer),
        NicKnob::DeferHardIrqs => count(&dispatch.defer_hard_irqs),
        NicKnob::Threaded => switch(&dispatch.threaded),
        NicKnob::LinkAutoneg
        | NicKnob::LinkSpeed
        | NicKnob::PauseAutoneg
        | NicKnob::PauseRx
        | NicKnob::PauseTx
        | NicKnob::Eee
        | NicKnob::Fec => current_of_wire(&nic.wire, key, knob),
        // Reading a host does not read the secret.
        NicKnob::RssKey => Known::not_asked(key.to_string()),
        NicKnob::RssTable | NicKnob::RssFields(_) => current_of_hash(nic, key, knob),
        NicKnob::GsoMaxBytes
        | NicKnob::GsoIpv4MaxBytes
        | NicKnob::GroMaxBytes
        | NicKnob::GroIpv4MaxBytes
        | NicKnob::VlanEgress
        | NicKnob::BondHashPolicy
        | NicKnob::IpoibMode => current_of_stack(nic, key, knob),
        NicKnob::DcbPfc | NicKnob::DcbEts | NicKnob::DcbMaxRate | NicKnob::DcbApp => {
            part(&nic.shaping.dcb, |dcb| dcb_value(dcb, knob))
        }
        NicKnob::TcpDataSplit => text(&dispatch.tcp_data_split),
        NicKnob::PrivateFlag(name) => part(&dispatch.private_flags, |flags| {
            named(flags.get(name).copied(), "the driver has no such flag")
        }),
        NicKnob::Aspm(state) => part(&nic.pci, |pci| {
            let file = state.replace('-', "_");
            part(&pci.aspm, |on| {
                Known::Value(Value::Switch(on.contains(&file)))
            })
        }),
    }
}

/// The interrupt coalescing of one queue.
fn of_queue(own: &QueueCoalesce, key: &SettingKey, knob: &NicKnob) -> Known<Value> {
    match knob {
        NicKnob::QueueUsecs(kind, _) => count(own.usecs(*kind)),
        NicKnob::QueueFrames(kind, _) => count(own.frames(*kind)),
        NicKnob::QueueAdaptive(kind, _) => switch(own.adaptive(*kind)),
        _ => Known::not_asked(key.to_string()),
    }
}

/// RPS, RFS and XPS of one queue.
fn current_of_queue(
    nic: &Nic,
    key: &SettingKey,
    knob: &NicKnob,
    kind: QueueKind,
    index: u32,
) -> Known<Value> {
    let mut queues = nic.queues.iter();
    let Some(queue) = queues.find(|queue| queue.kind == kind && queue.index == index) else {
        return Known::unknown(Cause::Absent, key.to_string(), "no such queue");
    };
    match knob {
        NicKnob::RpsCpus(_) => cpus(&queue.rps_cpus),
        NicKnob::RpsFlowCnt(_) => queue.rps_flow_cnt.clone().map(Value::Integer),
        NicKnob::XpsCpus(_) => cpus(&queue.xps_cpus),
        NicKnob::XpsRxqs(_) => part(&queue.xps_rxqs, |own| Known::Value(Value::Text(words(own)))),
        _ => Known::not_asked(key.to_string()),
    }
}

/// The port and the link.
fn current_of_wire(wire: &Wire, key: &SettingKey, knob: &NicKnob) -> Known<Value> {
    match knob {
        NicKnob::LinkAutoneg => part(&wire.modes, |modes| switch(&modes.autoneg)),
        NicKnob::LinkSpeed => part(&wire.modes, |modes| link_words(modes).map(Value::Text)),
        NicKnob::PauseAutoneg => part(&wire.pause, |pause| switch(&pause.autoneg)),
        NicKnob::PauseRx => part(&wire.pause, |pause| switch(&pause.rx)),
        NicKnob::PauseTx => part(&wire.pause, |pause| switch(&pause.tx)),
        NicKnob::Eee => part(&wire.eee, |eee| switch(&eee.enabled)),
        NicKnob::Fec => part(&wire.fec, |fec| Known::Value(Value::Text(fec_words(fec)))),
        _ => Known::not_asked(key.to_string()),
    }
}

/// Its relations to other interfaces.
fn current_of_stack(nic: &Nic, key: &SettingKey, knob: &NicKnob) -> Known<Value> {
    let absent = |reason: &str| Known::unknown(Cause::Absent, key.to_string(), reason);
    let stack = &nic.stack;
    match knob {
        NicKnob::GsoMaxBytes => bytes(&stack.gso_max_bytes),
        NicKnob::GsoIpv4MaxBytes => bytes(&stack.gso_ipv4_max_bytes),
        NicKnob::GroMaxBytes => bytes(&stack.gro_max_bytes),
        NicKnob::GroIpv4MaxBytes => bytes(&stack.gro_ipv4_max_bytes),
        NicKnob::VlanEgress => stack.vlan.as_ref().map_or_else(
            || absent("the interface is not a VLAN"),
            |vlan| {
                part(&vlan.egress, |map| {
                    let map = map.iter().copied().collect();
                    Known::Value(Value::Text(egress_words(&map)))
                })
            },
        ),
        NicKnob::BondHashPolicy => {
            let policy = stack.bond.as_ref().map(|bond| text(&bond.hash_policy));
            policy.unwrap_or_else(|| absent("the interface is not a bond"))
        }
        NicKnob::IpoibMode => {
            let mode = stack.ipoib_mode.as_ref().map(text);
            mode.unwrap_or_else(|| absent("the interface is not on InfiniBand"))
        }
        _ => absent("it is the interface's own"),
    }
}

/// The DCB settings of a NIC.
pub fn dcb_value(dcb: &Dcb, knob: &NicKnob) -> Known<Value> {
    let words = match knob {
        NicKnob::DcbPfc => dcb.pfc_enabled.clone().map(priority_words),
        NicKnob::DcbMaxRate => {
            let rates = dcb.class_max_bit_per_s.clone();
            rates.map(|rates| rate_words(&rates))
        }
        NicKnob::DcbApp => applications_of(dcb),
        _ => classes_of(dcb),
    };
    words.map(Value::Text)
}

/// RSS: the indirection table, or the hash fields of one flow type.
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

/// A value that is a part of another.
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

fn current_of_machine(host: &Host, knob: MachineKnob) -> Known<Value> {
    let power = &host.power;
    match knob {
        MachineKnob::Turbo => power.turbo.clone().map(Value::Switch),
        MachineKnob::Smt => power.smt.clone().map(Value::Text),
        MachineKnob::MaxLatencyUs => {
            let limit = power.latency_limit_us.clone();
            limit.map(|us| Value::Integer(u64::from(us)))
        }
        // No rule checks it.
        MachineKnob::IrqbalancePaused => Known::not_asked("irqbalance/paused".to_owned()),
        MachineKnob::IrqbalanceBans => Known::not_asked("irqbalance/banned-irqs".to_owned()),
        told @ (MachineKnob::Mitigations
        | MachineKnob::IntelIdleMaxCstate
        | MachineKnob::AcpiMaxCstate
        | MachineKnob::NftRules
        | MachineKnob::IptablesTables) => Known::not_asked(SettingKey::Machine(told).to_string()),
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
        BlockKnob::NrRequests => count(&device.nr_requests),
        BlockKnob::IoPolicy => device.io_policy.clone().map(Value::Text),
    }
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
