//! A NIC's queues and their steering: `/sys/class/net/NIC/queues`
//! (Documentation/ABI/testing/sysfs-class-net-queues, Documentation/networking/scaling.rst), and the
//! interrupt of each, found by ids: the function's own interrupts, and among them the queue's number.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::host::{Irq, Queue, QueueKind};
use linerate_model::ids::{CpuSet, IrqNumber, NicName};
use linerate_model::known::{Cause, Gap, Known};

use super::irq_names::parse_queue_name;
use super::{cpu_mask, number, numbered};
use crate::root::{HostRoot, absolute};

/// What is known of the device behind a NIC when its interrupts are looked for.
#[derive(Debug)]
pub(crate) struct Device<'a> {
    /// The folder of the PCI function, when there is one.
    pub(crate) function: Option<&'a str>,
    /// The last name of the device's own folder: `virtio2`, `0000:16:00.0`.
    pub(crate) name: &'a str,
    /// Its driver.
    pub(crate) driver: Option<&'a str>,
    /// Whether the function has this NIC and no other.
    pub(crate) has_one_nic: bool,
}

/// Reads a NIC's queues, receive queues first, each in numeric order.
pub(crate) fn read_queues(
    root: &HostRoot,
    nic: &NicName,
    device: Option<&Device<'_>>,
    irqs: &[Irq],
    gaps: &mut Vec<Gap>,
) -> Vec<Queue> {
    let folder = format!("sys/class/net/{nic}/queues");
    let names = match root.list(&folder) {
        Known::Value(names) => names,
        Known::Unknown(gap) => {
            gaps.push(gap);
            return Vec::new();
        }
    };
    let (rx, tx) = (numbered(&names, "rx-"), numbered(&names, "tx-"));
    let found = device.map(|device| find_irqs(root, nic, device, irqs, rx.len()));
    let irq_of = |kind, index| match &found {
        Some(found) => found.of(kind, index),
        None => Known::unknown(
            Cause::Absent,
            format!("/sys/class/net/{nic}/device"),
            "the interface has no device, so its queues have no interrupt",
        ),
    };
    let mut queues = Vec::with_capacity(rx.len() + tx.len());
    for &index in &rx {
        let at = format!("{folder}/rx-{index}");
        queues.push(Queue {
            xps_rxqs: Known::default(),
            max_bit_per_s: Known::default(),
            napi: Known::default(),
            index,
            kind: QueueKind::Rx,
            cpus: cpus_of(&irq_of(QueueKind::Rx, index), irqs),
            irq: irq_of(QueueKind::Rx, index),
            rps_cpus: cpu_mask(root, &format!("{at}/rps_cpus")),
            rps_flow_cnt: number(root, &format!("{at}/rps_flow_cnt")),
            xps_cpus: other_direction(&format!("{at}/xps_cpus"), "transmit"),
        });
    }
    for &index in &tx {
        let at = format!("{folder}/tx-{index}");
        queues.push(Queue {
            xps_rxqs: Known::default(),
            max_bit_per_s: Known::default(),
            napi: Known::default(),
            index,
            kind: QueueKind::Tx,
            cpus: cpus_of(&irq_of(QueueKind::Tx, index), irqs),
            irq: irq_of(QueueKind::Tx, index),
            rps_cpus: other_direction(&format!("{at}/rps_cpus"), "receive"),
            rps_flow_cnt: other_direction(&format!("{at}/rps_flow_cnt"), "receive"),
            xps_cpus: read_xps(root, &format!("{at}/xps_cpus"), tx.len()),
        });
    }
    queues
}

fn other_direction<T>(path: &str, direction: &str) -> Known<T> {
    let reason = format!("only a {direction} queue has it");
    Known::unknown(Cause::Absent, absolute(path), reason)
}

/// The kernel refuses to show transmit steering of a NIC with a single transmit queue.
fn read_xps(root: &HostRoot, path: &str, tx_queues: usize) -> Known<CpuSet> {
    match cpu_mask(root, path) {
        Known::Unknown(gap) if gap.cause == Cause::Absent && tx_queues == 1 => Known::unknown(
            Cause::Absent,
            gap.path,
            "with a single transmit queue there is nothing to choose",
        ),
        answer => answer,
    }
}

