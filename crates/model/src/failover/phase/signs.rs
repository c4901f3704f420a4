//! The signs of a failure among the events of both ends, each with the time that its mechanism is expected to take.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::super::events::{BondMember, Change, Event, Hop, LinkState, VrrpSeries};
use super::{At, Incident, Interruption, Mechanism, Observation, Range, Timer, Trace};
use crate::end::End;
use crate::ids::NicName;
use crate::units::Nanoseconds;

/// How often LACP sends (IEEE 802.1AX, 6.4.4: Fast_Periodic_Time, Slow_Periodic_Time).
const LACP_FAST: Nanoseconds = Nanoseconds::from_millis(1_000);
const LACP_SLOW: Nanoseconds = Nanoseconds::from_millis(30_000);
/// The time-out of LACP that separates the two rates.
const LACP_TIMEOUT_FAST: Nanoseconds = Nanoseconds::from_millis(3_000);

/// A sign that an end, or a router that it hears, has detected the failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sign {
    pub(super) at: At,
    pub(super) end: End,
    pub(super) mechanism: Mechanism,
    /// A clause: "eth0 lost its carrier".
    pub(super) what: String,
    pub(super) expected: Option<Range>,
    /// The advertisements that stopped, of a takeover by VRRP.
    advert: Option<(u8, Nanoseconds)>,
    path: &'static str,
}

/// The signs of `outage`, the earliest first: from its cause (or its begin) to its end, and before it was restored.
pub(super) fn signs(incident: &Incident<'_>, outage: Interruption) -> Vec<Sign> {
    let cause = incident.caused.unwrap_or(outage.begin).min(outage.begin);
    let from = cause.minus(incident.resolution);
    let mut to = outage.end.plus(incident.resolution);
    if let Some(restored) = incident.restored {
        // What follows the restoration is a sign of it.
        to = to.min(restored);
    }
    let mut all: Vec<Sign> = Vec::new();
    for trace in incident.traces {
        let mut known = BTreeMap::new();
        for event in &trace.events.events {
            // A master repeats its announcements.
            let is_known = announced(&event.change)
                .is_some_and(|(address, mac)| known.insert(address, mac) == Some(mac));
            if !is_known {
                all.extend(of_event(trace, event));
            }
        }
        all.extend(takeovers(trace));
    }
    all.retain(|sign| sign.at >= from && sign.at <= to);
    all.sort_by_key(|sign| sign.at);
    for sign in &mut all {
        if sign.mechanism == Mechanism::Routing {
            let took = sign.at.since(outage.begin);
            sign.expect_timer(incident.timers, took, incident.resolution);
        }
    }
    all
}

/// An address and the link-layer address at which it was said to be.
fn announced(change: &Change) -> Option<(IpAddr, &str)> {
    match change {
        Change::Arp { address, mac, .. } | Change::NeighborAdvertisement { address, mac, .. } => {
            Some((*address, mac))
        }
        _ => None,
    }
}

fn of_event(trace: &Trace<'_>, event: &Event) -> Option<Sign> {
    let sign = |mechanism, what: String, path| Sign {
        at: trace.at(event.at_ns),
        end: trace.end,
        mechanism,
        what,
        expected: None,
        advert: None,
        path,
    };
    if let Some(what) = rerouted(&event.change) {
        return Some(sign(Mechanism::Routing, what, "rtnetlink(7)"));
    }
    Some(match &event.change {
        Change::Link(link) => {
            let what = lost_link(link, &trace.events.nics)?;
            sign(Mechanism::Carrier, what, "rtnetlink(7)")
        }
        Change::BondMember(member) => {
            let (mechanism, what) = lost_member(member)?;
            let expected = (mechanism == Mechanism::Lacp)
                .then(|| lacp_range(member))
                .flatten();
            Sign {
                expected,
                ..sign(mechanism, what, "IFLA_BOND_SLAVE_*")
            }
        }
        Change::Neighbor {
            nic,
            address,
            state,
            ..
        } if state == "failed" => {
            let what = format!("the neighbor entry of {address} on {nic} failed");
            sign(Mechanism::Neighbor, what, "rtnetlink(7)")
        }
        Change::Arp {
            nic,
            address,
            mac,
            gratuitous: true,
            ..
        } => moved("a gratuitous ARP", nic, *address, mac, sign),
        Change::NeighborAdvertisement {
            nic,
            address,
            mac,
            solicited: false,
            ..
        } => moved("an unsolicited advertisement", nic, *address, mac, sign),
        _ => return None,
    })
}

