//! Shared by the rules about locality, interrupts and queues: queues in use, their interrupts, the free CPUs for
//! them, and CPU load.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::if_read;
use super::{change_to, remedy};
use crate::finding::{Context, Evidence, Remedy};
use crate::host::{Channels, Host, Nic, NodeSource, Queue, QueueKind};
use crate::ids::{CpuId, CpuSet, IrqNumber};
use crate::known::{Cause, Gap, Known};
use crate::plan::{Change, End};
use crate::sample::{FlowRecord, SideSample};
use crate::setting::{NicKnob, SettingKey, Value};
use crate::units::real;
use crate::watch::Watch;

/// `rx-3`, the queue's name in sysfs.
pub(super) fn queue_name(queue: &Queue) -> String {
    let kind = match queue.kind {
        QueueKind::Rx => "rx",
        QueueKind::Tx => "tx",
    };
    format!("{kind}-{}", queue.index)
}

/// A file of a queue.
pub(super) fn queue_file(nic: &Nic, queue: &Queue, file: &str) -> String {
    format!(
        "/sys/class/net/{}/queues/{}/{file}",
        nic.name,
        queue_name(queue)
    )
}

/// A file of the device behind an interface: of its PCI function if the device itself is on one (virtio).
pub(super) fn device_file(nic: &Nic, file: &str) -> String {
    let on_virtio = nic.driver.value().is_some_and(|name| name == "virtio_net");
    match nic.pci_address.get() {
        Some(address) if on_virtio => format!("/sys/bus/pci/devices/{address}/{file}"),
        _ => format!("/sys/class/net/{}/device/{file}", nic.name),
    }
}

/// The number of queues of a direction that the driver uses, if reported.
pub(super) fn channel_count(channels: &Channels, kind: QueueKind) -> Option<u32> {
    let own = match kind {
        QueueKind::Rx => &channels.rx,
        QueueKind::Tx => &channels.tx,
    };
    match (channels.combined.get(), own.get()) {
        (None, None) => None,
        (combined, own) => Some(
            combined
                .unwrap_or_default()
                .saturating_add(own.unwrap_or_default()),
        ),
    }
}

/// The queues of a direction that are in use: sysfs may list more than there are channels (mlx5 does).
pub(super) fn in_use(nic: &Nic, kind: QueueKind) -> Vec<&Queue> {
    let count = nic
        .channels
        .value()
        .and_then(|channels| channel_count(channels, kind))
        .filter(|count| *count > 0);
    nic.queues
        .iter()
        .filter(|queue| queue.kind == kind && count.is_none_or(|count| queue.index < count))
        .collect()
}

/// The queues of both directions that are in use, receive queues first.
pub(super) fn all_in_use(nic: &Nic) -> Vec<&Queue> {
    let kinds = [QueueKind::Rx, QueueKind::Tx].into_iter();
    kinds.flat_map(|kind| in_use(nic, kind)).collect()
}

/// An interrupt of an interface with its queue and its CPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken<'a> {
    /// The interrupt.
    pub(super) irq: IrqNumber,
    /// The first queue it serves.
    pub(super) queue: &'a Queue,
    /// The CPUs it is delivered to.
    pub(super) cpus: &'a CpuSet,
}

impl Taken<'_> {
    /// The setting, and its value, that moves it to `cpu`.
    fn on_cpu(&self, nic: &Nic, cpu: CpuId) -> (SettingKey, Value) {
        let knob = NicKnob::IrqCpus(self.queue.kind, self.queue.index);
        let to = Value::Text(CpuSet::one(cpu).to_string());
        (SettingKey::Nic(nic.name.clone(), knob), to)
    }

    /// Its effective affinity as evidence; the requested one of a kernel that has no other (before 4.13).
    pub(super) fn evidence(&self, host: &Host) -> Evidence {
        let irq = host.irq(self.irq);
        let is_old = irq.is_some_and(|irq| {
            irq.effective
                .gap()
                .is_some_and(|gap| gap.cause == Cause::Absent)
        });
        let file = if is_old {
            "smp_affinity_list"
        } else {
            "effective_affinity_list"
        };
        Evidence::new(
            format!("CPUs of IRQ {} ({})", self.irq, queue_name(self.queue)),
            self.cpus,
            format!("/proc/irq/{}/{file}", self.irq),
        )
    }
}

/// The interrupts of `queues`, without duplicates, whose CPUs are known.
pub(super) fn taken<'a>(queues: &[&'a Queue]) -> Vec<Taken<'a>> {
    let mut seen = BTreeSet::new();
    queues
        .iter()
        .filter_map(|queue| {
            Some(Taken {
                irq: queue.irq.get()?,
                queue,
                cpus: queue.cpus.value().filter(|cpus| !cpus.is_empty())?,
            })
        })
        .filter(|taken| seen.insert(taken.irq))
        .collect()
}

