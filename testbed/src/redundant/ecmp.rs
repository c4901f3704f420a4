//! Two next hops of equal cost at each side: client, router a, {r1, r2}, router b, server. The routes come from FRR (BGP,
//! or OSPF for both families, with or without BFD), or are static with nexthop groups (ip-nexthop(8)). Flows are
//! spread by ports: `fib_multipath_hash_policy=1`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::frr;
use super::plan::{CLIENT, Condition, Fault, Node, Plan, R1, R2, SERVER, quoted};
use super::program::NFT;
use super::spec::Igp;

pub(super) const A: &str = "lr-a";
pub(super) const B: &str = "lr-b";

/// A wire between an edge router and a middle one: `10.205.NUMBER.0/30` and `fd05:205:NUMBER::/64`, the edge at 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wire {
    pub(super) edge: &'static str,
    pub(super) middle: &'static str,
    /// The edge's interface.
    pub(super) at_edge: &'static str,
    /// The middle router's interface.
    pub(super) at_middle: &'static str,
    pub(super) number: u8,
}

pub(super) const WIRES: [Wire; 4] = [
    Wire {
        edge: A,
        middle: R1,
        at_edge: "to-r1",
        at_middle: "to-a",
        number: 11,
    },
    Wire {
        edge: A,
        middle: R2,
        at_edge: "to-r2",
        at_middle: "to-a",
        number: 12,
    },
    Wire {
        edge: B,
        middle: R1,
        at_edge: "to-r1",
        at_middle: "to-b",
        number: 21,
    },
    Wire {
        edge: B,
        middle: R2,
        at_edge: "to-r2",
        at_middle: "to-b",
        number: 22,
    },
];

/// The edges: the namespace, its network, the host behind it and the interface to it.
const EDGES: [(&str, u8, &str, &str); 2] =
    [(A, 1, CLIENT, "to-client"), (B, 2, SERVER, "to-server")];

pub(super) fn lay_out(
    plan: &mut Plan,
    igp: Igp,
    bfd_ms: Option<u32>,
    resilient: bool,
    folder: &Path,
) {
    plan.nodes.extend([
        Node::host(CLIENT, "client"),
        Node::router(A, "router on the client's side, two next hops"),
        Node::router(R1, "first next hop"),
        Node::router(R2, "second next hop"),
        Node::router(B, "router on the server's side, two next hops"),
        Node::host(SERVER, "server"),
    ]);
    for (edge, network, host, interface) in EDGES {
        let mut lines = vec![
            "link set lo up".to_owned(),
            format!("link add name {interface} type veth peer name eth0 netns {host}"),
            format!("address add 10.205.{network}.1/24 dev {interface}"),
            format!("address add fd05:205:{network}::1/64 dev {interface} nodad"),
            format!("link set {interface} up"),
        ];
        for wire in WIRES.iter().filter(|wire| wire.edge == edge) {
            lines.push(format!(
                "link add name {} type veth peer name {} netns {}",
                wire.at_edge, wire.at_middle, wire.middle
            ));
            lines.extend(end_of(wire.at_edge, wire.number, 1));
        }
        plan.batch(edge, lines);
    }
    for middle in [R1, R2] {
        let mut lines = vec!["link set lo up".to_owned()];
        for wire in WIRES.iter().filter(|wire| wire.middle == middle) {
            lines.extend(end_of(wire.at_middle, wire.number, 2));
        }
        plan.batch(middle, lines);
    }
    plan.client();
    plan.routed_server();
    let routes = if igp == Igp::Static {
        static_routes(plan, resilient, folder)
    } else {
        frr::configure(plan, igp, bfd_ms);
        RoutesAgain::default()
    };
    conditions(plan);
    faults(plan, igp, &routes);
}

/// What adds static routes again, each with a leading ` && `: a link that goes down takes its nexthop out of the group
/// and its routes out of the table for good.
#[derive(Debug, Default)]
struct RoutesAgain {
    of_r1: String,
    of_edges: String,
}

fn end_of(interface: &str, number: u8, host: u8) -> [String; 3] {
    [
        format!("address add 10.205.{number}.{host}/30 dev {interface}"),
        format!("address add fd05:205:{number}::{host}/64 dev {interface} nodad"),
        format!("link set {interface} up"),
    ]
}