/// How a route or a nexthop changed.
fn rerouted(change: &Change) -> Option<String> {
    Some(match change {
        Change::Route(route) => {
            let verb = if route.removed {
                "was withdrawn"
            } else {
                "changed"
            };
            let hops = hops(&route.next_hops);
            let (protocol, to) = (&route.protocol, &route.destination);
            format!("the {protocol} route to {to}{hops} {verb}")
        }
        Change::NextHop(object) => {
            let verb = if object.removed {
                "was removed"
            } else {
                "changed"
            };
            let hop = object.hop.iter().cloned().collect::<Vec<_>>();
            let kind = if object.hop.is_some() {
                "nexthop"
            } else {
                "nexthop group"
            };
            format!("{kind} {}{} {verb}", object.id, hops(&hop))
        }
        Change::Bucket { group, .. } => format!("buckets of nexthop group {group} moved"),
        _ => return None,
    })
}

fn moved(
    how: &str,
    nic: &NicName,
    address: IpAddr,
    mac: &str,
    sign: impl FnOnce(Mechanism, String, &'static str) -> Sign,
) -> Sign {
    let what = format!("{how} on {nic} announced {address} at {mac}");
    sign(Mechanism::GatewayMoved, what, "packet(7)")
}

fn lost_link(link: &LinkState, path: &[NicName]) -> Option<String> {
    // Other interfaces come and go with containers.
    if link.carries() || !(path.is_empty() || path.contains(&link.nic)) {
        return None;
    }
    let nic = &link.nic;
    Some(if link.removed {
        format!("{nic} was removed")
    } else if link.up {
        format!("{nic} lost its carrier")
    } else {
        format!("{nic} was set down")
    })
}

fn lost_member(member: &BondMember) -> Option<(Mechanism, String)> {
    if member.carries() {
        return None;
    }
    let (nic, bond) = (&member.nic, &member.bond);
    if member.mii_status != "up" {
        let what = format!(
            "link monitoring of {bond} found {nic} {}",
            member.mii_status
        );
        return Some((Mechanism::LinkMonitoring, what));
    }
    let what = format!("LACP of {bond} no longer heard the partner on {nic}");
    Some((Mechanism::Lacp, what))
}

fn lacp_range(member: &BondMember) -> Option<Range> {
    let timeout = member.lacp_timeout()?;
    let interval = if timeout <= LACP_TIMEOUT_FAST {
        LACP_FAST
    } else {
        LACP_SLOW
    };
    Some(Range::of_timeout(timeout, interval))
}

fn hops(hops: &[Hop]) -> String {
    let gateways: Vec<String> = hops
        .iter()
        .filter_map(|hop| hop.gateway.map(|gateway| gateway.to_string()))
        .collect();
    if gateways.is_empty() {
        String::new()
    } else {
        format!(" via {}", gateways.join(", "))
    }
}

/// The virtual routers whose advertisements come from another router than before.
fn takeovers(trace: &Trace<'_>) -> Vec<Sign> {
    let all = &trace.events.vrrp;
    let same = |one: &VrrpSeries, other: &VrrpSeries| {
        (&one.nic, one.router_id, one.source.is_ipv4())
            == (&other.nic, other.router_id, other.source.is_ipv4())
    };
    let mut signs = Vec::new();
    for (index, new) in all.iter().enumerate() {
        let earlier = all[..index].iter().rfind(|own| same(own, new));
        let Some(old) = earlier.filter(|old| old.source != new.source) else {
            continue;
        };
        // A master that gives up advertises priority 0; the backup then waits only for its skew.
        let expected = if old.priority == 0 {
            let skew = new.master_down(new.priority).as_u64();
            let skew = skew.saturating_sub(new.interval_ns.as_u64().saturating_mul(3));
            Range {
                min_ns: Nanoseconds::new(0),
                max_ns: Nanoseconds::new(skew),
            }
        } else {
            Range::of_timeout(old.master_down(new.priority), old.interval_ns)
        };
        signs.push(Sign {
            at: trace.at(new.first_ns),
            end: trace.end,
            mechanism: Mechanism::Vrrp,
            what: format!(
                "{} took over virtual router {} from {} (advertisements every {} on {})",
                new.source, new.router_id, old.source, old.interval_ns, new.nic
            ),
            expected: Some(expected),
            advert: Some((old.version, old.interval_ns)),
            path: "packet(7)",
        });
    }
    signs
}

impl Sign {
    /// As evidence, with its time since `begin`.
    pub(super) fn evidence(&self, begin: At) -> Observation {
        let (sign, time) = if self.at >= begin {
            ("+", self.at.since(begin))
        } else {
            ("-", begin.since(self.at))
        };
        let what = format!("{}: {}", self.end, self.what);
        Observation::new(what, format!("{sign}{time}"), self.path)
    }

    /// The first configured time-out that expires within the time that it took.
    fn expect_timer(&mut self, timers: &[Timer], took: Nanoseconds, resolution: Nanoseconds) {
        let expires = |timer: &&Timer| {
            let min = timer.range().min_ns.as_u64();
            min.saturating_sub(resolution.as_u64()) <= took.as_u64()
        };
        // The shortest acts first; one that is longer than it took has not expired.
        let timer = timers
            .iter()
            .filter(expires)
            .min_by_key(|timer| timer.timeout_ns);
        if let Some(timer) = timer {
            self.expected = Some(timer.range());
            self.what = format!("{} by {}", self.what, timer.protocol.name());
        }
    }

    /// What would shorten detection.
    pub(super) fn detection_advice(&self) -> Option<String> {
        match self.mechanism {
            Mechanism::Vrrp => {
                let (version, interval) = self.advert?;
                Some(if version == 2 {
                    "VRRP version 3 allows intervals below 1 s: with `advert_int 0.1` a backup takes over within 0.4 s"
                        .to_owned()
                } else if interval > Nanoseconds::from_millis(100) {
                    format!(
                        "a backup takes over 3 to 4 advertisement intervals after the last advertisement; with \
                         `advert_int 0.1` instead of {interval} within 0.4 s"
                    )
                } else {
                    "shorter advertisement intervals, or BFD between the routers, detect earlier"
                        .to_owned()
                })
            }
            Mechanism::Lacp => {
                let slow = self
                    .expected
                    .is_some_and(|range| range.max_ns > LACP_TIMEOUT_FAST);
                Some(if slow {
                    "`lacp_rate fast` makes the time-out of LACP 3 s instead of 90 s; set it at the switch too \
                     (rule lacp-rate-slow)"
                        .to_owned()
                } else {
                    "LACP detects no faster than 2 to 3 s; a failure that takes the carrier away is found by \
                     `miimon` within its interval"
                        .to_owned()
                })
            }
            Mechanism::Routing => Some(match self.expected {
                Some(range) if range.max_ns <= Nanoseconds::from_millis(200) => {
                    "shorter BFD intervals detect earlier, if the routers sustain them".to_owned()
                }
                _ => "BFD with 50 ms x 3 detects the failure within 150 ms".to_owned(),
            }),
            Mechanism::LinkMonitoring => {
                Some("a shorter `miimon` of the bond; 100 ms is usual".to_owned())
            }
            Mechanism::Neighbor => Some(
                "the kernel probes a silent neighbor only after `base_reachable_time_ms` and \
                 `delay_first_probe_time` (rule multipath-neighbor); VRRP, BFD or a routing protocol detect earlier"
                    .to_owned(),
            ),
            Mechanism::Carrier | Mechanism::GatewayMoved => None,
        }
    }

    /// What would shorten convergence.
    pub(super) fn convergence_advice(&self) -> Option<String> {
        let text = match self.mechanism {
            Mechanism::Vrrp | Mechanism::GatewayMoved => {
                "switches and hosts must learn the new router: gratuitous ARP at once and repeated \
                 (`vrrp_garp_master_delay 0`, `vrrp_garp_master_repeat`)"
            }
            Mechanism::Carrier | Mechanism::LinkMonitoring | Mechanism::Lacp => {
                "a second path that is ready: another member of a bond that monitors its links (`miimon 100`, `updelay 0`, \
                 `num_grat_arp`; rule bond-unmonitored), an ECMP route, or BFD at the end that does not see the carrier"
            }
            Mechanism::Routing => {
                "a next hop that is installed already: ECMP, or a nexthop group (`ip nexthop`; rule nexthop-group), \
                 changes without a new route"
            }
            Mechanism::Neighbor => return None,
        };
        Some(text.to_owned())
    }
}

/// Why nothing took over until the failure was restored, and what would.
pub(super) fn undetected(incident: &Incident<'_>, outage: Interruption) -> (String, String) {
    let mut silent = None;
    let mut heard = None;
    for trace in incident.traces {
        for series in &trace.events.vrrp {
            let (first, last) = (trace.at(series.first_ns), trace.at(series.last_ns));
            let down = series.master_down(series.priority);
            let pause = series.interval_ns.as_u64().saturating_mul(2);
            let pause = Nanoseconds::new(pause);
            if first > outage.begin.plus(pause) {
                continue;
            }
            if last.plus(pause) >= outage.end {
                heard = Some((trace.end, series));
            } else if last.plus(down) < outage.end && last.plus(pause) >= outage.begin {
                silent = Some((trace.end, series));
            }
        }
    }
    let checked = "a check of the path itself (`track_interface`, `track_script`, BFD) makes the master give up";
    match (silent, heard) {
        (Some((end, series)), Some((other, _))) => (
            format!(
                "advertisements of {} stopped at the {end} end and went on at the {other} end, and no backup took over",
                series.source
            ),
            format!("with a sync group the backup takes over only when all instances are silent; {checked}"),
        ),
        (Some((end, series)), None) => (
            format!(
                "advertisements of {} stopped at the {end} end, and no backup took over",
                series.source
            ),
            format!("a backup router with a lower priority; {checked}"),
        ),
        (None, Some((end, series))) => (
            format!(
                "{} went on advertising at the {end} end while it did not forward",
                series.source
            ),
            checked.to_owned(),
        ),
        (None, None) => (
            "nothing that either end can see detected the failure".to_owned(),
            "a check of the forwarding path: BFD to the next hop, or a script that the router tracks".to_owned(),
        ),
    }
}
