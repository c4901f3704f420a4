//! A NIC's queues with RPS, RFS and XPS: `/sys/class/net/NIC/queues`
//! (Documentation/ABI/testing/sysfs-class-net-queues, Documentation/networking/scaling.rst).
//!
//! A host may have thousands of queues: only the required files are opened, and a queue's directory is not listed.

use std::collections::BTreeMap;

use linerate_model::host::{Irq, Napi, Queue, QueueKind};
use linerate_model::ids::{CpuSet, IdError, IrqNumber, NicName};
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::units::BitRate;

use super::queue_irqs::{Device, QueueIrqs, QueueNapis, cpus_of, find_irqs};
use crate::attributes::{cpu_mask, number, numbered, parsed};
use crate::parallel;
use crate::root::{HostRoot, absolute};

/// Reads a NIC's queues, receive queues first, each in numeric order.
pub(crate) fn read_queues(
    root: &HostRoot,
    nic: &NicName,
    device: Option<&Device<'_>>,
    irqs: &[Irq],
    napis: &Known<Vec<Napi>>,
    gaps: &mut Vec<Gap>,
) -> Vec<Queue> {
    match Reader::new(root, nic, device, irqs, napis) {
        Ok(reader) => parallel::each(&reader.queues, |(kind, index)| reader.read(*kind, *index)),
        Err(gap) => {
            gaps.push(gap);
            Vec::new()
        }
    }
}

/// The interrupt of each queue of a NIC, and nothing else.
pub(crate) fn read_queue_irqs(
    root: &HostRoot,
    nic: &NicName,
    device: Option<&Device<'_>>,
    irqs: &[Irq],
    napis: &Known<Vec<Napi>>,
) -> BTreeMap<(QueueKind, u32), Known<IrqNumber>> {
    let Ok(reader) = Reader::new(root, nic, device, irqs, napis) else {
        return BTreeMap::new();
    };
    let queues = reader.queues.iter().copied();
    queues
        .map(|(kind, index)| ((kind, index), reader.irq(kind, index)))
        .collect()
}

fn folder_of(nic: &NicName) -> String {
    format!("sys/class/net/{nic}/queues")
}

/// The data shared by the queues of one NIC.
struct Reader<'a> {
    root: &'a HostRoot,
    nic: &'a NicName,
    queues: Vec<(QueueKind, u32)>,
    irqs: &'a [Irq],
    by_name: Option<QueueIrqs>,
    by_napi: QueueNapis<'a>,
    has_one_tx: bool,
}

impl<'a> Reader<'a> {
    fn new(
        root: &'a HostRoot,
        nic: &'a NicName,
        device: Option<&Device<'_>>,
        irqs: &'a [Irq],
        napis: &'a Known<Vec<Napi>>,
    ) -> Result<Self, Gap> {
        let names = match root.list(&folder_of(nic)) {
            Known::Value(names) => names,
            Known::Unknown(gap) => return Err(gap),
        };
        let (rx, tx) = (numbered(&names, "rx-"), numbered(&names, "tx-"));
        let queues =
            |kind, numbers: &[u32]| numbers.iter().map(move |index| (kind, *index)).collect();
        let all: [Vec<_>; 2] = [queues(QueueKind::Rx, &rx), queues(QueueKind::Tx, &tx)];
        Ok(Self {
            root,
            nic,
            queues: all.concat(),
            irqs,
            by_name: device.map(|device| find_irqs(root, nic, device, irqs, rx.len())),
            by_napi: QueueNapis::new(nic, napis),
            has_one_tx: tx.len() == 1,
        })
    }

    fn irq(&self, kind: QueueKind, index: u32) -> Known<IrqNumber> {
        match (self.by_napi.irq(kind, index), &self.by_name) {
            (Some(irq), _) => Known::Value(irq),
            (None, Some(by_name)) => by_name.of(kind, index),
            (None, None) => Known::unknown(
                Cause::Absent,
                format!("/sys/class/net/{}/device", self.nic),
                "the interface has no device, so its queues have no interrupt",
            ),
        }
    }

    fn read(&self, kind: QueueKind, index: u32) -> Queue {
        let irq = self.irq(kind, index);
        let (root, folder) = (self.root, folder_of(self.nic));
        let is_rx = kind == QueueKind::Rx;
        let direction = if is_rx { "rx" } else { "tx" };
        let file = |name: &str| format!("{folder}/{direction}-{index}/{name}");
        Queue {
            index,
            kind,
            cpus: cpus_of(&irq, self.irqs),
            irq,
            rps_cpus: of_direction(is_rx, &file("rps_cpus"), |path| cpu_mask(root, path)),
            rps_flow_cnt: of_direction(is_rx, &file("rps_flow_cnt"), |path| number(root, path)),
            xps_cpus: of_direction(!is_rx, &file("xps_cpus"), |path| {
                self.steering(cpu_mask(root, path))
            }),
            xps_rxqs: of_direction(!is_rx, &file("xps_rxqs"), |path| {
                self.steering(parsed(root, path, parse_queue_mask))
            }),
            max_bit_per_s: of_direction(!is_rx, &file("tx_maxrate"), |path| {
                number::<u32>(root, path).map(|rate| BitRate::from_mbit_per_s(rate.into()))
            }),
            tx_timeout: of_direction(!is_rx, &file("tx_timeout"), |path| number(root, path)),
            napi: self.by_napi.id(kind, index),
        }
    }

    /// The kernel does not show XPS of a NIC with a single transmit queue.
    fn steering<T>(&self, answer: Known<T>) -> Known<T> {
        match answer {
            Known::Unknown(gap) if gap.cause == Cause::Absent && self.has_one_tx => Known::unknown(
                Cause::Absent,
                gap.path,
                "with a single transmit queue there is nothing to choose",
            ),
            answer => answer,
        }
    }
}

/// A file of a queue, if queues of its direction have it.
fn of_direction<T>(has: bool, path: &str, read: impl FnOnce(&str) -> Known<T>) -> Known<T> {
    if has {
        return read(path);
    }
    let reason = "only queues of the other direction have it";
    Known::unknown(Cause::Absent, absolute(path), reason)
}

/// A mask of receive queues, in CPU mask format.
pub(crate) fn parse_queue_mask(text: &str) -> Result<Vec<u32>, IdError> {
    CpuSet::from_mask(text).map(|queues| queues.iter().map(|queue| queue.0).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mask_of_queues_gives_their_numbers() {
        assert_eq!(parse_queue_mask("5"), Ok(vec![0, 2]));
        assert_eq!(parse_queue_mask("1,00000000"), Ok(vec![32]));
        assert_eq!(parse_queue_mask("0"), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-f,]{0,24}|.{0,12}") {
            let _ = parse_queue_mask(&text);
        }
    }
}
