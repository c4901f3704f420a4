//! FRR on the four routers of an ECMP network: zebra, bfdd, and bgpd or ospfd with ospf6d (docs.frrouting.org). Each
//! daemon has its own configuration, in the folder that stands in place of `/etc/frr` for it, with the sockets too: the
//! FRR of the machine, if there is one, is not touched.

use std::fmt::Write as _;

use super::ecmp::{A, B, WIRES, Wire};
use super::plan::{ConfigFile, Daemon, Plan, R1, R2};
use super::program::{BFDD, BGPD, OSPF6D, OSPFD, Program, ZEBRA};
use super::spec::Igp;

/// The folder that FRR's own user may use; each daemon sees that of its node there.
pub(super) const HOME: &str = "/etc/frr";

/// A router: its namespace, its AS and the last byte of its router id.
const ROUTERS: [(&str, u32, u8); 4] = [
    (A, 65_001, 1),
    (R1, 65_011, 11),
    (R2, 65_012, 12),
    (B, 65_002, 2),
];

pub(super) fn configure(plan: &mut Plan, igp: Igp, bfd_ms: Option<u32>) {
    for (node, number, id) in ROUTERS {
        // zebra first: the others connect to it.
        let mut daemons: Vec<(&'static Program, String, &[&str])> =
            vec![(&ZEBRA, zebra(node, igp), &[])];
        if let Some(interval) = bfd_ms {
            daemons.push((&BFDD, bfd(interval), &["--bfdctl", "/etc/frr/bfdd.sock"]));
        }
        let is_watched = bfd_ms.is_some();
        if igp == Igp::Bgp {
            daemons.push((&BGPD, bgp(node, number, id, is_watched), &[]));
        } else {
            daemons.push((&OSPFD, ospf(node, id, is_watched, Family::V4), &[]));
            daemons.push((&OSPF6D, ospf(node, id, is_watched, Family::V6), &[]));
        }
        for (program, text, more) in daemons {
            let name = program.name;
            plan.files.push(ConfigFile {
                path: format!("{node}/{name}.conf"),
                text: format!("frr defaults datacenter\nhostname {node}\n{text}"),
            });
            let mut daemon = Daemon::new(node, program);
            let fixed = [
                "--log".to_owned(),
                "stdout".to_owned(),
                "--config_file".to_owned(),
                format!("{HOME}/{name}.conf"),
                "--pid_file".to_owned(),
                format!("{HOME}/{name}.pid"),
                "--socket".to_owned(),
                format!("{HOME}/zserv.api"),
                "--vty_socket".to_owned(),
                HOME.to_owned(),
                // No terminal by TCP.
                "--vty_port".to_owned(),
                "0".to_owned(),
            ];
            daemon.arguments = fixed.to_vec();
            daemon
                .arguments
                .extend(more.iter().map(|word| (*word).to_owned()));
            daemon.covers = Some(HOME);
            daemon.listens = (program == &ZEBRA).then_some("zserv.api");
            plan.daemons.push(daemon);
        }
    }
}

/// An edge sends from its address in the network behind it, which is reached over both next hops: without it, from that
/// of one wire. So the edges themselves can be the ends of a measurement, as hosts that take part in the routing are.
///
/// Routes are without nexthop objects: the kernel removes a nexthop from its groups when its link goes down, and FRR 8.4
/// makes it again, but not as a member, if the link is back before BGP has withdrawn the path.
fn zebra(node: &str, igp: Igp) -> String {
    const NO_OBJECTS: &str = "no zebra nexthop kernel enable\n";
    let Some((network, _)) = network_of(node) else {
        return NO_OBJECTS.to_owned();
    };
    let protocols = match igp {
        Igp::Ospf => ["ospf", "ospf6"],
        Igp::Bgp | Igp::Static => ["bgp", "bgp"],
    };
    let mut text = NO_OBJECTS.to_owned();
    for ((word, protocol), source) in ["ip", "ipv6"].into_iter().zip(protocols).zip([
        format!("10.205.{network}.1"),
        format!("fd05:205:{network}::1"),
    ]) {
        let _ = write!(
            text,
            "route-map {word}-source permit 10\n set src {source}\nexit\n{word} protocol {protocol} route-map {word}-source\n"
        );
    }
    text
}

fn bfd(interval_ms: u32) -> String {
    format!(
        "bfd
 profile fast
  detect-multiplier 3
  receive-interval {interval_ms}
  transmit-interval {interval_ms}
 exit
exit
"
    )
}

/// The wires of a router, each with its interface and the last part of the other end's address.
fn wires_of(node: &str) -> impl Iterator<Item = (&'static Wire, &'static str, u8)> {
    let is_edge = [A, B].contains(&node);
    WIRES.iter().filter_map(move |wire| {
        if is_edge {
            (wire.edge == node).then_some((wire, wire.at_edge, 2))
        } else {
            (wire.middle == node).then_some((wire, wire.at_middle, 1))
        }
    })
}

/// The network behind an edge, and the interface to it.
fn network_of(node: &str) -> Option<(u8, &'static str)> {
    match node {
        A => Some((1, "to-client")),
        B => Some((2, "to-server")),
        _ => None,
    }
}

fn number_of(node: &str) -> u32 {
    let router = ROUTERS.iter().find(|(name, ..)| *name == node);
    router.map_or(0, |(_, number, _)| *number)
}

fn bgp(node: &'static str, number: u32, id: u8, is_watched: bool) -> String {
    let mut text = format!(
        "router bgp {number}
 bgp router-id 10.205.0.{id}
 no bgp ebgp-requires-policy
 no bgp network import-check
 no bgp default ipv4-unicast
 bgp bestpath as-path multipath-relax
 timers bgp 1 3
"
    );
    let mut families = [String::new(), String::new()];
    for (wire, _, other) in wires_of(node) {
        let far = if wire.edge == node {
            wire.middle
        } else {
            wire.edge
        };
        let remote = number_of(far);
        for (peer, family) in [
            format!("10.205.{}.{other}", wire.number),
            format!("fd05:205:{}::{other}", wire.number),
        ]
        .into_iter()
        .zip(&mut families)
        {
            let _ = write!(
                text,
                " neighbor {peer} remote-as {remote}
 neighbor {peer} timers connect 1
 neighbor {peer} advertisement-interval 0
"
            );
            if is_watched {
                let _ = write!(
                    text,
                    " neighbor {peer} bfd\n neighbor {peer} bfd profile fast\n"
                );
            }
            let _ = writeln!(family, "  neighbor {peer} activate");
        }
    }
    for ((name, family), network) in [("ipv4", 0), ("ipv6", 1)]
        .into_iter()
        .map(|(name, at)| (name, &families[at]))
        .zip(["10.205.NUMBER.0/24", "fd05:205:NUMBER::/64"])
    {
        let _ = write!(
            text,
            " address-family {name} unicast\n{family}  maximum-paths 4\n"
        );
        if let Some((own, _)) = network_of(node) {
            let network = network.replace("NUMBER", &own.to_string());
            let _ = writeln!(text, "  network {network}");
        }
        text.push_str(" exit-address-family\n");
    }
    text.push_str("exit\n");
    text
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// The interfaces with `ip ospf bfd` and with its profile: with the profile alone FRR 8.4 starts no session.
fn ospf(node: &'static str, id: u8, is_watched: bool, family: Family) -> String {
    let (prefix, router) = match family {
        Family::V4 => ("ip ospf", "ospf"),
        Family::V6 => ("ipv6 ospf6", "ospf6"),
    };
    let mut text = String::new();
    for (_, interface, _) in wires_of(node) {
        let _ = write!(
            text,
            "interface {interface}
 {prefix} area 0.0.0.0
 {prefix} network point-to-point
 {prefix} hello-interval 1
 {prefix} dead-interval 4
"
        );
        if is_watched {
            let _ = write!(text, " {prefix} bfd\n {prefix} bfd profile fast\n");
        }
        text.push_str("exit\n");
    }
    if let Some((_, interface)) = network_of(node) {
        let _ = write!(
            text,
            "interface {interface}\n {prefix} area 0.0.0.0\n {prefix} passive\nexit\n"
        );
    }
    let id_line = match family {
        Family::V4 => "ospf router-id",
        Family::V6 => "ospf6 router-id",
    };
    let _ = write!(text, "router {router}\n {id_line} 10.205.0.{id}\nexit\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_each_wire_name_each_other() {
        let text = bgp(R1, 65_011, 11, true);
        for peer in [
            "10.205.11.1",
            "10.205.21.1",
            "fd05:205:11::1",
            "fd05:205:21::1",
        ] {
            for line in ["bfd", "bfd profile fast", "activate"] {
                assert!(
                    text.contains(&format!("neighbor {peer} {line}\n")),
                    "{text}"
                );
            }
        }
        assert!(
            text.contains("neighbor 10.205.11.1 remote-as 65001"),
            "{text}"
        );
        assert!(
            text.contains("neighbor 10.205.21.1 remote-as 65002"),
            "{text}"
        );
        assert!(!text.contains("network 10."), "{text}");
        assert!(bgp(A, 65_001, 1, false).contains("  network 10.205.1.0/24\n"));
    }

    #[test]
    fn an_edge_sends_from_its_own_network() {
        assert!(zebra(B, Igp::Bgp).contains(" set src fd05:205:2::1\n"));
        assert!(zebra(A, Igp::Ospf).contains("ipv6 protocol ospf6 route-map ipv6-source\n"));
        assert!(!zebra(R1, Igp::Bgp).contains("route-map"));
    }

    #[test]
    fn bfd_of_ospf_is_requested_and_given_its_profile() {
        for family in [Family::V4, Family::V6] {
            let text = ospf(B, 2, true, family);
            assert_eq!(text.matches(" bfd\n").count(), 2, "{text}");
            assert_eq!(text.matches(" bfd profile fast\n").count(), 2, "{text}");
            assert!(!ospf(B, 2, false, family).contains("bfd"));
        }
    }
}
