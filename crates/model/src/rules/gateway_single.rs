//! `gateway-single`: the links are redundant, the router behind them is not. Addresses of virtual routers from RFC 9568,
//! 7.3 (VRRP) and Cisco's documents (HSRP, GLBP); redundant links from Documentation/networking/bonding.rst.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::devices::unknown;
use super::facts::answer;
use super::{ALWAYS, Draft};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Host, Nic, NicKind, Route, RouteHop};
use crate::known::Gap;

pub(super) const RULE: Rule = Rule {
    id: "gateway-single",
    number: 110,
    status: Status::AdviceOnly,
    title: "redundant links lead to a single router",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "all default routes of a family over a bond or team, to one gateway without a virtual MAC address of \
                VRRP, HSRP or GLBP",
    effect: "if the router fails, traffic is interrupted until it is back; with VRRP for 3 to 4 advertisement intervals",
    source: "RFC 9568, 6.1 and 7.3; RFC 2281 (HSRP)",
    fix: Fix::Elsewhere,
    persist: "the routers' configuration: VRRP, or a second default route with its own gateway",
    contested: None,
    page: include_str!("../../../../docs/rules/gateway-single.md"),
    check,
};

/// The first bytes of virtual routers' addresses: VRRP for IPv4 and IPv6, HSRP versions 1 and 2 (IPv4, IPv6), GLBP.
const VIRTUAL: [&str; 6] = [
    "00:00:5e:00:01:",
    "00:00:5e:00:02:",
    "00:00:0c:07:ac:",
    "00:00:0c:9f:f",
    "00:05:73:a0:0",
    "00:07:b4:00:",
];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let host = context.host;
    // Redundant links show that redundancy is wanted.
    if !host.nics.iter().any(is_redundant) {
        return Vec::new();
    }
    let mut missing: Vec<Gap> = Vec::from_iter(unknown(&host.routing.routes));
    let routes = host.routing.routes.value();
    let mut drafts = Vec::new();
    for is_v6 in [false, true] {
        let own = routes.into_iter().flatten();
        let own: Vec<&Route> = own
            .filter(|route| route.is_default() && route.is_v6() == is_v6)
            .collect();
        if let Some(hop) = only_gateway(host, &own) {
            match &hop.mac {
                Some(mac) if is_virtual(mac) => {}
                Some(mac) => drafts.push(draft(hop, mac, own[0])),
                None => missing.push(no_address(hop)),
            }
        }
    }
    answer(rule, context, "host", drafts, missing)
}

fn is_redundant(nic: &Nic) -> bool {
    matches!(nic.kind, NicKind::Bond | NicKind::Team)
}

fn is_virtual(mac: &str) -> bool {
    let mac = mac.to_ascii_lowercase();
    VIRTUAL.iter().any(|prefix| mac.starts_with(prefix))
}

/// The gateway that all `routes` use, over redundant links.
fn only_gateway<'a>(host: &Host, routes: &[&'a Route]) -> Option<&'a RouteHop> {
    let hops = || routes.iter().flat_map(|route| &route.hops);
    let gateways: BTreeSet<IpAddr> = hops().filter_map(|hop| hop.gateway).collect();
    let first = hops().find(|hop| hop.gateway.is_some())?;
    let leaves = first.nic.as_ref().and_then(|name| host.nic(name))?;
    let below = leaves.lower().iter().filter_map(|name| host.nic(name));
    let over_redundant = is_redundant(leaves) || below.into_iter().any(is_redundant);
    (gateways.len() == 1 && over_redundant).then_some(first)
}

