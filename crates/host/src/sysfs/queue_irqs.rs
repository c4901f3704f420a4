//! The interrupt of each queue of a NIC: from netlink's NAPI instances, which link queues and interrupts
//! (Documentation/netlink/specs/netdev.yaml, since 6.8); otherwise from the function's interrupts (`msi_irqs`), by
//! the queue number in the driver's interrupt name.

use std::collections::BTreeMap;

use linerate_model::host::{Irq, Napi, QueueKind};
use linerate_model::ids::{CpuSet, IrqNumber, NicName};
use linerate_model::known::{Cause, Gap, Known};

use super::irq_names::parse_queue_name;
use crate::attributes::{last_name, numbered};
use crate::root::{HostRoot, absolute};

/// The device data for finding a NIC's interrupts.
#[derive(Debug)]
pub(crate) struct Device<'a> {
    /// The directory of the PCI function, if there is one.
    pub(crate) function: Option<&'a str>,
    /// The last name of the device's own directory: `virtio2`, `0000:16:00.0`.
    pub(crate) name: &'a str,
    /// Its driver.
    pub(crate) driver: Option<&'a str>,
    /// Whether this is the function's only NIC.
    pub(crate) has_one_nic: bool,
}

/// The NAPI instances of a NIC's queues.
pub(crate) struct QueueNapis<'a> {
    of: BTreeMap<(QueueKind, u32), &'a Napi>,
    why_not: Gap,
}

impl<'a> QueueNapis<'a> {
    pub(crate) fn new(nic: &NicName, napis: &'a Known<Vec<Napi>>) -> Self {
        let mut of = BTreeMap::new();
        for napi in napis.value().into_iter().flatten() {
            let rx = napi.rx_queues.iter().map(|index| (QueueKind::Rx, *index));
            let tx = napi.tx_queues.iter().map(|index| (QueueKind::Tx, *index));
            of.extend(rx.chain(tx).map(|queue| (queue, napi)));
        }
        let why_not = napis.gap().cloned().unwrap_or_else(|| {
            let reason = "no NAPI instance lists this queue";
            Gap::new(
                Cause::NotSaid,
                format!("netlink: NAPI instances of {nic}"),
                reason,
            )
        });
        Self { of, why_not }
    }

    /// The ID of the NAPI instance that serves a queue.
    pub(crate) fn id(&self, kind: QueueKind, index: u32) -> Known<u32> {
        match self.of.get(&(kind, index)) {
            Some(napi) => Known::Value(napi.id),
            None => Known::Unknown(self.why_not.clone()),
        }
    }

    /// The interrupt of a queue's NAPI instance. Many drivers report none, and one reports 0.
    pub(crate) fn irq(&self, kind: QueueKind, index: u32) -> Option<IrqNumber> {
        let irq = self.of.get(&(kind, index))?.irq.get()?;
        (irq.0 != 0).then_some(irq)
    }
}

/// The effective affinity of a queue's interrupt.
pub(crate) fn cpus_of(irq: &Known<IrqNumber>, irqs: &[Irq]) -> Known<CpuSet> {
    let number = match irq {
        Known::Value(number) => *number,
        Known::Unknown(gap) => return Known::Unknown(gap.clone()),
    };
    match irqs.binary_search_by_key(&number, |irq| irq.number) {
        // Kernels before 4.13 have no effective affinity: any of the requested CPUs may get it.
        Ok(at) if !has_effective(irqs) => irqs[at].requested.clone(),
        Ok(at) => irqs[at].effective.clone(),
        Err(_) => Known::unknown(
            Cause::Absent,
            format!("/proc/irq/{number}"),
            "the interrupt is not listed",
        ),
    }
}

/// Whether the kernel has `effective_affinity_list`.
fn has_effective(irqs: &[Irq]) -> bool {
    let absent = |gap: &Gap| gap.cause == Cause::Absent;
    irqs.iter()
        .any(|irq| !irq.effective.gap().is_some_and(absent))
}

/// The interrupts of a NIC's queues by their names.
pub(crate) struct QueueIrqs {
    of: BTreeMap<(QueueKind, u32), Vec<IrqNumber>>,
    /// Interrupts with the interface's name.
    bare: Vec<IrqNumber>,
    looked_at: String,
    why_not: String,
}

