//! The queues of an interface, grouped: those whose interrupts go to CPUs of the same node are one flow, so that
//! a NIC with 64 queues is one line in a picture and not 64.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::host::{Host, Nic, Queue, QueueKind};
use linerate_model::ids::{CpuId, CpuSet, NodeId};
use linerate_model::known::{Cause, Known};

use crate::map::text::queue_name;

/// The queues of a flow that its tooltip lists.
const QUEUES_LISTED: usize = 12;

/// Queues whose packets take the same path to CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::map) struct Flow {
    /// `rx 0-3, tx 0-3`.
    pub(in crate::map) queues: String,
    /// What leads to the CPUs.
    pub(in crate::map) via: Via,
    /// The CPUs; none when they are not known.
    pub(in crate::map) cpus: CpuSet,
    /// The node of these CPUs; none when they have several or it is not known.
    pub(in crate::map) node: Option<NodeId>,
    /// Whether that is another node than the interface's.
    pub(in crate::map) remote: bool,
    /// Each queue with its interrupt and CPUs, or why they are not known.
    pub(super) about: String,
}

/// What leads the packets of a queue to a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::map) enum Via {
    /// These interrupts, or why they are not known.
    Interrupts(BTreeSet<u32>, Option<Cause>),
    /// RPS or XPS.
    Steering(&'static str),
    /// A virtual interface: its packets raise no interrupt.
    Nothing,
}

impl Flow {
    /// `CPUs 0-3`.
    pub(in crate::map) fn cpus_text(&self) -> String {
        match self.cpus.len() {
            0 => "CPUs ?".to_owned(),
            1 => format!("CPU {}", self.cpus),
            _ => format!("CPUs {}", self.cpus),
        }
    }

    /// `irq 60-63`, `RPS`.
    pub(super) fn via_text(&self) -> String {
        match &self.via {
            Via::Interrupts(irqs, _) if irqs.is_empty() => "irq ?".to_owned(),
            Via::Interrupts(irqs, _) => format!("irq {}", ranges(irqs)),
            Via::Steering(name) => (*name).to_owned(),
            Via::Nothing => "no irq".to_owned(),
        }
    }

    /// `irq 60-63`, or `irq ?` with the reason.
    pub(in crate::map) fn irqs_text(&self) -> String {
        match &self.via {
            Via::Interrupts(irqs, Some(cause)) if irqs.is_empty() => format!("irq ? ({cause})"),
            _ => self.via_text(),
        }
    }
}

/// What queues must have in common to be one flow.
#[derive(PartialEq, Eq)]
enum Target {
    /// Their CPUs are of this node, or of several.
    To(Option<NodeId>),
    /// Their interrupt or its CPUs are not known, for this reason.
    Unknown(Cause),
}

/// The flows of an interface: by its interrupts first, then by RPS and XPS.
pub(in crate::map) fn flows(nic: &Nic, host: &Host) -> Vec<Flow> {
    let nodes: BTreeMap<CpuId, Option<NodeId>> = host
        .cpus
        .iter()
        .map(|cpu| (cpu.id, cpu.node.get()))
        .collect();
    let mut groups: Vec<(Target, Vec<&Queue>)> = Vec::new();
    for queue in &nic.queues {
        let target = target(queue, &nodes);
        match groups.iter_mut().find(|(own, _)| *own == target) {
            Some((_, queues)) => queues.push(queue),
            None => groups.push((target, vec![queue])),
        }
    }
    let has_interrupts =
        nic.kind.has_wire() || nic.queues.iter().any(|queue| queue.irq.value().is_some());
    if !has_interrupts && !nic.queues.is_empty() {
        groups = vec![(Target::To(None), nic.queues.iter().collect())];
    }
    let mut all: Vec<Flow> = Vec::new();
    for (target, queues) in groups {
        let irqs = queues.iter().filter_map(|queue| Some(queue.irq.get()?.0));
        let (node, cause) = match target {
            Target::To(node) => (node, None),
            Target::Unknown(cause) => (None, Some(cause)),
        };
        let via = if has_interrupts {
            Via::Interrupts(irqs.collect(), cause)
        } else {
            Via::Nothing
        };
        let cpus = union(queues.iter().map(|queue| &queue.cpus));
        all.push(folded(nic, &queues, via, cpus, node));
    }
    all.extend(steering(nic, &nodes, &all));
    all
}

