//! Data that does not apply to an interface's kind. A missing value is then not a gap: no driver of a veth can report
//! a module. What a driver of the kind could provide stays a gap, and so does everything of an interface of unknown
//! kind.

use linerate_model::host::{Nic, NicKind, QueueKind};
use linerate_model::known::{Cause, Known};

const NO_DEVICE: &str = "an interface without a device has none";
const NO_WIRE: &str = "interfaces of this kind have no physical port";
const NO_CARD: &str = "interfaces of this kind are not NICs";
const OTHER_DIRECTION: &str = "only queues of the other direction have it";
const NO_QUEUE: &str = "this qdisc does not queue packets";

/// Marks the values in `nic`, which has a device or none.
pub(crate) fn mark(nic: &mut Nic, has_device: bool) {
    if !has_device {
        mark_device(nic);
    }
    mark_queues(nic, has_device);
    if !nic.kind.has_wire() && nic.kind != NicKind::Other {
        mark_card_and_wire(nic);
    }
    if let Known::Value(tree) = &mut nic.shaping.tree {
        let plain = |kind: &str| matches!(kind, "noop" | "noqueue");
        for node in tree.iter_mut().filter(|node| plain(&node.kind)) {
            for count in [&mut node.drops, &mut node.requeues, &mut node.overlimits] {
                cannot_be(count, NO_QUEUE);
            }
        }
    }
}

fn mark_device(nic: &mut Nic) {
    cannot_be(&mut nic.driver, NO_DEVICE);
    cannot_be(&mut nic.pci_address, NO_DEVICE);
    cannot_be(&mut nic.pci, NO_DEVICE);
    cannot_be(&mut nic.pcie, NO_DEVICE);
    cannot_be(&mut nic.numa_node, NO_DEVICE);
    cannot_be(&mut nic.numa_node_source, NO_DEVICE);
    cannot_be(&mut nic.numa_node_report, NO_DEVICE);
    cannot_be(&mut nic.local_cpus, NO_DEVICE);
    cannot_be(&mut nic.card.temperatures, NO_DEVICE);
}

fn mark_queues(nic: &mut Nic, has_device: bool) {
    for queue in &mut nic.queues {
        if !has_device {
            cannot_be(&mut queue.irq, NO_DEVICE);
            cannot_be(&mut queue.cpus, NO_DEVICE);
        }
        match queue.kind {
            QueueKind::Rx => {
                cannot_be(&mut queue.xps_cpus, OTHER_DIRECTION);
                cannot_be(&mut queue.xps_rxqs, OTHER_DIRECTION);
                cannot_be(&mut queue.max_bit_per_s, OTHER_DIRECTION);
            }
            QueueKind::Tx => {
                cannot_be(&mut queue.rps_cpus, OTHER_DIRECTION);
                cannot_be(&mut queue.rps_flow_cnt, OTHER_DIRECTION);
            }
        }
    }
}

fn mark_card_and_wire(nic: &mut Nic) {
    let card = &mut nic.card;
    cannot_be(&mut card.firmware, NO_CARD);
    cannot_be(&mut card.firmware_stored, NO_CARD);
    cannot_be(&mut card.board, NO_CARD);
    cannot_be(&mut card.psid, NO_CARD);
    cannot_be(&mut card.versions, NO_CARD);
    cannot_be(&mut card.port_type, NO_CARD);
    cannot_be(&mut card.port_type_desired, NO_CARD);
    cannot_be(&mut card.health, NO_CARD);
    let wire = &mut nic.wire;
    cannot_be(&mut wire.duplex, NO_WIRE);
    cannot_be(&mut wire.fec, NO_WIRE);
    cannot_be(&mut wire.pause, NO_WIRE);
    cannot_be(&mut wire.eee, NO_WIRE);
    cannot_be(&mut wire.module, NO_WIRE);
    cannot_be(&mut nic.shaping.dcb, NO_WIRE);
    if let Known::Value(state) = &mut wire.state {
        cannot_be(&mut state.extended_state, NO_WIRE);
        cannot_be(&mut state.extended_substate, NO_WIRE);
        cannot_be(&mut state.signal_quality, NO_WIRE);
    }
    // The others pass on the settings of their lower interfaces.
    if matches!(
        nic.kind,
        NicKind::Loopback | NicKind::Veth | NicKind::Tun | NicKind::Tunnel
    ) {
        cannot_be(&mut nic.link_bit_per_s, NO_WIRE);
        if let Known::Value(modes) = &mut wire.modes {
            cannot_be(&mut modes.lanes, NO_WIRE);
        }
        if let Known::Value(timestamping) = &mut wire.timestamping {
            cannot_be(&mut timestamping.phc_index, NO_CARD);
        }
    }
}

/// Values that were refused or malformed existed, and keep their gap.
fn cannot_be<T>(fact: &mut Known<T>, why: &str) {
    if let Known::Unknown(gap) = fact
        && matches!(gap.cause, Cause::Absent | Cause::NotSaid | Cause::NotAsked)
    {
        gap.cause = Cause::Inapplicable;
        why.clone_into(&mut gap.reason);
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::build;

    use super::*;

    fn cause<T>(fact: &Known<T>) -> Option<Cause> {
        fact.gap().map(|gap| gap.cause)
    }

    fn marked(kind: NicKind, has_device: bool, missing: Cause) -> Nic {
        fn gap<T>(cause: Cause) -> Known<T> {
            Known::unknown(cause, "p", "r")
        }
        let made = build::host().nic("eth2", |nic| nic.gbit(100)).build();
        let mut nic = made.nics.into_iter().next().expect("an interface");
        nic.kind = kind;
        nic.wire.module = gap(missing);
        nic.pcie = gap(missing);
        nic.rings = gap(missing);
        nic.link_bit_per_s = gap(missing);
        mark(&mut nic, has_device);
        nic
    }

    #[test]
    fn what_a_kind_cannot_have_is_told_from_what_its_driver_does_not_offer() {
        let veth = marked(NicKind::Veth, false, Cause::Absent);
        assert_eq!(cause(&veth.wire.module), Some(Cause::Inapplicable));
        assert_eq!(cause(&veth.pcie), Some(Cause::Inapplicable));
        assert_eq!(cause(&veth.link_bit_per_s), Some(Cause::Inapplicable));
        assert_eq!(cause(&veth.rings), Some(Cause::Absent), "a driver could");
        let bond = marked(NicKind::Bond, false, Cause::NotSaid);
        assert_eq!(
            cause(&bond.link_bit_per_s),
            Some(Cause::NotSaid),
            "that of its slaves"
        );
    }

    #[test]
    fn a_card_an_unknown_kind_and_what_was_refused_keep_their_gaps() {
        for cause_of in [Cause::Denied, Cause::Unreadable] {
            let veth = marked(NicKind::Veth, false, cause_of);
            assert_eq!(cause(&veth.wire.module), Some(cause_of));
            assert_eq!(cause(&veth.pcie), Some(cause_of));
        }
        let card = marked(NicKind::Physical, true, Cause::Absent);
        assert_eq!(cause(&card.wire.module), Some(Cause::Absent));
        assert_eq!(cause(&card.pcie), Some(Cause::Absent));
        let other = marked(NicKind::Other, false, Cause::Absent);
        assert_eq!(cause(&other.wire.module), Some(Cause::Absent));
        assert_eq!(
            cause(&other.pcie),
            Some(Cause::Inapplicable),
            "it has no device"
        );
    }
}
