//! A stand-in for MAGP: the same gateway address and MAC on both routers, on a macvlan over the interface to each
//! switch. The switch delivers a frame to the router from which it last saw that MAC. A peer link between the routers
//! carries what the other router must deliver after a link has gone.
//!
//! It shows the data path only: not the vendor's protocol, and no isolation of the MAC.

use super::plan::{Fault, Plan, R1, R2};
use super::vrrp;

pub(super) fn lay_out(plan: &mut Plan) {
    vrrp::routers_between_switches(plan);
    for (node, own, peer) in [(R1, 1, 2), (R2, 2, 1)] {
        let mut lines = vec!["link set lo up".to_owned()];
        if node == R1 {
            lines.push("link add name to-r2 type veth peer name to-r1 netns lr-r2".to_owned());
        }
        let wire = format!("to-r{peer}");
        lines.push(format!("address add 10.205.9.{own}/30 dev {wire}"));
        lines.push(format!("address add fd05:205:9::{own}/64 dev {wire} nodad"));
        lines.push(format!("link set {wire} up"));
        for side in [1, 2] {
            let nic = format!("to-sw{side}");
            let gateway = format!("gw{side}");
            lines.extend([
                format!("address add 10.205.{side}.1{own}/24 dev {nic}"),
                format!("address add fd05:205:{side}::1{own}/64 dev {nic} nodad"),
                format!("link set {nic} up"),
                format!(
                    "link add link {nic} name {gateway} address 00:00:5e:00:02:0{side} type macvlan mode bridge"
                ),
                // Both routers would have the same link-local address.
                format!("link set {gateway} addrgenmode none"),
                format!("address add 10.205.{side}.1/32 dev {gateway}"),
                format!("address add fd05:205:{side}::1/128 dev {gateway} nodad"),
                format!("link set {gateway} up"),
                format!("route add 10.205.{side}.0/24 via 10.205.9.{peer} metric 100"),
                format!("route add fd05:205:{side}::/64 via fd05:205:9::{peer} dev {wire} metric 2000"),
            ]);
        }
        plan.batch(node, lines);
    }
    plan.faults.extend(vrrp::link_faults());
    plan.faults.push(Fault::down(
        "peer-link-down",
        "the link between the two routers is set down",
        &[(R1, "to-r2")],
    ));
}
