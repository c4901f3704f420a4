//! A bond in mode active-backup over two switches, joined by a link: no protocol with the switches, the bond alone decides
//! (bonding.rst). Without `miimon` nothing tells it that a link is gone. The server is attached to m1.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::mlag::{M1, M2, host, silent_wire};
use super::plan::{CLIENT, Condition, Fault, Node, Plan, SERVER};

pub(super) fn lay_out(plan: &mut Plan, miimon_ms: u32) {
    plan.nodes.extend([
        Node::host(CLIENT, "client, a bond of two members"),
        Node::host(M1, "first switch, with the server"),
        Node::host(M2, "second switch"),
        Node::host(SERVER, "server"),
    ]);
    plan.bridge(
        M1,
        &[
            ("to-client", "to-m1", CLIENT),
            ("to-server", "eth0", SERVER),
            ("to-m2", "to-m1", M2),
        ],
    );
    plan.bridge(M2, &[("to-client", "to-m2", CLIENT)]);
    plan.batch(M2, ["link set to-m1 master br0 up"]);
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("link add name bond0 type bond mode active-backup miimon {miimon_ms}"),
    ];
    for member in ["to-m1", "to-m2"] {
        lines.push(format!("link set {member} master bond0"));
        lines.push(format!("link set {member} up"));
    }
    // It is taken again when it returns, as a bond with a faster link has it.
    lines.push("link set bond0 type bond primary to-m1".to_owned());
    lines.extend(host("bond0", 10));
    plan.batch(CLIENT, lines);
    let server = ["link set lo up".to_owned()];
    plan.batch(SERVER, server.into_iter().chain(host("eth0", 20)));
    plan.conditions.push(Condition::ActiveMember {
        node: CLIENT,
        bond: "bond0",
        member: "to-m1",
    });
    plan.server = Some((
        Ipv4Addr::new(10, 205, 1, 20),
        Ipv6Addr::new(0xfd05, 0x205, 1, 0, 0, 0, 0, 0x20),
    ));
    faults(plan);
}

fn faults(plan: &mut Plan) {
    plan.faults.extend([
        Fault::down(
            "member-down",
            "the port of m1 to the client goes down, and the active member loses the carrier",
            &[(M1, "to-client")],
        ),
        Fault::down(
            "second-member-down",
            "the port of m2 to the client goes down, and the backup member loses the carrier",
            &[(M2, "to-client")],
        ),
        silent_wire(
            "the wire between the client and m1 loses everything; every carrier is still up, which miimon does not notice",
            [(M1, "to-client"), (CLIENT, "to-m1")],
        ),
        Fault::down(
            "peer-link-down",
            "the link between the switches is set down: the backup member does not reach the server",
            &[(M1, "to-m2")],
        ),
    ]);
}
