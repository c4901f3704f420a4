//! Interface hierarchies with matching and mismatching MTUs.

use super::super::testing::{Cases, World, finding, remedies};
use super::*;
use crate::build::{self, HostBuilder};
use crate::host::{Host, Tunnel};
use crate::known::{Cause, Known};

pub(crate) const CASES: Cases = Cases {
    fires: &[
        ("a VXLAN as large as its underlay", || {
            World::of(tunnel("vxlan", 1500))
        }),
        (
            "a tunnel of which only the interface below is known",
            || World::of(on(NicKind::Tunnel, 1500, &[1500])),
        ),
        ("a VLAN larger than its parent", || {
            World::of(on(NicKind::Vlan, 9000, &[1500]))
        }),
        ("a slave that differs", || {
            World::of(on(NicKind::Bond, 9000, &[9000, 1500]))
        }),
        ("ports of a bridge that differ", || {
            World::of(on(NicKind::Bridge, 1500, &[9000, 1500]))
        }),
        ("two ends of a subnet", || {
            World::of(end(1500, "10.0.0.1/24")).towards(end(9000, "10.0.0.2/24"))
        }),
        ("frames longer than the MTU arrive", || {
            World::of(end(1500, "10.0.0.1/24"))
                .watched(|w| w.grew("nic/eth0/driver/rx_oversize_pkts_phy", 5))
        }),
    ],
    silent: &[
        ("a VXLAN with room for its headers", || {
            World::of(tunnel("vxlan", 1450))
        }),
        ("a tunnel of a kind not known", || {
            World::of(tunnel("other", 1500))
        }),
        ("a VLAN smaller than its parent", || {
            World::of(on(NicKind::Vlan, 1500, &[9000]))
        }),
        ("a bond of equals", || {
            World::of(on(NicKind::Bond, 9000, &[9000, 9000]))
        }),
        ("a bridge without ports", || {
            World::of(on(NicKind::Bridge, 1500, &[]))
        }),
        ("the far end of another subnet", || {
            World::of(end(1500, "10.0.0.1/24")).towards(end(9000, "10.0.1.2/24"))
        }),
    ],
    undetermined: &[("the parent's MTU not read", || {
        let mut host = on(NicKind::Vlan, 9000, &[1500]);
        host.nics[0].mtu = Known::not_asked("/sys/class/net/eth0/mtu");
        World::of(host)
    })],
};

fn end(mtu: u32, address: &str) -> Host {
    let card = build::host().nic("eth0", |nic| {
        nic.with(|nic| {
            nic.mtu = Known::Value(mtu);
            nic.addresses = vec![address.to_owned()].into();
        })
    });
    card.build()
}

/// `eth0`, `eth1` ... of those MTUs.
fn cards(mtus: &[u32]) -> HostBuilder {
    (0..).zip(mtus).fold(build::host(), |host, (at, mtu)| {
        host.nic(&format!("eth{at}"), |nic| {
            nic.with(|nic| nic.mtu = Known::Value(*mtu))
        })
    })
}

fn on(kind: NicKind, mtu: u32, lower: &[u32]) -> Host {
    cards(lower)
        .nic("top0", |nic| {
            nic.veth().with(|nic| {
                nic.kind = kind;
                nic.mtu = Known::Value(mtu);
                let names = (0..lower.len()).map(|at| format!("eth{at}").parse().expect("a name"));
                nic.lower = Known::Value(names.collect());
            })
        })
        .build()
}

fn tunnel(kind: &str, mtu: u32) -> Host {
    let mut host = on(NicKind::Tunnel, mtu, &[1500]);
    host.nics[1].stack.tunnel = Some(Tunnel {
        kind: Known::Value(kind.to_owned()),
        link: Known::Value("eth0".parse().expect("a name")),
        local: Known::unknown(Cause::Absent, "IFLA_VXLAN_LOCAL", "none"),
        remote: Known::unknown(Cause::Absent, "IFLA_VXLAN_GROUP", "none"),
        ..Tunnel::default()
    });
    host
}

#[test]
fn a_tunnel_is_made_to_fit_also_over_ipv6() {
    let mut host = tunnel("vxlan", 1500);
    let said = finding(RULE.id, &World::of(host.clone()).context());
    assert_eq!(said.severity, Severity::Crit);
    assert_eq!(said.subject, "nic/top0");
    assert_eq!(remedies(&said), ["nic/top0/mtu: 1500 -> 1450"]);
    let tunnel = host.nics[1].stack.tunnel.as_mut().expect("a tunnel");
    tunnel.remote = Known::Value("2001:db8::1".to_owned());
    let said = finding(RULE.id, &World::of(host).context());
    assert_eq!(remedies(&said), ["nic/top0/mtu: 1500 -> 1430"]);
}

#[test]
fn a_slave_follows_its_bond_and_a_bridge_is_only_told() {
    let said = finding(
        RULE.id,
        &World::of(on(NicKind::Bond, 9000, &[9000, 1500])).context(),
    );
    assert_eq!(remedies(&said), ["nic/eth1/mtu: 1500 -> 9000"]);
    let said = finding(
        RULE.id,
        &World::of(on(NicKind::Bridge, 1500, &[9000, 1500])).context(),
    );
    assert_eq!((said.severity, said.remedies), (Severity::Warn, vec![]));
}

#[test]
fn of_two_ends_the_smaller_one_is_raised() {
    let (small, large) = (end(1500, "10.0.0.1/24"), end(9000, "10.0.0.2/24"));
    let said = finding(
        RULE.id,
        &World::of(small.clone()).towards(large.clone()).context(),
    );
    assert_eq!(remedies(&said), ["nic/eth0/mtu: 1500 -> 9000"]);
    let said = finding(RULE.id, &World::of(large).towards(small).context());
    assert_eq!(remedies(&said), [""; 0]);
}

#[test]
fn who_asks_for_a_nic_hears_of_the_vlan_on_it() {
    let host = on(NicKind::Vlan, 9000, &[1500]);
    let world = World::of(host);
    let name = "eth0".parse().expect("a name");
    let context = Context {
        nic: Some(&name),
        ..world.context()
    };
    assert_eq!(finding(RULE.id, &context).subject, "nic/eth0");
}