fn draft(hop: &RouteHop, mac: &str, route: &Route) -> Draft {
    let gateway = hop.gateway.map(|gateway| gateway.to_string());
    let gateway = gateway.unwrap_or_default();
    let nic = hop.nic.as_ref().map(ToString::to_string);
    let nic = nic.unwrap_or_default();
    Draft {
        severity: Severity::Note,
        subject: format!("route {}", route.destination),
        summary: format!(
            "the links of {nic} are redundant, but its only gateway {gateway} has no virtual MAC address ({mac}): if it is \
             one router, nothing takes over when it fails"
        ),
        evidence: vec![
            Evidence::new("gateway", &gateway, "netlink/route/routes"),
            Evidence::new("its MAC address", mac, "netlink/route/neighbors"),
        ],
        remedies: Vec::new(),
    }
}

fn no_address(hop: &RouteHop) -> Gap {
    let gateway = hop.gateway.map(|gateway| gateway.to_string());
    Gap::new(
        crate::known::Cause::NotSaid,
        "netlink/route/neighbors",
        format!(
            "the neighbor table has no MAC address of {}",
            gateway.unwrap_or_default()
        ),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding};
    use super::*;
    use crate::build;
    use crate::known::Known;

    const REAL: &str = "02:42:ac:11:00:02";
    const VRRP: &str = "00:00:5e:00:01:33";

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("one router", || {
                World::of(host(
                    "0.0.0.0/0",
                    &[("10.0.0.1", Some(REAL))],
                    NicKind::Bond,
                ))
            }),
            ("one router, IPv6", || {
                World::of(host("::/0", &[("fe80::1", Some(REAL))], NicKind::Team))
            }),
        ],
        silent: &[
            ("VRRP", || {
                World::of(host(
                    "0.0.0.0/0",
                    &[("10.0.0.1", Some(VRRP))],
                    NicKind::Bond,
                ))
            }),
            ("two gateways", || {
                let hops = [("10.0.0.1", Some(REAL)), ("10.0.0.2", Some(REAL))];
                World::of(host("0.0.0.0/0", &hops, NicKind::Bond))
            }),
            ("one link", || {
                World::of(host(
                    "0.0.0.0/0",
                    &[("10.0.0.1", Some(REAL))],
                    NicKind::Physical,
                ))
            }),
            ("no default route", || {
                World::of(host(
                    "10.0.0.0/8",
                    &[("10.0.0.1", Some(REAL))],
                    NicKind::Bond,
                ))
            }),
        ],
        undetermined: &[
            ("the neighbor is not known", || {
                World::of(host("0.0.0.0/0", &[("10.0.0.1", None)], NicKind::Bond))
            }),
            ("the routes are not known", || {
                let mut host = host("0.0.0.0/0", &[("10.0.0.1", Some(REAL))], NicKind::Bond);
                host.routing.routes = Known::not_asked("netlink/route/routes");
                World::of(host)
            }),
        ],
    };

    fn host(destination: &str, hops: &[(&str, Option<&str>)], kind: NicKind) -> Host {
        let mut host = build::host()
            .nic("bond0", |nic| nic.with(|nic| nic.kind = kind))
            .build();
        let hops = hops.iter().map(|(gateway, mac)| RouteHop {
            nic: Some("bond0".parse().expect("a name")),
            gateway: Some(gateway.parse().expect("an address")),
            mac: mac.map(str::to_owned),
            is_dead: false,
        });
        host.routing.routes = Known::Value(vec![Route {
            destination: destination.to_owned(),
            protocol: "static".to_owned(),
            metric: None,
            nexthop: None,
            hops: hops.collect(),
        }]);
        host
    }

    #[test]
    fn addresses_of_hsrp_and_glbp_are_virtual_too() {
        for mac in [
            "00:00:0C:07:AC:0A",
            "00:00:0c:9f:f0:01",
            "00:07:b4:00:01:01",
        ] {
            assert!(is_virtual(mac), "{mac}");
        }
        assert!(!is_virtual(REAL));
    }

    #[test]
    fn it_names_the_gateway_and_its_address() {
        let host = host("0.0.0.0/0", &[("10.0.0.1", Some(REAL))], NicKind::Bond);
        let found = finding(RULE.id, &context(&host));
        assert!(found.summary.contains("10.0.0.1") && found.summary.contains(REAL));
    }
}