impl QueueIrqs {
    /// A queue's interrupt.
    pub(crate) fn of(&self, kind: QueueKind, index: u32) -> Known<IrqNumber> {
        let looked_at = self.looked_at.as_str();
        match self.of.get(&(kind, index)).map(Vec::as_slice) {
            Some([only]) => Known::Value(*only),
            Some([one, other, ..]) => Known::unknown(
                Cause::Unreadable,
                looked_at,
                format!("interrupts {one} and {other} both claim the queue"),
            ),
            _ => Known::unknown(Cause::NotSaid, looked_at, self.why_not.as_str()),
        }
    }

    fn add(
        &mut self,
        action: &str,
        irq: IrqNumber,
        nic: &NicName,
        device: &Device<'_>,
        sole: bool,
    ) {
        if action == nic.as_str() && !self.bare.contains(&irq) {
            self.bare.push(irq);
        }
        let Some(queue) = parse_queue_name(action) else {
            return;
        };
        if !(sole || is_owner(queue.owner, nic, device)) {
            return;
        }
        for kind in [QueueKind::Rx, QueueKind::Tx] {
            if queue.serves.covers(kind, device.driver) {
                let claims = self.of.entry((kind, queue.index)).or_default();
                if !claims.contains(&irq) {
                    claims.push(irq);
                }
            }
        }
    }
}

/// Finds the interrupts of a NIC's queues by the names of the function's interrupts, or of all interrupts if the
/// function lists none.
pub(crate) fn find_irqs(
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
    let mut found = QueueIrqs {
        of: BTreeMap::new(),
        bare: Vec::new(),
        looked_at: match device.function {
            Some(function) if own.is_some() => absolute(&format!("{function}/msi_irqs")),
            _ => "/proc/interrupts".to_owned(),
        },
        why_not: String::new(),
    };
    // Among the function's own interrupts a number is sufficient if no other NIC shares them.
    let sole = own.is_some() && device.has_one_nic;
    let mut candidates = 0;
    let mut look = |irq: &Irq| {
        for action in irq.actions.value().into_iter().flatten() {
            candidates += 1;
            found.add(action, irq.number, nic, device, sole);
        }
    };
    match own {
        Some(own) => own
            .into_iter()
            .filter_map(|number| {
                let at = irqs
                    .binary_search_by_key(&number, |irq| irq.number.0)
                    .ok()?;
                irqs.get(at)
            })
            .for_each(&mut look),
        None => irqs.iter().for_each(&mut look),
    }
    // A device with one queue gives its interrupt its own name; with more queues, that is the event interrupt.
    if found.of.is_empty() && rx_queues == 1 && found.bare.len() == 1 {
        for kind in [QueueKind::Rx, QueueKind::Tx] {
            found.of.insert((kind, 0), found.bare.clone());
        }
    }
    found.why_not =
        format!("none of its {candidates} interrupt names shows which one serves this queue");
    found
}

/// Whether the owner in an interrupt's name, with or without the driver's name as a prefix, is this NIC, its device
/// or its PCI function.
fn is_owner(owner: &str, nic: &NicName, device: &Device<'_>) -> bool {
    let function = device.function.map(last_name);
    [Some(nic.as_str()), Some(device.name), function]
        .into_iter()
        .flatten()
        .filter_map(|name| owner.strip_suffix(name))
        .any(|driver| driver.is_empty() || driver.ends_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn irq(number: u32, effective: Known<CpuSet>) -> Irq {
        Irq {
            number: IrqNumber(number),
            actions: Known::default(),
            requested: Known::Value("0".parse().expect("a list")),
            effective,
            managed: Known::default(),
            node: Known::default(),
        }
    }

    #[test]
    fn the_requested_cpus_count_only_on_a_kernel_without_effective_ones() {
        let absent = || Known::unknown(Cause::Absent, "effective_affinity_list", "no such file");
        let of = |irqs: &[Irq]| cpus_of(&Known::Value(IrqNumber(66)), irqs);
        let old = [irq(66, absent()), irq(67, absent())];
        assert_eq!(of(&old).value().map(CpuSet::len), Some(1));
        let new = [
            irq(66, absent()),
            irq(67, Known::Value("1".parse().expect("a list"))),
        ];
        assert!(of(&new).gap().is_some());
    }
}
