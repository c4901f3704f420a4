//! The queues of an interface, grouped: those whose interrupts go to the same CPUs are one flow, so that a
//! NIC with 64 queues is one line in a picture and not 64.

use std::collections::BTreeSet;

use linerate_model::host::{Host, Nic, Queue, QueueKind};
use linerate_model::ids::{CpuSet, NodeId};
use linerate_model::known::Known;

/// Queues whose interrupts take the same path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flow {
    /// `rx 0-3, tx 0-3`.
    pub(super) queues: String,
    /// `irq 60-63`, or why it is not known.
    pub(super) irqs: String,
    /// The CPUs that take them; none when they are not known.
    pub(super) cpus: CpuSet,
    /// The node of these CPUs; none when they have several or it is not known.
    pub(super) node: Option<NodeId>,
    /// Whether that is another node than the interface's.
    pub(super) remote: bool,
}

impl Flow {
    /// `CPUs 0-3, one each`.
    pub(super) fn cpus_text(&self) -> String {
        match self.cpus.len() {
            0 => "CPUs ?".to_owned(),
            1 => format!("CPU {}", self.cpus),
            _ => format!("CPUs {}", self.cpus),
        }
    }
}

/// What queues must have in common to be one flow.
#[derive(PartialEq, Eq)]
enum FlowTarget {
    /// Their CPUs are of this node, or of several.
    To(Option<NodeId>),
    /// Their interrupt or its CPUs are not known, for this reason.
    Unknown(String),
}

struct Folding {
    way: FlowTarget,
    rx: BTreeSet<u32>,
    tx: BTreeSet<u32>,
    irqs: BTreeSet<u32>,
    cpus: BTreeSet<u32>,
}

/// The flows of an interface; none for one whose queues have no interrupts.
pub(super) fn flows(nic: &Nic, host: &Host) -> Vec<Flow> {
    if nic.queues.is_empty() || !has_interrupts(nic) {
        return Vec::new();
    }
    let mut all: Vec<Folding> = Vec::new();
    for queue in &nic.queues {
        let way = way(queue, host);
        let at = all.iter().position(|one| one.way == way);
        let at = at.unwrap_or_else(|| {
            all.push(Folding {
                way,
                rx: BTreeSet::new(),
                tx: BTreeSet::new(),
                irqs: BTreeSet::new(),
                cpus: BTreeSet::new(),
            });
            all.len() - 1
        });
        let Some(own) = all.get_mut(at) else { continue };
        match queue.kind {
            QueueKind::Rx => own.rx.insert(queue.index),
            QueueKind::Tx => own.tx.insert(queue.index),
        };
        own.irqs.extend(queue.irq.get().map(|irq| irq.0));
        let cpus = queue.cpus.value().into_iter().flat_map(CpuSet::iter);
        own.cpus.extend(cpus.map(|cpu| cpu.0));
    }
    all.iter().map(|one| finished(one, nic)).collect()
}

fn has_interrupts(nic: &Nic) -> bool {
    nic.kind.has_wire() || nic.queues.iter().any(|queue| queue.irq.value().is_some())
}

fn way(queue: &Queue, host: &Host) -> FlowTarget {
    match (&queue.irq, &queue.cpus) {
        (Known::Unknown(gap), _) | (_, Known::Unknown(gap)) => {
            FlowTarget::Unknown(gap.cause.to_string())
        }
        (_, Known::Value(cpus)) => {
            let members = host.cpus.iter().filter(|cpu| cpus.contains(cpu.id));
            let nodes: BTreeSet<Option<NodeId>> = members.map(|cpu| cpu.node.get()).collect();
            let mut nodes = nodes.into_iter();
            match (nodes.next(), nodes.next()) {
                (Some(node), None) => FlowTarget::To(node),
                _ => FlowTarget::To(None),
            }
        }
    }
}

fn finished(one: &Folding, nic: &Nic) -> Flow {
    let mut queues = Vec::new();
    for (way, all) in [("rx", &one.rx), ("tx", &one.tx)] {
        if !all.is_empty() {
            queues.push(format!("{way} {}", ranges(all)));
        }
    }
    let irqs = match &one.way {
        FlowTarget::Unknown(cause) if one.irqs.is_empty() => format!("irq ? ({cause})"),
        _ => format!("irq {}", ranges(&one.irqs)),
    };
    let node = match one.way {
        FlowTarget::To(node) => node,
        FlowTarget::Unknown(_) => None,
    };
    let cpus: Vec<String> = one.cpus.iter().map(ToString::to_string).collect();
    Flow {
        queues: queues.join(", "),
        irqs,
        cpus: cpus.join(",").parse().unwrap_or_default(),
        node,
        remote: node.is_some() && nic.numa_node.get().is_some() && node != nic.numa_node.get(),
    }
}

/// `0-3,7`.
pub(super) fn ranges(all: &BTreeSet<u32>) -> String {
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
    fn queues_that_go_to_one_node_are_one_flow_and_a_far_node_is_told() {
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
        assert_eq!(all[0].irqs, "irq ? (not queried)");
        assert!(!all[0].remote);
    }

    #[test]
    fn numbers_are_ranges() {
        assert_eq!(ranges(&BTreeSet::from([0, 1, 2, 5, 7, 8])), "0-2,5,7-8");
        assert_eq!(ranges(&BTreeSet::new()), "");
        assert_eq!(ranges(&BTreeSet::from([u32::MAX])), "4294967295");
    }
}