fn static_routes(plan: &mut Plan, resilient: bool, folder: &Path) -> RoutesAgain {
    let mut again = RoutesAgain::default();
    let repeat = |plan: &Plan, node: &str| {
        format!(
            " && ip -n {node} -batch {}",
            quoted(&plan.last_batch(folder))
        )
    };
    for middle in [R1, R2] {
        let lines = WIRES.iter().filter(|wire| wire.middle == middle);
        let lines = lines.flat_map(|wire| {
            let network = if wire.edge == A { 1 } else { 2 };
            let (number, nic) = (wire.number, wire.at_middle);
            [
                format!("route replace 10.205.{network}.0/24 via 10.205.{number}.1 dev {nic}"),
                format!("route replace fd05:205:{network}::/64 via fd05:205:{number}::1 dev {nic}"),
            ]
        });
        plan.batch(middle, lines);
        if middle == R1 {
            again.of_r1 = repeat(plan, R1);
        }
    }
    let kind = if resilient {
        " type resilient buckets 64 idle_timer 1"
    } else {
        ""
    };
    for (edge, network) in [(A, 2), (B, 1)] {
        let mut lines = Vec::new();
        let own = 3 - network;
        for (id, wire) in (1..).zip(WIRES.iter().filter(|wire| wire.edge == edge)) {
            let (number, nic) = (wire.number, wire.at_edge);
            lines.push(format!(
                "nexthop replace id {id} via 10.205.{number}.2 dev {nic}"
            ));
            lines.push(format!(
                "nexthop replace id 6{id} via fd05:205:{number}::2 dev {nic}"
            ));
        }
        lines.extend([
            format!("nexthop replace id 10 group 1/2{kind}"),
            format!("nexthop replace id 60 group 61/62{kind}"),
            format!("route replace 10.205.{network}.0/24 nhid 10 src 10.205.{own}.1"),
            format!("route replace fd05:205:{network}::/64 nhid 60 src fd05:205:{own}::1"),
        ]);
        plan.batch(edge, lines);
        let of_edge = repeat(plan, edge);
        again.of_edges.push_str(&of_edge);
    }
    again
}

fn conditions(plan: &mut Plan) {
    for (node, network) in [(A, 2), (B, 1)] {
        let network16 = u16::from(network);
        for (to, prefix) in [
            (IpAddr::V4(Ipv4Addr::new(10, 205, network, 0)), 24),
            (
                IpAddr::V6(Ipv6Addr::new(0xfd05, 0x205, network16, 0, 0, 0, 0, 0)),
                64,
            ),
        ] {
            plan.conditions.push(Condition::NextHops {
                node,
                to,
                prefix,
                count: 2,
            });
        }
    }
}

fn faults(plan: &mut Plan, igp: Igp, again: &RoutesAgain) {
    let downs = [
        Fault::down(
            "link-down",
            "the interface of router a to r1 is set down",
            &[(A, "to-r1")],
        ),
        Fault::down(
            "carrier-loss",
            "r1's interface to router a goes down, and router a loses the carrier",
            &[(R1, "to-a")],
        ),
        Fault::down(
            "router-down",
            "both interfaces of r1 go down, and routers a and b lose the carrier",
            &[(R1, "to-a"), (R1, "to-b")],
        ),
    ];
    for mut fault in downs {
        if fault.name != "link-down" {
            fault.restore.push_str(&again.of_r1);
        }
        fault.restore.push_str(&again.of_edges);
        plan.faults.push(fault);
    }
    plan.faults.push(
        Fault::new(
            "dead-router",
            "r1 receives and sends nothing, its routing protocol included; every carrier is still up",
            "ip netns exec lr-r1 nft 'add table inet lr_fault; \
             add chain inet lr_fault in { type filter hook prerouting priority -300; policy drop; }; \
             add chain inet lr_fault out { type filter hook output priority -300; policy drop; }'",
            "ip netns exec lr-r1 nft delete table inet lr_fault",
        )
        .with(&NFT),
    );
    plan.faults.push(
        Fault::new(
            "dead-forwarding",
            "r1 forwards nothing, but its routing protocol and BFD are alive",
            "ip netns exec lr-r1 nft 'add table inet lr_fault; \
             add chain inet lr_fault forward { type filter hook forward priority -300; policy drop; }'",
            "ip netns exec lr-r1 nft delete table inet lr_fault",
        )
        .with(&NFT),
    );
    if igp != Igp::Static {
        plan.faults.push(Fault::new(
            "daemon-killed",
            "FRR on r1 is killed (SIGKILL)",
            "linerate testbed redundant stop lr-r1 --kill",
            "linerate testbed redundant start lr-r1",
        ));
    }
}