/// Where a queue's interrupt is really delivered.
fn cpus_of(irq: &Known<IrqNumber>, irqs: &[Irq]) -> Known<CpuSet> {
    let number = match irq {
        Known::Value(number) => *number,
        Known::Unknown(gap) => return Known::Unknown(gap.clone()),
    };
    match irqs.binary_search_by_key(&number, |irq| irq.number) {
        Ok(at) => irqs[at].effective.clone(),
        Err(_) => Known::unknown(
            Cause::Absent,
            format!("/proc/irq/{number}"),
            "the interrupt is not listed",
        ),
    }
}

/// The interrupts of a NIC's queues.
struct QueueIrqs {
    of: BTreeMap<(QueueKind, u32), BTreeSet<IrqNumber>>,
    looked_at: String,
    why_not: String,
}

impl QueueIrqs {
    fn of(&self, kind: QueueKind, index: u32) -> Known<IrqNumber> {
        let irqs = self.of.get(&(kind, index));
        match irqs.map(|irqs| irqs.iter().collect::<Vec<_>>()).as_deref() {
            Some([only]) => Known::Value(**only),
            Some([one, other, ..]) => Known::unknown(
                Cause::Unreadable,
                self.looked_at.as_str(),
                format!("interrupts {one} and {other} both claim the queue"),
            ),
            _ => Known::unknown(
                Cause::NotSaid,
                self.looked_at.as_str(),
                self.why_not.as_str(),
            ),
        }
    }
}

fn find_irqs(
    root: &HostRoot,
    nic: &NicName,
    device: &Device<'_>,
    irqs: &[Irq],
    rx_queues: usize,
) -> QueueIrqs {
    let own = device.function.and_then(|function| {
        let names = root.list(&format!("{function}/msi_irqs"));
        names.value().map(|names| numbered(names, ""))
    });
    // Among the function's own interrupts a number is enough when no other NIC shares them.
    let is_sole_owner = own.is_some() && device.has_one_nic;
    let mut of: BTreeMap<(QueueKind, u32), BTreeSet<IrqNumber>> = BTreeMap::new();
    let mut bare = BTreeSet::new();
    let mut candidates = 0;
    let is_own = |irq: &Irq| match &own {
        Some(own) => own.binary_search(&irq.number.0).is_ok(),
        None => true,
    };
    for irq in irqs.iter().filter(|irq| is_own(irq)) {
        for action in irq.actions.value().into_iter().flatten() {
            candidates += 1;
            if action == nic.as_str() {
                bare.insert(irq.number);
            }
            let Some(queue) = parse_queue_name(action) else {
                continue;
            };
            if !(is_sole_owner || is_owner(queue.owner, nic, device)) {
                continue;
            }
            for kind in [QueueKind::Rx, QueueKind::Tx] {
                if queue.serves.covers(kind, device.driver) {
                    of.entry((kind, queue.index))
                        .or_default()
                        .insert(irq.number);
                }
            }
        }
    }
    // A device with one queue names its interrupt as itself; with more, that is the one for events.
    if of.is_empty() && rx_queues == 1 && bare.len() == 1 {
        of.insert((QueueKind::Rx, 0), bare.clone());
        of.insert((QueueKind::Tx, 0), bare);
    }
    QueueIrqs {
        of,
        looked_at: match device.function {
            Some(function) if own.is_some() => absolute(&format!("{function}/msi_irqs")),
            _ => "/proc/interrupts".to_owned(),
        },
        why_not: format!(
            "none of the {candidates} names of its interrupts tells which of them serves this queue"
        ),
    }
}

/// Whether the owner in an interrupt's name, with or without the driver's name before it, is this NIC,
/// its device or its PCI function.
fn is_owner(owner: &str, nic: &NicName, device: &Device<'_>) -> bool {
    let function = device.function.map(super::last_name);
    [Some(nic.as_str()), Some(device.name), function]
        .into_iter()
        .flatten()
        .filter_map(|name| owner.strip_suffix(name))
        .any(|driver| driver.is_empty() || driver.ends_with('-'))
}
