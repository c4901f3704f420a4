//! `multipath-neighbor`: a route with several next hops goes on using one whose router is silent. Facts from
//! Documentation/networking/ip-sysctl.rst (`fib_multipath_use_neigh`, `neigh/*`) and RFC 4861, 7.3.

use super::devices::unknown;
use super::facts::{answer, need, sysctl_evidence, sysctl_number};
use super::{ALWAYS, Draft, remedy};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{NeighborTimers, Route};
use crate::known::Gap;
use crate::setting::{Class, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "multipath-neighbor",
    number: 112,
    status: Status::Implemented,
    title: "a route with several next hops goes on using a silent one",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "an IPv4 route with two or more gateways, not of a routing protocol: fib_multipath_use_neigh 0, or neighbor \
                timers by which a silent gateway is given up only after more than 10 s",
    effect: "after a failure that keeps the carrier, the flows of that next hop are lost until the route is changed, or \
             until neighbor unreachability detection ends",
    source: "Documentation/networking/ip-sysctl.rst; RFC 4861, 7.3",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a file in /etc/sysctl.d",
    contested: None,
    page: include_str!("../../../../docs/rules/multipath-neighbor.md"),
    check,
};

const USE_NEIGHBORS: &str = "net.ipv4.fib_multipath_use_neigh";
/// linerate's own: a VRRP backup with the default interval takes over within 4 s, a BGP session with usual timers ends
/// within 9 s.
const PATIENCE_MS: u64 = 10_000;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let routing = &context.host.routing;
    let mut missing: Vec<Gap> = Vec::from_iter(unknown(&routing.routes));
    let routes = routing.routes.value().into_iter().flatten();
    let Some(route) = routes.into_iter().find(|route| is_judged(route)) else {
        return answer(rule, context, "host", None, missing);
    };
    let draft = match sysctl_number(context.host, USE_NEIGHBORS, &mut missing) {
        Some(0) => Some(unused(context, route)),
        Some(_) => slowest(&routing.neighbor_timers, &mut missing)
            .filter(|(_, longest)| *longest > PATIENCE_MS)
            .map(|(timers, longest)| slow(context, route, timers, longest)),
        None => None,
    };
    answer(rule, context, "host", draft, missing)
}

fn is_judged(route: &Route) -> bool {
    let gateways = route.hops.iter().filter(|hop| hop.gateway.is_some());
    !route.is_v6() && !route.is_dynamic() && gateways.count() >= 2
}

fn unused(context: &Context<'_>, route: &Route) -> Draft {
    let key = SettingKey::Sysctl(USE_NEIGHBORS.to_owned());
    Draft {
        severity: Severity::Note,
        subject: format!("route {}", route.destination),
        summary: format!(
            "the kernel goes on sending to each of the {} next hops of {} while its carrier is up, even if its router does \
             not answer: set {USE_NEIGHBORS} to 1",
            route.hops.len(),
            route.destination
        ),
        evidence: vec![sysctl_evidence(USE_NEIGHBORS, 0), hops(route)],
        remedies: Vec::from_iter(remedy(context, key, Value::Text("1".to_owned()))),
    }
}

fn hops(route: &Route) -> Evidence {
    let gateways = route.hops.iter().filter_map(|hop| hop.gateway);
    let gateways: Vec<String> = gateways.map(|gateway| gateway.to_string()).collect();
    Evidence::new("next hops", gateways.join(", "), "netlink/route/routes")
}

/// The interface whose timers give up a silent neighbor last, and after how long at most, in milliseconds.
fn slowest<'a>(
    all: &'a [NeighborTimers],
    missing: &mut Vec<Gap>,
) -> Option<(&'a NeighborTimers, u64)> {
    let timed = all
        .iter()
        .filter_map(|timers| Some((timers, longest(timers, missing)?)));
    timed.max_by_key(|(_, longest)| *longest)
}