/// Why the interrupts of `queues` are not known; empty if the queues have none (a veth).
pub(super) fn irq_gaps(queues: &[&Queue]) -> Vec<Gap> {
    let gaps = queues.iter().filter_map(|queue| needed(queue.irq.gap()?));
    gaps.take(1).chain(cpu_gaps(queues)).collect()
}

/// Why the CPUs of existing interrupts are not known.
pub(super) fn cpu_gaps(queues: &[&Queue]) -> Vec<Gap> {
    let there = queues.iter().filter(|queue| queue.irq.get().is_some());
    let gaps: BTreeSet<&Gap> = there.filter_map(|queue| queue.cpus.gap()).collect();
    gaps.into_iter().cloned().collect()
}

/// The gap of a value that may exist; none for one that is absent.
pub(super) fn needed(gap: &Gap) -> Option<Gap> {
    gap.leaves_a_question().then(|| gap.clone())
}

/// The online CPUs on the node of `nic`, with the source file; a NIC whose node was inferred has the CPUs of that
/// node, since its own `local_cpulist` then lists all of them.
pub(super) fn local_cpus(host: &Host, nic: &Nic) -> Known<(CpuSet, String)> {
    let online = host.online_cpus();
    if let [_] = host.nodes.as_slice() {
        return Known::Value((online, "/sys/devices/system/cpu/online".to_owned()));
    }
    let inferred = matches!(
        nic.numa_node_source.value(),
        Some(NodeSource::LocalCpus(_) | NodeSource::UpstreamBridge(_))
    );
    let node = match &nic.numa_node {
        Known::Value(node) => *node,
        Known::Unknown(gap) => return Known::Unknown(gap.clone()),
    };
    if !inferred {
        let own = nic.local_cpus.clone();
        return own.map(|cpus| (cpus.and(&online), device_file(nic, "local_cpulist")));
    }
    let path = format!("/sys/devices/system/node/node{node}/cpulist");
    match host.nodes.iter().find(|own| own.id == node) {
        Some(own) => own.cpus.clone().map(|cpus| (cpus.and(&online), path)),
        None => Known::unknown(Cause::NotSaid, path, format!("there is no node {node}")),
    }
}

/// The isolated CPUs, as far as they are known.
pub(super) fn kept_apart(host: &Host) -> CpuSet {
    let lists = [
        (&host.isolation.isolated, "isolcpus="),
        (&host.isolation.nohz_full, "nohz_full="),
    ];
    lists
        .into_iter()
        .flat_map(|(list, option)| {
            match list {
                Known::Unknown(gap) if gap.cause == Cause::Absent => booted_with(host, option),
                list => if_read(list).cloned().unwrap_or_else(CpuSet::empty),
            }
            .iter()
            .collect::<Vec<_>>()
        })
        .collect()
}