/// The CPUs that RPS and XPS select.
fn steering(
    nic: &Nic,
    nodes: &BTreeMap<CpuId, Option<NodeId>>,
    by_interrupt: &[Flow],
) -> Vec<Flow> {
    let handled: CpuSet = by_interrupt
        .iter()
        .flat_map(|flow| flow.cpus.iter())
        .collect();
    let of_kind = |kind: QueueKind, name: &'static str| {
        let of = |queue: &&Queue| match kind {
            QueueKind::Rx => queue.rps_cpus.value().cloned().unwrap_or_default(),
            QueueKind::Tx => queue.xps_cpus.value().cloned().unwrap_or_default(),
        };
        let queues = nic.queues.iter().filter(|queue| queue.kind == kind);
        let queues: Vec<&Queue> = queues.filter(|queue| !of(queue).is_empty()).collect();
        let cpus: BTreeSet<CpuId> = queues
            .iter()
            .flat_map(|queue| of(queue).iter().collect::<Vec<_>>())
            .collect();
        let on: BTreeSet<Option<NodeId>> = cpus
            .iter()
            .map(|cpu| nodes.get(cpu).copied().flatten())
            .collect();
        let node = on.first().copied().flatten().filter(|_| on.len() == 1);
        let cpus: CpuSet = cpus.into_iter().collect();
        // Many drivers set XPS to the CPUs of the interrupts: the same path.
        let is_same = kind == QueueKind::Tx && cpus.is_subset(&handled);
        (!cpus.is_empty() && !is_same)
            .then(|| folded(nic, &queues, Via::Steering(name), cpus, node))
    };
    let both = [of_kind(QueueKind::Rx, "RPS"), of_kind(QueueKind::Tx, "XPS")];
    both.into_iter().flatten().collect()
}

fn union<'a>(sets: impl Iterator<Item = &'a Known<CpuSet>>) -> CpuSet {
    sets.filter_map(Known::value)
        .flat_map(CpuSet::iter)
        .collect()
}

fn target(queue: &Queue, nodes: &BTreeMap<CpuId, Option<NodeId>>) -> Target {
    match (&queue.irq, &queue.cpus) {
        (Known::Unknown(gap), _) | (_, Known::Unknown(gap)) => Target::Unknown(gap.cause),
        (_, Known::Value(cpus)) => {
            let found = cpus.iter().filter_map(|cpu| nodes.get(&cpu).copied());
            let mut found = found.collect::<BTreeSet<_>>().into_iter();
            match (found.next(), found.next()) {
                (Some(node), None) => Target::To(node),
                _ => Target::To(None),
            }
        }
    }
}

fn folded(nic: &Nic, queues: &[&Queue], via: Via, cpus: CpuSet, node: Option<NodeId>) -> Flow {
    let mut names = Vec::new();
    for (name, kind) in [("rx", QueueKind::Rx), ("tx", QueueKind::Tx)] {
        let of = queues.iter().filter(|queue| queue.kind == kind);
        let numbers: BTreeSet<u32> = of.map(|queue| queue.index).collect();
        if !numbers.is_empty() {
            names.push(format!("{name} {}", ranges(&numbers)));
        }
    }
    let mut about: Vec<String> = queues
        .iter()
        .take(QUEUES_LISTED)
        .map(|queue| described(queue))
        .collect();
    if queues.len() > QUEUES_LISTED {
        about.push(format!("{} more queues", queues.len() - QUEUES_LISTED));
    }
    let home = nic.numa_node.get();
    Flow {
        queues: names.join(", "),
        via,
        cpus,
        node,
        remote: node.is_some() && home.is_some() && node != home,
        about: about.join("; "),
    }
}

/// One queue in words.
fn described(queue: &Queue) -> String {
    let irq = match &queue.irq {
        Known::Value(irq) => format!("irq {irq}"),
        Known::Unknown(gap) if gap.leaves_a_question() => format!("irq ? ({gap})"),
        Known::Unknown(_) => "no irq".to_owned(),
    };
    let mut words = vec![irq];
    for (what, fact) in [
        ("CPUs", &queue.cpus),
        ("RPS", &queue.rps_cpus),
        ("XPS", &queue.xps_cpus),
    ] {
        match fact {
            Known::Value(set) if set.is_empty() => words.push(format!("{what} none")),
            Known::Value(set) => words.push(format!("{what} {set}")),
            Known::Unknown(gap) if gap.leaves_a_question() => {
                words.push(format!("{what} ? ({gap})"));
            }
            Known::Unknown(_) => {}
        }
    }
    format!("{}: {}", queue_name(queue), words.join(", "))
}

/// `0-3,7`.
pub(in crate::map) fn ranges(all: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in all {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let words: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use linerate_model::build;

    use super::*;

    #[test]
    fn queues_that_go_to_one_node_are_one_flow_and_a_far_node_is_drawn() {
        let host = build::host()
            .nodes(2, 4)
            .nic("eth0", |nic| nic.node(0).queues(&[0, 1, 4, 5]))
            .build();
        let all = flows(&host.nics[0], &host);
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(
            (all[0].cpus_text().as_str(), all[0].remote),
            ("CPUs 0-1", false)
        );
        assert_eq!(
            (all[1].cpus_text().as_str(), all[1].remote),
            ("CPUs 4-5", true)
        );
    }

    #[test]
    fn what_is_not_known_is_a_flow_of_its_own() {
        let mut host = build::host().nic("eth0", |nic| nic.queues(&[0, 1])).build();
        for queue in &mut host.nics[0].queues {
            queue.irq = Known::not_asked("irq");
        }
        let all = flows(&host.nics[0], &host);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].irqs_text(), "irq ? (not queried)");
        assert!(!all[0].remote);
    }

    #[test]
    fn numbers_are_ranges() {
        assert_eq!(ranges(&BTreeSet::from([0, 1, 2, 5, 7, 8])), "0-2,5,7-8");
        assert_eq!(ranges(&BTreeSet::new()), "");
        assert_eq!(ranges(&BTreeSet::from([u32::MAX])), "4294967295");
    }
}