/// An entry is valid for up to one and a half times the base; then a packet starts the delay, and unanswered requests
/// follow.
fn longest(timers: &NeighborTimers, missing: &mut Vec<Gap>) -> Option<u64> {
    let base = need(&timers.base_reachable_ms, missing).copied();
    let delay = need(&timers.delay_first_probe_s, missing).copied();
    let count = need(&timers.ucast_solicit, missing).copied();
    let between = need(&timers.retrans_ms, missing).copied();
    let valid = base?.saturating_mul(3) / 2;
    let probes = count?.saturating_mul(between?);
    Some(
        valid
            .saturating_add(delay?.saturating_mul(1_000))
            .saturating_add(probes),
    )
}

fn slow(context: &Context<'_>, route: &Route, timers: &NeighborTimers, longest: u64) -> Draft {
    let nic = &timers.nic;
    let name = format!("net.ipv4.neigh.{nic}.base_reachable_time_ms");
    let path = format!("/proc/sys/net/ipv4/neigh/{nic}/base_reachable_time_ms");
    let base = timers.base_reachable_ms.value().copied().unwrap_or(0);
    let key = SettingKey::Sysctl(name);
    Draft {
        severity: Severity::Note,
        subject: format!("route {}", route.destination),
        summary: format!(
            "a silent next hop of {} on {nic} is used for up to {} s, until neighbor unreachability detection ends: a \
             shorter base_reachable_time_ms than {base} shortens it",
            route.destination,
            longest / 1_000
        ),
        evidence: vec![
            Evidence::new("base_reachable_time_ms", base, path),
            hops(route),
        ],
        remedies: Vec::from_iter(remedy(context, key, Value::Text("3000".to_owned()))),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding};
    use super::*;
    use crate::build;
    use crate::host::{Host, RouteHop};
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("neighbors are not used", || {
                World::of(host("static", 2, "0", 30_000))
            }),
            ("slow timers", || World::of(host("static", 2, "1", 30_000))),
        ],
        silent: &[
            ("short timers", || World::of(host("static", 2, "1", 1_000))),
            ("one next hop", || World::of(host("static", 1, "0", 30_000))),
            ("a routing protocol", || {
                World::of(host("bgp", 2, "0", 30_000))
            }),
        ],
        undetermined: &[
            ("the routes are not known", || {
                let mut host = host("static", 2, "0", 30_000);
                host.routing.routes = Known::not_asked("netlink/route/routes");
                World::of(host)
            }),
            ("the sysctl is not known", || {
                let mut host = host("static", 2, "0", 30_000);
                let gap = Known::not_asked("/proc/sys/net/ipv4/fib_multipath_use_neigh");
                host.sysctls.insert(USE_NEIGHBORS.to_owned(), gap);
                World::of(host)
            }),
        ],
    };

    fn host(protocol: &str, count: u8, use_neighbors: &str, base_reachable_ms: u64) -> Host {
        let mut host = build::host().sysctl(USE_NEIGHBORS, use_neighbors).build();
        let hop = |last| RouteHop {
            gateway: Some(std::net::IpAddr::from([10, 0, 0, last])),
            ..RouteHop::default()
        };
        host.routing.routes = Known::Value(vec![Route {
            destination: "10.9.0.0/16".to_owned(),
            protocol: protocol.to_owned(),
            metric: None,
            nexthop: None,
            hops: (1..=count).map(hop).collect(),
        }]);
        host.routing.neighbor_timers = vec![NeighborTimers {
            nic: "eth0".parse().expect("a name"),
            base_reachable_ms: Known::Value(base_reachable_ms),
            delay_first_probe_s: Known::Value(5),
            ucast_solicit: Known::Value(3),
            retrans_ms: Known::Value(1_000),
        }];
        host
    }

    #[test]
    fn the_default_timers_take_53_seconds() {
        let host = host("static", 2, "1", 30_000);
        let found = finding(RULE.id, &context(&host));
        assert!(found.summary.contains("up to 53 s"), "{}", found.summary);
    }
}