/// The CPUs of `isolcpus=` or `nohz_full=` on the command line, for kernels before 4.2, which have no file for them.
pub(super) fn booted_with(host: &Host, option: &str) -> CpuSet {
    let line = if_read(&host.identity.command_line).map_or("", String::as_str);
    let words = line.split_whitespace();
    let list = words
        .filter_map(|word| word.strip_prefix(option))
        .next_back();
    // Flags (`domain`, `managed_irq`) stand before the list.
    let list = list.unwrap_or_default().split(',');
    let cpus: Vec<&str> = list
        .filter(|part| part.starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    cpus.join(",").parse().unwrap_or_else(|_| CpuSet::empty())
}

/// The CPUs suitable for an interrupt of `nic`: online, local, and not isolated.
pub(super) fn homes(host: &Host, nic: &Nic) -> CpuSet {
    let kept = kept_apart(host);
    let online = host.online_cpus();
    let near = match local_cpus(host, nic) {
        Known::Value((near, _)) if !near.is_empty() => near,
        _ => online.clone(),
    };
    [near.minus(&kept), online.minus(&kept), near.clone()]
        .into_iter()
        .find(|cpus| !cpus.is_empty())
        .unwrap_or(near)
}

/// The SMT siblings of `cpu`, itself included.
pub(super) fn siblings(host: &Host, cpu: CpuId) -> CpuSet {
    host.cpu(cpu)
        .and_then(|own| own.siblings.value().cloned())
        .unwrap_or_else(|| CpuSet::one(cpu))
}

/// The number of physical cores of `cpus`.
pub(super) fn cores(host: &Host, cpus: &CpuSet) -> usize {
    let cores: BTreeSet<CpuSet> = cpus.iter().map(|cpu| siblings(host, cpu)).collect();
    cores.len()
}

/// Whether `irq` is managed by the kernel and cannot be moved.
pub(super) fn is_managed(host: &Host, irq: IrqNumber) -> bool {
    host.irq(irq)
        .is_some_and(|own| own.managed.get() == Some(true))
}

/// One of `homes` for each movable interrupt of `moved`: unused ones first, then round-robin.
pub(super) fn spread(
    context: &Context<'_>,
    nic: &Nic,
    moved: &[Taken<'_>],
    homes: &CpuSet,
    used: &CpuSet,
) -> Vec<Remedy> {
    let busy = homes.and(used);
    let free = homes.minus(used);
    let order: Vec<CpuId> = free.iter().chain(busy.iter()).collect();
    moved
        .iter()
        .filter(|taken| !is_managed(context.host, taken.irq))
        .zip(order.iter().cycle())
        .filter_map(|(taken, cpu)| {
            let (setting, to) = taken.on_cpu(nic, *cpu);
            remedy(context, setting, to)
        })
        .collect()
}

/// The changes that move each interrupt of `nic` to its own local CPU, one per core before using SMT siblings;
/// round-robin if there are more interrupts. Managed interrupts are left alone. A gap if the interface's interrupts
/// are unknown.
pub fn affinity(host: &Host, nic: &Nic) -> Known<Vec<Change>> {
    let queues = all_in_use(nic);
    let all = taken(&queues);
    if all.is_empty() {
        let gap = queues
            .iter()
            .find_map(|queue| queue.irq.gap().or(queue.cpus.gap()));
        return gap.map_or_else(
            || {
                let path = format!("/sys/class/net/{}/queues", nic.name);
                Known::unknown(Cause::Absent, path, "it has no queues")
            },
            |gap| Known::Unknown(gap.clone()),
        );
    }
    let homes = homes(host, nic);
    let mut cores = BTreeSet::new();
    let (first, others): (Vec<CpuId>, Vec<CpuId>) = homes
        .iter()
        .partition(|cpu| cores.insert(siblings(host, *cpu)));
    let order: Vec<CpuId> = first.into_iter().chain(others).collect();
    let movable = all.iter().filter(|taken| !is_managed(host, taken.irq));
    let change = |(taken, cpu): (&Taken<'_>, &CpuId)| {
        let (setting, to) = taken.on_cpu(nic, *cpu);
        change_to(host, setting, to)
    };
    Known::Value(
        movable
            .zip(order.iter().cycle())
            .filter_map(change)
            .collect(),
    )
}

/// The CPUs that take any of `all`.
pub(super) fn used(all: &[Taken<'_>]) -> CpuSet {
    all.iter().flat_map(|taken| taken.cpus.iter()).collect()
}

/// The share of its time that `cpu` spent in hard interrupts and softirqs.
pub(super) fn softirq_share(watch: &Watch, cpu: CpuId) -> Known<f64> {
    let (mut whole, mut part) = (0u64, 0u64);
    for kind in ["user", "system", "irq", "softirq", "steal", "idle"] {
        match watch.grown(&format!("cpu/{cpu}/time/{kind}")) {
            Known::Value(time) => {
                whole = whole.saturating_add(time);
                if kind.ends_with("irq") {
                    part = part.saturating_add(time);
                }
            }
            Known::Unknown(gap) => return Known::Unknown(gap),
        }
    }
    if whole == 0 {
        return Known::unknown(Cause::NotSaid, "/proc/stat", "no time passed");
    }
    Known::Value(share(part, whole))
}

/// This share as evidence.
pub(super) fn softirq_evidence(watch: &Watch, cpu: CpuId, share: f64) -> Evidence {
    Evidence::new(
        format!("time of CPU {cpu} in softirq and interrupts"),
        percent(share),
        watch.path(&format!("cpu/{cpu}/time/softirq")),
    )
}

/// The count of `irq` on each CPU.
pub(super) fn irq_counts(watch: &Watch, irq: IrqNumber) -> BTreeMap<CpuId, u64> {
    watch
        .below(&format!("irq/{irq}/cpu/"))
        .filter_map(|(cpu, grown, _)| Some((CpuId(cpu.parse().ok()?), grown)))
        .collect()
}

/// The CPUs of the trial's threads on this host: of both ends, if they share a kernel.
pub(super) fn workers(context: &Context<'_>) -> CpuSet {
    let Some(sample) = context.sample else {
        return CpuSet::empty();
    };
    let own = match context.end {
        End::Local => &sample.local,
        End::Remote => &sample.remote,
    };
    let both = [&sample.local, &sample.remote];
    let sides: &[&SideSample] = if sample.shared_kernel { &both } else { &[own] };
    sides
        .iter()
        .flat_map(|side| &side.flows)
        .filter_map(FlowRecord::cpu)
        .collect()
}

/// `part` of `whole`; 0 if both are 0.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        real(part) / real(whole)
    }
}

/// `87 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A CPU set in a summary, which is one line: every other CPU of a large machine would fill several.
pub(super) fn brief(cpus: &CpuSet) -> String {
    const ROOM: usize = 24;
    let text = cpus.to_string();
    match (text.get(..ROOM), cpus.len()) {
        (Some(start), count) if text.len() > ROOM => {
            let whole = start.rsplit_once(',').map_or(start, |(whole, _)| whole);
            format!("{whole},... ({count})")
        }
        _ => text,
    }
}

/// The first few of `names`, and how many more there are: a summary is one line.
pub(super) fn few(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let text = names
        .iter()
        .take(SHOWN)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{text} and {more} more"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    #[test]
    fn every_other_cpu_of_a_large_machine_has_room_in_a_summary() {
        let odd: CpuSet = (0..64).map(|half| CpuId(half * 2 + 1)).collect();
        assert_eq!(brief(&odd), "1,3,5,7,9,11,13,15,17,... (64)");
        let few: CpuSet = "0-5,12".parse().expect("a list");
        assert_eq!(brief(&few), "0-5,12");
        let names: Vec<String> = (0..5).map(|at| format!("eth{at}")).collect();
        assert_eq!(super::few(&names), "eth0, eth1, eth2 and 2 more");
    }

    #[test]
    fn an_old_kernel_shows_the_requested_affinity_and_its_file() {
        let mut host = build::host().nic("eth2", |nic| nic.queues(&[0, 1])).build();
        let path = |host: &Host| {
            let queues = in_use(&host.nics[0], QueueKind::Rx);
            taken(&queues)[0].evidence(host).path
        };
        assert!(path(&host).ends_with("/effective_affinity_list"));
        for irq in &mut host.irqs {
            irq.effective =
                Known::unknown(Cause::Absent, "effective_affinity_list", "no such file");
        }
        assert!(path(&host).ends_with("/smp_affinity_list"));
    }

    #[test]
    fn the_command_line_of_an_old_kernel_has_the_isolated_cpus() {
        let mut host = build::host().build();
        host.identity.command_line =
            Known::Value("ro isolcpus=1 isolcpus=domain,managed_irq,2-3,7 quiet".to_owned());
        assert_eq!(booted_with(&host, "isolcpus=").to_string(), "2-3,7");
        assert!(booted_with(&host, "nohz_full=").is_empty());
    }

    #[test]
    fn queues_beyond_the_channels_are_not_in_use() {
        let mut host = build::host()
            .nic("eth2", |nic| nic.queues(&[0, 1, 0, 1]))
            .build();
        let nic = &mut host.nics[0];
        assert_eq!(in_use(nic, QueueKind::Rx).len(), 4);
        if let Known::Value(channels) = &mut nic.channels {
            channels.combined = Known::Value(2);
        }
        assert_eq!(in_use(nic, QueueKind::Tx).len(), 2);
    }

    #[test]
    fn time_that_was_not_counted_is_no_share() {
        let host = build::veth_pair().0;
        let watch = build::watch(&host).softirq(1, 0.25).build();
        assert_eq!(softirq_share(&watch, CpuId(1)), Known::Value(0.25));
        assert!(softirq_share(&watch, CpuId(7)).gap().is_some());
    }

    #[test]
    fn each_interrupt_gets_a_cpu_of_its_own_and_cores_come_before_siblings() {
        let host = build::host()
            .nodes(1, 4)
            .nic("eth2", |nic| nic.queues(&[0, 0, 0, 0]))
            .build();
        let nic = &host.nics[0];
        let changes = affinity(&host, nic)
            .value()
            .cloned()
            .expect("its interrupts");
        let words: Vec<String> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(
            words,
            [
                "nic/eth2/queue/rx-1/irq-cpus: 0 -> 1",
                "nic/eth2/queue/rx-2/irq-cpus: 0 -> 2",
                "nic/eth2/queue/rx-3/irq-cpus: 0 -> 3",
            ]
        );
    }

    #[test]
    fn an_interface_without_interrupts_has_nothing_to_place() {
        let host = build::host()
            .nodes(1, 2)
            .nic("veth0", |nic| nic.queues(&[]))
            .build();
        assert!(affinity(&host, &host.nics[0]).gap().is_some());
    }
}
