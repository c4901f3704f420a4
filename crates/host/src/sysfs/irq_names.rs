//! Maps interrupts to queues by the name that the driver passed to `request_irq`. The name contains the queue's
//! number; the order of interrupts is not reliable.
//!
//! Names used by drivers: `eth0-TxRx-3` (igb, ixgbe, igc, bnxt), `i40e-eth0-TxRx-3`,
//! `ice-eth0-TxRx-3`, `iavf-eth0-TxRx-3`, `eth0-Tx-Rx-3` (ena), `eth0-rxtx-3` (vmxnet3, nfp),
//! `eth0-rx-3` and `eth0-tx-3` (many), `eth0-fp-3` (bnx2x, qede), `eth0-q3` (be2net), `eth0-Rx3`
//! (cxgb4), `mlx5_comp3@pci:0000:16:00.0`, `virtio2-input.3`, `virtio2-output.3`, `eth0-3` (bnx2,
//! mlx4, sfc, atlantic), and the bare `eth0` of a device with one queue.

use linerate_model::host::QueueKind;

/// A parsed interrupt name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueName<'a> {
    /// The owner: an interface, a PCI address or a virtio device, with the driver's prefix.
    pub(crate) owner: &'a str,
    /// The direction.
    pub(crate) serves: Serves,
    /// The queue's number.
    pub(crate) index: u32,
}

/// The direction of the queues that an interrupt serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    /// The receive queue.
    Rx,
    /// The transmit queue.
    Tx,
    /// Both.
    Both,
    /// The name has a number but no direction; the driver decides.
    Unsaid,
}

impl Serves {
    /// Whether it matches a queue of direction `kind`. Without a direction in the name, only drivers that number
    /// their vectors like their queues are accepted.
    pub(crate) fn covers(self, kind: QueueKind, driver: Option<&str>) -> bool {
        match self {
            Self::Rx => kind == QueueKind::Rx,
            Self::Tx => kind == QueueKind::Tx,
            Self::Both => true,
            Self::Unsaid => match driver {
                Some("bnx2" | "sfc" | "sfc-siena" | "sfc-falcon" | "atlantic") => true,
                // mlx4 names the vector of transmit completions after the receive ring that shares it.
                Some("mlx4_core" | "mlx4_en") => kind == QueueKind::Rx,
                _ => false,
            },
        }
    }
}

/// The suffixes before the number, in lower case, longest first.
const ENDINGS: [(&str, Serves); 9] = [
    ("-tx-rx", Serves::Both),
    ("-rx-tx", Serves::Both),
    ("-txrx", Serves::Both),
    ("-rxtx", Serves::Both),
    ("-fp", Serves::Both),
    ("-rx", Serves::Rx),
    ("-tx", Serves::Tx),
    ("-q", Serves::Both),
    ("", Serves::Unsaid),
];

/// Parses an interrupt's name; `None` if it contains no queue.
pub(crate) fn parse_queue_name(action: &str) -> Option<QueueName<'_>> {
    let (name, device) = match action.split_once("@pci:") {
        Some((name, device)) => (name, Some(device)),
        None => (action, None),
    };
    if let (Some(index), Some(owner)) = (name.strip_prefix("mlx5_comp"), device) {
        return Some(QueueName {
            owner,
            serves: Serves::Both,
            index: index.parse().ok()?,
        });
    }
    if device.is_some() {
        // Other completion vectors of a PCI function are not numbered like a NIC's queues.
        return None;
    }
    if let Some(found) = virtio(name) {
        return Some(found);
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let index = name[stem.len()..].parse().ok()?;
    let separated = stem.strip_suffix('-').unwrap_or(stem);
    let lower = separated.to_ascii_lowercase();
    let (ending, serves) = ENDINGS.iter().find(|(ending, _)| lower.ends_with(ending))?;
    if *serves == Serves::Unsaid && separated.len() == stem.len() {
        // `eth0` is an interface, not queue 0 of `eth`.
        return None;
    }
    // Lower case preserves ASCII lengths; `get` guards against others.
    let owner = separated.get(..separated.len().checked_sub(ending.len())?)?;
    (!owner.is_empty()).then_some(QueueName {
        owner,
        serves: *serves,
        index,
    })
}

/// `virtio2-input.0`, and `virtio2-input` on kernels before 3.8, with a single queue pair.
fn virtio(name: &str) -> Option<QueueName<'_>> {
    let (owner, queue) = name.split_once('-')?;
    let number = owner.strip_prefix("virtio")?;
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (direction, index) = queue.split_once('.').unwrap_or((queue, "0"));
    let serves = match direction {
        "input" => Serves::Rx,
        "output" => Serves::Tx,
        _ => return None,
    };
    Some(QueueName {
        owner,
        serves,
        index: index.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn said(action: &str) -> Option<(&str, Serves, u32)> {
        parse_queue_name(action).map(|name| (name.owner, name.serves, name.index))
    }

    #[test]
    fn the_names_that_drivers_give_are_understood() {
        assert_eq!(said("eth6-TxRx-3"), Some(("eth6", Serves::Both, 3)));
        assert_eq!(
            said("ice-ens1f0-TxRx-12"),
            Some(("ice-ens1f0", Serves::Both, 12))
        );
        assert_eq!(said("ens5-Tx-Rx-1"), Some(("ens5", Serves::Both, 1)));
        assert_eq!(said("eth0-rx-2"), Some(("eth0", Serves::Rx, 2)));
        assert_eq!(said("eth0-tx-2"), Some(("eth0", Serves::Tx, 2)));
        assert_eq!(said("eth0-Rx7"), Some(("eth0", Serves::Rx, 7)));
        assert_eq!(said("eth0-fp-0"), Some(("eth0", Serves::Both, 0)));
        assert_eq!(said("eth2-3"), Some(("eth2", Serves::Unsaid, 3)));
        assert_eq!(
            said("mlx5_comp7@pci:0000:81:00.0"),
            Some(("0000:81:00.0", Serves::Both, 7))
        );
        assert_eq!(said("virtio2-input.1"), Some(("virtio2", Serves::Rx, 1)));
        assert_eq!(said("virtio2-output.1"), Some(("virtio2", Serves::Tx, 1)));
    }

    #[test]
    fn names_that_speak_of_no_queue_are_left_alone() {
        for action in [
            "eth0",
            "virtio0-config",
            "virtio1-req.0",
            "mlx5_async0@pci:0000:81:00.0",
            "mlx4-comp-0@pci:0000:07:00.0",
            "ahci",
            "",
            "-3",
        ] {
            assert_eq!(said(action), None, "{action}");
        }
    }

    proptest! {
        #[test]
        fn no_name_panics(action in ".{0,24}", plain in "[a-zA-Z0-9@:.-]{0,24}") {
            let _ = (parse_queue_name(&action), parse_queue_name(&plain));
        }
    }
}
